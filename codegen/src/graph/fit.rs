//! The tightest affine range around ranges that are not affine.

use std::ops::Range;

/// Candidates of two coefficients each, and around what they have seen.
pub(super) struct Fit {
    /// Coefficients of the tile and of the k-block; least begin and greatest end of what is left without them.
    candidates: Vec<(i64, i64, i64, i64)>,
}

impl Fit {
    /// Coefficients (tile, k-block) to choose from; of equally tight ones the first.
    pub(super) fn new(coefficients: &[(i64, i64)]) -> Self {
        let open = |&(tile, k): &(i64, i64)| (tile, k, i64::MAX, i64::MIN);
        Fit { candidates: coefficients.iter().map(open).collect() }
    }

    /// Takes in a range that tile number `tile` reads at a k-block.
    pub(super) fn add(&mut self, tile: u32, k_block: u32, range: &Range<u32>) {
        if range.is_empty() {
            return;
        }
        for (by_tile, by_k, begin, end) in &mut self.candidates {
            let moved = *by_tile * i64::from(tile) + *by_k * i64::from(k_block);
            *begin = (*begin).min(i64::from(range.start) - moved);
            *end = (*end).max(i64::from(range.end) - moved);
        }
    }

    /// Coefficients of tile and k-block, offset and extent of the tightest; an extent of 0 when nothing is read. `None`
    /// past 32 bits.
    pub(super) fn best(&self) -> Option<(i32, i32, i32, i32)> {
        let extent = |c: &&(i64, i64, i64, i64)| c.3.saturating_sub(c.2);
        let &(tile, k, begin, end) = self.candidates.iter().min_by_key(extent)?;
        if begin > end {
            return Some((0, 0, 0, 0));
        }
        let fit = |x: i64| i32::try_from(x).ok();
        Some((fit(tile)?, fit(k)?, fit(begin)?, fit(end - begin)?))
    }
}
