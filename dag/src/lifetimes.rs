//! The lifetimes of temporary buffers under an order of nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::arena::ALIGNMENT;
use super::bits::BitMatrix;
use super::order::NodeOrder;
use super::program::{BufferId, NodeId, Program};

/// At most so many temporaries share memory, the largest: the time to compare them grows with the square.
const MOST_SHARED: usize = 1 << 13;

/// The temporaries of a program that nodes access, and which of them are never alive at the same time.
pub(crate) struct Lifetimes {
    /// The buffers.
    pub(crate) buffers: Vec<usize>,
    /// The nodes that access each of them, by id.
    pub(crate) users: Vec<Vec<NodeId>>,
    /// Sizes of the temporaries, rounded up to [`ALIGNMENT`].
    pub(crate) bytes: Vec<u64>,
    /// Whether each shares its memory.
    shares: Vec<bool>,
    /// Whether all nodes of one are done before any of the other begins; a bit for each pair, in the row of the later.
    ordered: BitMatrix,
}

impl Lifetimes {
    /// The lifetimes under an order.
    pub(crate) fn new(program: &Program, order: NodeOrder<'_>) -> Lifetimes {
        let mut all = users(program);
        let is_used = |b: &usize| !program.buffers()[*b].external && !all[*b].is_empty();
        let buffers: Vec<usize> = (0..all.len()).filter(is_used).collect();
        let users: Vec<_> = buffers.iter().map(|&b| std::mem::take(&mut all[b])).collect();
        let bytes: Vec<u64> = buffers.iter().map(|&b| aligned(program.buffers()[b].bytes)).collect();
        let mut by_size: Vec<usize> = (0..buffers.len()).collect();
        by_size.sort_by_key(|&b| Reverse(bytes[b]));
        let mut shares = vec![false; buffers.len()];
        for b in by_size.into_iter().take(MOST_SHARED) {
            shares[b] = !reads_first(program, BufferId(buffers[b] as u32), &users[b]);
        }
        let count = buffers.len();
        let mut found = Lifetimes { buffers, users, bytes, shares, ordered: BitMatrix::new(count, count) };
        found.find_ordered(order);
        found
    }

    /// The positions of the first and the last node of each temporary in a sequence.
    pub(crate) fn spans(&self, place: &[usize]) -> Vec<(usize, usize)> {
        let span = |users: &Vec<NodeId>| {
            let places = || users.iter().map(|id| place[id.index()]);
            (places().min().unwrap_or(0), places().max().unwrap_or(0))
        };
        self.users.iter().map(span).collect()
    }

    fn find_ordered(&mut self, order: NodeOrder<'_>) {
        let sharing: Vec<usize> = (0..self.buffers.len()).filter(|&b| self.shares[b]).collect();
        let spans = self.spans(order.place);
        let mut nodes = BitMatrix::new(self.buffers.len(), order.place.len());
        for &b in &sharing {
            self.users[b].iter().for_each(|id| nodes.set(b, order.place[id.index()]));
        }
        for &later in &sharing {
            let earliest = earliest(order, &self.users[later]);
            for &earlier in &sharing {
                let (last, first) = (spans[earlier].1, spans[later].0);
                let done = |&at: &usize| {
                    order.ancestors.get(at, last)
                        && nodes.first_missing(earlier, order.ancestors, at).is_none()
                };
                if last < first && earliest.iter().all(done) {
                    self.ordered.set(later, earlier);
                }
            }
        }
    }

    /// Whether all nodes of one temporary are done before any of the other begins, no matter which.
    pub(crate) fn are_ordered(&self, a: usize, b: usize) -> bool {
        self.ordered.get(a, b) || self.ordered.get(b, a)
    }

    /// Whether two temporaries may share memory if the order is made to allow it.
    pub(crate) fn may_share(&self, a: usize, b: usize) -> bool {
        self.shares[a] && self.shares[b]
    }
}

/// The positions of those nodes that follow no other of them.
pub(crate) fn earliest(order: NodeOrder<'_>, users: &[NodeId]) -> Vec<usize> {
    let mut places: Vec<usize> = users.iter().map(|id| order.place[id.index()]).collect();
    places.sort_unstable();
    let mut found: Vec<usize> = Vec::new();
    for at in places {
        if !found.iter().any(|&first| order.ancestors.get(at, first)) {
            found.push(at);
        }
    }
    found
}

/// A size rounded up to [`ALIGNMENT`].
fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT)
}

/// The nodes that access each buffer, by id.
pub(crate) fn users(program: &Program) -> Vec<Vec<NodeId>> {
    let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); program.buffers().len()];
    for (id, node) in program.ids().zip(program.nodes()) {
        for access in &node.accesses {
            let users = &mut users[access.buffer.index()];
            if users.last() != Some(&id) {
                users.push(id);
            }
        }
    }
    users
}

/// Whether some byte is read before a node has written it. Such a buffer keeps its contents between runs, so it shares
/// memory with none.
pub(crate) fn reads_first(program: &Program, buffer: BufferId, users: &[NodeId]) -> bool {
    // Disjoint written ranges of bytes, by first byte.
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    for &id in users {
        let here = || program.node(id).accesses.iter().filter(|a| a.buffer == buffer);
        for read in here().filter(|a| a.mode.reads()) {
            let run = written.range(..=read.bytes.start).next_back();
            if run.is_none_or(|(_, &end)| end < read.bytes.end) {
                return true;
            }
        }
        for write in here().filter(|a| a.mode.writes()) {
            let (mut start, mut end) = (write.bytes.start, write.bytes.end);
            while let Some((&first, &last)) = written.range(..=end).next_back()
                && last >= start
            {
                written.remove(&first);
                (start, end) = (start.min(first), end.max(last));
            }
            written.insert(start, end);
        }
    }
    false
}
