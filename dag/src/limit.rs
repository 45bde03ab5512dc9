//! Fewer streams than there is concurrency: a list scheduler.

use super::dependence::Dependences;
use super::distribute::{Distribution, Lane, lane_of, with_waits};
use super::program::{NodeId, Program};
use super::times::Times;

/// At most `streams` streams of kernels for every priority. A node that can start soonest comes next, of several the one
/// with the longest path behind it; it goes right after a predecessor where that costs no time, else where the room that is
/// left empty is smallest. Takes time in proportion to nodes times those that are ready together.
pub fn limited(program: &Program, dependences: &Dependences, times: &Times, streams: usize) -> Distribution {
    let n = program.nodes().len();
    let (mut missing, mut after) = (vec![0u32; n], vec![Vec::new(); n]);
    let mut latest: Vec<Option<NodeId>> = vec![None; n];
    for edge in dependences.reduced_edges() {
        missing[edge.after.index()] += 1;
        after[edge.before.index()].push(edge.after);
    }
    let mut ready: Vec<NodeId> = program.ids().filter(|id| missing[id.index()] == 0).collect();
    let (mut open, mut end) = (Lanes { limit: streams.max(1), lanes: Vec::new() }, vec![0.0; n]);
    let (mut earliest, mut order, mut stream) = (vec![0.0; n], Vec::with_capacity(n), vec![0; n]);
    while !ready.is_empty() {
        let start = |id: NodeId| f64::max(earliest[id.index()], open.free_at(lane_of(program, id)));
        let urgency = |&a: &NodeId, &b: &NodeId| {
            let (i, j) = (a.index(), b.index());
            start(a)
                .total_cmp(&start(b))
                .then(program.priority(b).cmp(&program.priority(a)))
                .then(times.rank[j].total_cmp(&times.rank[i]))
                .then(i.cmp(&j))
        };
        let next = (0..ready.len()).min_by(|&a, &b| urgency(&ready[a], &ready[b])).unwrap_or(0);
        let id = ready.swap_remove(next);
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
                ready.push(a);
            }
        }
    }
    let lanes = open.lanes.into_iter().map(|lane| lane.kind).collect();
    with_waits(dependences, order, stream, lanes)
}

struct Open {
    kind: Lane,
    free: f64,
    tail: Option<NodeId>,
}

struct Lanes {
    limit: usize,
    lanes: Vec<Open>,
}

impl Lanes {
    fn of(&self, kind: Lane) -> impl Iterator<Item = (usize, &Open)> {
        self.lanes.iter().enumerate().filter(move |(_, lane)| lane.kind == kind)
    }

    fn full(&self, kind: Lane) -> bool {
        let limit = if matches!(kind, Lane::Copies(_)) { 1 } else { self.limit };
        self.of(kind).count() >= limit
    }

    /// When the first stream of a kind is free.
    fn free_at(&self, kind: Lane) -> f64 {
        if !self.full(kind) {
            return 0.0;
        }
        self.of(kind).map(|(_, lane)| lane.free).fold(f64::INFINITY, f64::min)
    }

    fn choose(&mut self, kind: Lane, earliest: f64, latest: Option<NodeId>) -> usize {
        if let Some((on, _)) = self.of(kind).find(|(_, lane)| latest.is_some() && lane.tail == latest) {
            return on;
        }
        let free = self.of(kind).filter(|(_, lane)| lane.free <= earliest);
        if let Some((on, _)) = free.max_by(|a, b| a.1.free.total_cmp(&b.1.free).then(b.0.cmp(&a.0))) {
            return on;
        }
        if !self.full(kind) {
            self.lanes.push(Open { kind, free: 0.0, tail: None });
            return self.lanes.len() - 1;
        }
        let soonest = self.of(kind).min_by(|a, b| a.1.free.total_cmp(&b.1.free).then(a.0.cmp(&b.0)));
        soonest.map_or(0, |(on, _)| on)
    }
}
