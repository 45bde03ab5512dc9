//! The ways in which a distributed program can reach a GPU, and when each lets a node start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use super::costs::Costs;
use super::dependence::Dependences;
use super::distribute::Distribution;
use super::program::Program;

/// How nodes are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// One launch after the other on one stream, in the order of the serial code.
    Serial,
    /// A graph that is a chain, in the order of the serial code.
    SerialGraph,
    /// A graph that is a chain with programmatic edges.
    SerialProgrammatic,
    /// Streams and events.
    Streams,
    /// Streams and events with all concurrency, in the order of the serial code, copies on the streams of their kernels.
    AllStreams,
    /// The same, captured into a graph.
    CapturedStreams,
    /// A graph with the reduced dependences for edges.
    BranchGraph,
    /// The same with programmatic edges between kernels.
    BranchProgrammatic,
    /// The same with programmatic edges into kernels that wait for one other, and full edges where branches join.
    BranchMixed,
    /// A graph with the edges that streams and waits imply: no more branches at once than there are streams.
    LaneGraph,
    /// The same with programmatic edges between kernels.
    LaneProgrammatic,
    /// The same with programmatic edges into kernels that wait for one other, and full edges where branches join.
    LaneMixed,
    /// A branch graph with one node that all others wait for and one that waits for all others: each further node at which
    /// a graph begins or ends costs more than an edge.
    FunnelGraph,
    /// The same with programmatic edges into kernels that wait for one other.
    FunnelMixed,
}

impl Form {
    /// All of them, simple ones first.
    pub const ALL: [Form; 14] = [
        Form::Serial,
        Form::SerialGraph,
        Form::SerialProgrammatic,
        Form::Streams,
        Form::AllStreams,
        Form::CapturedStreams,
        Form::BranchGraph,
        Form::BranchProgrammatic,
        Form::BranchMixed,
        Form::LaneGraph,
        Form::LaneProgrammatic,
        Form::LaneMixed,
        Form::FunnelGraph,
        Form::FunnelMixed,
    ];

    /// Whether it needs kernels that wait for those before them.
    pub fn is_programmatic(self) -> bool {
        matches!(self, Form::SerialProgrammatic | Form::BranchProgrammatic | Form::LaneProgrammatic)
            || self.is_mixed()
    }

    /// Whether its joins have full edges and its other edges programmatic ones.
    fn is_mixed(self) -> bool {
        matches!(self, Form::BranchMixed | Form::LaneMixed | Form::FunnelMixed)
    }

    /// Whether one node runs at a time.
    pub fn is_serial(self) -> bool {
        matches!(self, Form::Serial | Form::SerialGraph | Form::SerialProgrammatic)
    }

    /// Whether it runs on the streams that help, which may be fewer than there is concurrency.
    pub(super) fn is_limited(self) -> bool {
        matches!(self, Form::Streams | Form::LaneGraph | Form::LaneProgrammatic | Form::LaneMixed)
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Form::Serial => "serial",
            Form::SerialGraph => "serial graph",
            Form::SerialProgrammatic => "serial graph, programmatic",
            Form::Streams => "streams",
            Form::AllStreams => "streams, all concurrency",
            Form::CapturedStreams => "captured streams",
            Form::BranchGraph => "branch graph",
            Form::BranchProgrammatic => "branch graph, programmatic",
            Form::BranchMixed => "branch graph, mixed",
            Form::LaneGraph => "lane graph",
            Form::LaneProgrammatic => "lane graph, programmatic",
            Form::LaneMixed => "lane graph, mixed",
            Form::FunnelGraph => "funnel graph",
            Form::FunnelMixed => "funnel graph, mixed",
        }
    }
}

/// What waits for what in a form: (before, after, whether the edge is programmatic), and the order in which nodes are issued.
pub(super) struct FormEdges {
    pub(super) order: Vec<usize>,
    pub(super) edges: Vec<(usize, usize, bool)>,
}

impl FormEdges {
    pub(super) fn of(
        program: &Program,
        dependences: &Dependences,
        plan: &Distribution,
        form: Form,
    ) -> FormEdges {
        let n = program.nodes().len();
        let mut order: Vec<usize> = match form.is_serial() {
            true => (0..n).collect(),
            false => plan.order.iter().map(|id| id.index()).collect(),
        };
        let waits = || plan.waits.iter().map(|w| (w.before.index(), w.after.index()));
        let reduced = || dependences.reduced_edges().map(|e| (e.before.index(), e.after.index()));
        let mut pairs: Vec<(usize, usize)> = match form {
            Form::Serial | Form::SerialGraph | Form::SerialProgrammatic => {
                order.windows(2).map(|w| (w[0], w[1])).collect()
            }
            Form::BranchGraph | Form::BranchProgrammatic | Form::BranchMixed => reduced().collect(),
            Form::FunnelGraph | Form::FunnelMixed => reduced().collect(),
            Form::Streams
            | Form::AllStreams
            | Form::CapturedStreams
            | Form::LaneGraph
            | Form::LaneProgrammatic
            | Form::LaneMixed => plan.neighbours().chain(waits()).collect(),
        };
        if !form.is_serial() {
            pairs.extend(plan.gates.iter().map(|g| (g.before.index(), g.after.index())));
        }
        if matches!(form, Form::FunnelGraph | Form::FunnelMixed) {
            pairs.extend(funnel(program, &pairs));
            order = in_order(&order, &pairs);
        }
        let mut into = vec![0u32; n];
        pairs.iter().for_each(|&(_, after)| into[after] += 1);
        let built = |i: usize| program.nodes()[i].kernel().is_some_and(|k| k.programmatic);
        let early = |before: usize, after: usize| {
            form.is_programmatic() && (!form.is_mixed() || into[after] == 1) && built(before) && built(after)
        };
        let edges = pairs.into_iter().map(|(b, a)| (b, a, early(b, a))).collect();
        FormEdges { order, edges }
    }

    /// By node: edges into it and out of it.
    pub(super) fn degrees(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut into, mut out) = (vec![0; self.order.len()], vec![0; self.order.len()]);
        for &(before, after, _) in &self.edges {
            out[before] += 1;
            into[after] += 1;
        }
        (into, out)
    }
}

/// What holds a node back: the host, and earlier nodes with the time from their end to its start, microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    pub(super) release: Vec<f64>,
    pub(super) edges: Vec<(usize, usize, f64)>,
    /// From the last node's end to the program's.
    pub(super) tail_us: f64,
}

/// When nodes of a form may start.
pub(super) fn gates(
    program: &Program,
    dependences: &Dependences,
    plan: &Distribution,
    form: Form,
    costs: &Costs,
) -> Gates {
    let found = FormEdges::of(program, dependences, plan, form);
    let (into, out) = found.degrees();
    let delay = |before: usize, after: usize, early: bool| match (form, early) {
        (Form::Serial, _) => costs.stream_edge_us,
        (Form::Streams | Form::AllStreams, _) if plan.stream[before] == plan.stream[after] => {
            costs.stream_edge_us
        }
        (Form::Streams | Form::AllStreams, _) => costs.event_edge_us,
        (_, true) if into[after] > 1 => costs.programmatic_join_us,
        (_, true) if out[before] > 1 => costs.programmatic_fork_us,
        (_, true) => costs.programmatic_edge_us,
        (_, false) if into[after] > 1 || out[before] > 1 => costs.graph_branch_us,
        (_, false) => costs.graph_edge_us,
    };
    let edges = found.edges.iter().map(|&(b, a, early)| (b, a, delay(b, a, early))).collect();
    if matches!(form, Form::Serial | Form::Streams | Form::AllStreams) {
        return Gates { release: host_times(plan, &found.order, form, costs), edges, tail_us: 0.0 };
    }
    // A graph's first nodes are started one after the other, and its last ones are waited for one after the other.
    let mut release = vec![costs.graph_launch_us; found.order.len()];
    let first = found.order.iter().filter(|&&i| into[i] == 0);
    first.enumerate().for_each(|(at, &i)| release[i] += at as f64 * costs.graph_root_us);
    let ends = out.iter().filter(|&&count| count == 0).count();
    Gates { release, edges, tail_us: ends.saturating_sub(1) as f64 * costs.graph_end_us }
}

/// Edges that leave one first and one last node. First comes the shortest of the first nodes, so that it delays the others
/// least; last comes the end with which all ends are over soonest, if only edges held nodes up.
fn funnel(program: &Program, pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let n = program.nodes().len();
    let us = |i: usize| program.nodes()[i].us;
    let (mut before, mut after) = (vec![Vec::new(); n], vec![0u32; n]);
    for &(b, a) in pairs {
        before[a].push(b);
        after[b] += 1;
    }
    let roots: Vec<usize> = (0..n).filter(|&i| before[i].is_empty()).collect();
    let Some(&root) = roots.iter().min_by(|&&a, &&b| us(a).total_cmp(&us(b))) else { return Vec::new() };
    let mut edges: Vec<(usize, usize)> = roots.iter().filter(|&&i| i != root).map(|&i| (root, i)).collect();
    let mut start = vec![0.0; n];
    let all: Vec<(usize, usize)> = pairs.iter().chain(&edges).copied().collect();
    let mut next = vec![Vec::new(); n];
    all.iter().for_each(|&(b, a)| next[b].push(a));
    for i in in_order(&(0..n).collect::<Vec<_>>(), &all) {
        for &a in &next[i] {
            start[a] = f64::max(start[a], start[i] + us(i));
        }
    }
    let ends: Vec<usize> = (0..n).filter(|&i| after[i] == 0 && i != root).collect();
    let over = |last: usize| {
        let others = ends.iter().filter(|&&i| i != last).map(|&i| start[i] + us(i));
        others.fold(start[last], f64::max) + us(last)
    };
    if let Some(&last) = ends.iter().min_by(|&&a, &&b| over(a).total_cmp(&over(b)).then(b.cmp(&a))) {
        edges.extend(ends.iter().filter(|&&i| i != last).map(|&i| (i, last)));
    }
    edges
}

/// Nodes in an order that the pairs allow, as near to the given one as a queue by its places comes. Nodes of a cycle are left
/// out: plans are refused for what they lack.
pub(super) fn in_order(order: &[usize], pairs: &[(usize, usize)]) -> Vec<usize> {
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &i)| place[i] = at);
    let (mut missing, mut next) = (vec![0u32; order.len()], vec![Vec::new(); order.len()]);
    for &(before, after) in pairs {
        missing[after] += 1;
        next[before].push(after);
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        order.iter().filter(|&&i| missing[i] == 0).map(|&i| Reverse(place[i])).collect();
    let mut sorted = Vec::with_capacity(order.len());
    while let Some(Reverse(at)) = ready.pop() {
        let node = order[at];
        sorted.push(node);
        for &after in &next[node] {
            missing[after] -= 1;
            if missing[after] == 0 {
                ready.push(Reverse(place[after]));
            }
        }
    }
    sorted
}

/// When the host has launched each node, if it begins at 0 and does nothing else.
fn host_times(plan: &Distribution, order: &[usize], form: Form, costs: &Costs) -> Vec<f64> {
    let n = order.len();
    let (mut waits, mut records) = (vec![0u32; n], vec![false; n]);
    let mut now = 0.0;
    if form != Form::Serial {
        for wait in plan.waits.iter().chain(&plan.gates) {
            waits[wait.after.index()] += 1;
            records[wait.before.index()] = true;
        }
        // The other streams are forked from the first.
        let forks = plan.streams().saturating_sub(1) as f64;
        now += if forks > 0.0 { costs.record_us + forks * costs.wait_us } else { 0.0 };
    }
    let mut release = vec![0.0; n];
    for &i in order {
        now += f64::from(waits[i]) * costs.wait_us + costs.launch_us;
        release[i] = now;
        now += if records[i] { costs.record_us } else { 0.0 };
    }
    release
}
