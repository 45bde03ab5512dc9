//! The posts of one run on an edge.

use super::grid_tiles;
use crate::check::{Candidate, TileProgram};
use crate::sync::Tile;

/// The slots that each producer tile posts, and the posts that each slot receives.
pub(super) struct Posts {
    /// Columns of the producer's grid.
    columns: u32,
    /// For each tile, row by row, the index of its first slot, plus the end.
    begins: Vec<u32>,
    slots: Vec<u32>,
    /// Sum of a run's posts to each slot.
    pub(super) totals: Vec<u64>,
    /// Number of posts that make up each slot's total.
    pub(super) counts: Vec<u32>,
}

impl Posts {
    pub(super) fn for_edge(c: &Candidate, p: &dyn TileProgram, edge: usize) -> Posts {
        let producer = &c.graph.stages[c.graph.dependences[edge].producer.0];
        let mut begins = Vec::with_capacity(producer.tiles() as usize + 1);
        let mut slots = Vec::with_capacity(producer.tiles() as usize);
        let (mut totals, mut counts) = (Vec::new(), Vec::new());
        for tile in grid_tiles(producer) {
            begins.push(slots.len() as u32);
            p.posts(edge, tile, &mut |slot, amount| {
                let slot_index = slot as usize;
                if slot_index >= totals.len() {
                    totals.resize(slot_index + 1, 0);
                    counts.resize(slot_index + 1, 0);
                }
                totals[slot_index] += u64::from(amount);
                counts[slot_index] += 1;
                if amount > 0 {
                    slots.push(slot);
                }
            });
        }
        begins.push(slots.len() as u32);
        Posts { columns: producer.grid.1, begins, slots, totals, counts }
    }

    /// Sum of a run's posts to a slot.
    pub(super) fn total(&self, slot: u32) -> u64 {
        self.totals.get(slot as usize).copied().unwrap_or(0)
    }

    /// The slots that a producer tile posts.
    pub(super) fn of_tile(&self, tile: Tile) -> &[u32] {
        let at = (tile.m * self.columns + tile.n) as usize;
        &self.slots[self.begins[at] as usize..self.begins[at + 1] as usize]
    }
}
