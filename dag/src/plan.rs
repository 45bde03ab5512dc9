//! How a program is launched, and the proof that its dependences are preserved.
//!
//! A [`LaunchPlan`] is an unproved plan, made from a schedule or by hand. [`LaunchPlan::prove`] is the only
//! constructor of a [`ProvedPlan`], and nothing else is launched.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::dependence::{analyse, reduce};
use super::distribute::{Distribution, Lane};
use super::error::Unproved;
use super::program::{NodeId, Program};

/// Nodes on streams. Lanes are numbered from 0; the order inside a lane implies its waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPlan {
    /// (node, lane) in the order in which the host queues them: each node once, after every node it waits for.
    pub order: Vec<(usize, usize)>,
    /// (before, after) in different lanes.
    pub waits: Vec<(usize, usize)>,
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
            priorities: distribution.lanes.iter().map(priority).collect(),
            ..StreamPlan::default()
        }
    }
}

/// One operation that the host queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchStep {
    /// The work of a node.
    Run {
        /// The node.
        node: usize,
        /// Its lane.
        lane: usize,
        /// Whether the step directly before it in its lane is a node.
        chained: bool,
    },
    /// Records an event after the lane's work so far.
    Record {
        /// The event.
        event: usize,
        /// The lane.
        lane: usize,
    },
    /// Later work in the lane waits for the event.
    Wait {
        /// The event.
        event: usize,
        /// The lane.
        lane: usize,
    },
}

/// The steps that the host queues, forked from lane 0, where launches are ordered, and joined there again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The steps in order.
    pub steps: Vec<LaunchStep>,
    /// Number of events used.
    pub events: usize,
    /// The priority of each lane after the first; larger values run earlier.
    pub priorities: Vec<i32>,
}

/// A launch plan that is proved for a program.
#[derive(Clone, Debug)]
pub struct ProvedPlan {
    pub(super) program: Program,
    launches: Launches,
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
    /// Every wait of the plan. Their order is that of the plan.
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
    /// programmatic edges only connect kernels built for them.
    ///
    /// # Errors
    /// The first violation.
    pub fn prove(self, program: &Program) -> Result<ProvedPlan, Unproved> {
        let nodes = program.nodes().len();
        let (order, edges, launches) = match self {
            LaunchPlan::Streams(plan) => {
                let steps = plan.steps(nodes)?;
                let StreamPlan { programmatic, captured, .. } = plan;
                let order: Vec<usize> = plan.order.iter().map(|&(node, _)| node).collect();
                (order, plan.edges(&steps), Launches::Streams { steps, programmatic, captured })
            }
            LaunchPlan::Graph(GraphPlan { order, edges, priorities }) => {
                let before = predecessors(&order, &edges, nodes)?;
                (order.clone(), edges, Launches::Graph { order, before, priorities })
            }
        };
        let built = |node: usize| program.nodes()[node].kernel().is_some_and(|k| k.programmatic);
        if let Some(&(a, b, _)) = edges.iter().find(|&&(a, b, early)| early && !(built(a) && built(b))) {
            let node = NodeId::from(if built(a) { b } else { a });
            return Err(Unproved::Node { node, what: "was not built for programmatic edges" });
        }
        let place = places(&order, nodes)?;
        let mut pairs: Vec<_> =
            edges.iter().map(|&(before, after, _)| (place[after], place[before])).collect();
        pairs.sort_unstable();
        pairs.dedup();
        // A kernel with programmatic edges waits for all its predecessors, so its end implies theirs.
        let (_, ancestors) = reduce(nodes, pairs.len(), |i| pairs[i]);
        let kept = |before: NodeId, after: NodeId| ancestors.get(place[after.index()], place[before.index()]);
        match analyse(program).reduced_edges().find(|e| !kept(e.before, e.after)) {
            Some(e) => Err(Unproved::Race { before: e.before, after: e.after }),
            None => Ok(ProvedPlan { program: program.clone(), launches }),
        }
    }
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

/// The predecessors of each node; every edge must point forward in the order.
fn predecessors(
    order: &[usize],
    edges: &[(usize, usize, bool)],
    nodes: usize,
) -> Result<Vec<Vec<(usize, bool)>>, Unproved> {
    let place = places(order, nodes)?;
    let mut before = vec![Vec::new(); nodes];
    for &(first, second, programmatic) in edges {
        if first.max(second) >= nodes {
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
        GraphPlan { order, edges, priorities: Vec::new() }
    }
}

impl From<&StreamPlan> for GraphPlan {
    /// The graph with edges for the order of the lanes and for the waits between them.
    fn from(plan: &StreamPlan) -> Self {
        let edges = plan.neighbours().chain(plan.waits.iter().copied());
        GraphPlan {
            order: plan.order.iter().map(|&(node, _)| node).collect(),
            edges: edges.map(|(before, after)| (before, after, false)).collect(),
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

    /// The steps of `nodes` nodes. Lane 0 is the first lane of the plan, unless lanes differ in priority: then it only
    /// forks and joins.
    ///
    /// # Errors
    /// [`Unproved::Node`] for a node that is missing, occurs twice, or is queued before one it waits for.
    fn steps(&self, nodes: usize) -> Result<Steps, Unproved> {
        let order: Vec<usize> = self.order.iter().map(|&(node, _)| node).collect();
        let place = places(&order, nodes)?;
        let lanes = self.order.iter().map(|&(_, lane)| lane + 1).max().unwrap_or(1);
        let mut priorities = self.priorities.clone();
        priorities.resize(lanes, 0);
        let shift = usize::from(priorities.iter().any(|p| *p != priorities[0]));
        if shift == 0 {
            priorities.remove(0);
        }
        let lanes = lanes + shift;
        let order: Vec<(usize, usize)> =
            self.order.iter().map(|&(node, lane)| (node, lane + shift)).collect();
        let mut before: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        let mut event_of: HashMap<usize, usize> = HashMap::new();
        for &(first, second) in &self.waits {
            if first.max(second) >= nodes {
                return Err(Unproved::node(first.max(second), "does not exist"));
            }
            if place[first] >= place[second] {
                return Err(Unproved::node(second, "is queued before a node that it waits for"));
            }
            if order[place[first]].1 != order[place[second]].1 {
                before.entry(second).or_default().insert(first);
                let next = event_of.len();
                event_of.entry(first).or_insert(next);
            }
        }
        let mut events = event_of.len();
        let mut steps = Vec::new();
        let mut begun = vec![false; lanes];
        let mut chained = vec![false; lanes];
        begun[0] = true;
        // Lanes that begin with a wait for another lane need no separate fork.
        let fork = |node: usize| !before.contains_key(&node);
        let mut first: BTreeMap<usize, usize> = BTreeMap::new();
        for &(node, lane) in &order {
            first.entry(lane).or_insert(node);
        }
        let forked = first.iter().any(|(&lane, &node)| lane != 0 && fork(node)).then(|| {
            steps.push(LaunchStep::Record { event: events, lane: 0 });
            events += 1;
            events - 1
        });
        for &(node, lane) in &order {
            if !std::mem::replace(&mut begun[lane], true)
                && let Some(event) = forked.filter(|_| fork(node))
            {
                steps.push(LaunchStep::Wait { event, lane });
            }
            for producer in before.get(&node).into_iter().flatten() {
                steps.push(LaunchStep::Wait { event: event_of[producer], lane });
                chained[lane] = false;
            }
            steps.push(LaunchStep::Run { node, lane, chained: chained[lane] });
            chained[lane] = true;
            if let Some(&event) = event_of.get(&node) {
                steps.push(LaunchStep::Record { event, lane });
                chained[lane] = false;
            }
        }
        // If another lane waits for the last node of a lane, that lane is joined through the other.
        let last: HashMap<usize, usize> = order.iter().map(|&(node, lane)| (lane, node)).collect();
        for lane in 1..lanes {
            if last.get(&lane).is_some_and(|node| !event_of.contains_key(node)) {
                steps.push(LaunchStep::Record { event: events, lane });
                steps.push(LaunchStep::Wait { event: events, lane: 0 });
                events += 1;
            }
        }
        Ok(Steps { steps, events, priorities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernel, LaunchConfig, Node, NodeWork, ZoneId};

    #[test]
    fn a_diamond_on_two_lanes_has_one_fork_and_no_join_of_its_own() {
        // 0 -> {1, 2} -> 3, with 2 on lane 1.
        let plan = StreamPlan {
            order: vec![(0, 0), (1, 0), (2, 1), (3, 0)],
            waits: vec![(0, 2), (2, 3)],
            ..StreamPlan::default()
        };
        let steps = plan.steps(4).expect("a valid plan");
        let run = |node, lane, chained| LaunchStep::Run { node, lane, chained };
        assert_eq!(
            steps.steps,
            [
                run(0, 0, false),
                LaunchStep::Record { event: 0, lane: 0 },
                run(1, 0, false),
                LaunchStep::Wait { event: 0, lane: 1 },
                run(2, 1, false),
                LaunchStep::Record { event: 1, lane: 1 },
                LaunchStep::Wait { event: 1, lane: 0 },
                run(3, 0, false),
            ]
        );
        assert_eq!((steps.events, steps.priorities), (2, vec![0]));
    }

    #[test]
    fn independent_lanes_are_forked_from_and_joined_to_the_first() {
        let plan =
            StreamPlan { order: vec![(0, 0), (1, 1), (2, 1)], waits: Vec::new(), ..StreamPlan::default() };
        let steps = plan.steps(3).expect("a valid plan").steps;
        assert_eq!(steps[0], LaunchStep::Record { event: 0, lane: 0 });
        assert!(steps.contains(&LaunchStep::Wait { event: 0, lane: 1 }));
        assert!(steps.contains(&LaunchStep::Run { node: 2, lane: 1, chained: true }));
        assert_eq!(
            steps[steps.len() - 2..],
            [LaunchStep::Record { event: 1, lane: 1 }, LaunchStep::Wait { event: 1, lane: 0 }]
        );
    }

    /// Independent kernels.
    fn kernels(nodes: usize) -> Program {
        let mut program = Program::new("kernels");
        for k in 0..nodes {
            let work = NodeWork::Kernel(Kernel::new(LaunchConfig::linear(1, 32), &[]));
            let node = Node { name: format!("k{k}"), work, accesses: Vec::new(), us: 1.0, zone: ZoneId(0) };
            program.push(node).expect("a valid node");
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

    #[test]
    fn lanes_of_different_priority_leave_the_main_stream_to_forks_and_joins() {
        let apart =
            StreamPlan { order: vec![(0, 0), (1, 1)], priorities: vec![2, 1], ..StreamPlan::default() };
        let steps = apart.steps(2).expect("a valid plan");
        assert_eq!(steps.priorities, [2, 1]);
        let lanes = steps.steps.iter().filter_map(|step| match *step {
            LaunchStep::Run { lane, .. } => Some(lane),
            _ => None,
        });
        assert_eq!(lanes.collect::<Vec<_>>(), [1, 2]);
    }
}
