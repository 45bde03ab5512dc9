//! Arithmetic of a user-defined stage.

use cusync_gen::sync::Tile;

use super::CpuPipeline;
use super::error::CpuError;
use super::tile::{Place, Scratch, Stop};

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

/// Arithmetic of a custom stage. The executor waits for, loads and passes exactly the footprints that the
/// spec states, so a kernel that needs more cannot get it by accident.
pub trait CustomKernel: Send + Sync {
    /// Accumulates k-block `k` of a tile into `out`, which is zero before the first k-block. `reads` are the
    /// stage's operands in the spec's order, clipped to their tensors. After the last k-block `out` is
    /// rounded and stored.
    fn k_block(&self, tile: Tile, k: u32, reads: &[Region], out: &mut Region);
}

impl<F: Fn(Tile, u32, &[Region], &mut Region) + Send + Sync> CustomKernel for F {
    fn k_block(&self, tile: Tile, k: u32, reads: &[Region], out: &mut Region) {
        self(tile, k, reads, out);
    }
}

impl CpuPipeline {
    /// Computes and stores a tile with the user's kernel.
    pub(super) fn custom_tile(&self, place: &Place<'_>, scratch: &mut Scratch) -> Result<(), Stop> {
        let Place { work, stage, tile, at, .. } = place;
        let Some(kernel) = &self.kernels[work.stage] else {
            return Err(Stop::Failed(CpuError::NoKernel(stage.name.clone())));
        };
        let mut out = Region { row: at.row, col: at.col, rows: at.rows, cols: at.cols, data: Vec::new() };
        out.data.resize(at.rows * at.cols, 0.0);
        for k in 0..stage.k_blocks {
            self.wait_for(place, k, &(0..stage.k_blocks), |_| true, scratch)?;
            let reads: Vec<Region> = stage
                .operands
                .iter()
                .map(|operand| {
                    let tensor = &self.graph.tensors[operand.tensor.0];
                    let rows = operand.footprint.rows.range(tensor.rows, tile.m, tile.n, k);
                    let cols = operand.footprint.cols.range(tensor.cols, tile.m, tile.n, k);
                    self.region(operand.tensor, rows, cols)
                })
                .collect();
            kernel.k_block(*tile, k, &reads, &mut out);
        }
        if out.data.len() != at.rows * at.cols {
            let message = format!("the kernel of `{}` changed the size of its tile", stage.name);
            return Err(Stop::Failed(CpuError::Panicked(message)));
        }
        self.memory.store(stage.out, *at, &out.data);
        Ok(())
    }
}
