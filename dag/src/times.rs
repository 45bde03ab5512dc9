//! When nodes can start and how much depends on them, if only dependences and copy engines delayed them.

use super::dependence::Dependences;
use super::program::{NodeId, Program};

/// Levels and times by node. Times are microseconds from the start of the program.
#[derive(Clone, Debug)]
pub struct Times {
    /// Number of nodes on the longest path before it.
    pub level: Vec<u32>,
    /// Earliest start.
    pub start: Vec<f64>,
    /// Earliest end.
    pub end: Vec<f64>,
    /// From its start to the end of the longest path from it: its weight on the critical path.
    pub rank: Vec<f64>,
}

impl Times {
    /// The times of a program.
    pub fn new(program: &Program, dependences: &Dependences) -> Self {
        let n = program.nodes().len();
        let us: Vec<f64> = program.nodes().iter().map(|node| node.us).collect();
        let (mut level, mut start, mut rank) = (vec![0; n], vec![0.0; n], us.clone());
        let mut end = us.clone();
        let lists = &dependences.reduced;
        // The level and start of all nodes with a list, which its first node in order sees first.
        let mut soonest: Vec<Option<(u32, f64)>> = vec![None; lists.count()];
        let mut first: Vec<usize> = vec![usize::MAX; lists.count()];
        for node in dependences.order.iter().map(|id| id.index()) {
            let list = lists.list_of(node);
            (level[node], start[node]) = *soonest[list].get_or_insert_with(|| {
                first[list] = node;
                let before = lists.items(list).iter().map(|&b| (level[b as usize] + 1, end[b as usize]));
                before.fold((0, 0.0), |(level, start), (l, s)| (level.max(l), f64::max(start, s)))
            });
            end[node] = start[node] + us[node];
        }
        // The longest path from any node with a list.
        let mut longest = vec![0.0; lists.count()];
        for node in dependences.order.iter().rev().map(|id| id.index()) {
            let list = lists.list_of(node);
            longest[list] = f64::max(longest[list], rank[node]);
            if first[list] == node {
                for before in lists.items(list).iter().map(|&b| b as usize) {
                    rank[before] = f64::max(rank[before], us[before] + longest[list]);
                }
            }
        }
        Times { level, start, end, rank }
    }

    /// Length of the critical path, microseconds.
    pub fn critical_us(&self) -> f64 {
        self.end.iter().copied().fold(0.0, f64::max)
    }

    /// A linear extension of the dependences: by earliest start, then zone priority, then weight on the critical path.
    pub fn issue_order(&self, program: &Program) -> Vec<NodeId> {
        let mut order: Vec<NodeId> = program.ids().collect();
        order.sort_by(|&a, &b| {
            let (i, j) = (a.index(), b.index());
            // Zero-length nodes start together with their predecessors; levels keep them in order.
            let start = self.start[i].total_cmp(&self.start[j]);
            let level = || self.level[i].cmp(&self.level[j]);
            let urgency =
                || program.priority(b).cmp(&program.priority(a)).then(self.rank[j].total_cmp(&self.rank[i]));
            start.then_with(level).then_with(urgency).then(a.cmp(&b))
        });
        order
    }
}
