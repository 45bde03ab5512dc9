//! The forms in which a distributed program can be launched on a GPU, and when each form lets a node start.

use std::fmt;

use cusync_gen::device::Profile;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::dependence::{Dependences, in_order};
use super::distribute::Distribution;
use super::plan::GraphPlan;
use super::program::Program;

/// How nodes reach the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// Launches on streams, with events between streams.
    Launches,
    /// The same launches, captured into a graph.
    Capture,
    /// A graph of explicit nodes and edges.
    Graph,
}

/// Source of the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeSource {
    /// Program order: one node after another.
    Code,
    /// The reduced dependences.
    Dependences,
    /// The order on a helpful number of streams, which may be less than full concurrency, and the waits between them.
    Streams,
    /// The same on streams as written by hand: full concurrency, in program order, with copies on the streams of their
    /// kernels.
    Written,
}

/// Which edges between kernels are programmatic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgrammaticEdges {
    /// None.
    Never,
    /// Edges into kernels with a single predecessor; where branches join, edges are full.
    Unjoined,
    /// All.
    Always,
}

/// How a program is run: a carrier, the source of its edges, which edges are programmatic, and whether a funnel is
/// added.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form {
    id: &'static str,
    name: &'static str,
    pub(crate) carrier: Carrier,
    pub(crate) edges: EdgeSource,
    pub(crate) programmatic: ProgrammaticEdges,
    /// Whether a single node precedes all others and a single node follows them: each additional start or end node of
    /// a graph costs more than an edge.
    pub(crate) funnel: bool,
}

macro_rules! forms {
    ($($constant:ident $id:literal $name:literal: $carrier:ident $edges:ident $programmatic:ident $funnel:literal;)*) => {
        impl Form {
            $(
                #[doc = concat!("The form `", $id, "`: ", $name, ".")]
                pub const $constant: Form = Form {
                    id: $id,
                    name: $name,
                    carrier: Carrier::$carrier,
                    edges: EdgeSource::$edges,
                    programmatic: ProgrammaticEdges::$programmatic,
                    funnel: $funnel,
                };
            )*

            /// All forms, simple ones first.
            pub const ALL: [Form; 14] = [$(Form::$constant),*];
        }
    };
}

// Only listed forms can be run: launches have only stream edges, and these are full.
forms! {
    SERIAL "serial" "serial": Launches Code Never false;
    SERIAL_GRAPH "serial-graph" "serial graph": Graph Code Never false;
    SERIAL_PROGRAMMATIC "serial-programmatic" "serial graph, programmatic": Graph Code Always false;
    STREAMS "streams" "streams": Launches Streams Never false;
    ALL_STREAMS "all-streams" "streams, all concurrency": Launches Written Never false;
    CAPTURED_STREAMS "captured-streams" "captured streams": Capture Written Never false;
    BRANCH_GRAPH "branch-graph" "branch graph": Graph Dependences Never false;
    BRANCH_PROGRAMMATIC "branch-programmatic" "branch graph, programmatic": Graph Dependences Always false;
    BRANCH_MIXED "branch-mixed" "branch graph, mixed": Graph Dependences Unjoined false;
    LANE_GRAPH "lane-graph" "lane graph": Graph Streams Never false;
    LANE_PROGRAMMATIC "lane-programmatic" "lane graph, programmatic": Graph Streams Always false;
    LANE_MIXED "lane-mixed" "lane graph, mixed": Graph Streams Unjoined false;
    FUNNEL_GRAPH "funnel-graph" "funnel graph": Graph Dependences Never true;
    FUNNEL_MIXED "funnel-mixed" "funnel graph, mixed": Graph Dependences Unjoined true;
}

impl Form {
    /// Whether it needs kernels that wait for their predecessors.
    pub fn is_programmatic(self) -> bool {
        self.programmatic != ProgrammaticEdges::Never
    }

    /// Whether nodes run one at a time.
    pub fn is_serial(self) -> bool {
        self.edges == EdgeSource::Code
    }

    /// How nodes reach the GPU.
    pub fn carrier(self) -> Carrier {
        self.carrier
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl Serialize for Form {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id)
    }
}

impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        let found = Form::ALL.into_iter().find(|form| form.id == id);
        found.ok_or_else(|| D::Error::custom(format!("there is no form `{id}`; there are {:?}", Form::ALL)))
    }
}

impl GraphPlan {
    /// The edges of a form, and the order in which nodes are issued.
    pub(super) fn for_form(
        program: &Program,
        dependences: &Dependences,
        plan: &Distribution,
        form: Form,
    ) -> GraphPlan {
        let n = program.nodes().len();
        let mut order: Vec<usize> = match form.edges {
            EdgeSource::Code => (0..n).collect(),
            _ => plan.order.iter().map(|id| id.index()).collect(),
        };
        let mut pairs: Vec<(usize, usize)> = match form.edges {
            EdgeSource::Code => order.windows(2).map(|w| (w[0], w[1])).collect(),
            EdgeSource::Dependences => {
                dependences.reduced_edges().map(|e| (e.before.index(), e.after.index())).collect()
            }
            EdgeSource::Streams | EdgeSource::Written => {
                let waits = plan.waits.iter().map(|w| (w.before.index(), w.after.index()));
                plan.neighbours().chain(waits).collect()
            }
        };
        if form.funnel {
            pairs.extend(funnel(program, &pairs));
            order = in_order(&order, &pairs);
        }
        let mut into = vec![0u32; n];
        pairs.iter().for_each(|&(_, after)| into[after] += 1);
        let built = |i: usize| program.nodes()[i].kernel().is_some_and(|k| k.programmatic);
        let early = |before: usize, after: usize| {
            let wanted = match form.programmatic {
                ProgrammaticEdges::Never => false,
                ProgrammaticEdges::Unjoined => into[after] == 1,
                ProgrammaticEdges::Always => true,
            };
            wanted && built(before) && built(after)
        };
        let edges = pairs.into_iter().map(|(b, a)| (b, a, early(b, a))).collect();
        GraphPlan { order, edges, priorities: Vec::new() }
    }
}

/// Constraints on a node's start: the host, and earlier nodes with the delay from their end to its start,
/// microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct StartDelays {
    pub(super) release: Vec<f64>,
    pub(super) edges: Vec<(usize, usize, f64)>,
    /// From the end of the last node to the end of the program.
    pub(super) tail_us: f64,
}

impl StartDelays {
    /// The start constraints of a form's nodes.
    pub(super) fn new(
        program: &Program,
        dependences: &Dependences,
        plan: &Distribution,
        form: Form,
        device: &Profile,
    ) -> StartDelays {
        let found = GraphPlan::for_form(program, dependences, plan, form);
        let (mut into, mut out) = (vec![0; found.order.len()], vec![0; found.order.len()]);
        for &(before, after, _) in &found.edges {
            out[before] += 1;
            into[after] += 1;
        }
        let cost = &device.programs;
        let by_graph = |before: usize, after: usize, early: bool| match early {
            true if into[after] > 1 => cost.programmatic_join_us,
            true if out[before] > 1 => cost.programmatic_fork_us,
            true => cost.programmatic_edge_us,
            false if into[after] > 1 || out[before] > 1 => cost.graph_branch_us,
            false => cost.graph_edge_us,
        };
        let by_launches = |before: usize, after: usize| {
            let same = form.is_serial() || plan.stream[before] == plan.stream[after];
            if same { cost.stream_edge_us } else { cost.event_edge_us }
        };
        let delay = |&(before, after, early): &(usize, usize, bool)| match form.carrier {
            Carrier::Launches => (before, after, by_launches(before, after)),
            Carrier::Capture | Carrier::Graph => (before, after, by_graph(before, after, early)),
        };
        let edges = found.edges.iter().map(delay).collect();
        if form.carrier == Carrier::Launches {
            return StartDelays {
                release: host_times(plan, &found.order, form, device),
                edges,
                tail_us: 0.0,
            };
        }
        // A graph's first nodes are started one after another, and its last ones are awaited one after another.
        let mut release = vec![cost.graph_launch_us; found.order.len()];
        let first = found.order.iter().filter(|&&i| into[i] == 0);
        first.enumerate().for_each(|(at, &i)| release[i] += at as f64 * cost.graph_root_us);
        let ends = out.iter().filter(|&&count| count == 0).count();
        StartDelays { release, edges, tail_us: ends.saturating_sub(1) as f64 * cost.graph_end_us }
    }
}

/// Edges that leave a single first and a single last node. The first is the shortest root, so that it delays the
/// others least; the last is the end node with which the whole program ends earliest if only edges delay nodes.
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
    // Only the latest of the other ends matters: the overall latest, or the second latest if the last node is itself
    // the latest.
    let (mut latest, mut second) = ((f64::NEG_INFINITY, usize::MAX), f64::NEG_INFINITY);
    for &i in &ends {
        let end = start[i] + us(i);
        if end > latest.0 {
            (second, latest) = (latest.0, (end, i));
        } else {
            second = second.max(end);
        }
    }
    let over = |last: usize| {
        let others = if latest.1 == last { second } else { latest.0 };
        start[last].max(others) + us(last)
    };
    if let Some(&last) = ends.iter().min_by(|&&a, &&b| over(a).total_cmp(&over(b)).then(b.cmp(&a))) {
        edges.extend(ends.iter().filter(|&&i| i != last).map(|&i| (i, last)));
    }
    edges
}

/// When the host has launched each node, if it starts at 0 and does nothing else.
fn host_times(plan: &Distribution, order: &[usize], form: Form, device: &Profile) -> Vec<f64> {
    let n = order.len();
    let (mut waits, mut records) = (vec![0u32; n], vec![false; n]);
    let mut now = 0.0;
    if form.edges != EdgeSource::Code {
        for wait in &plan.waits {
            waits[wait.after.index()] += 1;
            records[wait.before.index()] = true;
        }
        // The other streams are forked from the first.
        let forks = plan.streams().saturating_sub(1) as f64;
        now += if forks > 0.0 { device.programs.record_us + forks * device.programs.wait_us } else { 0.0 };
    }
    let mut release = vec![0.0; n];
    for &i in order {
        now += f64::from(waits[i]) * device.programs.wait_us + device.programs.launch_us;
        release[i] = now;
        now += if records[i] { device.programs.record_us } else { 0.0 };
    }
    release
}
