//! Semaphore operations of a stage's tiles as `check` sees them: posts, waits and loads, one by one.
//!
//! `check` judges only these events, so it never has to trust the arithmetic of a policy. Third-party kernels and
//! mutants of ours are judged through the same trait.

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
        /// Slot of that edge, starting at 0.
        slot: u32,
        /// Posts waited for.
        value: u32,
    },
    /// Loads an operand's footprint at a k-block; bias and residual use k-block 0.
    Load {
        /// Index into [`Stage::operands`].
        operand: usize,
        /// k-block.
        k_block: u32,
    },
    /// Loads a region of an operand at a k-block, for this CTA and for the other CTAs of its cluster that need it.
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
    /// The following events, up to the next `Warp`, belong to this warp of the CTA; without any `Warp`, one warp
    /// loads. The warps advance independently, from item to item. The waits and reads of an epilogue, and the store,
    /// come after all their events.
    Warp {
        /// Its index, starting at 0.
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
    /// Finishes and stores units `units` of the `of` units of its tile.
    Store {
        /// Units.
        units: Range<u32>,
        /// Units of the tile.
        of: u32,
    },
}

/// One step of a tile whose sums are over several devices, after its own sums are complete and before its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Writes its sums to a place of a device, which may be its own.
    Send {
        /// The device.
        to: u32,
        /// The place among those of that device.
        place: u32,
    },
    /// Waits for the sums of this run in a place of its own device, and adds them.
    Receive {
        /// The place.
        place: u32,
    },
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exchange::Send { to, place } => write!(f, "a send to place {place} of device {to}"),
            Exchange::Receive { place } => write!(f, "a receive from its place {place}"),
        }
    }
}

/// The posts and events of every tile.
pub trait TileProgram {
    /// Calls `f(slot, amount)` for each post that producer tile `tile` makes on `edge`.
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32));

    /// Calls `f` with the events of slice `slice` (0 without split-K) of a consumer tile, in program order.
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event));

    /// Calls `f` with what a tile of a device exchanges with the others, in program order; only tiles of stages with
    /// sums over devices exchange anything.
    fn exchanges(&self, _stage: StageId, _tile: Tile, _device: u32, _f: &mut dyn FnMut(Exchange)) {}

    /// Tiles with events: the stage's grid, or the grid rounded up to whole clusters, where extra CTAs load for the
    /// others.
    fn extent(&self, graph: &Graph, stage: StageId) -> (u32, u32) {
        graph.stages[stage.0].grid
    }

    /// Slices of a tile along k.
    fn slices(&self, graph: &Graph, stage: StageId, _tile: Tile) -> u32 {
        graph.stages[stage.0].split_k.max(1)
    }

    /// Position of a slice in a schedule.
    fn place(&self, _stage: StageId, _tile: Tile, _slice: u32) -> Option<Place> {
        None
    }

    /// Calls `f` with the units, and the number of units in the tile, of each [`Event::Store`] of a slice.
    fn stores(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Range<u32>, u32)) {
        self.events(stage, tile, slice, &mut |event| {
            if let Event::Store { units, of: in_tile } = event {
                f(units, in_tile);
            }
        });
    }

    /// Calls `f` with the waits, contributions and awaited slabs of a slice. Between two contributions they come in
    /// any order; waits that are already satisfied may be omitted.
    fn holds(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.events(stage, tile, slice, &mut |event| {
            if matches!(event, Event::Wait { .. } | Event::Contribute { .. } | Event::Await { .. }) {
                f(event);
            }
        });
    }

    /// The same events edge by edge, for a program with the properties of [`Strands`]; any other program is judged
    /// tile by tile.
    fn strands(&self) -> Option<&dyn Strands> {
        None
    }
}

/// A program with waits and loads in independent strands, one for each dependence of a stage: the waits for that
/// edge's slots and the loads of its operand. There are no other waits or loads. All loads and additions of a slice
/// come before its stores.
pub trait Strands {
    /// Calls `f` with the events of a strand in a slice of a tile, from k-block `from` on: the matching events of
    /// [`TileProgram::events`], in the same order.
    fn strand(&self, edge: usize, tile: Tile, slice: u32, from: u32, f: &mut dyn FnMut(Event));

    /// Whether two tiles of an edge's consumer have the same number of slices, and the same strand in each. `false` if
    /// unknown.
    fn alike(&self, edge: usize, a: Tile, b: Tile) -> bool;

    /// The k-block at which the strand of `longer` continues beyond that of `shorter`, if it extends it and both tiles
    /// have one slice. `None` if unknown.
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
