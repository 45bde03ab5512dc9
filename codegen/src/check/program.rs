//! What a stage's tiles do with semaphores, as `check` sees it: posts, waits and loads, one by one.
//!
//! `check` judges these events and nothing else, so it never has to believe the arithmetic of a policy; kernels that
//! are not ours, and mutants of ours, are judged through the same trait.

use std::ops::Range;

use super::parts::Place;
use crate::graph::{Graph, Stage, StageId};
use crate::sync::Tile;

/// One step of a consumer's work item, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Spins until a slot has had `value` posts in this epoch.
    Wait {
        /// Index into [`crate::graph::Graph::dependences`].
        edge: usize,
        /// Slot of that edge, from 0.
        slot: u32,
        /// Posts waited for.
        value: u32,
    },
    /// Loads what an operand's footprint holds at a k-block; bias and residual use k-block 0.
    Load {
        /// Index into [`Stage::operands`].
        operand: usize,
        /// k-block.
        k_block: u32,
    },
    /// Loads a region of an operand at a k-block, for itself and for the other CTAs of its cluster that need it too.
    Multicast {
        /// Index into [`Stage::operands`].
        operand: usize,
        /// k-block.
        k_block: u32,
        /// Rows of the tensor.
        rows: Range<u32>,
        /// Columns of the tensor.
        cols: Range<u32>,
    },
    /// What follows is done by this warp of the CTA, up to the next of these; without any, one warp loads. The warps go their
    /// own ways, from item to item. What an epilogue waits for and reads, and the store, come after all that they do.
    Warp {
        /// Its number, from 0.
        warp: u32,
    },
    /// Leaves the sums of this slice in a slab and sets the slab's flag.
    Contribute {
        /// The slab.
        slab: u32,
    },
    /// Spins until a slab's flag is set in this epoch.
    Await {
        /// The slab.
        slab: u32,
    },
    /// Adds the sums in a slab to its own.
    Add {
        /// The slab.
        slab: u32,
    },
    /// Finishes and stores units `units` of the `of` of its tile.
    Store {
        /// Units.
        units: Range<u32>,
        /// Units of the tile.
        of: u32,
    },
}

/// The posts and the events of every tile.
pub trait TileProgram {
    /// Calls `f(slot, amount)` for each post that producer tile `tile` makes on `edge`.
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32));

    /// Calls `f` with the events of slice `slice` (0 without split-K) of a consumer tile, in program order.
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event));

    /// Tiles that have events: the stage's grid, or one that is filled up to whole clusters, whose CTAs without a tile
    /// of their own load for the others.
    fn extent(&self, graph: &Graph, stage: StageId) -> (u32, u32) {
        graph.stages[stage.0].grid
    }

    /// Slices of a tile along k.
    fn slices(&self, graph: &Graph, stage: StageId, _tile: Tile) -> u32 {
        graph.stages[stage.0].split_k.max(1)
    }

    /// Where a slice stands in a schedule.
    fn place(&self, _stage: StageId, _tile: Tile, _slice: u32) -> Option<Place> {
        None
    }

    /// Calls `f` with the units, and the units of the tile, of each [`Event::Store`] among the events of a slice.
    fn stores(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Range<u32>, u32)) {
        self.events(stage, tile, slice, &mut |event| {
            if let Event::Store { units, of } = event {
                f(units, of);
            }
        });
    }

    /// Calls `f` with the waits, contributions and awaited slabs among the events of a slice. Between two contributions they come
    /// in any order, and what has been waited for may be left out.
    fn holds(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.events(stage, tile, slice, &mut |event| {
            if matches!(event, Event::Wait { .. } | Event::Contribute { .. } | Event::Await { .. }) {
                f(event);
            }
        });
    }

    /// The same events edge by edge, of a program that promises what [`Strands`] does; of any other every tile is judged
    /// by itself.
    fn strands(&self) -> Option<&dyn Strands> {
        None
    }
}

/// A program whose waits and loads fall into strands that do not depend on each other, one for each dependence of a
/// stage: the waits for that edge's slots and the loads of its operand. There are no other waits, and no other loads. Everything
/// that a slice loads and adds comes before its stores.
pub trait Strands {
    /// Calls `f` with the events of a strand in a slice of a tile, from k-block `from` on: those among
    /// [`TileProgram::events`], in their order.
    fn strand(&self, edge: usize, tile: Tile, slice: u32, from: u32, f: &mut dyn FnMut(Event));

    /// Whether two tiles of an edge's consumer have as many slices, and the same strand in each of them. `false` where that
    /// is not known.
    fn alike(&self, edge: usize, a: Tile, b: Tile) -> bool;

    /// Whether the strand of `longer` is that of `shorter` and then more, both tiles having one slice: the k-block at which
    /// it goes on. `None` where that is not known.
    fn grows(&self, _edge: usize, _shorter: Tile, _longer: Tile) -> Option<u32> {
        None
    }

    /// Rows and columns between tiles that may be alike.
    fn period(&self) -> (u32, u32) {
        (1, 1)
    }
}

/// The k-blocks of a split-K slice.
pub fn slice_k_blocks(stage: &Stage, slice: u32) -> Range<u32> {
    let each = stage.k_blocks.div_ceil(stage.split_k.max(1));
    (slice * each).min(stage.k_blocks)..((slice + 1) * each).min(stage.k_blocks)
}
