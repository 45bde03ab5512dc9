//! The ways in which a distributed program can reach a GPU, and when each lets a node start.

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
    /// A graph that is a chain.
    SerialGraph,
    /// A graph that is a chain with programmatic edges.
    SerialProgrammatic,
    /// Streams and events.
    Streams,
    /// A graph with the reduced dependences for edges.
    BranchGraph,
    /// The same with programmatic edges between kernels.
    BranchProgrammatic,
    /// A graph with the edges that streams and waits imply: no more branches at once than there are streams.
    LaneGraph,
    /// The same with programmatic edges between kernels.
    LaneProgrammatic,
}

impl Form {
    /// All of them, simple ones first.
    pub const ALL: [Form; 8] = [
        Form::Serial,
        Form::SerialGraph,
        Form::SerialProgrammatic,
        Form::Streams,
        Form::BranchGraph,
        Form::BranchProgrammatic,
        Form::LaneGraph,
        Form::LaneProgrammatic,
    ];

    /// Whether it needs kernels that wait for those before them.
    pub fn is_programmatic(self) -> bool {
        matches!(self, Form::SerialProgrammatic | Form::BranchProgrammatic | Form::LaneProgrammatic)
    }

    /// Whether one node runs at a time.
    pub fn is_serial(self) -> bool {
        matches!(self, Form::Serial | Form::SerialGraph | Form::SerialProgrammatic)
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Form::Serial => "serial",
            Form::SerialGraph => "serial graph",
            Form::SerialProgrammatic => "serial graph, programmatic",
            Form::Streams => "streams",
            Form::BranchGraph => "branch graph",
            Form::BranchProgrammatic => "branch graph, programmatic",
            Form::LaneGraph => "lane graph",
            Form::LaneProgrammatic => "lane graph, programmatic",
        }
    }
}

/// What holds a node back: the host, and earlier nodes with the time from their end to its start, microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    pub(super) release: Vec<f64>,
    pub(super) edges: Vec<(usize, usize, f64)>,
}

/// When nodes of a form may start.
pub(super) fn gates(
    program: &Program,
    dependences: &Dependences,
    plan: &Distribution,
    form: Form,
    costs: &Costs,
) -> Gates {
    let n = program.nodes().len();
    let order: Vec<usize> = match form {
        Form::Serial => (0..n).collect(),
        _ => plan.order.iter().map(|id| id.index()).collect(),
    };
    let waits = || plan.waits.iter().map(|w| (w.before.index(), w.after.index()));
    let pairs: Vec<(usize, usize)> = match form {
        Form::Serial | Form::SerialGraph | Form::SerialProgrammatic => {
            order.windows(2).map(|w| (w[0], w[1])).collect()
        }
        Form::BranchGraph | Form::BranchProgrammatic => {
            dependences.reduced_edges().map(|e| (e.before.index(), e.after.index())).collect()
        }
        Form::Streams | Form::LaneGraph | Form::LaneProgrammatic => on_lanes(plan).chain(waits()).collect(),
    };
    let (mut into, mut out) = (vec![0u32; n], vec![0u32; n]);
    for &(before, after) in &pairs {
        out[before] += 1;
        into[after] += 1;
    }
    let early = |before: usize, after: usize| {
        let built = |i: usize| program.nodes()[i].kernel().is_some_and(|k| k.programmatic);
        form.is_programmatic() && built(before) && built(after)
    };
    let delay = |before: usize, after: usize| match (form, into[after] == 1 && out[before] == 1) {
        (Form::Serial, _) => costs.stream_edge_us,
        (Form::Streams, _) if plan.stream[before] == plan.stream[after] => costs.stream_edge_us,
        (Form::Streams, _) => costs.event_edge_us,
        (_, true) if early(before, after) => costs.programmatic_edge_us,
        (_, false) if early(before, after) => costs.programmatic_branch_us,
        (_, true) => costs.graph_edge_us,
        (_, false) => costs.graph_branch_us,
    };
    let edges = pairs.iter().map(|&(b, a)| (b, a, delay(b, a))).collect();
    let release = match form {
        Form::Serial | Form::Streams => host_times(plan, &order, form, costs),
        _ => vec![costs.graph_launch_us; n],
    };
    Gates { release, edges }
}

/// Neighbours on streams.
fn on_lanes(plan: &Distribution) -> impl Iterator<Item = (usize, usize)> {
    let mut last = vec![None; plan.streams()];
    plan.order.iter().filter_map(move |id| {
        let before: Option<usize> = last[plan.stream[id.index()] as usize].replace(id.index());
        before.map(|before| (before, id.index()))
    })
}

/// When the host has launched each node, if it begins at 0 and does nothing else.
fn host_times(plan: &Distribution, order: &[usize], form: Form, costs: &Costs) -> Vec<f64> {
    let n = order.len();
    let (mut waits, mut records) = (vec![0u32; n], vec![false; n]);
    let mut now = 0.0;
    if form == Form::Streams {
        for wait in &plan.waits {
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
