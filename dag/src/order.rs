//! An order of nodes: that of dependences, or that of a plan.

use super::bits::BitMatrix;

/// The nodes that come before each node, at positions of a sequence that satisfies the order.
#[derive(Clone, Copy)]
pub(crate) struct NodeOrder<'a> {
    /// The position of each node.
    pub(crate) place: &'a [usize],
    /// For each position, the positions that come before it.
    pub(crate) ancestors: &'a BitMatrix,
}

impl NodeOrder<'_> {
    /// Whether a node is done before another begins.
    pub(crate) fn before(&self, first: usize, second: usize) -> bool {
        self.ancestors.get(self.place[second], self.place[first])
    }

    /// The nodes in sequence.
    pub(crate) fn sequence(&self) -> Vec<usize> {
        let mut sequence = vec![0; self.place.len()];
        self.place.iter().enumerate().for_each(|(node, &at)| sequence[at] = node);
        sequence
    }
}
