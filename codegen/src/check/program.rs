//! What a stage's tiles do with semaphores, as `check` sees it: posts, waits and loads, one by one.
//!
//! `check` judges these events and nothing else, so it never has to believe the arithmetic of a policy; kernels that
//! are not ours, and mutants of ours, are judged through the same trait.

use std::ops::Range;

use super::Candidate;
use super::parts::{Parts, Place};
use crate::graph::{Dependence, Graph, Operand, OperandKind, Stage, StageId};
use crate::policy::{SlotMap, Tile, wait_box};
use crate::schedule::{POST_WEIGHT, Part, units};

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
}

/// The k-blocks of a split-K slice.
pub fn slice_k_blocks(stage: &Stage, slice: u32) -> Range<u32> {
    let each = stage.k_blocks.div_ceil(stage.split_k.max(1));
    (slice * each).min(stage.k_blocks)..((slice + 1) * each).min(stage.k_blocks)
}

/// The program of the kernels in `csrc/kernels`, which follow `policy.hpp`.
pub struct Generated<'a> {
    candidate: &'a Candidate,
    slots: Vec<SlotMap>,
    /// Of the chain kernel: the items of each tile.
    parts: Option<Parts>,
}

impl<'a> Generated<'a> {
    /// The program of a candidate's policies and, where it has one, its schedule.
    pub fn new(candidate: &'a Candidate) -> Self {
        let parts = candidate.schedule.as_ref().map(|s| Parts::of(&candidate.graph, s));
        Generated { candidate, slots: candidate.slot_maps(), parts }
    }

    fn wait(
        &self,
        edge: usize,
        dependence: &Dependence,
        tile: Tile,
        k: u32,
        ks: &Range<u32>,
        f: &mut dyn FnMut(Event),
    ) {
        let slots = &self.slots[edge];
        let wait_at = self.candidate.edges[edge].wait_at;
        let tiles = wait_box(&self.candidate.graph, dependence, slots, wait_at, tile, k, ks);
        let weight = if self.parts.is_some() { POST_WEIGHT } else { 1 };
        for slot in slots.covering(&tiles) {
            f(Event::Wait { edge, slot, value: slots.posts_of(slot) * weight });
        }
    }

    /// The k-blocks of a slice and what becomes of its sums; `None` where a CTA has no such slice.
    fn slice(&self, stage: StageId, tile: Tile, slice: u32) -> Option<(Range<u32>, Part)> {
        match (&self.parts, &self.candidate.schedule) {
            (Some(parts), Some(schedule)) => {
                let item = &schedule.sequence[parts.item(stage, tile, slice)? as usize];
                Some((item.k_begin..item.k_end, item.part))
            }
            _ => {
                let of = &self.candidate.graph.stages[stage.0];
                let (ks, last) = (slice_k_blocks(of, slice), of.k_blocks_of(tile.m));
                Some((ks.start.min(last)..ks.end.min(last), Part::Whole))
            }
        }
    }
}

/// CTAs of a cluster that read the same tile of an operand, and which of them `tile` is: each of them loads one slice of
/// it for all. Operand A is the same along N, operand B along M.
fn sharing(cluster: (u32, u32), kind: OperandKind, tile: Tile) -> (u32, u32) {
    match kind {
        OperandKind::A => (cluster.1, tile.n % cluster.1),
        OperandKind::B | OperandKind::Up => (cluster.0, tile.m % cluster.0),
        _ => (1, 0),
    }
}

/// Slice `index` of `of` of what `tile` reads of an operand at a k-block: A by rows, B by columns.
fn multicast(
    graph: &Graph,
    operand: usize,
    stage: &Stage,
    tile: Tile,
    k_block: u32,
    (of, index): (u32, u32),
) -> Event {
    let Operand { kind, tensor, .. } = &stage.operands[operand];
    let (mut rows, mut cols) = (0..0, 0..0);
    // Of a GEMM's operands a tile reads one box.
    let read = &mut |r, c| (rows, cols) = (r, c);
    stage.reads(operand, &graph.tensors[tensor.0], (tile.m, tile.n), k_block, read);
    let slice = |range: &Range<u32>, whole: u32| {
        let share = whole / of;
        let at = |i: u32| (range.start + share * i).min(range.end);
        at(index)..at(index + 1)
    };
    match kind {
        OperandKind::A => rows = slice(&rows, stage.out_tile.0),
        _ => cols = slice(&cols, stage.out_tile.1),
    }
    Event::Multicast { operand, k_block, rows, cols }
}

impl TileProgram for Generated<'_> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        let stage = self.candidate.graph.dependences[edge].producer;
        let slot = self.slots[edge].slot_of(tile);
        if self.parts.is_none() {
            // A split-K tile outside a schedule is posted by its last slice.
            return f(slot, 1);
        }
        for slice in 0..self.slices(&self.candidate.graph, stage, tile) {
            if let Some((_, part)) = self.slice(stage, tile, slice)
                && part.finishes()
            {
                f(slot, part.weight());
            }
        }
    }

    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        let graph = &self.candidate.graph;
        let Some((ks, part)) = self.slice(stage, tile, slice) else { return };
        if ks.is_empty() {
            return;
        }
        let of_stage = &graph.stages[stage.0];
        let idle = tile.m >= of_stage.grid.0 || tile.n >= of_stage.grid.1;
        let cluster = self.parts.as_ref().map_or((1, 1), Parts::cluster);
        let kind = |d: &Dependence| of_stage.operands[d.operand].kind;
        let once = |d: &Dependence| matches!(kind(d), OperandKind::Bias | OperandKind::Residual);
        let edges = || graph.dependences.iter().enumerate().filter(|(_, d)| d.consumer == stage);
        for k in ks.clone() {
            for (edge, dependence) in edges().filter(|(_, d)| !once(d)) {
                let (of, index) = sharing(cluster, kind(dependence), tile);
                self.wait(edge, dependence, tile, k, &ks, f);
                if of > 1 {
                    f(multicast(graph, dependence.operand, of_stage, tile, k, (of, index)));
                } else if !idle {
                    f(Event::Load { operand: dependence.operand, k_block: k });
                }
            }
        }
        if idle {
            return;
        }
        let add = |slab: u32, f: &mut dyn FnMut(Event)| {
            f(Event::Await { slab });
            f(Event::Add { slab });
        };
        match part {
            Part::Contribute { slab } => return f(Event::Contribute { slab }),
            Part::Finish { first, slabs } => (0..slabs).for_each(|s| add(first.saturating_add(s), f)),
            Part::Share { first, parts, part } => {
                f(Event::Contribute { slab: first.saturating_add(part) });
                (0..parts).filter(|p| *p != part).for_each(|p| add(first.saturating_add(p), f));
            }
            Part::Whole => {}
        }
        for (edge, dependence) in edges().filter(|(_, d)| once(d)) {
            self.wait(edge, dependence, tile, 0, &(0..1), f);
            f(Event::Load { operand: dependence.operand, k_block: 0 });
        }
        let of = units(of_stage.mma_tile);
        let units = match part {
            // Unit u is of part u * parts / of.
            Part::Share { parts, part, .. } => {
                let begin = |p: u32| (p * of).div_ceil(parts.max(1));
                begin(part)..begin(part + 1)
            }
            _ => 0..of,
        };
        f(Event::Store { units, of });
    }

    fn extent(&self, graph: &Graph, stage: StageId) -> (u32, u32) {
        let (m, n) = graph.stages[stage.0].grid;
        let (rows, cols) = self.parts.as_ref().map_or((1, 1), Parts::cluster);
        (m.next_multiple_of(rows), n.next_multiple_of(cols))
    }

    fn slices(&self, graph: &Graph, stage: StageId, tile: Tile) -> u32 {
        match &self.parts {
            Some(parts) => parts.count(stage, tile),
            None => graph.stages[stage.0].split_k.max(1),
        }
    }

    fn place(&self, stage: StageId, tile: Tile, slice: u32) -> Option<Place> {
        let parts = self.parts.as_ref()?;
        Some(parts.place(parts.item(stage, tile, slice)?))
    }
}
