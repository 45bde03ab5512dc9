//! Which buffers may share memory when their kernels run concurrently.

use std::collections::{BTreeMap, HashMap};

use super::dependence::Dependences;
use super::program::{BufferId, NodeId, Program};

/// Where buffers live. Sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocations {
    /// The allocation of each buffer, an index into `sizes`.
    pub of: Vec<u32>,
    /// Sizes of the allocations.
    pub sizes: Vec<u64>,
}

impl Allocations {
    /// The sum of the sizes.
    pub fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }
}

/// Assigns buffers to allocations so that two share one only where every node of one is done, by dependences alone,
/// before any node of the other begins: no distribution of the program can then bring them together. A temporary buffer
/// that is read before it is written keeps memory of its own, as those seen from outside do.
pub fn allocate(program: &Program, dependences: &Dependences) -> Allocations {
    let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); program.buffers().len()];
    for (id, node) in program.ids().zip(program.nodes()) {
        for access in &node.accesses {
            let users = &mut users[access.buffer.index()];
            if users.last() != Some(&id) {
                users.push(id);
            }
        }
    }
    let shares: Vec<bool> = (0..users.len())
        .map(|b| !program.buffers()[b].external && !reads_first(program, BufferId(b as u32), &users[b]))
        .collect();
    let bytes: Vec<u64> = program.buffers().iter().map(|buffer| buffer.bytes).collect();
    share_out(&users, &shares, &bytes, |first, second| all_before(dependences, first, second))
}

/// First fit: buffers by their users, whether they may share, their sizes, and whether all of some users come before all of others.
fn share_out(
    users: &[Vec<NodeId>],
    shares: &[bool],
    bytes: &[u64],
    all_before: impl Fn(&[NodeId], &[NodeId]) -> bool,
) -> Allocations {
    // Large buffers first: small ones then fit into what they leave.
    let mut by_size: Vec<usize> = (0..users.len()).collect();
    by_size.sort_by_key(|&b| (std::cmp::Reverse(bytes[b]), b));
    let (mut of, mut sizes) = (vec![0; users.len()], Vec::new());
    // Allocations that buffers share, each with its buffers by their first users. All nodes of a buffer come before all nodes of
    // the next, so one that comes between two of them by dependences comes between all.
    let mut shared: Vec<(u32, BTreeMap<NodeId, usize>)> = Vec::new();
    // Buffers of the same users fit where those before them did not refuse: allocations only fill.
    let mut refused: HashMap<&[NodeId], usize> = HashMap::new();
    for b in by_size {
        let before = |first: usize, second: usize| all_before(&users[first], &users[second]);
        let fits = |tenants: &BTreeMap<NodeId, usize>| {
            let Some(&first) = users[b].first() else { return true };
            let earlier = tenants.range(..=first).next_back().is_none_or(|(_, &o)| before(o, b));
            earlier && tenants.range(first..).next().is_none_or(|(_, &o)| before(b, o))
        };
        let at = shares[b].then(|| {
            let from = refused.entry(&users[b]).or_insert(0);
            *from += shared[*from..].iter().take_while(|(_, tenants)| !fits(tenants)).count();
            *from
        });
        of[b] = match at.and_then(|at| shared.get(at)) {
            Some((allocation, _)) => *allocation,
            None => {
                sizes.push(bytes[b]);
                let allocation = sizes.len() as u32 - 1;
                if shares[b] {
                    shared.push((allocation, BTreeMap::new()));
                }
                allocation
            }
        };
        if let (Some(at), Some(&first)) = (at, users[b].first()) {
            shared[at].1.insert(first, b);
        }
    }
    Allocations { of, sizes }
}

/// Whether some byte is read before a node has written it.
fn reads_first(program: &Program, buffer: BufferId, users: &[NodeId]) -> bool {
    // Runs of bytes that are written, apart from each other, by their first byte.
    let mut written: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
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

/// Whether every node of `first` is done before any of `second` begins.
fn all_before(dependences: &Dependences, first: &[NodeId], second: &[NodeId]) -> bool {
    second.iter().all(|&late| first.iter().all(|&early| dependences.reaches(early, late)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Shares out buffers of 8 bytes among nodes that come one after the other; how many allocations, and how many pairs of
    /// buffers were compared.
    fn compared(users: &[Vec<NodeId>]) -> (usize, usize) {
        let count = Cell::new(0);
        let serial = |first: &[NodeId], second: &[NodeId]| {
            count.set(count.get() + 1);
            first.last() < second.first()
        };
        let n = users.len();
        let found = share_out(users, &vec![true; n], &vec![8; n], serial);
        (found.sizes.len(), count.get())
    }

    #[test]
    fn buffers_are_compared_with_their_neighbours_only() {
        let n = 3000;
        let node = |id: usize| NodeId(id as u32);
        // One after the other: all in one allocation.
        let chain: Vec<_> = (0..n).map(|i| vec![node(2 * i), node(2 * i + 1)]).collect();
        let (allocations, pairs) = compared(&chain);
        assert!(allocations == 1 && pairs <= 2 * n, "{allocations} allocations, {pairs} pairs");
        // All at once: one each.
        let (allocations, pairs) = compared(&vec![vec![node(0), node(1)]; n]);
        assert!(allocations == n && pairs <= 2 * n, "{allocations} allocations, {pairs} pairs");
        // Ten at a time.
        let tens: Vec<_> = (0..n).map(|i| vec![node(i / 10)]).collect();
        let (allocations, pairs) = compared(&tens);
        assert!(allocations == 10 && pairs <= 20 * n, "{allocations} allocations, {pairs} pairs");
        // Nobody uses them.
        assert_eq!(compared(&vec![Vec::new(); n]), (1, 0));
    }
}
