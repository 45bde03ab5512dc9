//! Which bytes of a kernel's accesses each CTA touches.

use std::ops::Range;

use crate::program::{Access, AccessMode, LaunchConfig, is_duration};

/// Maximum CTAs of a kernel with tiles.
pub const MAX_TILES: u64 = 1 << 11;

/// Per-CTA accesses of a kernel. A kernel that has them was also built to wait for tiles and post its own on request
/// (`csrc/include/cusync/tile_sync.cuh`). CTA numbers count along x, then y, then z.
#[derive(Clone, Debug, PartialEq)]
pub struct TileAccesses {
    /// For each access of the node, the bytes of each CTA.
    pub bytes: Vec<TileBytes>,
    /// Difference between its longest and mean CTA time, microseconds: the time that waiting for tiles instead of
    /// kernels can hide.
    pub spread_us: f64,
    /// Whether it can let the next kernel begin to launch before it has waited itself.
    pub early_trigger: bool,
}

/// The bytes of one access that each CTA touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileBytes {
    /// Every CTA may touch all of them.
    All,
    /// CTA `i` touches `bytes` bytes starting at `first + i * stride`, relative to the access's first byte and clipped
    /// to the access. A negative stride runs backward; with more bytes than the stride, CTAs overlap, as halos do.
    Strided {
        /// Where CTA 0 begins.
        first: i64,
        /// Distance between consecutive CTAs.
        stride: i64,
        /// Number of bytes of each CTA.
        bytes: u64,
    },
}

impl TileBytes {
    /// The bytes of CTA `cta`, relative to the buffer's first byte; may be empty.
    pub fn range(self, access: &Access, cta: u32) -> Range<u64> {
        match self {
            TileBytes::All => access.bytes.clone(),
            TileBytes::Strided { first, stride, bytes } => {
                let all = i128::from(access.bytes.start)..i128::from(access.bytes.end);
                let start = all.start + i128::from(first) + i128::from(cta) * i128::from(stride);
                let clip = |at: i128| at.clamp(all.start, all.end) as u64;
                clip(start)..clip(start + i128::from(bytes))
            }
        }
    }
}

impl TileAccesses {
    /// Why these cannot be the tiles of a kernel with such accesses; `None` if they can.
    pub(crate) fn fault(&self, launch: &LaunchConfig, accesses: &[Access]) -> Option<&'static str> {
        if launch.ctas() > MAX_TILES {
            return Some("more CTAs than are tracked (2048)");
        }
        if self.bytes.len() != accesses.len() {
            return Some("not one entry for each access");
        }
        if !is_duration(self.spread_us) {
            return Some("a spread that is negative, not finite or longer than an hour");
        }
        let whole = |(tile, access): (&TileBytes, &Access)| {
            let mut parts: Vec<_> = (0..launch.ctas() as u32).map(|cta| tile.range(access, cta)).collect();
            parts.sort_by_key(|part| part.start);
            let reached =
                parts.iter().fold(access.bytes.start, |reached, part| match part.start <= reached {
                    true => reached.max(part.end),
                    false => reached,
                });
            reached == access.bytes.end
        };
        let covered = self.bytes.iter().zip(accesses).all(whole);
        (!covered).then_some("an access that its CTAs together do not cover")
    }

    /// The nonempty ranges that CTA `cta` touches: buffer, bytes and mode.
    pub(super) fn touched<'a>(
        &'a self,
        accesses: &'a [Access],
        cta: u32,
    ) -> impl Iterator<Item = (usize, Range<u64>, AccessMode)> + 'a {
        self.bytes.iter().zip(accesses).filter_map(move |(tile, access)| {
            let bytes = tile.range(access, cta);
            (!bytes.is_empty()).then_some((access.buffer.index(), bytes, access.mode))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferId;

    #[test]
    fn strides_run_both_ways_and_are_clipped() {
        let access = Access { buffer: BufferId(0), bytes: 100..140, mode: AccessMode::Read };
        let ranges = |tile: TileBytes| (0..4).map(|cta| tile.range(&access, cta)).collect::<Vec<_>>();
        let forwards = TileBytes::Strided { first: 0, stride: 10, bytes: 10 };
        assert_eq!(ranges(forwards), [100..110, 110..120, 120..130, 130..140]);
        let mirrored = TileBytes::Strided { first: 30, stride: -10, bytes: 10 };
        assert_eq!(ranges(mirrored), [130..140, 120..130, 110..120, 100..110]);
        let halo = TileBytes::Strided { first: -4, stride: 10, bytes: 18 };
        assert_eq!(ranges(halo), [100..114, 106..124, 116..134, 126..140]);
    }

    #[test]
    fn tiles_that_leave_bytes_out_are_refused() {
        let accesses = [Access { buffer: BufferId(0), bytes: 0..40, mode: AccessMode::Write }];
        let fault = |stride, bytes, ctas| {
            let bytes = vec![TileBytes::Strided { first: 0, stride, bytes }];
            TileAccesses { bytes, spread_us: 0.0, early_trigger: false }
                .fault(&LaunchConfig::linear(ctas, 32), &accesses)
        };
        assert_eq!(fault(10, 10, 4), None);
        assert!(fault(10, 10, 3).is_some_and(|f| f.contains("cover")));
        assert!(fault(10, 9, 4).is_some_and(|f| f.contains("cover")), "gaps");
        assert!(fault(0, 40, 1 << 12).is_some_and(|f| f.contains("more CTAs")));
    }
}
