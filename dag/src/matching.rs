//! Maximum matching of a bipartite graph from a given start: as many nodes as possible go right after a predecessor.
//!
//! The start determines which of the many maximum matchings results, so preferences are kept where they cost nothing;
//! a library that starts from an empty matching cannot do that.

use super::lists::SharedLists;

/// Partners by node; `None` for those without.
#[derive(Clone, Debug)]
pub(super) struct Matching {
    /// The successor of each node, if any.
    pub(super) next: Vec<Option<usize>>,
    /// The predecessor of each node, if any.
    pub(super) previous: Vec<Option<usize>>,
}

impl Matching {
    pub(super) fn new(nodes: usize) -> Self {
        Matching { next: vec![None; nodes], previous: vec![None; nodes] }
    }

    pub(super) fn join(&mut self, before: usize, after: usize) {
        self.next[before] = Some(after);
        self.previous[after] = Some(before);
    }

    /// Augments until the matching is maximum. The list of a node has the nodes that it may follow.
    pub(super) fn complete(&mut self, before: &SharedLists<u32>) {
        let (mut seen, mut tried) = (vec![false; before.nodes()], vec![0; before.count()]);
        loop {
            // Nodes seen in a failed search stay useless until the round ends, so a round is linear in the lists.
            seen.fill(false);
            tried.fill(0);
            let mut grown = false;
            for after in 0..before.nodes() {
                if self.previous[after].is_none() && !before.of_node(after).is_empty() {
                    grown |= self.augment(after, before, &mut seen, &mut tried);
                }
            }
            if !grown {
                return;
            }
        }
    }

    /// Finds an alternating path from a free successor to a free predecessor, and flips it. `tried` counts the nodes
    /// of each list that were tried, no matter for which successor.
    fn augment(
        &mut self,
        root: usize,
        before: &SharedLists<u32>,
        seen: &mut [bool],
        tried: &mut [usize],
    ) -> bool {
        // Each step: a successor, and the predecessor that it would follow.
        let mut path = vec![(root, root)];
        while let Some((after, follows)) = path.last_mut() {
            let list = before.list_of(*after);
            let Some(&candidate) = before.items(list).get(tried[list]) else {
                path.pop();
                continue;
            };
            tried[list] += 1;
            *follows = candidate as usize;
            if std::mem::replace(&mut seen[*follows], true) {
                continue;
            }
            match self.next[*follows] {
                Some(rival) => path.push((rival, rival)),
                None => {
                    path.into_iter().for_each(|(after, follows)| self.join(follows, after));
                    return true;
                }
            }
        }
        false
    }
}
