//! The steps of a plan on streams: launches, and events between streams.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::error::Unproved;
use super::plan::StreamPlan;

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

impl StreamPlan {
    /// The steps of nodes at these positions in the order. Lane 0 is the first lane of the plan, unless lanes differ in priority: then it only
    /// forks and joins.
    ///
    /// # Errors
    /// [`Unproved::Node`] for a wait for a node that does not exist, or that is queued later.
    pub(super) fn steps(&self, place: &[usize]) -> Result<Steps, Unproved> {
        let nodes = place.len();
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
        let lane = |node: usize| order[place[node]].1;
        let mut event = |node: usize| {
            let next = event_of.len();
            event_of.entry(node).or_insert(next);
        };
        for &(first, second) in &self.waits {
            if first.max(second) >= nodes {
                return Err(Unproved::node(first.max(second), "does not exist"));
            }
            if place[first] >= place[second] {
                return Err(Unproved::node(second, "is queued before a node that it waits for"));
            }
            if lane(first) != lane(second) {
                before.entry(second).or_default().insert(first);
                event(first);
            }
        }
        // The lane of the first successor waits for all predecessors, and then records the event of the join.
        for join in &self.joins {
            let apart = |node: &&usize| join.after.first().is_some_and(|&first| lane(**node) != lane(first));
            join.before.iter().filter(apart).for_each(|&node| event(node));
        }
        let mut events = event_of.len();
        let (mut points, mut passes): (HashMap<_, Vec<_>>, HashMap<_, Vec<usize>>) = Default::default();
        for join in &self.joins {
            let [first, others @ ..] = &join.after[..] else { continue };
            let apart = others.iter().filter(|&&other| lane(other) != lane(*first));
            apart.for_each(|&other| passes.entry(other).or_default().push(events));
            points.entry(*first).or_default().push((events, join));
            events += 1;
        }
        let mut steps = Vec::new();
        let mut begun = vec![false; lanes];
        let mut chained = vec![false; lanes];
        begun[0] = true;
        // Lanes that begin with a wait for another lane need no separate fork.
        let waits = |node: usize| {
            let ends = points.get(&node).into_iter().flatten().flat_map(|(_, join)| &join.before);
            before.contains_key(&node)
                || passes.contains_key(&node)
                || ends.into_iter().any(|&end| lane(end) != lane(node))
        };
        let fork = |node: usize| !waits(node);
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
            // Waits that no other node of a join needs come after its event.
            for &(event, join) in points.get(&node).into_iter().flatten() {
                let apart = join.before.iter().filter(|&&end| order[place[end]].1 != lane);
                steps.extend(apart.map(|end| LaunchStep::Wait { event: event_of[end], lane }));
                steps.push(LaunchStep::Record { event, lane });
                chained[lane] = false;
            }
            let producers = before.get(&node).into_iter().flatten().map(|producer| event_of[producer]);
            for event in producers.chain(passes.get(&node).into_iter().flatten().copied()) {
                steps.push(LaunchStep::Wait { event, lane });
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

    #[test]
    fn a_diamond_on_two_lanes_has_one_fork_and_no_join_of_its_own() {
        // 0 -> {1, 2} -> 3, with 2 on lane 1.
        let plan = StreamPlan {
            order: vec![(0, 0), (1, 0), (2, 1), (3, 0)],
            waits: vec![(0, 2), (2, 3)],
            ..StreamPlan::default()
        };
        let steps = plan.steps(&[0, 1, 2, 3]).expect("a valid plan");
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
        let steps = plan.steps(&[0, 1, 2]).expect("a valid plan").steps;
        assert_eq!(steps[0], LaunchStep::Record { event: 0, lane: 0 });
        assert!(steps.contains(&LaunchStep::Wait { event: 0, lane: 1 }));
        assert!(steps.contains(&LaunchStep::Run { node: 2, lane: 1, chained: true }));
        assert_eq!(
            steps[steps.len() - 2..],
            [LaunchStep::Record { event: 1, lane: 1 }, LaunchStep::Wait { event: 1, lane: 0 }]
        );
    }

    #[test]
    fn lanes_of_different_priority_leave_the_main_stream_to_forks_and_joins() {
        let apart =
            StreamPlan { order: vec![(0, 0), (1, 1)], priorities: vec![2, 1], ..StreamPlan::default() };
        let steps = apart.steps(&[0, 1]).expect("a valid plan");
        assert_eq!(steps.priorities, [2, 1]);
        let lanes = steps.steps.iter().filter_map(|step| match *step {
            LaunchStep::Run { lane, .. } => Some(lane),
            _ => None,
        });
        assert_eq!(lanes.collect::<Vec<_>>(), [1, 2]);
    }
}
