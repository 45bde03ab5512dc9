//! Policies and edges as the plain numbers that device code reads (`csrc/include/cusync/desc.h`): the runtime and the
//! `cpu` executor pass them to C, and rendered headers contain them as constants.

use super::{Policy, Tile};

/// A policy on a grid (`cusync_policy`).
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
    /// First slot in the pipeline's array; the methods here count from 0.
    pub slot_base: u32,
    /// Slots of the edge.
    pub slot_count: u32,
    /// Whether waits follow a filter over its images: see [`Policy::ConvHalo`]. Devices get this as a footprint.
    pub sliding: bool,
    /// A user's table and the posts of each slot.
    pub table: Option<(Vec<u32>, Vec<u32>)>,
}

impl Policy {
    /// The policy on a grid of producer tiles, with slots numbered from 0.
    pub fn on(&self, grid: (u32, u32)) -> SlotMap {
        let (gm, gn) = grid;
        let map = |block: (u32, u32), stride_n: u32, slots: (u32, u32)| SlotMap {
            grid,
            block,
            stride_n,
            slots_n: slots.1,
            slot_base: 0,
            slot_count: slots.0 * slots.1,
            sliding: *self == Policy::ConvHalo,
            table: None,
        };
        let blocks = |rows: u32, cols: u32| map((rows, cols), 0, (gm.div_ceil(rows), gn.div_ceil(cols)));
        match self {
            Policy::Tile => blocks(1, 1),
            Policy::Row | Policy::ConvHalo => blocks(1, gn),
            Policy::Batched { rows, cols } => blocks((*rows).min(gm), (*cols).min(gn)),
            Policy::Strided(stride) => {
                let stride = (*stride).min(gn);
                map((1, 1), stride, (gm, stride))
            }
            Policy::Table(table) => {
                let slots = table.iter().max().map_or(0, |s| s + 1);
                let mut posts = vec![0; slots as usize];
                table.iter().for_each(|&s| posts[s as usize] += 1);
                SlotMap { table: Some((table.clone(), posts)), ..map((1, 1), 0, (1, slots)) }
            }
        }
    }
}

impl SlotMap {
    /// The slot that a producer tile posts.
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
