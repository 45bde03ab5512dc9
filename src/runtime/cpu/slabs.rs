//! Partial sums of tiles that are split along k.
//!
//! The values are relaxed atomics, as tensors are: what orders the finisher's reads after the contributor's writes is
//! the slab's flag alone, which is a slot like any other and counts one post a run.

use std::sync::atomic::{AtomicU32, Ordering};

/// Slabs of a schedule, one share a CTA of the cluster each.
pub(super) struct Slabs {
    values: Vec<AtomicU32>,
    ctas: u32,
    area: usize,
    /// Slot of the first flag.
    flags: u32,
}

impl Slabs {
    /// `area`: floats of a CTA's tile; `flags`: the slots before those of the flags.
    pub(super) fn new(slabs: u32, ctas: u32, area: usize, flags: u32) -> Self {
        let values = slabs as usize * ctas as usize * area;
        Slabs { values: (0..values).map(|_| AtomicU32::new(f32::NAN.to_bits())).collect(), ctas, area, flags }
    }

    /// The slot that says whether a CTA's share of a slab is complete.
    pub(super) fn flag(&self, slab: u32, cta: u32) -> u32 {
        self.flags + slab * self.ctas + cta
    }

    fn share(&self, slab: u32, cta: u32) -> &[AtomicU32] {
        let from = (slab as usize * self.ctas as usize + cta as usize) * self.area;
        &self.values[from..from + self.area]
    }

    /// Writes sums to a share, from element `offset` on.
    pub(super) fn store(&self, slab: u32, cta: u32, offset: usize, sums: &[f32]) {
        let cells = &self.share(slab, cta)[offset..offset + sums.len()];
        cells.iter().zip(sums).for_each(|(c, s)| c.store(s.to_bits(), Ordering::Relaxed));
    }

    /// Adds what a share holds from element `offset` on, and leaves NaNs there: sums that are read twice show.
    pub(super) fn take(&self, slab: u32, cta: u32, offset: usize, sums: &mut [f32]) {
        let cells = &self.share(slab, cta)[offset..offset + sums.len()];
        let spent = f32::NAN.to_bits();
        cells.iter().zip(sums).for_each(|(c, s)| *s += f32::from_bits(c.swap(spent, Ordering::Relaxed)));
    }
}
