//! How a program is launched, and the proof that its dependences are preserved.
//!
//! A [`LaunchPlan`] is an unproved plan, made from a schedule or by hand. [`LaunchPlan::prove`] is the only
//! constructor of a [`ProvedPlan`], and nothing else is launched.

use std::collections::{BTreeSet, HashMap};

use super::arena::Arena;
use super::bits::BitMatrix;
use super::dependence::analyse;
use super::distribute::{Distribution, Join, Lane};
use super::error::Unproved;
use super::order::NodeOrder;
use super::program::{Evidence, NodeId, Program};
use super::scratch;
use super::scratch::Workspaces;
use super::steps::{LaunchStep, Steps};

/// Nodes on streams. Lanes are numbered from 0; the order inside a lane implies its waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPlan {
    /// (node, lane) in the order in which the host queues them: each node once, after every node it waits for.
    pub order: Vec<(usize, usize)>,
    /// (before, after) in different lanes.
    pub waits: Vec<(usize, usize)>,
    /// Waits of many nodes for many others: the lane of the first of `after` waits for all of `before`, the other lanes
    /// for that point.
    pub joins: Vec<Join>,
    /// The priority of each lane; larger values run earlier. Lanes past the end have 0.
    pub priorities: Vec<i32>,
    /// Whether a kernel that directly follows another in its lane begins to launch while that one ends.
    pub programmatic: bool,
    /// Whether the queued work is captured into a graph.
    pub captured: bool,
}

/// Nodes of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphPlan {
    /// The nodes in an order that satisfies the edges, each once. Nodes that are ready together start in this order.
    pub order: Vec<usize>,
    /// (before, after, whether the edge is programmatic).
    pub edges: Vec<(usize, usize, bool)>,
    /// Full edges from many nodes to many others, through an empty node.
    pub joins: Vec<Join>,
    /// The priority of each node; larger values run earlier. Empty: all equal.
    pub priorities: Vec<i32>,
}

/// An unproved plan to launch a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchPlan {
    /// Launches on streams, optionally captured.
    Streams(StreamPlan),
    /// A graph of explicit nodes and edges.
    Graph(GraphPlan),
}

impl From<StreamPlan> for LaunchPlan {
    fn from(plan: StreamPlan) -> Self {
        LaunchPlan::Streams(plan)
    }
}

impl From<GraphPlan> for LaunchPlan {
    fn from(plan: GraphPlan) -> Self {
        LaunchPlan::Graph(plan)
    }
}

impl From<&Distribution> for StreamPlan {
    /// Streams keep their numbers; launches are ordered in the first.
    fn from(distribution: &Distribution) -> Self {
        let priority = |lane: &Lane| match lane {
            Lane::Kernels { priority } => *priority,
            Lane::Copies(_) => 0,
        };
        let placed = |id: &NodeId| (id.index(), distribution.stream[id.index()] as usize);
        StreamPlan {
            order: distribution.order.iter().map(placed).collect(),
            waits: distribution.waits.iter().map(|w| (w.before.index(), w.after.index())).collect(),
            joins: distribution.joins.clone(),
            priorities: distribution.lanes.iter().map(priority).collect(),
            ..StreamPlan::default()
        }
    }
}

/// A launch plan that is proved for a program.
#[derive(Clone, Debug)]
pub struct ProvedPlan {
    pub(super) program: Program,
    launches: Launches,
    /// Kernels at programmatic edges.
    early: Vec<NodeId>,
    workspaces: Workspaces,
    arena: Arena,
}

/// The launches of a proved plan.
#[derive(Clone, Debug)]
pub enum Launches {
    /// Launches on streams.
    Streams {
        /// The steps that the host queues.
        steps: Steps,
        /// See [`StreamPlan::programmatic`].
        programmatic: bool,
        /// See [`StreamPlan::captured`].
        captured: bool,
    },
    /// A graph.
    Graph {
        /// The nodes in the order in which they are added.
        order: Vec<usize>,
        /// The predecessors of each node, and whether each edge is programmatic.
        before: Vec<Vec<(usize, bool)>>,
        /// See [`GraphPlan::joins`]; each is added before the first of its `after`.
        joins: Vec<Join>,
        /// See [`GraphPlan::priorities`].
        priorities: Vec<i32>,
    },
}

impl ProvedPlan {
    /// Whether the proof applies to a program.
    pub fn is_of(&self, program: &Program) -> bool {
        self.program.is_like(program)
    }

    /// The launches.
    pub fn launches(&self) -> &Launches {
        &self.launches
    }

    /// Kernels at programmatic edges that only their declarations show to be built for these, each with the reason why
    /// its code was not verified.
    pub fn unverified(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.early.iter().filter_map(|&id| match &self.program.node(id).evidence {
            Evidence::Code => None,
            Evidence::Declaration(why) => Some((id, &**why)),
        })
    }

    /// The workspace of each opaque node.
    pub fn workspaces(&self) -> &Workspaces {
        &self.workspaces
    }

    /// The places of temporary buffers.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }
}

/// A node that waits for another one in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanEdge {
    /// The earlier node.
    pub before: usize,
    /// The later node.
    pub after: usize,
    /// `stream`: it follows on the same stream; `full`: it waits for the end; `programmatic`: it begins to launch while
    /// the earlier kernel ends.
    pub kind: &'static str,
}

impl LaunchPlan {
    /// Every wait of the plan, but those of [`LaunchPlan::joins`]. Their order is that of the plan.
    pub fn edges(&self) -> Vec<PlanEdge> {
        let edge = |(before, after): (usize, usize), kind| PlanEdge { before, after, kind };
        match self {
            LaunchPlan::Streams(plan) => {
                let lanes = plan.neighbours().map(|pair| edge(pair, "stream"));
                lanes.chain(plan.waits.iter().map(|&pair| edge(pair, "full"))).collect()
            }
            LaunchPlan::Graph(plan) => {
                let kind = |early| if early { "programmatic" } else { "full" };
                plan.edges.iter().map(|&(b, a, early)| edge((b, a), kind(early))).collect()
            }
        }
    }

    /// The number of waits: between lanes or, in a graph, of all edges.
    pub fn wait_count(&self) -> usize {
        let waits = match self {
            LaunchPlan::Streams(plan) => plan.waits.len(),
            LaunchPlan::Graph(plan) => plan.edges.len(),
        };
        waits + self.joins().iter().map(Join::waits).sum::<usize>()
    }

    /// The joins of the plan.
    pub fn joins(&self) -> &[Join] {
        match self {
            LaunchPlan::Streams(plan) => &plan.joins,
            LaunchPlan::Graph(plan) => &plan.joins,
        }
    }

    /// The priority of each of `nodes` nodes in the plan; larger values run earlier.
    pub fn priorities(&self, nodes: usize) -> Vec<i32> {
        let mut found = vec![0; nodes];
        match self {
            LaunchPlan::Streams(plan) => plan.order.iter().for_each(|&(node, lane)| {
                found[node] = plan.priorities.get(lane).copied().unwrap_or(0);
            }),
            LaunchPlan::Graph(plan) => {
                plan.priorities.iter().zip(&mut found).for_each(|(p, found)| *found = *p)
            }
        }
        found
    }

    /// Proves that every node of the program runs once, that each waits for everything it depends on, and that
    /// programmatic edges only connect kernels built for them. Opaque nodes get the fewest workspaces with which the
    /// plan orders all nodes of each. Temporaries get common bytes where the plan orders all their nodes.
    ///
    /// # Errors
    /// The first violation.
    pub fn prove(self, program: &Program) -> Result<ProvedPlan, Unproved> {
        self.prove_with(program, None, None)
    }

    /// Like [`LaunchPlan::prove`], with given places of temporaries.
    ///
    /// # Errors
    /// The first violation; [`Unproved::Memory`] for buffers that share bytes and may be alive at the same time.
    pub fn prove_placed(self, program: &Program, arena: &Arena) -> Result<ProvedPlan, Unproved> {
        self.prove_with(program, None, Some(arena))
    }

    /// Like [`LaunchPlan::prove`], with given workspaces: the number of each node's workspace, `None` for
    /// kernels and copies. Two nodes of
    /// one workspace write it, and nothing reads it after them, so they need an order, but no particular one.
    ///
    /// # Errors
    /// The first violation; [`Unproved::Workspace`] for nodes without an order.
    pub fn prove_sharing(
        self,
        program: &Program,
        workspaces: &[Option<usize>],
    ) -> Result<ProvedPlan, Unproved> {
        self.prove_with(program, Some(workspaces), None)
    }

    fn prove_with(
        self,
        program: &Program,
        workspaces: Option<&[Option<usize>]>,
        arena: Option<&Arena>,
    ) -> Result<ProvedPlan, Unproved> {
        let nodes = program.nodes().len();
        let (place, edges, joins, launches) = match self {
            LaunchPlan::Streams(plan) => {
                let order: Vec<usize> = plan.order.iter().map(|&(node, _)| node).collect();
                let place = places(&order, nodes)?;
                judge_joins(&plan.joins, &place)?;
                let steps = plan.steps(&place)?;
                let edges = plan.edges(&steps);
                let StreamPlan { programmatic, captured, joins, .. } = plan;
                (place, edges, joins, Launches::Streams { steps, programmatic, captured })
            }
            LaunchPlan::Graph(GraphPlan { order, edges, joins, priorities }) => {
                let place = places(&order, nodes)?;
                judge_joins(&joins, &place)?;
                let before = predecessors(&place, &edges)?;
                (place, edges, joins.clone(), Launches::Graph { order, before, joins, priorities })
            }
        };
        let built = |node: usize| program.nodes()[node].kernel().is_some_and(|k| k.programmatic);
        if let Some(&(a, b, _)) = edges.iter().find(|&&(a, b, early)| early && !(built(a) && built(b))) {
            let node = NodeId::from(if built(a) { b } else { a });
            return Err(Unproved::Node { node, what: "was not built for programmatic edges" });
        }
        let ends =
            edges.iter().filter(|(_, _, early)| *early).flat_map(|&(before, after, _)| [before, after]);
        let early: BTreeSet<NodeId> = ends.map(NodeId::from).collect();
        // A kernel with programmatic edges waits for all its predecessors, so its end implies theirs.
        let ancestors = ancestors(&place, &edges, &joins);
        let order = NodeOrder { place: &place, ancestors: &ancestors };
        if let Some((before, after)) = race(program, order) {
            return Err(Unproved::Race { before, after });
        }
        let workspaces = match workspaces {
            Some(given) => given.to_vec(),
            None => scratch::fewest(program, order),
        };
        let workspaces = Workspaces::proved(program, order, workspaces)?;
        let arena = arena.cloned().unwrap_or_else(|| Arena::smallest(program, order));
        arena.judge(program, order)?;
        Ok(ProvedPlan {
            program: program.clone(),
            launches,
            early: early.into_iter().collect(),
            workspaces,
            arena,
        })
    }
}

/// For each position, the positions that edges and joins order before it.
fn ancestors(place: &[usize], edges: &[(usize, usize, bool)], joins: &[Join]) -> BitMatrix {
    let nodes = place.len();
    let mut found = BitMatrix::new(nodes + joins.len(), nodes);
    // The predecessors of each position: positions, and past them joins.
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); nodes];
    edges.iter().for_each(|&(first, second, _)| before[place[second]].push(place[first] as u32));
    for (join, at) in joins.iter().zip(nodes..) {
        join.after.iter().for_each(|&after| before[place[after]].push(at as u32));
    }
    let inherit = |found: &mut BitMatrix, row: usize, before: &mut Vec<u32>| {
        // Most of many are implied by later ones.
        before.sort_unstable_by_key(|&at| std::cmp::Reverse(at));
        for &at in before.iter().filter(|&&at| (at as usize) < nodes) {
            if !found.get(row, at as usize) {
                found.inherit(row, at as usize);
            }
        }
    };
    let mut done = vec![false; joins.len()];
    for (at, before) in before.iter_mut().enumerate() {
        for join in before.iter().filter_map(|&before| (before as usize).checked_sub(nodes)) {
            if !std::mem::replace(&mut done[join], true) {
                let mut all = joins[join].before.iter().map(|&node| place[node] as u32).collect();
                inherit(&mut found, nodes + join, &mut all);
            }
            found.add(at, nodes + join);
        }
        inherit(&mut found, at, before);
    }
    found
}

/// A dependence of the program between nodes that are not ordered.
fn race(program: &Program, NodeOrder { place, ancestors }: NodeOrder<'_>) -> Option<(NodeId, NodeId)> {
    let (reduced, nodes) = (analyse(program).reduced, place.len());
    let mut wanted = BitMatrix::new(1, nodes);
    let mut by_list: Vec<usize> = (0..nodes).collect();
    by_list.sort_by_key(|&node| reduced.list_of(node));
    let missing = |same: &[usize]| {
        wanted.clear(0);
        reduced.of_node(same[0]).iter().for_each(|&before| wanted.set(0, place[before as usize]));
        let unordered = |&after: &usize| Some((wanted.first_missing(0, ancestors, place[after])?, after));
        same.iter().find_map(unordered)
    };
    let (before, after) =
        by_list.chunk_by(|&a, &b| reduced.list_of(a) == reduced.list_of(b)).find_map(missing)?;
    let before = place.iter().position(|&at| at == before)?;
    Some((before.into(), after.into()))
}

/// The position of each node in an order that contains each of `nodes` nodes once.
fn places(order: &[usize], nodes: usize) -> Result<Vec<usize>, Unproved> {
    let mut place = vec![None; nodes];
    for (at, &node) in order.iter().enumerate() {
        let slot = place.get_mut(node).ok_or(Unproved::node(node, "does not exist"))?;
        if slot.replace(at).is_some() {
            return Err(Unproved::node(node, "is planned twice"));
        }
    }
    let place = place.into_iter().enumerate();
    place.map(|(node, at)| at.ok_or(Unproved::node(node, "is not planned"))).collect()
}

/// Every node of a join must exist, all of `before` earlier than all of `after`, and the first of `after` must be the
/// earliest.
fn judge_joins(joins: &[Join], place: &[usize]) -> Result<(), Unproved> {
    for join in joins {
        if let Some(&node) = join.before.iter().chain(&join.after).find(|&&node| node >= place.len()) {
            return Err(Unproved::node(node, "does not exist"));
        }
        let last = join.before.iter().map(|&node| place[node]).max();
        if let Some(&node) = join.after.iter().find(|&&node| Some(place[node]) <= last) {
            return Err(Unproved::node(node, "stands before a node that it waits for"));
        }
        let first = join.after.first().map(|&node| place[node]);
        if let Some(&node) = join.after.iter().find(|&&node| Some(place[node]) < first) {
            return Err(Unproved::node(node, "stands before the first of its join"));
        }
    }
    Ok(())
}

/// The predecessors of each node; every edge must point forward in the order.
fn predecessors(
    place: &[usize],
    edges: &[(usize, usize, bool)],
) -> Result<Vec<Vec<(usize, bool)>>, Unproved> {
    let mut before = vec![Vec::new(); place.len()];
    for &(first, second, programmatic) in edges {
        if first.max(second) >= place.len() {
            return Err(Unproved::node(first.max(second), "does not exist"));
        }
        if place[first] >= place[second] {
            return Err(Unproved::node(second, "stands before a node that it waits for"));
        }
        before[second].push((first, programmatic));
    }
    Ok(before)
}

impl GraphPlan {
    /// One node after another, over full edges.
    pub fn chain(order: Vec<usize>) -> GraphPlan {
        let edges = order.windows(2).map(|pair| (pair[0], pair[1], false)).collect();
        GraphPlan { order, edges, ..GraphPlan::default() }
    }
}

impl From<&StreamPlan> for GraphPlan {
    /// The graph with edges for the order of the lanes and for the waits between them.
    fn from(plan: &StreamPlan) -> Self {
        let edges = plan.neighbours().chain(plan.waits.iter().copied());
        GraphPlan {
            order: plan.order.iter().map(|&(node, _)| node).collect(),
            edges: edges.map(|(before, after)| (before, after, false)).collect(),
            joins: plan.joins.clone(),
            priorities: Vec::new(),
        }
    }
}

impl StreamPlan {
    /// One lane.
    pub fn serial(order: impl IntoIterator<Item = usize>) -> StreamPlan {
        StreamPlan { order: order.into_iter().map(|node| (node, 0)).collect(), ..StreamPlan::default() }
    }

    /// The same, with kernels that begin to launch while their predecessors end.
    pub fn programmatic(self) -> StreamPlan {
        StreamPlan { programmatic: true, ..self }
    }

    /// The same, captured into a graph.
    pub fn captured(self) -> StreamPlan {
        StreamPlan { captured: true, ..self }
    }

    /// Consecutive nodes in a lane.
    fn neighbours(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut last = HashMap::new();
        self.order
            .iter()
            .filter_map(move |&(node, lane)| last.insert(lane, node).map(|before| (before, node)))
    }

    /// (before, after, whether the later begins to launch while the earlier ends).
    fn edges(&self, steps: &Steps) -> Vec<(usize, usize, bool)> {
        let mut chained = BTreeSet::new();
        chained.extend(steps.steps.iter().filter_map(|step| match *step {
            LaunchStep::Run { node, chained: true, .. } if self.programmatic => Some(node),
            _ => None,
        }));
        let lanes = self.neighbours().map(|(before, after)| (before, after, chained.contains(&after)));
        lanes.chain(self.waits.iter().map(|&(before, after)| (before, after, false))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernel, LaunchConfig, Node, NodeWork};

    /// Independent kernels.
    fn kernels(nodes: usize) -> Program {
        let mut program = Program::new("kernels");
        for k in 0..nodes {
            let work = NodeWork::Kernel(Kernel::new(LaunchConfig::linear(1, 32), &[]));
            program.push(Node::new(format!("k{k}"), work, Vec::new(), 1.0)).expect("a valid node");
        }
        program
    }

    #[test]
    fn plans_of_another_program_are_refuted() {
        let fault = |plan: LaunchPlan| plan.prove(&kernels(2)).expect_err("refuted").to_string();
        assert!(fault(StreamPlan::serial([0, 0]).into()).contains("node 0 is planned twice"));
        assert!(fault(StreamPlan::serial([0]).into()).contains("node 1 is not planned"));
        assert!(fault(StreamPlan::serial([0, 7]).into()).contains("node 7 does not exist"));
        let late = StreamPlan { order: vec![(1, 0), (0, 1)], waits: vec![(0, 1)], ..StreamPlan::default() };
        assert!(fault(late.into()).contains("node 1 is queued before"));
        let far = StreamPlan { waits: vec![(0, 9)], ..StreamPlan::serial([0, 1]) };
        assert!(fault(far.into()).contains("node 9 does not exist"));
        let mut chain = GraphPlan::chain(vec![1, 0]);
        let proved = LaunchPlan::from(chain.clone()).prove(&kernels(2)).expect("nothing depends on anything");
        let Launches::Graph { before, .. } = proved.launches() else { panic!("{proved:?}") };
        assert_eq!(before[0], [(1, false)]);
        assert!(proved.is_of(&kernels(2)) && !proved.is_of(&kernels(3)));
        chain.edges = vec![(0, 1, false)];
        assert!(fault(chain.into()).contains("stands before"));
    }
}
