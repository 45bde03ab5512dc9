//! Policies and edges as the plain numbers that device code reads (`csrc/include/cusync/desc.h`): the runtime and the
//! `cpu` executor pass them to C, and rendered headers contain them as constants.

use std::ops::Range;

use super::{Policy, Tile};
use crate::graph::{Partition, share_begin, share_of};

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
    /// 0, or the output's columns per slot. Its producers are then even shares of `columns` columns, and waits count
    /// column tiles of this width.
    pub width: u32,
    /// Columns of the output, if slots are counted by columns.
    pub columns: u32,
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
            width: 0,
            columns: 0,
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
            &Policy::Columns { width, columns } => {
                SlotMap { width, columns, ..map((1, 1), 0, (1, columns.div_ceil(width.max(1)))) }
            }
            Policy::Own => map((1, 1), 0, (0, 0)),
        }
    }
}

impl SlotMap {
    /// The slots that a producer tile posts: one, unless they are counted by columns or there are none.
    pub fn posted_by(&self, tile: Tile) -> Range<u32> {
        match (self.width, self.slot_count) {
            (0, 0) => 0..0,
            (0, _) => self.slot_of(tile)..self.slot_of(tile) + 1,
            (width, _) => {
                let begin = |part| share_begin(self.columns, self.grid.1, part);
                let (begin, end) = (begin(tile.n), begin(tile.n + 1));
                if begin == end { 0..0 } else { begin / width..end.div_ceil(width) }
            }
        }
    }

    /// The slot that a producer tile posts, if slots are counted by tiles.
    pub fn slot_of(&self, tile: Tile) -> u32 {
        if let Some((table, _)) = &self.table {
            return table[(tile.m * self.grid.1 + tile.n) as usize];
        }
        let column = if self.stride_n > 0 { tile.n % self.stride_n } else { tile.n / self.block.1 };
        (tile.m / self.block.0) * self.slots_n + column
    }

    /// Tiles that map to a slot: the posts of one epoch, and the wait value.
    pub fn posts_of(&self, slot: u32) -> u32 {
        if self.width > 0 {
            return self.owners_of(slot);
        }
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

    /// Shares with columns of a column tile, computed from the tile's ends only, as devices do.
    fn owners_of(&self, tile: u32) -> u32 {
        let owner = |column| share_of(column, self.columns, self.grid.1);
        let (begin, end) = (tile * self.width, ((tile + 1) * self.width).min(self.columns));
        if begin >= end {
            return 0;
        }
        // With fewer columns than shares, some shares in between have none.
        (owner(end - 1) - owner(begin) + 1).min(end - begin)
    }

    /// The tiles of a producer's output that waits count.
    pub(crate) fn awaited_in(&self, producer: Partition, rows: u32) -> Partition {
        match self.width {
            0 => producer,
            cols => Partition::Tiles { rows, cols },
        }
    }
}
