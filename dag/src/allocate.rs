//! Which buffers may share memory when their kernels run concurrently.

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
    // Large buffers first: small ones then fit into what they leave.
    let mut by_size: Vec<usize> = (0..users.len()).collect();
    by_size.sort_by_key(|&b| (std::cmp::Reverse(program.buffers()[b].bytes), b));
    let (mut of, mut sizes, mut tenants) = (vec![0; users.len()], Vec::new(), Vec::<Vec<usize>>::new());
    for b in by_size {
        let fits = |others: &Vec<usize>| {
            others.iter().all(|&o| {
                shares[o]
                    && (all_before(dependences, &users[o], &users[b])
                        || all_before(dependences, &users[b], &users[o]))
            })
        };
        let at = if shares[b] { tenants.iter().position(fits) } else { None };
        let at = at.unwrap_or_else(|| {
            tenants.push(Vec::new());
            sizes.push(program.buffers()[b].bytes);
            tenants.len() - 1
        });
        tenants[at].push(b);
        of[b] = at as u32;
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
