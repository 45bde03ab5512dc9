//! A list scheduler for a limited number of streams.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet};

use super::dependence::Dependences;
use super::distribute::{Distribution, Lane, lane_of};
use super::network::Network;
use super::program::{NodeId, Program};
use super::times::Times;
use super::waits::with_waits;

/// Uses at most `streams` streams of kernels, or one for each priority if there are more priorities. The node that can start soonest comes next; on a tie,
/// the one with the longest remaining path. It goes right after a predecessor if that costs no time, otherwise where
/// it leaves the smallest gap. The time is proportional to nodes times the logarithm of streams.
pub fn limited(program: &Program, dependences: &Dependences, times: &Times, streams: usize) -> Distribution {
    limited_along(program, dependences, &Network::shared(&dependences.reduced), times, streams)
}

/// The same, with the network of the reduced edges.
pub(super) fn limited_along(
    program: &Program,
    dependences: &Dependences,
    edges: &Network,
    times: &Times,
    streams: usize,
) -> Distribution {
    let n = program.nodes().len();
    let mut missing = edges.into().to_vec();
    // Joins too have a latest predecessor and its end.
    let mut latest: Vec<Option<NodeId>> = vec![None; edges.vertices()];
    // Among nodes that can start at the same time: highest priority, then longest remaining path.
    let mut by_urgency: Vec<NodeId> = program.ids().collect();
    by_urgency.sort_by(|&a, &b| {
        let rank = |id: NodeId| times.rank[id.index()];
        program.priority(b).cmp(&program.priority(a)).then(rank(b).total_cmp(&rank(a))).then(a.cmp(&b))
    });
    let mut urgency = vec![0u32; n];
    (0..).zip(&by_urgency).for_each(|(place, id)| urgency[id.index()] = place);
    let mut ready = Ready::default();
    let first = program.ids().filter(|id| missing[id.index()] == 0);
    first.for_each(|id| ready.add(lane_of(program, id), 0.0, urgency[id.index()]));
    let (mut open, mut end) = (Lanes::new(program, streams), vec![0.0; n]);
    let (mut order, mut stream) = (Vec::with_capacity(n), vec![0; n]);
    let mut earliest: Vec<f64> = vec![0.0; edges.vertices()];
    while let Some(place) = ready.next(|kind| open.free_at(kind)) {
        let id = by_urgency[place as usize];
        let i = id.index();
        let on;
        (on, end[i]) = open.place(program, id, earliest[i], latest[i]);
        stream[i] = on as u32;
        order.push(id);
        edges.done(i, &mut missing, &mut |before, after, free| {
            let (at, last) = if before < n { (end[i], Some(id)) } else { (earliest[before], latest[before]) };
            if at >= earliest[after] {
                (earliest[after], latest[after]) = (at, last);
            }
            if free && after < n {
                ready.add(lane_of(program, NodeId::from(after)), earliest[after], urgency[after]);
            }
        });
    }
    with_waits(dependences, order, stream, open.lanes)
}

/// Nodes with all predecessors placed, by urgency.
#[derive(Default)]
struct Ready {
    queues: Vec<Queue>,
}

/// The ready nodes of one kind of stream.
struct Queue {
    kind: Lane,
    /// Nodes with predecessors that all end by the time a stream is free.
    now: BinaryHeap<Reverse<u32>>,
    /// The others, by start time: the bits of non-negative floats sort like their values.
    later: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Ready {
    fn add(&mut self, kind: Lane, earliest: f64, urgency: u32) {
        let found = self.queues.iter().position(|queue| queue.kind == kind).unwrap_or_else(|| {
            self.queues.push(Queue { kind, now: BinaryHeap::new(), later: BinaryHeap::new() });
            self.queues.len() - 1
        });
        self.queues[found].later.push(Reverse((earliest.to_bits(), urgency)));
    }

    /// Takes the node that can start soonest. The time at which a stream is free never decreases.
    fn next(&mut self, free_at: impl Fn(Lane) -> f64) -> Option<u32> {
        let mut soonest: Option<((u64, u32), usize)> = None;
        for (q, queue) in self.queues.iter_mut().enumerate() {
            let free = free_at(queue.kind).to_bits();
            while queue.later.peek().is_some_and(|next| next.0.0 <= free) {
                queue.now.extend(queue.later.pop().map(|next| Reverse(next.0.1)));
            }
            let first = queue.now.peek().map(|next| (free, next.0));
            let Some(start) = first.or_else(|| queue.later.peek().map(|next| next.0)) else { continue };
            if soonest.is_none_or(|(other, _)| start < other) {
                soonest = Some((start, q));
            }
        }
        let ((_, urgency), q) = soonest?;
        let queue = &mut self.queues[q];
        if queue.now.pop().is_none() {
            queue.later.pop();
        }
        Some(urgency)
    }
}

/// The streams of one kind.
struct Group {
    kind: Lane,
    /// Streams by the time at which they are free; of those free at the same time, the first opened comes last.
    free: BTreeSet<(u64, Reverse<usize>)>,
}

impl Group {
    /// The first opened of the streams that are free at a time.
    fn first_opened(&self, at: u64) -> Option<(u64, Reverse<usize>)> {
        self.free.range(..=(at, Reverse(0))).next_back().copied()
    }
}

struct Lanes {
    limit: usize,
    lanes: Vec<Lane>,
    groups: Vec<Group>,
    /// The stream of each node that is the last on one, and when that is free.
    tails: Vec<Option<(usize, u64)>>,
    /// The last node of each stream.
    last: Vec<NodeId>,
    /// Streams of kernels that are open, or kept for a priority that has none yet.
    taken: usize,
}

impl Lanes {
    fn new(program: &Program, limit: usize) -> Self {
        let kinds: HashSet<Lane> = program.ids().map(|id| lane_of(program, id)).collect();
        let taken = kinds.iter().filter(|lane| matches!(lane, Lane::Kernels { .. })).count();
        let group = |kind| Group { kind, free: BTreeSet::new() };
        let groups = kinds.into_iter().map(group).collect();
        let tails = vec![None; program.nodes().len()];
        Lanes { limit, lanes: Vec::new(), groups, tails, last: Vec::new(), taken }
    }

    fn full(&self, group: &Group) -> bool {
        !group.free.is_empty() && (matches!(group.kind, Lane::Copies(_)) || self.taken >= self.limit)
    }

    /// When the first stream of a kind is free.
    fn free_at(&self, kind: Lane) -> f64 {
        let group = self.groups.iter().find(|group| group.kind == kind && self.full(group));
        let first = group.and_then(|group| group.free.first());
        first.map_or(0.0, |(free, _)| f64::from_bits(*free))
    }

    /// Puts a node on a stream; returns the stream and the node's end.
    fn place(
        &mut self,
        program: &Program,
        id: NodeId,
        earliest: f64,
        latest: Option<NodeId>,
    ) -> (usize, f64) {
        let kind = lane_of(program, id);
        let Some(at) = self.groups.iter().position(|group| group.kind == kind) else {
            unreachable!("every node's kind has a group")
        };
        let group = &self.groups[at];
        let behind = latest.filter(|latest| lane_of(program, *latest) == kind);
        let behind = behind.and_then(|latest| self.tails[latest.index()]);
        let behind = behind.map(|(on, free)| (free, Reverse(on)));
        let soonest = || group.first_opened(group.free.first().map_or(0, |first| first.0));
        let full = self.full(group);
        let found =
            behind.or_else(|| group.first_opened(earliest.to_bits())).or_else(|| full.then(soonest)?);
        let on = match found {
            Some(stream) => {
                self.groups[at].free.remove(&stream);
                let on = stream.1.0;
                self.tails[self.last[on].index()] = None;
                self.last[on] = id;
                on
            }
            None => {
                // The first stream of a priority was kept for it.
                let kept = group.free.is_empty();
                self.taken += usize::from(matches!(kind, Lane::Kernels { .. }) && !kept);
                self.lanes.push(kind);
                self.last.push(id);
                self.lanes.len() - 1
            }
        };
        let free = found.map_or(0.0, |(free, _)| f64::from_bits(free));
        let end = f64::max(earliest, free) + program.node(id).us;
        self.groups[at].free.insert((end.to_bits(), Reverse(on)));
        self.tails[id.index()] = Some((on, end.to_bits()));
        (on, end)
    }
}
