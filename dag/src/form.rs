//! The forms in which a distributed program can be launched on a GPU, and when each form lets a node start.

use std::fmt;

use cusync_gen::device::{Profile, ProgramCost};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::dependence::Dependences;
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
        let found = FormEdges::new(program, dependences, plan, form);
        let built = built(program);
        let early = |before: usize, after: usize| found.early(form, &built, before, after);
        let from = |before: usize| found.after(before).iter().map(move |&after| (before, after as usize));
        let edges =
            found.order.iter().flat_map(|&before| from(before)).map(|(b, a)| (b, a, early(b, a))).collect();
        GraphPlan { order: found.order, edges, priorities: Vec::new() }
    }
}

/// Whether each node was built for programmatic edges.
fn built(program: &Program) -> Vec<bool> {
    program.nodes().iter().map(|node| node.kernel().is_some_and(|k| k.programmatic)).collect()
}

/// The edges of a form, by earlier node. Forms with one source of edges share them.
#[derive(Debug)]
pub(super) struct FormEdges {
    /// The nodes in an order that satisfies the edges.
    pub(super) order: Vec<usize>,
    /// Where the edges of each node begin in `after`, and the length of `after`.
    first: Vec<u32>,
    after: Vec<u32>,
    /// The number of predecessors of each node.
    pub(super) into: Vec<u32>,
}

impl FormEdges {
    /// The edges of a form of a distribution.
    pub(super) fn new(
        program: &Program,
        dependences: &Dependences,
        plan: &Distribution,
        form: Form,
    ) -> FormEdges {
        let order: Vec<usize> = match form.edges {
            EdgeSource::Code => (0..program.nodes().len()).collect(),
            _ => plan.order.iter().map(|id| id.index()).collect(),
        };
        match form.edges {
            EdgeSource::Code => {
                let pairs: Vec<_> = order.windows(2).map(|w| (w[0], w[1])).collect();
                FormEdges::from_pairs(order, pairs.iter().copied())
            }
            EdgeSource::Dependences => {
                let branch = FormEdges::of_dependences(order, dependences);
                if form.funnel { branch.funnel(program) } else { branch }
            }
            EdgeSource::Streams | EdgeSource::Written => {
                let neighbours: Vec<_> = plan.neighbours().collect();
                let waits = plan.waits.iter().map(|w| (w.before.index(), w.after.index()));
                FormEdges::from_pairs(order, neighbours.iter().copied().chain(waits))
            }
        }
    }

    /// The reduced dependences; `order` satisfies them.
    pub(super) fn of_dependences(order: Vec<usize>, dependences: &Dependences) -> FormEdges {
        let pairs = dependences.reduced_edges().map(|e| (e.before.index(), e.after.index()));
        FormEdges::from_pairs(order, pairs)
    }

    fn from_pairs(order: Vec<usize>, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> FormEdges {
        let (mut first, mut into) = (vec![0u32; order.len() + 1], vec![0u32; order.len()]);
        for (before, after) in pairs.clone() {
            first[before + 1] += 1;
            into[after] += 1;
        }
        for node in 0..order.len() {
            first[node + 1] += first[node];
        }
        let (mut next, mut list) = (first.clone(), vec![0; first[order.len()] as usize]);
        for (before, after) in pairs {
            list[next[before] as usize] = after as u32;
            next[before] += 1;
        }
        FormEdges { order, first, after: list, into }
    }

    /// The nodes that wait for a node.
    pub(super) fn after(&self, node: usize) -> &[u32] {
        &self.after[self.first[node] as usize..self.first[node + 1] as usize]
    }

    fn early(&self, form: Form, built: &[bool], before: usize, after: usize) -> bool {
        let wanted = match form.programmatic {
            ProgrammaticEdges::Never => false,
            ProgrammaticEdges::Unjoined => self.into[after] == 1,
            ProgrammaticEdges::Always => true,
        };
        wanted && built[before] && built[after]
    }

    /// With more edges, which leave a single first and a single last node. The first is the shortest root, so that it
    /// delays the others least; the last is the end node with which the whole program ends earliest if only edges
    /// delay nodes.
    fn funnel(self, program: &Program) -> FormEdges {
        let n = self.order.len();
        let us = |i: usize| program.nodes()[i].us;
        let roots: Vec<usize> = (0..n).filter(|&i| self.into[i] == 0).collect();
        let Some(&root) = roots.iter().min_by(|&&a, &&b| us(a).total_cmp(&us(b))) else { return self };
        let mut extra: Vec<(usize, usize)> =
            roots.iter().filter(|&&i| i != root).map(|&i| (root, i)).collect();
        let mut start = vec![0.0; n];
        extra.iter().for_each(|&(_, other)| start[other] = us(root));
        for &i in &self.order {
            for &a in self.after(i) {
                start[a as usize] = f64::max(start[a as usize], start[i] + us(i));
            }
        }
        let ends: Vec<usize> = (0..n).filter(|&i| self.after(i).is_empty() && i != root).collect();
        // Only the latest of the other ends matters: the overall latest, or the second latest if the last node is
        // itself the latest.
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
        let last = ends.iter().copied().min_by(|&a, &b| over(a).total_cmp(&over(b)).then(b.cmp(&a)));
        if let Some(last) = last {
            extra.extend(ends.iter().filter(|&&i| i != last).map(|&i| (i, last)));
        }
        let between = self.order.iter().copied().filter(|&i| i != root && Some(i) != last);
        let order = std::iter::once(root).chain(between).chain(last).collect();
        let pairs = (0..n).flat_map(|i| self.after(i).iter().map(move |&a| (i, a as usize)));
        FormEdges::from_pairs(order, pairs.chain(extra.iter().copied()))
    }
}

/// Constraints on a node's start: the host, and earlier nodes with the delay from their end to its start,
/// microseconds.
pub(super) struct StartDelays<'a> {
    pub(super) release: Vec<f64>,
    pub(super) edges: &'a FormEdges,
    form: Form,
    stream: &'a [u32],
    built: Vec<bool>,
    cost: &'a ProgramCost,
    /// From the end of the last node to the end of the program.
    pub(super) tail_us: f64,
}

impl<'a> StartDelays<'a> {
    /// The start constraints of a form's nodes.
    pub(super) fn new(
        program: &Program,
        plan: &'a Distribution,
        form: Form,
        edges: &'a FormEdges,
        device: &'a Profile,
    ) -> StartDelays<'a> {
        let (cost, nodes) = (&device.programs, edges.order.len());
        let mut delays = StartDelays {
            release: vec![cost.graph_launch_us; nodes],
            edges,
            form,
            stream: &plan.stream,
            built: built(program),
            cost,
            tail_us: 0.0,
        };
        if form.carrier == Carrier::Launches {
            delays.release = host_times(plan, &edges.order, form, device);
            return delays;
        }
        // A graph's first nodes are started one after another, and its last ones are awaited one after another.
        let first = edges.order.iter().filter(|&&i| edges.into[i] == 0);
        first.enumerate().for_each(|(at, &i)| delays.release[i] += at as f64 * cost.graph_root_us);
        let ends = (0..nodes).filter(|&i| edges.after(i).is_empty()).count();
        delays.tail_us = ends.saturating_sub(1) as f64 * cost.graph_end_us;
        delays
    }

    /// From the end of a node to the start of one that waits for it.
    pub(super) fn delay_us(&self, before: usize, after: usize) -> f64 {
        let (cost, joins, forks) =
            (self.cost, self.edges.into[after] > 1, self.edges.after(before).len() > 1);
        match self.form.carrier {
            Carrier::Launches if self.form.is_serial() || self.stream[before] == self.stream[after] => {
                cost.stream_edge_us
            }
            Carrier::Launches => cost.event_edge_us,
            Carrier::Capture | Carrier::Graph => {
                match self.edges.early(self.form, &self.built, before, after) {
                    true if joins => cost.programmatic_join_us,
                    true if forks => cost.programmatic_fork_us,
                    true => cost.programmatic_edge_us,
                    false if joins || forks => cost.graph_branch_us,
                    false => cost.graph_edge_us,
                }
            }
        }
    }
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
