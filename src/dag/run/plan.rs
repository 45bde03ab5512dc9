//! Where and after what each node runs: the two forms that executables are built from. Pure.

use std::collections::{BTreeSet, HashMap};

use super::error::{Error, Result};
use crate::device::EdgeKind;

/// Nodes on streams. Lanes are numbered from 0; waits inside a lane are its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanePlan {
    /// (node, lane) in the order in which the host queues them: each node once, after every node it waits for.
    pub order: Vec<(usize, usize)>,
    /// (before, after) of different lanes.
    pub waits: Vec<(usize, usize)>,
    /// The priority of each lane, the larger the sooner; lanes past the end have 0.
    pub priorities: Vec<i32>,
}

/// One thing that the host queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The work of a node; `chained`: the thing just before it in its lane is a node too.
    Run {
        /// The node.
        node: usize,
        /// Its lane.
        lane: usize,
        /// Whether nothing but a node stands before it.
        chained: bool,
    },
    /// An event, after what the lane holds so far.
    Record {
        /// The event.
        event: usize,
        /// The lane.
        lane: usize,
    },
    /// What follows in the lane waits for the event.
    Wait {
        /// The event.
        event: usize,
        /// The lane.
        lane: usize,
    },
}

/// What the host queues for a plan, forked from lane 0 and joined there again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// In order.
    pub steps: Vec<Step>,
    /// Events that they use.
    pub events: usize,
    /// Lanes that they use.
    pub lanes: usize,
}

impl LanePlan {
    /// One lane.
    pub fn serial(order: impl IntoIterator<Item = usize>) -> LanePlan {
        LanePlan { order: order.into_iter().map(|node| (node, 0)).collect(), ..LanePlan::default() }
    }

    /// The steps of `nodes` nodes.
    ///
    /// # Errors
    /// [`Error::Plan`] for a node that is missing, stands twice, or is queued before one that it waits for.
    pub fn steps(&self, nodes: usize) -> Result<Steps> {
        let mut place = vec![None; nodes];
        for (at, &(node, lane)) in self.order.iter().enumerate() {
            let slot = place.get_mut(node).ok_or(Error::Plan { node, what: "does not exist" })?;
            if slot.replace((at, lane)).is_some() {
                return Err(Error::Plan { node, what: "is planned twice" });
            }
        }
        let found = |node: usize| {
            place.get(node).copied().flatten().ok_or(Error::Plan { node, what: "is not planned" })
        };
        for node in 0..nodes {
            found(node)?;
        }
        let mut before: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        let mut event_of: HashMap<usize, usize> = HashMap::new();
        for &(first, second) in &self.waits {
            if found(first)?.0 >= found(second)?.0 {
                return Err(Error::Plan { node: second, what: "is queued before a node that it waits for" });
            }
            if found(first)?.1 != found(second)?.1 {
                before.entry(second).or_default().insert(first);
                let next = event_of.len();
                event_of.entry(first).or_insert(next);
            }
        }
        let lanes = self.order.iter().map(|&(_, lane)| lane + 1).max().unwrap_or(1);
        let mut events = event_of.len();
        let mut steps = Vec::new();
        let mut begun = vec![false; lanes];
        let mut chained = vec![false; lanes];
        begun[0] = true;
        // Lanes that begin with a wait for another lane need no fork of their own.
        let fork = |node: usize| !before.contains_key(&node);
        let mut first: HashMap<usize, usize> = HashMap::new();
        for &(node, lane) in self.order.iter() {
            first.entry(lane).or_insert(node);
        }
        let forked = first.iter().any(|(&lane, &node)| lane != 0 && fork(node)).then(|| {
            steps.push(Step::Record { event: events, lane: 0 });
            events += 1;
            events - 1
        });
        for &(node, lane) in &self.order {
            if !std::mem::replace(&mut begun[lane], true)
                && let Some(event) = forked.filter(|_| fork(node))
            {
                steps.push(Step::Wait { event, lane });
            }
            for producer in before.get(&node).into_iter().flatten() {
                steps.push(Step::Wait { event: event_of[producer], lane });
                chained[lane] = false;
            }
            steps.push(Step::Run { node, lane, chained: chained[lane] });
            chained[lane] = true;
            if let Some(&event) = event_of.get(&node) {
                steps.push(Step::Record { event, lane });
                chained[lane] = false;
            }
        }
        // A lane whose last node another lane waits for is joined by way of that one.
        let last: HashMap<usize, usize> = self.order.iter().map(|&(node, lane)| (lane, node)).collect();
        for lane in 1..lanes {
            if last.get(&lane).is_some_and(|node| !event_of.contains_key(node)) {
                steps.push(Step::Record { event: events, lane });
                steps.push(Step::Wait { event: events, lane: 0 });
                events += 1;
            }
        }
        Ok(Steps { steps, events, lanes })
    }
}

/// Nodes of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphPlan {
    /// The nodes in an order that the edges allow: each once. Nodes that are ready together start in this order.
    pub order: Vec<usize>,
    /// (before, after, kind).
    pub edges: Vec<(usize, usize, EdgeKind)>,
    /// The priority of each node, the larger the sooner; empty: all the same.
    pub priorities: Vec<i32>,
}

impl GraphPlan {
    /// One node after the other.
    pub fn chain(order: Vec<usize>, kind: EdgeKind) -> GraphPlan {
        let edges = order.windows(2).map(|pair| (pair[0], pair[1], kind)).collect();
        GraphPlan { order, edges, priorities: Vec::new() }
    }

    /// For each node of `order`, what it waits for.
    ///
    /// # Errors
    /// [`Error::Plan`] for a node that is missing, stands twice, or comes before one that it waits for.
    pub(super) fn predecessors(&self, nodes: usize) -> Result<Vec<Vec<(usize, EdgeKind)>>> {
        let mut place = vec![None; nodes];
        for (at, &node) in self.order.iter().enumerate() {
            let slot = place.get_mut(node).ok_or(Error::Plan { node, what: "does not exist" })?;
            if slot.replace(at).is_some() {
                return Err(Error::Plan { node, what: "is planned twice" });
            }
        }
        if let Some(node) = place.iter().position(Option::is_none) {
            return Err(Error::Plan { node, what: "is not planned" });
        }
        let mut before = vec![Vec::new(); nodes];
        for &(first, second, kind) in &self.edges {
            let at = |node: usize| place.get(node).copied().flatten();
            match (at(first), at(second)) {
                (Some(a), Some(b)) if a < b => before[second].push((first, kind)),
                (Some(_), Some(_)) => {
                    return Err(Error::Plan { node: second, what: "stands before a node that it waits for" });
                }
                _ => return Err(Error::Plan { node: first.max(second), what: "does not exist" }),
            }
        }
        Ok(before)
    }
}

/// CUDA priorities of ours: the larger of ours, the lower CUDA's number, within `least..=greatest` (0 to -5 on Hopper).
/// Ranks count, not distances; where there are more ranks than priorities, the lowest ranks share one.
pub(super) fn cuda_priorities(ours: &[i32], (least, greatest): (i32, i32)) -> Vec<i32> {
    let ranks: BTreeSet<i32> = ours.iter().copied().collect();
    let of = |priority: &i32| {
        let above = ranks.iter().filter(|&r| r > priority).count() as i32;
        // One rank is no choice: all stay at the default.
        if ranks.len() < 2 { least } else { (greatest + above).min(least) }
    };
    ours.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diamond_on_two_lanes_has_one_fork_and_no_join_of_its_own() {
        // 0 -> {1, 2} -> 3, with 2 on lane 1.
        let plan = LanePlan {
            order: vec![(0, 0), (1, 0), (2, 1), (3, 0)],
            waits: vec![(0, 2), (2, 3)],
            priorities: Vec::new(),
        };
        let steps = plan.steps(4).expect("a valid plan");
        let run = |node, lane, chained| Step::Run { node, lane, chained };
        assert_eq!(
            steps.steps,
            [
                run(0, 0, false),
                Step::Record { event: 0, lane: 0 },
                run(1, 0, false),
                Step::Wait { event: 0, lane: 1 },
                run(2, 1, false),
                Step::Record { event: 1, lane: 1 },
                Step::Wait { event: 1, lane: 0 },
                run(3, 0, false),
            ]
        );
        assert_eq!((steps.events, steps.lanes), (2, 2));
    }

    #[test]
    fn independent_lanes_are_forked_from_and_joined_to_the_first() {
        let plan =
            LanePlan { order: vec![(0, 0), (1, 1), (2, 1)], waits: Vec::new(), priorities: Vec::new() };
        let steps = plan.steps(3).expect("a valid plan").steps;
        assert_eq!(steps[0], Step::Record { event: 0, lane: 0 });
        assert!(steps.contains(&Step::Wait { event: 0, lane: 1 }));
        assert!(steps.contains(&Step::Run { node: 2, lane: 1, chained: true }));
        assert_eq!(
            steps[steps.len() - 2..],
            [Step::Record { event: 1, lane: 1 }, Step::Wait { event: 1, lane: 0 }]
        );
    }

    #[test]
    fn plans_of_another_program_are_refused() {
        let fault = |plan: LanePlan, nodes| plan.steps(nodes).expect_err("refused").to_string();
        assert!(fault(LanePlan::serial([0, 0]), 2).contains("node 0 is planned twice"));
        assert!(fault(LanePlan::serial([0]), 2).contains("node 1 is not planned"));
        assert!(fault(LanePlan::serial([0, 7]), 2).contains("node 7 does not exist"));
        let late = LanePlan { order: vec![(1, 0), (0, 1)], waits: vec![(0, 1)], priorities: Vec::new() };
        assert!(fault(late, 2).contains("node 1 is queued before"));
        let mut chain = GraphPlan::chain(vec![1, 0], EdgeKind::Full);
        assert_eq!(chain.predecessors(2).expect("a valid plan")[0], [(1, EdgeKind::Full)]);
        chain.edges = vec![(0, 1, EdgeKind::Full)];
        assert!(chain.predecessors(2).expect_err("refused").to_string().contains("stands before"));
    }

    #[test]
    fn priorities_keep_their_ranks() {
        assert_eq!(cuda_priorities(&[3, 1, 2], (0, -5)), [-5, -3, -4]);
        assert_eq!(cuda_priorities(&[7, 7], (0, -5)), [0, 0]);
        assert_eq!(cuda_priorities(&[9, 8, 7], (0, -1)), [-1, 0, 0]);
    }
}
