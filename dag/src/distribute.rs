//! From dependences to streams: the stream and order of every node, and the remaining waits.
//!
//! A reduced edge needs no wait if its ends are adjacent on a stream. A node has one neighbor on either side, so such
//! edges form a matching, and a maximum matching leaves the fewest waits: reduced edges minus matched ones. The
//! matched edges chain the nodes into paths; paths that can never run at the same time share a stream.

use super::dependence::{Dependences, places};
use super::matching::Matching;
use super::program::{Direction, NodeId, NodeWork, Program};
use super::times::Times;

/// A wait of a node for an earlier one on another stream, through an event recorded right after the earlier node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeWait {
    /// The earlier node.
    pub before: NodeId,
    /// The later node.
    pub after: NodeId,
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
    /// Waits not implied by stream order, sorted by the position of `after` in `order`.
    pub waits: Vec<NodeWait>,
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
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); n];
    for edge in dependences.reduced_edges() {
        let (from, to) = (lane_of(program, edge.before), lane_of(program, edge.after));
        if from == to && matches!(from, Lane::Kernels { .. }) {
            before[edge.after.index()].push(edge.before.index());
        }
    }
    for list in &mut before {
        list.sort_by(|&a, &b| times.end[b].total_cmp(&times.end[a]).then(a.cmp(&b)));
    }
    let mut by_level: Vec<usize> = (0..n).collect();
    by_level.sort_by_key(|&i| times.level[i]);
    let mut matching = Matching::new(n);
    for level in by_level.chunk_by_mut(|&a, &b| times.level[a] == times.level[b]) {
        let free = |i: usize, m: &Matching| before[i].iter().filter(|&&b| m.next[b].is_none()).count();
        level.sort_by_cached_key(|&i| (free(i, &matching), i));
        for &i in level.iter() {
            if let Some(&b) = before[i].iter().find(|&&b| matching.next[b].is_none()) {
                matching.join(b, i);
            }
        }
    }
    matching.complete(&before);
    matching
}

/// Completes a distribution with the waits implied neither by stream order nor by other waits.
pub(super) fn with_waits(
    dependences: &Dependences,
    order: Vec<NodeId>,
    stream: Vec<u32>,
    lanes: Vec<Lane>,
) -> Distribution {
    let n = order.len();
    let position = places(&order.iter().map(|id| id.index()).collect::<Vec<_>>(), n);
    // Of the predecessors on one stream, the last implies the others, and the node before on the own stream all there.
    let (mut edges, mut last): (Vec<(u32, u32)>, _) = (Vec::new(), vec![None; lanes.len()]);
    let mut latest: Vec<Option<usize>> = vec![None; lanes.len()];
    let mut streams = Vec::new();
    for (at, id) in order.iter().enumerate() {
        let own = stream[id.index()] as usize;
        for before in dependences.before(*id).map(NodeId::index) {
            let on = stream[before] as usize;
            if latest[on].is_none() {
                streams.push(on);
            }
            latest[on] = latest[on].max(Some(position[before]));
        }
        let from = edges.len();
        let waits = streams.drain(..).filter_map(|on| latest[on].take().filter(|_| on != own));
        edges.extend(waits.chain(last[own].replace(at)).map(|first| (at as u32, first as u32)));
        edges[from..].sort_unstable();
    }
    let edge = |i: usize| (edges[i].0 as usize, edges[i].1 as usize);
    let (kept, _) = super::dependence::reduce(order.len(), edges.len(), edge);
    let waits = kept
        .into_iter()
        .map(|i| NodeWait { before: order[edge(i).1], after: order[edge(i).0] })
        .filter(|w| stream[w.before.index()] != stream[w.after.index()])
        .collect();
    Distribution { order, stream, lanes, waits }
}
