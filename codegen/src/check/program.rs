//! What a stage's tiles do with semaphores, as `check` sees it: posts, waits and loads, one by one.
//!
//! `check` judges these events and nothing else, so it never has to believe the arithmetic of a policy; kernels that
//! are not ours, and mutants of ours, are judged through the same trait.

use super::Candidate;
use crate::graph::{Dependence, OperandKind, Stage, StageId};
use crate::policy::{SlotMap, Tile, wait_box};

/// One step of a consumer's work item, in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// The posts and the events of every tile.
pub trait TileProgram {
    /// Calls `f(slot, amount)` for each post that producer tile `tile` makes on `edge`.
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32));

    /// Calls `f` with the events of slice `slice` (0 without split-K) of a consumer tile, in program order.
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event));
}

/// The k-blocks of a split-K slice.
pub fn slice_k_blocks(stage: &Stage, slice: u32) -> std::ops::Range<u32> {
    let each = stage.k_blocks.div_ceil(stage.split_k.max(1));
    (slice * each).min(stage.k_blocks)..((slice + 1) * each).min(stage.k_blocks)
}

/// The program of the kernels in `csrc/kernels`, which follow `policy.hpp`.
pub struct Generated<'a> {
    candidate: &'a Candidate,
    slots: Vec<SlotMap>,
}

impl<'a> Generated<'a> {
    /// The program of a candidate's policies.
    pub fn new(candidate: &'a Candidate) -> Self {
        Generated { candidate, slots: candidate.slot_maps() }
    }

    fn wait(
        &self,
        edge: usize,
        dependence: &Dependence,
        tile: Tile,
        k: u32,
        ks: &std::ops::Range<u32>,
        f: &mut dyn FnMut(Event),
    ) {
        let slots = &self.slots[edge];
        let wait_at = self.candidate.edges[edge].wait_at;
        let tiles = wait_box(&self.candidate.graph, dependence, slots, wait_at, tile, k, ks);
        for slot in slots.covering(&tiles) {
            f(Event::Wait { edge, slot, value: slots.posts_of(slot) });
        }
    }
}

impl TileProgram for Generated<'_> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        f(self.slots[edge].slot_of(tile), 1);
    }

    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        let graph = &self.candidate.graph;
        let ks = slice_k_blocks(&graph.stages[stage.0], slice);
        if ks.is_empty() {
            return;
        }
        let kind = |d: &Dependence| graph.stages[stage.0].operands[d.operand].kind;
        let once = |d: &Dependence| matches!(kind(d), OperandKind::Bias | OperandKind::Residual);
        let edges = || graph.dependences.iter().enumerate().filter(|(_, d)| d.consumer == stage);
        for k in ks.clone() {
            for (edge, dependence) in edges().filter(|(_, d)| !once(d)) {
                self.wait(edge, dependence, tile, k, &ks, f);
                f(Event::Load { operand: dependence.operand, k_block: k });
            }
        }
        for (edge, dependence) in edges().filter(|(_, d)| once(d)) {
            self.wait(edge, dependence, tile, 0, &(0..1), f);
            f(Event::Load { operand: dependence.operand, k_block: 0 });
        }
    }
}
