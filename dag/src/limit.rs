//! A list scheduler for a limited number of streams.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use super::dependence::Dependences;
use super::distribute::{Distribution, Lane, lane_of, with_waits};
use super::program::{NodeId, Program};
use super::times::Times;

/// Uses at most `streams` streams of kernels, or one for each priority if there are more priorities. The node that can start soonest comes next; on a tie,
/// the one with the longest remaining path. It goes right after a predecessor if that costs no time, otherwise where
/// it leaves the smallest gap. The time is proportional to nodes times streams.
pub fn limited(program: &Program, dependences: &Dependences, times: &Times, streams: usize) -> Distribution {
    let n = program.nodes().len();
    let (mut missing, mut after) = (vec![0u32; n], vec![Vec::new(); n]);
    let mut latest: Vec<Option<NodeId>> = vec![None; n];
    for edge in dependences.reduced_edges() {
        missing[edge.after.index()] += 1;
        after[edge.before.index()].push(edge.after);
    }
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
    let (mut earliest, mut order, mut stream) = (vec![0.0; n], Vec::with_capacity(n), vec![0; n]);
    while let Some(place) = ready.next(|kind| open.free_at(kind)) {
        let id = by_urgency[place as usize];
        let i = id.index();
        let on = open.choose(lane_of(program, id), earliest[i], latest[i]);
        let lane = &mut open.lanes[on];
        end[i] = f64::max(earliest[i], lane.free) + program.node(id).us;
        (lane.free, lane.tail) = (end[i], Some(id));
        stream[i] = on as u32;
        order.push(id);
        for &a in &after[i] {
            let a_ = a.index();
            if end[i] >= earliest[a_] {
                (earliest[a_], latest[a_]) = (end[i], Some(id));
            }
            missing[a_] -= 1;
            if missing[a_] == 0 {
                ready.add(lane_of(program, a), earliest[a_], urgency[a_]);
            }
        }
    }
    let lanes = open.lanes.into_iter().map(|lane| lane.kind).collect();
    with_waits(dependences, order, stream, lanes)
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

struct Open {
    kind: Lane,
    free: f64,
    tail: Option<NodeId>,
}

struct Lanes {
    limit: usize,
    lanes: Vec<Open>,
    /// Streams of kernels that are open, or kept for a priority that has none yet.
    taken: usize,
}

impl Lanes {
    fn new(program: &Program, limit: usize) -> Self {
        let kernels =
            program.ids().map(|id| lane_of(program, id)).filter(|lane| matches!(lane, Lane::Kernels { .. }));
        let taken = kernels.collect::<HashSet<_>>().len();
        Lanes { limit, lanes: Vec::new(), taken }
    }

    fn of_kind(&self, kind: Lane) -> impl Iterator<Item = (usize, &Open)> {
        self.lanes.iter().enumerate().filter(move |(_, lane)| lane.kind == kind)
    }

    fn full(&self, kind: Lane) -> bool {
        self.of_kind(kind).next().is_some() && (matches!(kind, Lane::Copies(_)) || self.taken >= self.limit)
    }

    /// When the first stream of a kind is free.
    fn free_at(&self, kind: Lane) -> f64 {
        if !self.full(kind) {
            return 0.0;
        }
        self.of_kind(kind).map(|(_, lane)| lane.free).fold(f64::INFINITY, f64::min)
    }

    fn choose(&mut self, kind: Lane, earliest: f64, latest: Option<NodeId>) -> usize {
        if let Some((on, _)) = self.of_kind(kind).find(|(_, lane)| latest.is_some() && lane.tail == latest) {
            return on;
        }
        let free = self.of_kind(kind).filter(|(_, lane)| lane.free <= earliest);
        if let Some((on, _)) = free.max_by(|a, b| a.1.free.total_cmp(&b.1.free).then(b.0.cmp(&a.0))) {
            return on;
        }
        if !self.full(kind) {
            let kept = self.of_kind(kind).next().is_none();
            self.taken += usize::from(matches!(kind, Lane::Kernels { .. }) && !kept);
            self.lanes.push(Open { kind, free: 0.0, tail: None });
            return self.lanes.len() - 1;
        }
        let soonest = self.of_kind(kind).min_by(|a, b| a.1.free.total_cmp(&b.1.free).then(a.0.cmp(&b.0)));
        soonest.map_or(0, |(on, _)| on)
    }
}
