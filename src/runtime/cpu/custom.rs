//! The arithmetic of a user's own stage.

use cusync_gen::sync::Tile;

/// A box of a tensor, widened to float32, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// First row in the tensor.
    pub row: usize,
    /// First column in the tensor.
    pub col: usize,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// `rows * cols` values.
    pub data: Vec<f32>,
}

impl Region {
    /// The value at tensor coordinates; `None` outside the region.
    pub fn at(&self, row: usize, col: usize) -> Option<f32> {
        let (r, c) = (row.checked_sub(self.row)?, col.checked_sub(self.col)?);
        if r < self.rows && c < self.cols { self.data.get(r * self.cols + c).copied() } else { None }
    }
}

/// What a custom stage computes. The executor waits for, loads and hands over exactly the footprints that the spec
/// states, so that a kernel that needs more cannot get it by accident.
pub trait CustomKernel: Send + Sync {
    /// Folds k-block `k` of a tile into `out`, which is zero before the first. `reads` are the stage's operands in the
    /// spec's order, clipped to their tensors. After the last k-block `out` is rounded and stored.
    fn k_block(&self, tile: Tile, k: u32, reads: &[Region], out: &mut Region);
}

impl<F: Fn(Tile, u32, &[Region], &mut Region) + Send + Sync> CustomKernel for F {
    fn k_block(&self, tile: Tile, k: u32, reads: &[Region], out: &mut Region) {
        self(tile, k, reads, out);
    }
}
