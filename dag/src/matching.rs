//! Maximum matching of a bipartite graph from a given start: as many nodes as possible go right after a predecessor.
//!
//! The start decides which of the many maximum matchings comes out, so that wishes are kept where they cost nothing;
//! a library that starts from nothing cannot do that.

/// Partners by node; `None` for those without.
#[derive(Clone, Debug)]
pub(super) struct Matching {
    /// The node that follows each, if any.
    pub(super) next: Vec<Option<usize>>,
    /// The node that each follows, if any.
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

    /// Augments until no larger matching exists. `before[a]` are the nodes that `a` may follow.
    pub(super) fn complete(&mut self, before: &[Vec<usize>]) {
        let mut seen = vec![false; before.len()];
        loop {
            // What a failed search has seen stays useless until the round ends, so a round is linear in the edges.
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

    /// Looks for an alternating path from a free successor to a free predecessor and turns it over.
    fn augment(&mut self, root: usize, before: &[Vec<usize>], seen: &mut [bool]) -> bool {
        // Each step: a successor and how many of its predecessors have been tried.
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
