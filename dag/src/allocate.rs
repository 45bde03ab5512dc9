//! Which buffers may share memory when their kernels run concurrently.

use std::collections::{BTreeMap, HashMap};

use super::dependence::Dependences;
use super::program::{Buffer, BufferId, NodeId, Program};

/// Allocations of buffers. Sizes are in bytes.
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

    /// The first byte of each temporary buffer in one arena (`None`: external, not in it), and the size of the arena.
    /// Buffers begin at multiples of [`ALIGNMENT`].
    pub fn arena(&self, program: &Program) -> (Vec<Option<u64>>, u64) {
        let mut first: Vec<Option<u64>> = vec![None; self.sizes.len()];
        let mut end = 0u64;
        let place = |(buffer, &allocation): (&Buffer, &u32)| {
            let allocation = allocation as usize;
            (!buffer.external).then(|| {
                *first[allocation].get_or_insert_with(|| {
                    let place = end;
                    end = end.saturating_add(self.sizes[allocation].next_multiple_of(ALIGNMENT));
                    place
                })
            })
        };
        (program.buffers().iter().zip(&self.of).map(place).collect(), end)
    }
}

/// Alignment of temporary buffers, bytes: that of an allocation of CUDA.
pub const ALIGNMENT: u64 = 256;

/// Assigns buffers to allocations. Two buffers share one only if dependences alone ensure that every node of one is
/// done before any node of the other begins, so no distribution of the program can make them overlap. A temporary
/// buffer that is read before it is written keeps its own memory, like external buffers.
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

/// First fit over buffers, given their users, whether they may share, their sizes, and a test whether all of some
/// users come before all of others.
fn share_out(
    users: &[Vec<NodeId>],
    shares: &[bool],
    bytes: &[u64],
    all_before: impl Fn(&[NodeId], &[NodeId]) -> bool,
) -> Allocations {
    // Large buffers first: small ones then fit into their allocations.
    let mut by_size: Vec<usize> = (0..users.len()).collect();
    by_size.sort_by_key(|&b| (std::cmp::Reverse(bytes[b]), b));
    let (mut assigned, mut sizes) = (vec![0; users.len()], Vec::new());
    // Shared allocations, each with its buffers ordered by first user. All nodes of a buffer come before all nodes of
    // the next, so a buffer that fits between two neighbors is ordered relative to all of them.
    let mut shared: Vec<(u32, BTreeMap<NodeId, usize>)> = Vec::new();
    // Allocations only fill up, so a buffer skips those that rejected an earlier buffer with the same users.
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
        assigned[b] = match at.and_then(|at| shared.get(at)) {
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
    Allocations { of: assigned, sizes }
}

/// Whether some byte is read before a node has written it.
fn reads_first(program: &Program, buffer: BufferId, users: &[NodeId]) -> bool {
    // Disjoint written ranges of bytes, by first byte.
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

    /// Allocates buffers of 8 bytes for nodes in sequence. Returns the number of allocations and the number of buffer
    /// pairs compared.
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
        // One after another: all in one allocation.
        let chain: Vec<_> = (0..n).map(|i| vec![node(2 * i), node(2 * i + 1)]).collect();
        let (allocations, pairs) = compared(&chain);
        assert!(allocations == 1 && pairs <= 2 * n, "{allocations} allocations, {pairs} pairs");
        // All at the same time: one each.
        let (allocations, pairs) = compared(&vec![vec![node(0), node(1)]; n]);
        assert!(allocations == n && pairs <= 2 * n, "{allocations} allocations, {pairs} pairs");
        // Ten at a time.
        let tens: Vec<_> = (0..n).map(|i| vec![node(i / 10)]).collect();
        let (allocations, pairs) = compared(&tens);
        assert!(allocations == 10 && pairs <= 20 * n, "{allocations} allocations, {pairs} pairs");
        // Buffers without users.
        assert_eq!(compared(&vec![Vec::new(); n]), (1, 0));
    }
}
