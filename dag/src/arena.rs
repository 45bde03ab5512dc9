//! Places of temporary buffers in one arena, and the proof that no two hold the same bytes at the same time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::error::Unproved;
use super::lifetimes::{Lifetimes, reads_first, users};
use super::order::NodeOrder;
use super::program::{BufferId, NodeId, Program};

/// Alignment of temporary buffers, bytes: that of an allocation of CUDA.
pub const ALIGNMENT: u64 = 256;

/// The places of temporary buffers in one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arena {
    /// The first byte of each buffer, a multiple of [`ALIGNMENT`]; `None`: external, or without accesses.
    pub places: Vec<Option<u64>>,
    /// Its size.
    pub bytes: u64,
}

impl Arena {
    /// The smallest arena found for an order. Two buffers get common bytes only if every node of one is done before
    /// any node of the other begins.
    pub(crate) fn smallest(program: &Program, order: NodeOrder<'_>) -> Arena {
        let lives = &Lifetimes::new(program, order);
        let packing = Packing { lives, spans: lives.spans(order.place) };
        packing.arena(program, &packing.smallest(&|a, b| lives.are_ordered(a, b)))
    }

    /// Judges the places: every temporary that is accessed lies inside, and of two with common bytes, the order has
    /// every node of one before every node of the other.
    pub(crate) fn judge(&self, program: &Program, order: NodeOrder<'_>) -> Result<(), Unproved> {
        let users = users(program);
        let fault = |buffer: usize, what| Err(Unproved::Buffer { buffer: BufferId(buffer as u32), what });
        if self.places.len() != program.buffers().len() {
            return fault(self.places.len().min(program.buffers().len()), "is not in both program and arena");
        }
        let mut tenants = Vec::new();
        for (b, (buffer, place)) in program.buffers().iter().zip(&self.places).enumerate() {
            let first = users[b].iter().map(|id| order.place[id.index()]).min();
            match (place, first) {
                (None, Some(_)) if !buffer.external => return fault(b, "has no place"),
                (Some(_), _) if buffer.external => return fault(b, "is external and has a place"),
                (Some(place), _) if !place.is_multiple_of(ALIGNMENT) => return fault(b, "is not aligned"),
                (Some(place), _) if place.checked_add(buffer.bytes).is_none_or(|end| end > self.bytes) => {
                    return fault(b, "does not fit into the arena");
                }
                (Some(place), Some(first)) => tenants.push((first, b, *place..place + buffer.bytes)),
                _ => {}
            }
        }
        // Before and after are transitive, so it is enough to compare tenants that follow each other on some byte.
        tenants.sort_unstable_by_key(|(first, b, _)| (*first, *b));
        let mut latest = Tenants::default();
        for (_, later, bytes) in tenants {
            for earlier in latest.replace(&bytes, later) {
                let kept = |b: usize| reads_first(program, BufferId(b as u32), &users[b]);
                if let Some(b) = [earlier, later].into_iter().find(|&b| kept(b)) {
                    return fault(b, "is read before it is written, and shares bytes");
                }
                if let Some(nodes) = unordered(order, &users[earlier], &users[later]) {
                    let buffers = [earlier, later].map(|b| BufferId(b as u32));
                    return Err(Unproved::Memory { buffers, nodes });
                }
            }
        }
        Ok(())
    }
}

/// A node of the first that is not done before one of the second begins.
fn unordered(order: NodeOrder<'_>, first: &[NodeId], second: &[NodeId]) -> Option<[NodeId; 2]> {
    // What is done before a node is done before all that follow that node.
    let mut earliest: Vec<NodeId> = Vec::new();
    for &late in second {
        if !earliest.iter().any(|early| order.before(early.index(), late.index())) {
            earliest.push(late);
        }
    }
    let pairs = earliest.into_iter().flat_map(|late| first.iter().map(move |&early| [early, late]));
    pairs.into_iter().find(|[early, late]| !order.before(early.index(), late.index()))
}

/// The latest tenant of each byte of an arena.
#[derive(Default)]
pub(crate) struct Tenants {
    /// Ranges of bytes with one tenant each, by first byte: one past the last byte, and the tenant.
    ranges: BTreeMap<u64, (u64, usize)>,
}

impl Tenants {
    /// Puts a tenant into a range of bytes; returns those that it follows there.
    pub(crate) fn replace(&mut self, bytes: &Range<u64>, tenant: usize) -> Vec<usize> {
        for at in [bytes.start, bytes.end] {
            if let Some((_, (end, other))) = self.ranges.range_mut(..at).next_back()
                && *end > at
            {
                let right = (std::mem::replace(end, at), *other);
                self.ranges.insert(at, right);
            }
        }
        let inside: Vec<u64> = self.ranges.range(bytes.clone()).map(|(&start, _)| start).collect();
        let removed = inside.into_iter().filter_map(|start| self.ranges.remove(&start));
        let mut found: Vec<usize> = removed.map(|(_, other)| other).collect();
        found.sort_unstable();
        found.dedup();
        self.ranges.insert(bytes.start, (bytes.end, tenant));
        found
    }
}

/// Temporaries at places, and when they are used.
pub(crate) struct Packing<'a> {
    pub(crate) lives: &'a Lifetimes,
    /// The positions of the first and the last node of each temporary in some sequence of the nodes.
    pub(crate) spans: Vec<(usize, usize)>,
}

impl Packing<'_> {
    /// The arena with these places.
    pub(crate) fn arena(&self, program: &Program, found: &[u64]) -> Arena {
        let mut places = vec![None; program.buffers().len()];
        self.lives.buffers.iter().zip(found).for_each(|(&buffer, place)| places[buffer] = Some(*place));
        Arena { places, bytes: self.end(found) }
    }

    /// One past the last byte.
    pub(crate) fn end(&self, places: &[u64]) -> u64 {
        let ends = self.lives.bytes.iter().zip(places).map(|(bytes, place)| place.saturating_add(*bytes));
        ends.max().unwrap_or(0)
    }

    /// The places with the fewest bytes of two sequences of temporaries: the largest first, which leaves gaps that
    /// small ones fill, and the first used first, which suits chains of equal sizes.
    pub(crate) fn smallest(&self, may_share: &Sharing<'_>) -> Vec<u64> {
        // Sizes that overflow have places beyond every limit.
        let beyond = || vec![u64::MAX; self.spans.len()];
        let all = |sequence: Vec<usize>| self.pack(&sequence, u64::MAX, &[may_share]).unwrap_or_else(beyond);
        let (large, first) = (all(self.by_size()), all(self.by_use()));
        if self.end(&first) < self.end(&large) { first } else { large }
    }

    /// Places within `limit` bytes, if some sequence of temporaries gives them. A temporary takes the first place at
    /// which it shares bytes with none, or only by the first test; if that gives no places, the last test serves all.
    pub(crate) fn within(&self, limit: u64, may_share: [&Sharing<'_>; 2]) -> Option<Vec<u64>> {
        [&may_share[..], &may_share[1..]].into_iter().find_map(|tests| {
            let first = || self.pack(&self.by_use(), limit, tests);
            self.pack(&self.by_size(), limit, tests).or_else(first)
        })
    }

    fn by_size(&self) -> Vec<usize> {
        let mut sequence: Vec<usize> = (0..self.spans.len()).collect();
        sequence.sort_by_key(|&b| (Reverse(self.lives.bytes[b]), self.spans[b].0, b));
        sequence
    }

    fn by_use(&self) -> Vec<usize> {
        let mut sequence: Vec<usize> = (0..self.spans.len()).collect();
        sequence.sort_by_key(|&b| (self.spans[b].0, Reverse(self.lives.bytes[b]), b));
        sequence
    }

    /// Puts one temporary after the other at the lowest place where it meets none with which it may not share bytes,
    /// by the first test with which there is such a place.
    fn pack(&self, sequence: &[usize], limit: u64, may_share: &[&Sharing<'_>]) -> Option<Vec<u64>> {
        let mut places = vec![0; self.spans.len()];
        // First byte, one past the last, and the temporary, by first byte.
        let mut taken: Vec<(u64, u64, usize)> = Vec::with_capacity(sequence.len());
        for &item in sequence {
            let bytes = self.lives.bytes[item];
            let lowest = |may_share: &&Sharing<'_>| {
                let mut at = 0u64;
                for &(start, end, other) in &taken {
                    if start >= at.saturating_add(bytes) {
                        break;
                    }
                    if end > at && !may_share(item, other) {
                        at = end;
                    }
                }
                at.checked_add(bytes).filter(|end| *end <= limit).map(|_| at)
            };
            let at = may_share.iter().find_map(lowest)?;
            places[item] = at;
            let next = taken.partition_point(|&(start, ..)| start <= at);
            taken.insert(next, (at, at + bytes, item));
        }
        Some(places)
    }
}

/// Whether two temporaries may share bytes.
pub(crate) type Sharing<'a> = dyn Fn(usize, usize) -> bool + 'a;
