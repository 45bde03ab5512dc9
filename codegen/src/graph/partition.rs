//! How the output of a stage is divided into parts, each computed by one CTA.

use std::ops::Range;

use super::{Axis, Graph, Operand, OperandKind, Stage};
use crate::sync::Tile;

/// A box of a stage's tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileBox {
    /// Rows of tiles.
    pub m: Range<u32>,
    /// Columns of tiles.
    pub n: Range<u32>,
}

impl TileBox {
    pub(super) const EMPTY: TileBox = TileBox { m: 0..0, n: 0..0 };

    /// Whether it contains no tile.
    pub fn is_empty(&self) -> bool {
        self.m.is_empty() || self.n.is_empty()
    }

    /// Its tiles, row by row.
    pub fn tiles(&self) -> impl Iterator<Item = Tile> + use<> {
        let (m, n) = (self.m.clone(), self.n.clone());
        m.flat_map(move |m| n.clone().map(move |n| Tile { m, n }))
    }
}

/// The parts of a stage's output. A part is identified by its row and column, as a [`Tile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partition {
    /// Tiles of equal size; the last row and the last column of tiles are clipped.
    Tiles {
        /// Rows of a tile.
        rows: u32,
        /// Columns of a tile.
        cols: u32,
    },
    /// All rows, and an even share of the columns: shares differ by at most one column. With fewer columns than parts,
    /// some shares are empty.
    Even {
        /// Number of shares.
        parts: u32,
    },
}

impl std::fmt::Display for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Partition::Tiles { rows, cols } => write!(f, "{rows} x {cols}"),
            Partition::Even { parts } => write!(f, "one of {parts} even shares"),
        }
    }
}

/// First column of share `part` of `parts` in `length` columns. The arithmetic mirrors `first_feature` in
/// `csrc/kernels/decode/layout.h`.
pub fn share_begin(length: u32, parts: u32, part: u32) -> u32 {
    // At most `length`, so it fits.
    (u64::from(part) * u64::from(length) / u64::from(parts.max(1))) as u32
}

/// The share that contains a column: the last one that begins at or before it.
pub(crate) fn share_of(column: u32, length: u32, parts: u32) -> u32 {
    (((u64::from(column) + 1) * u64::from(parts.max(1)) - 1) / u64::from(length.max(1))) as u32
}

impl Partition {
    /// Parts along the rows and along the columns of an output of this size.
    pub fn grid(self, (m, n): (u32, u32)) -> (u32, u32) {
        match self {
            Partition::Tiles { rows, cols } => (m.div_ceil(rows), n.div_ceil(cols)),
            Partition::Even { parts } => (1, parts),
        }
    }

    /// Rows and columns of the largest part.
    pub fn largest(self, (m, n): (u32, u32)) -> (u32, u32) {
        match self {
            Partition::Tiles { rows, cols } => (rows, cols),
            Partition::Even { parts } => (m, n.div_ceil(parts.max(1))),
        }
    }

    /// Rows and columns of a part.
    pub fn area(self, (m, n): (u32, u32), part: Tile) -> (Range<u32>, Range<u32>) {
        match self {
            Partition::Tiles { rows, cols } => {
                let along = |at: u32, tile: u32, length: u32| {
                    let clip = |x: u32| x.saturating_mul(tile).min(length);
                    clip(at)..clip(at + 1)
                };
                (along(part.m, rows, m), along(part.n, cols, n))
            }
            Partition::Even { parts } => {
                (0..m, share_begin(n, parts, part.n)..share_begin(n, parts, part.n + 1))
            }
        }
    }

    /// The parts that overlap a nonempty region. The box may include empty shares.
    pub fn meeting(self, size: (u32, u32), rows: &Range<u32>, cols: &Range<u32>) -> TileBox {
        match self {
            Partition::Tiles { rows: tile_rows, cols: tile_cols } => TileBox {
                m: rows.start / tile_rows..rows.end.div_ceil(tile_rows),
                n: cols.start / tile_cols..cols.end.div_ceil(tile_cols),
            },
            Partition::Even { parts } => {
                let share = |column| share_of(column, size.1, parts);
                TileBox { m: 0..1, n: share(cols.start)..share(cols.end - 1) + 1 }
            }
        }
    }
}

impl Graph {
    /// The same pipeline with the output of every GEMM in `parts` even shares. Such shares are not affine, so
    /// footprints become bounding boxes: all rows, all columns.
    pub fn in_even_shares(mut self, parts: impl Fn(&Stage) -> u32) -> Graph {
        let all = |length: u32| Axis { extent: length as i32, ..Axis::default() };
        for stage in self.stages.iter_mut().filter(|stage| stage.op.is_gemm()) {
            let parts = parts(stage);
            (stage.partition, stage.grid) = (Partition::Even { parts }, (1, parts));
            for Operand { kind, footprint, .. } in &mut stage.operands {
                if matches!(kind, OperandKind::A | OperandKind::Residual) {
                    footprint.rows = all(stage.m);
                }
                if *kind != OperandKind::A {
                    footprint.cols = all(stage.n);
                }
            }
        }
        self
    }

    /// The same pipeline in the tiles given by the MMA tiles of its stages.
    pub fn in_tiles(mut self) -> Graph {
        for stage in &mut self.stages {
            let rules = stage.op.rules();
            let (rows, cols) = rules.out_tile(stage.mma_tile);
            stage.partition = Partition::Tiles { rows, cols };
            stage.grid = stage.partition.grid((stage.m, stage.n));
            for operand in &mut stage.operands {
                let Some((footprint, _)) = rules.footprint(operand.kind, stage.mma_tile) else { continue };
                let tensor = &self.tensors[operand.tensor.0];
                let viewed = operand.view.map_or(Some(footprint), |view| view.footprint(&footprint, tensor));
                operand.footprint = viewed.unwrap_or(operand.footprint);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_together_the_whole() {
        let partitions = [
            Partition::Tiles { rows: 16, cols: 24 },
            Partition::Even { parts: 1 },
            Partition::Even { parts: 7 },
            Partition::Even { parts: 132 },
        ];
        for (partition, n) in partitions.into_iter().flat_map(|p| [1, 7, 24, 100].map(|n| (p, n))) {
            let size = (40, n);
            let (gm, gn) = partition.grid(size);
            let mut owner = vec![None; 40 * n as usize];
            for part in (0..gm).flat_map(|m| (0..gn).map(move |n| Tile { m, n })) {
                let (rows, cols) = partition.area(size, part);
                let (most_rows, most_cols) = partition.largest(size);
                assert!(rows.len() as u32 <= most_rows && cols.len() as u32 <= most_cols);
                for (r, c) in rows.flat_map(|r| cols.clone().map(move |c| (r, c))) {
                    assert_eq!(owner[(r * n + c) as usize].replace(part), None, "{partition:?} of {size:?}");
                    let met = partition.meeting(size, &(r..r + 1), &(c..c + 1));
                    assert_eq!(met.tiles().collect::<Vec<_>>(), [part]);
                }
            }
            assert!(owner.iter().all(Option::is_some), "{partition:?} of {size:?}");
        }
    }
}
