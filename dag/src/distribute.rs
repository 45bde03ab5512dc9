//! From dependences to streams: the stream and order of every node, and the remaining waits.
//!
//! A reduced edge needs no wait if its ends are adjacent on a stream. A node has one neighbor on either side, so such
//! edges form a matching, and a maximum matching leaves the fewest waits: reduced edges minus matched ones. The
//! matched edges chain the nodes into paths; paths that can never run at the same time share a stream.

use std::collections::HashMap;

use serde::Serialize;

use super::dependence::Dependences;
use super::lists::SharedLists;
use super::matching::Matching;
use super::program::{Direction, NodeId, NodeWork, Program};
use super::times::Times;
use super::waits::with_waits;

/// A wait of a node for an earlier one on another stream, through an event recorded right after the earlier node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeWait {
    /// The earlier node.
    pub before: NodeId,
    /// The later node.
    pub after: NodeId,
}

/// Waits of all nodes of one set for all nodes of another, through a point at which those of the first are done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Join {
    /// The earlier nodes.
    pub before: Vec<usize>,
    /// The later nodes, in the order of issue.
    pub after: Vec<usize>,
}

impl Join {
    /// The number of waits: into it and out of it.
    pub fn waits(&self) -> usize {
        self.before.len() + self.after.len()
    }
}

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Kernels of zones of this priority.
    Kernels {
        /// Larger values run earlier.
        priority: i32,
    },
    /// Copies in one direction: they have their own engine and never queue behind a kernel.
    Copies(Direction),
}

/// Nodes on streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// All nodes in issue order: no node precedes one it depends on.
    pub order: Vec<NodeId>,
    /// The stream of each node, an index into `lanes`. Nodes of a stream run in the order of `order`.
    pub stream: Vec<u32>,
    /// The streams.
    pub lanes: Vec<Lane>,
    /// Waits not implied by stream order or joins, sorted by the position of `after` in `order`.
    pub waits: Vec<NodeWait>,
    /// Waits of many nodes for many others.
    pub joins: Vec<Join>,
}

impl Distribution {
    /// Consecutive nodes on a stream.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut last = vec![None; self.streams()];
        self.order.iter().filter_map(move |id| {
            let before: Option<usize> = last[self.stream[id.index()] as usize].replace(id.index());
            before.map(|before| (before, id.index()))
        })
    }

    /// Number of waits, those into and out of joins included.
    pub fn wait_count(&self) -> usize {
        self.waits.len() + self.joins.iter().map(Join::waits).sum::<usize>()
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.lanes.len()
    }
}

/// Nodes in the same lane may share a stream.
pub(super) fn lane_of(program: &Program, id: NodeId) -> Lane {
    let node = program.node(id);
    match node.work {
        NodeWork::Copy { direction, .. } => Lane::Copies(direction),
        NodeWork::Kernel(_) => Lane::Kernels { priority: program.priority(id) },
    }
}

/// Full concurrency with the fewest waits.
pub fn all_concurrency(program: &Program, dependences: &Dependences, times: &Times) -> Distribution {
    let matching = neighbours(program, dependences, times, lane_of);
    distribute(program, dependences, times, times.issue_order(program), &matching, lane_of)
}

/// [`all_concurrency`] and [`as_written`].
pub(super) fn both(
    program: &Program,
    dependences: &Dependences,
    times: &Times,
) -> (Distribution, Distribution) {
    // They differ in the lanes of copies.
    if program.nodes().iter().any(|node| node.kernel().is_none()) {
        return (all_concurrency(program, dependences, times), as_written(program, dependences, times));
    }
    let matching = neighbours(program, dependences, times, lane_of);
    let in_order = |order| distribute(program, dependences, times, order, &matching, lane_of);
    (in_order(times.issue_order(program)), in_order(dependences.order.clone()))
}

/// Full concurrency as written by hand: in program order, with copies on the streams of their kernels where that needs
/// no wait.
pub fn as_written(program: &Program, dependences: &Dependences, times: &Times) -> Distribution {
    let lane = |program: &Program, id: NodeId| Lane::Kernels { priority: program.priority(id) };
    let matching = neighbours(program, dependences, times, lane);
    distribute(program, dependences, times, dependences.order.clone(), &matching, lane)
}

fn distribute(
    program: &Program,
    dependences: &Dependences,
    times: &Times,
    order: Vec<NodeId>,
    matching: &Matching,
    lane_of: impl Fn(&Program, NodeId) -> Lane,
) -> Distribution {
    let n = program.nodes().len();
    let mut streams = Streams { lanes: Vec::new(), tails: Vec::new() };
    let mut stream = vec![u32::MAX; n];
    for &id in &order {
        let lane = lane_of(program, id);
        let on = match (lane, matching.previous[id.index()]) {
            (Lane::Copies(_), _) => streams.same_lane(lane),
            (_, Some(before)) => Some(stream[before] as usize),
            // A node without predecessors has no earlier path to follow.
            (_, None) if times.level[id.index()] == 0 => None,
            (_, None) => streams.ended(lane, id, dependences, times, matching),
        };
        let on = on.unwrap_or_else(|| streams.open(lane));
        streams.tails[on] = Some(id);
        stream[id.index()] = on as u32;
    }
    with_waits(dependences, order, stream, streams.lanes)
}

struct Streams {
    lanes: Vec<Lane>,
    /// The last node of each stream so far.
    tails: Vec<Option<NodeId>>,
}

impl Streams {
    fn open(&mut self, lane: Lane) -> usize {
        self.lanes.push(lane);
        self.tails.push(None);
        self.lanes.len() - 1
    }

    fn same_lane(&self, lane: Lane) -> Option<usize> {
        self.lanes.iter().position(|&l| l == lane)
    }

    /// The stream with an ended path that is always done before `id` starts; among several, the one that ends last.
    fn ended(
        &self,
        lane: Lane,
        id: NodeId,
        dependences: &Dependences,
        times: &Times,
        matching: &Matching,
    ) -> Option<usize> {
        let done = |&on: &usize| {
            self.lanes[on] == lane
                && self.tails[on].is_some_and(|tail| {
                    matching.next[tail.index()].is_none() && dependences.reaches(tail, id)
                })
        };
        let end = |on: &usize| self.tails[*on].map_or(0.0, |tail| times.end[tail.index()]);
        (0..self.lanes.len()).filter(done).max_by(|a, b| end(a).total_cmp(&end(b)).then(b.cmp(a)))
    }
}

/// A maximum matching of the reduced edges between kernels of one lane. Level by level, kernels with few free
/// predecessors choose first, and prefer the predecessor that ends last, for which they would have to wait.
fn neighbours(
    program: &Program,
    dependences: &Dependences,
    times: &Times,
    lane_of: impl Fn(&Program, NodeId) -> Lane,
) -> Matching {
    let n = program.nodes().len();
    let before = candidates(program, dependences, times, lane_of);
    let mut by_level: Vec<usize> = (0..n).collect();
    by_level.sort_by_key(|&i| times.level[i]);
    let mut matching = Matching::new(n);
    // Of each list, the free predecessors at the beginning of a level, and the number at its front that are taken.
    let (mut free, mut taken) = (vec![(u32::MAX, 0); before.count()], vec![0; before.count()]);
    for level in by_level.chunk_by_mut(|&a, &b| times.level[a] == times.level[b]) {
        for &i in level.iter() {
            let (list, now) = (before.list_of(i), times.level[i]);
            if free[list].0 != now {
                let is_free = |b: &&u32| matching.next[**b as usize].is_none();
                free[list] = (now, before.items(list).iter().filter(is_free).count());
            }
        }
        level.sort_by_cached_key(|&i| (free[before.list_of(i)].1, i));
        for &i in level.iter() {
            let list = before.list_of(i);
            let left = &before.items(list)[taken[list]..];
            taken[list] += left.iter().take_while(|&&b| matching.next[b as usize].is_some()).count();
            if let Some(&b) = before.items(list).get(taken[list]) {
                matching.join(b as usize, i);
            }
        }
    }
    matching.complete(&before);
    matching
}

/// The predecessors that each kernel may follow on a stream, those that end last first.
fn candidates(
    program: &Program,
    dependences: &Dependences,
    times: &Times,
    lane_of: impl Fn(&Program, NodeId) -> Lane,
) -> SharedLists<u32> {
    let reduced = &dependences.reduced;
    let mut before = SharedLists::new(reduced.nodes());
    let mut known: HashMap<(usize, Lane), usize> = HashMap::new();
    for id in program.ids() {
        let (list, lane) = (reduced.list_of(id.index()), lane_of(program, id));
        if matches!(lane, Lane::Copies(_)) {
            continue;
        }
        match known.get(&(list, lane)) {
            Some(&found) => before.give(id.index(), found),
            None => {
                let alike = |b: &&u32| lane_of(program, NodeId(**b)) == lane;
                let mut found: Vec<u32> = reduced.items(list).iter().filter(alike).copied().collect();
                let end = |b: u32| times.end[b as usize];
                found.sort_by(|&a, &b| end(b).total_cmp(&end(a)).then(a.cmp(&b)));
                known.insert((list, lane), before.set(id.index(), &found).0);
            }
        }
    }
    before
}
