//! The forms in which a distributed program can be launched on a GPU, and when each form lets a node start.

use std::fmt;

use cusync_gen::device::{Profile, ProgramCost};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::dependence::{Dependences, places};
use super::distribute::{Distribution, Join};
use super::network::Network;
use super::plan::GraphPlan;
use super::program::Program;
use super::waits::join_pays;

/// How nodes reach the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// Launches on streams, with events between streams.
    Launches,
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
    /// The same, with a single node that precedes all others and a single one that follows them: each additional start
    /// or end node of a graph costs more than an edge.
    Funnel,
    /// The order on a helpful number of streams, which may be less than full concurrency, and the waits between them.
    Streams,
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

/// How a program is run: a carrier, the source of its edges, and which edges are programmatic.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form {
    id: &'static str,
    name: &'static str,
    pub(crate) carrier: Carrier,
    pub(crate) edges: EdgeSource,
    pub(crate) programmatic: ProgrammaticEdges,
}

macro_rules! forms {
    ($($constant:ident $id:literal $name:literal: $carrier:ident $edges:ident $programmatic:ident;)*) => {
        impl Form {
            $(
                #[doc = concat!("The form `", $id, "`: ", $name, ".")]
                pub const $constant: Form = Form {
                    id: $id,
                    name: $name,
                    carrier: Carrier::$carrier,
                    edges: EdgeSource::$edges,
                    programmatic: ProgrammaticEdges::$programmatic,
                };
            )*

            /// All forms, simple ones first.
            pub const ALL: [Form; 8] = [$(Form::$constant),*];
        }
    };
}

// Only listed forms are offered. Launches have only stream edges, and these are full. Others that were
// offered before have on no measured program a lower regret, in their worse regime, than the best of these.
forms! {
    SERIAL "serial" "serial": Launches Code Never;
    STREAMS "streams" "streams": Launches Streams Never;
    BRANCH_GRAPH "branch-graph" "branch graph": Graph Dependences Never;
    BRANCH_PROGRAMMATIC "branch-programmatic" "branch graph, programmatic": Graph Dependences Always;
    LANE_MIXED "lane-mixed" "lane graph, mixed": Graph Streams Unjoined;
    LANE_PROGRAMMATIC "lane-programmatic" "lane graph, programmatic": Graph Streams Always;
    FUNNEL_GRAPH "funnel-graph" "funnel graph": Graph Funnel Never;
    FUNNEL_MIXED "funnel-mixed" "funnel graph, mixed": Graph Funnel Unjoined;
}

impl Form {
    /// All forms, those of least risk first: by their mean time over that of the fastest form of each measured program
    /// (`docs/results/dag_h200.json`).
    pub const BY_RISK: [Form; 8] = [
        Form::FUNNEL_MIXED,
        Form::FUNNEL_GRAPH,
        Form::LANE_MIXED,
        Form::LANE_PROGRAMMATIC,
        Form::BRANCH_PROGRAMMATIC,
        Form::BRANCH_GRAPH,
        Form::STREAMS,
        Form::SERIAL,
    ];

    /// A lane graph with full edges, which is not offered: the number of streams is chosen by it.
    pub(crate) const LANES: Form = Form { programmatic: ProgrammaticEdges::Never, ..Form::LANE_MIXED };

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

    /// The form with an id, such as `lane-mixed`.
    pub fn named(id: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.id == id)
    }

    /// Its id, such as `lane-mixed`.
    pub fn id(self) -> &'static str {
        self.id
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
        Form::named(&id)
            .ok_or_else(|| D::Error::custom(format!("there is no form `{id}`; there are {:?}", Form::ALL)))
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
        let FormEdges { order, network } = FormEdges::new(program, dependences, plan, form);
        let (nodes, built) = (network.nodes(), built(program, &network));
        let joins = network.vertices() - nodes;
        let mut found = GraphPlan { order, joins: vec![Join::default(); joins], ..GraphPlan::default() };
        // Both sides of a join are in the order of issue.
        for &before in &found.order {
            for after in network.after(before).iter().map(|&after| after as usize) {
                if after >= nodes {
                    found.joins[after - nodes].before.push(before);
                } else {
                    found.edges.push((before, after, early(&network, form, &built, before, after)));
                }
            }
        }
        let place = places(&found.order, nodes);
        for (join, at) in found.joins.iter_mut().zip(nodes..) {
            join.after = network.after(at).iter().map(|&after| after as usize).collect();
            join.after.sort_unstable_by_key(|&after| place[after]);
        }
        found
    }
}

/// Whether each vertex is a node that was built for programmatic edges.
fn built(program: &Program, network: &Network) -> Vec<bool> {
    let built = program.nodes().iter().map(|node| node.kernel().is_some_and(|k| k.programmatic));
    built.chain(std::iter::repeat(false)).take(network.vertices()).collect()
}

/// Whether an edge of a form is programmatic.
fn early(network: &Network, form: Form, built: &[bool], before: usize, after: usize) -> bool {
    let wanted = match form.programmatic {
        ProgrammaticEdges::Never => false,
        ProgrammaticEdges::Unjoined => network.into()[after] == 1,
        ProgrammaticEdges::Always => true,
    };
    wanted && built[before] && built[after]
}

/// The edges of a form. Forms with one source of edges share them.
#[derive(Debug)]
pub(super) struct FormEdges {
    /// The nodes in an order that satisfies the edges.
    pub(super) order: Vec<usize>,
    pub(super) network: Network,
}

impl FormEdges {
    /// The edges of a form of a distribution.
    pub(super) fn new(
        program: &Program,
        dependences: &Dependences,
        plan: &Distribution,
        form: Form,
    ) -> FormEdges {
        let n = program.nodes().len();
        let order = || plan.order.iter().map(|id| id.index()).collect();
        match form.edges {
            EdgeSource::Code => {
                let network = Network::from_pairs(n, n, (1..n).map(|after| (after - 1, after)));
                FormEdges { order: (0..n).collect(), network }
            }
            EdgeSource::Dependences | EdgeSource::Funnel => {
                let joins = |before: usize, after: usize| join_pays(before, after, before * after);
                let network = Network::new(&dependences.reduced, joins, std::iter::empty());
                let branch = FormEdges { order: order(), network };
                if form.edges == EdgeSource::Funnel { branch.funnel(program) } else { branch }
            }
            EdgeSource::Streams => {
                let neighbours: Vec<_> = plan.neighbours().collect();
                let waits = plan.waits.iter().map(|w| (w.before.index(), w.after.index()));
                let joined = plan.joins.iter().zip(n..).flat_map(|(join, at)| {
                    let before = join.before.iter().map(move |&before| (before, at));
                    before.chain(join.after.iter().map(move |&after| (at, after)))
                });
                let pairs = neighbours.iter().copied().chain(waits).chain(joined);
                FormEdges { order: order(), network: Network::from_pairs(n, n + plan.joins.len(), pairs) }
            }
        }
    }

    /// With more edges, which leave a single first and a single last node. The first is the shortest root, so that it
    /// delays the others least; the last is the end node with which the whole program ends earliest if only edges
    /// delay nodes.
    fn funnel(self, program: &Program) -> FormEdges {
        let network = &self.network;
        let n = network.nodes();
        let us = |i: usize| program.nodes()[i].us;
        let roots: Vec<usize> = (0..n).filter(|&i| network.into()[i] == 0).collect();
        let Some(&root) = roots.iter().min_by(|&&a, &&b| us(a).total_cmp(&us(b))) else { return self };
        let mut extra: Vec<(usize, usize)> =
            roots.iter().filter(|&&i| i != root).map(|&i| (root, i)).collect();
        // Joins take no time.
        let (mut start, mut missing) = (vec![0.0; network.vertices()], network.into().to_vec());
        extra.iter().for_each(|&(_, other)| start[other] = us(root));
        for &i in &self.order {
            network.done(i, &mut missing, &mut |before, after, _| {
                let end = start[before] + if before < n { us(before) } else { 0.0 };
                start[after] = f64::max(start[after], end);
            });
        }
        let ends: Vec<usize> = (0..n).filter(|&i| network.after(i).is_empty() && i != root).collect();
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
        let pairs = network.pairs().chain(extra.iter().copied());
        FormEdges { order, network: Network::from_pairs(n, network.vertices(), pairs) }
    }
}

/// Constraints on a vertex's start: the host, and earlier vertices with the delay from their end to its start,
/// microseconds.
pub(super) struct StartDelays<'a> {
    pub(super) release: Vec<f64>,
    pub(super) network: &'a Network,
    form: Form,
    /// The stream of each node and, in launches, of each join: that of its first successor.
    stream: Vec<u32>,
    built: Vec<bool>,
    cost: &'a ProgramCost,
    /// From the end of the last node to the end of the program.
    pub(super) tail_us: f64,
}

impl<'a> StartDelays<'a> {
    /// The start constraints of a form's nodes.
    pub(super) fn new(
        program: &Program,
        plan: &Distribution,
        form: Form,
        edges: &'a FormEdges,
        device: &'a Profile,
    ) -> StartDelays<'a> {
        let (cost, network) = (&device.programs, &edges.network);
        let joins = plan.joins.iter().filter_map(|join| join.after.first()).map(|&first| plan.stream[first]);
        let mut delays = StartDelays {
            release: vec![cost.graph_launch_us; network.vertices()],
            network,
            form,
            stream: plan.stream.iter().copied().chain(joins).collect(),
            built: built(program, network),
            cost,
            tail_us: 0.0,
        };
        if form.carrier == Carrier::Launches {
            let host = host_times(plan, &edges.order, form, device);
            delays.release[..host.len()].copy_from_slice(&host);
            return delays;
        }
        // A graph's first nodes are started one after another, and its last ones are awaited one after another.
        let first = edges.order.iter().filter(|&&i| network.into()[i] == 0);
        first.enumerate().for_each(|(at, &i)| delays.release[i] += at as f64 * cost.graph_root_us);
        let ends = (0..network.nodes()).filter(|&i| network.after(i).is_empty()).count();
        delays.tail_us = ends.saturating_sub(1) as f64 * cost.graph_end_us;
        delays
    }

    /// From the end of a vertex to the start of one that waits for it.
    pub(super) fn delay_us(&self, before: usize, after: usize) -> f64 {
        let (cost, network) = (self.cost, self.network);
        let (joins, forks) = (network.into()[after] > 1, network.after(before).len() > 1);
        let is_join = before >= network.nodes();
        match self.form.carrier {
            Carrier::Launches if self.form.is_serial() => cost.stream_edge_us,
            // The stream itself passes a join at once.
            Carrier::Launches if is_join && self.stream[before] == self.stream[after] => 0.0,
            Carrier::Launches if self.stream[before] == self.stream[after] => cost.stream_edge_us,
            Carrier::Launches => cost.event_edge_us,
            Carrier::Graph => match early(network, self.form, &self.built, before, after) {
                true if joins => cost.programmatic_join_us,
                true if forks => cost.programmatic_fork_us,
                true => cost.programmatic_edge_us,
                false if joins || forks => cost.graph_branch_us,
                false => cost.graph_edge_us,
            },
        }
    }
}

/// When the host has launched each node, if it starts at 0 and does nothing else.
fn host_times(plan: &Distribution, order: &[usize], form: Form, device: &Profile) -> Vec<f64> {
    let n = order.len();
    // The waits before each node and the records before and after it.
    let (mut waits, mut points, mut records) = (vec![0; n], vec![0; n], vec![false; n]);
    let mut now = 0.0;
    if form.edges != EdgeSource::Code {
        for wait in &plan.waits {
            waits[wait.after.index()] += 1;
            records[wait.before.index()] = true;
        }
        for join in &plan.joins {
            join.before.iter().for_each(|&before| records[before] = true);
            if let [first, others @ ..] = &join.after[..] {
                (waits[*first], points[*first]) = (waits[*first] + join.before.len(), points[*first] + 1);
                others.iter().for_each(|&after| waits[after] += 1);
            }
        }
        // The other streams are forked from the first.
        let forks = plan.streams().saturating_sub(1) as f64;
        now += if forks > 0.0 { device.programs.record_us + forks * device.programs.wait_us } else { 0.0 };
    }
    let mut release = vec![0.0; n];
    for &i in order {
        now += f64::from(points[i]) * device.programs.record_us;
        now += waits[i] as f64 * device.programs.wait_us + device.programs.launch_us;
        release[i] = now;
        now += if records[i] { device.programs.record_us } else { 0.0 };
    }
    release
}
