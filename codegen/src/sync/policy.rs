//! Slot maps of policies.

use super::Tile;

/// How the tiles of a producer share semaphore slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// A slot a tile.
    Tile,
    /// A slot a row of tiles.
    Row,
    /// A slot for each block of `rows` x `cols` tiles.
    Batched {
        /// Rows of tiles a slot.
        rows: u32,
        /// Columns of tiles a slot.
        cols: u32,
    },
    /// Tiles of a row whose columns are equal modulo `stride` share a slot.
    Strided {
        /// Slot columns.
        stride: u32,
    },
    /// For the images that a convolution reads: a slot a row of tiles (all channels), and waits that follow the filter's
    /// rows. Every other policy waits for the whole halo of a tile before its first k-block.
    ConvHalo,
    /// A user's own map, row-major over the grid: slots numbered from 0 without gaps.
    Table(Vec<u32>),
}

/// A policy on a grid: plain numbers, as the device sees them (`cusync_policy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    /// Producer grid.
    pub grid: (u32, u32),
    /// Tiles that share a slot, rows and columns.
    pub block: (u32, u32),
    /// 0, or the slot columns of a strided policy.
    pub stride_n: u32,
    /// Slot columns.
    pub slots_n: u32,
    /// Slots of the edge.
    pub slot_count: u32,
    /// Whether waits follow a filter over the images that it reads: see [`Policy::ConvHalo`]. Devices see this as the
    /// footprint that they are given.
    pub sliding: bool,
    /// A user's table and the posts of each slot.
    pub table: Option<(Vec<u32>, Vec<u32>)>,
}

impl Policy {
    /// The policy on a grid of producer tiles.
    pub fn on(&self, grid: (u32, u32)) -> SlotMap {
        let (gm, gn) = grid;
        let blocked = |rows: u32, cols: u32| SlotMap {
            grid,
            block: (rows, cols),
            stride_n: 0,
            slots_n: gn.div_ceil(cols),
            slot_count: gm.div_ceil(rows) * gn.div_ceil(cols),
            sliding: false,
            table: None,
        };
        match self {
            Policy::Tile => blocked(1, 1),
            Policy::Row => blocked(1, gn),
            Policy::ConvHalo => SlotMap { sliding: true, ..blocked(1, gn) },
            Policy::Batched { rows, cols } => blocked((*rows).min(gm), (*cols).min(gn)),
            Policy::Strided { stride } => {
                let stride = (*stride).min(gn);
                SlotMap {
                    grid,
                    block: (1, 1),
                    stride_n: stride,
                    slots_n: stride,
                    slot_count: gm * stride,
                    sliding: false,
                    table: None,
                }
            }
            Policy::Table(table) => {
                let slot_count = table.iter().max().map_or(0, |s| s + 1);
                let mut posts = vec![0; slot_count as usize];
                table.iter().for_each(|&s| posts[s as usize] += 1);
                SlotMap {
                    grid,
                    block: (1, 1),
                    stride_n: 0,
                    slots_n: slot_count,
                    slot_count,
                    sliding: false,
                    table: Some((table.clone(), posts)),
                }
            }
        }
    }
}

impl SlotMap {
    /// The slot (from 0) that a producer tile posts.
    pub fn slot_of(&self, tile: Tile) -> u32 {
        if let Some((table, _)) = &self.table {
            return table[(tile.m * self.grid.1 + tile.n) as usize];
        }
        let column = if self.stride_n > 0 { tile.n % self.stride_n } else { tile.n / self.block.1 };
        (tile.m / self.block.0) * self.slots_n + column
    }

    /// Tiles that map to a slot: the posts of one epoch, and the wait value.
    pub fn posts_of(&self, slot: u32) -> u32 {
        if let Some((_, posts)) = &self.table {
            return posts[slot as usize];
        }
        let (group, column) = (slot / self.slots_n, slot % self.slots_n);
        let rows = self.block.0.min(self.grid.0 - group * self.block.0);
        let cols = if self.stride_n > 0 {
            (self.grid.1 - column).div_ceil(self.stride_n)
        } else {
            self.block.1.min(self.grid.1 - column * self.block.1)
        };
        rows * cols
    }
}
