//! Partial sums of tiles that are split along k.
//!
//! The values are relaxed atomics, like tensors: only the slab's flag orders the finisher's reads after the
//! contributor's writes. A flag is an ordinary slot that counts one post per run.

use std::sync::atomic::{AtomicU32, Ordering};

/// Slabs of a schedule, each with one share per CTA of the cluster.
pub(super) struct Slabs {
    values: Vec<AtomicU32>,
    ctas: u32,
    area: usize,
    /// Slot of the first flag.
    flags: u32,
}

impl Slabs {
    /// `area`: floats of a CTA's tile; `flags`: number of slots before the flags.
    pub(super) fn new(slabs: u32, ctas: u32, area: usize, flags: u32) -> Self {
        let values = slabs as usize * ctas as usize * area;
        Slabs { values: (0..values).map(|_| AtomicU32::new(f32::NAN.to_bits())).collect(), ctas, area, flags }
    }

    /// Slot that flags a CTA's share of a slab as complete.
    pub(super) fn flag(&self, slab: u32, cta: u32) -> u32 {
        self.flags + slab * self.ctas + cta
    }

    fn share(&self, slab: u32, cta: u32) -> &[AtomicU32] {
        let from = (slab as usize * self.ctas as usize + cta as usize) * self.area;
        &self.values[from..from + self.area]
    }

    /// Writes sums to a share, starting at element `offset`.
    pub(super) fn store(&self, slab: u32, cta: u32, offset: usize, sums: &[f32]) {
        let cells = &self.share(slab, cta)[offset..offset + sums.len()];
        cells.iter().zip(sums).for_each(|(c, s)| c.store(s.to_bits(), Ordering::Relaxed));
    }

    /// Adds the contents of a share starting at element `offset`, and leaves NaNs there to expose sums that
    /// are read twice.
    pub(super) fn take(&self, slab: u32, cta: u32, offset: usize, sums: &mut [f32]) {
        let cells = &self.share(slab, cta)[offset..offset + sums.len()];
        let spent = f32::NAN.to_bits();
        cells.iter().zip(sums).for_each(|(c, s)| *s += f32::from_bits(c.swap(spent, Ordering::Relaxed)));
    }
}
