//! The tightest affine range around non-affine ranges.

use std::ops::Range;

/// Candidate pairs of coefficients, each with the bounds needed so far.
pub(super) struct Fit {
    /// Coefficients of tile and k-block; minimum begin and maximum end after subtracting them.
    candidates: Vec<(i64, i64, i64, i64)>,
}

impl Fit {
    /// Candidate coefficients (tile, k-block); among equally tight ones the first wins.
    pub(super) fn new(coefficients: &[(i64, i64)]) -> Self {
        let open = |&(tile, k): &(i64, i64)| (tile, k, i64::MAX, i64::MIN);
        Fit { candidates: coefficients.iter().map(open).collect() }
    }

    /// Adds a range that tile number `tile` reads at a k-block.
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

    /// Coefficients of tile and k-block, offset and extent of the tightest range; the extent is 0 if nothing is read.
    /// `None` on 32-bit overflow.
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
