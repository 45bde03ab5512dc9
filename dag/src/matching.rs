//! Maximum matching of a bipartite graph from a given start: as many nodes as possible go right after a predecessor.
//!
//! The start determines which of the many maximum matchings results, so preferences are kept where they cost nothing;
//! a library that starts from an empty matching cannot do that.

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

    /// Augments until the matching is maximum. `before[a]` are the nodes that `a` may follow.
    pub(super) fn complete(&mut self, before: &[Vec<usize>]) {
        let mut seen = vec![false; before.len()];
        loop {
            // Nodes seen in a failed search stay useless until the round ends, so a round is linear in the edges.
            seen.fill(false);
            let mut grown = false;
            for after in 0..before.len() {
                if self.previous[after].is_none() && !before[after].is_empty() {
                    grown |= self.augment(after, before, &mut seen);
                }
            }
            if !grown {
                return;
            }
        }
    }

    /// Finds an alternating path from a free successor to a free predecessor, and flips it.
    fn augment(&mut self, root: usize, before: &[Vec<usize>], seen: &mut [bool]) -> bool {
        // Each step: a successor, and how many of its predecessors have been tried.
        let mut path = vec![(root, 0)];
        while let Some((after, tried)) = path.last_mut() {
            let Some(&candidate) = before[*after].get(*tried) else {
                path.pop();
                continue;
            };
            *tried += 1;
            if std::mem::replace(&mut seen[candidate], true) {
                continue;
            }
            match self.next[candidate] {
                Some(rival) => path.push((rival, 0)),
                None => {
                    for (after, tried) in path {
                        self.join(before[after][tried - 1], after);
                    }
                    return true;
                }
            }
        }
        false
    }
}
