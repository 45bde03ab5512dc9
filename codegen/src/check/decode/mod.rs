//! What the CTAs of a decode kernel do, as `check` sees it.
//!
//! # Why progress holds
//!
//! All CTAs are resident: there are no more than SMs. Each goes through the stages in the same order, and waits in a stage
//! for slots of earlier stages only. So, by induction over the stages, every CTA ends every stage: the first waits for
//! nothing; when all CTAs have ended the stages before one, all their posts are made, `count` says that they reach the wait
//! values, and every CTA ends this one. The warps that bring activations may run ahead into the next stage; they hold
//! nothing that the end of this one needs, and the post of a share is made before its CTA's next stage is begun. The test
//! is a run of all CTAs without time.
//!
//! # What guards a load
//!
//! A k-tile is loaded by one of several warps that do not wait for each other, so only the waits of that warp itself
//! count. A residual that an earlier stage wrote is not waited for: equal widths give equal shares, so a
//! CTA reads what it has itself written. That is judged, not believed.

mod judge;
mod progress;

use std::ops::Range;

pub use judge::judge_decode;

use crate::graph::{Graph, OperandKind, StageId};
use crate::schedule::decode::{
    COLUMN_TILE, Decode, base, column_tiles, is_read, owners_of_tile, producer_of,
};

/// One step of a warp in a stage, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeEvent {
    /// Spins until a slot of a stage has had `value` posts in this epoch.
    Wait {
        /// The stage that posts.
        stage: StageId,
        /// Its column tile.
        slot: u32,
        /// Posts waited for.
        value: u32,
    },
    /// Loads columns of a stage's output, all rows.
    Load {
        /// The stage that writes them.
        stage: StageId,
        /// Columns.
        columns: Range<u32>,
    },
    /// Reads columns of a stage's output, all rows, after what its own CTA did in the stages before.
    Residual {
        /// The stage that writes them.
        stage: StageId,
        /// Columns.
        columns: Range<u32>,
    },
    /// Stores columns of its own stage's output, all rows.
    Store {
        /// Columns.
        columns: Range<u32>,
    },
    /// Adds to a slot of its own stage.
    Post {
        /// Column tile.
        slot: u32,
        /// Posts.
        amount: u32,
    },
}

/// The events of every CTA in every stage.
pub trait DecodeProgram {
    /// Warps of a CTA that go their own ways in a stage, as one: the last computes and stores when all others are done.
    fn warps(&self) -> u32;

    /// Calls `f` with what a warp of CTA `cta` does in a stage, in program order. Its stages follow one another in the
    /// order of the graph.
    fn events(&self, stage: StageId, cta: u32, warp: u32, f: &mut dyn FnMut(DecodeEvent));
}

/// The program of the kernels in `csrc/kernels`, whose arithmetic is that of [`crate::schedule::decode`].
pub struct GeneratedDecode<'a> {
    graph: &'a Graph,
    decode: &'a Decode,
}

/// Warps that bring activations, a k-tile each in turn.
const LOAD_WARPS: u32 = 4;

impl<'a> GeneratedDecode<'a> {
    /// The program of a decode plan.
    pub fn new(graph: &'a Graph, decode: &'a Decode) -> Self {
        GeneratedDecode { graph, decode }
    }

    fn load(&self, producer: StageId, cta: u32, warp: u32, f: &mut dyn FnMut(DecodeEvent)) {
        let (length, workers) = (self.graph.stages[producer.0].n, self.decode.workers);
        // CTAs begin at different k-tiles and go around.
        let tiles = length.div_ceil(COLUMN_TILE);
        let start = base(tiles, workers, cta);
        for number in (warp..tiles).step_by(LOAD_WARPS as usize) {
            let slot = (start + number) % tiles;
            let value = owners_of_tile(slot, length, workers);
            f(DecodeEvent::Wait { stage: producer, slot, value });
            let first = slot * COLUMN_TILE;
            f(DecodeEvent::Load { stage: producer, columns: first..(first + COLUMN_TILE).min(length) });
        }
    }
}

impl DecodeProgram for GeneratedDecode<'_> {
    fn warps(&self) -> u32 {
        LOAD_WARPS + 1
    }

    fn events(&self, stage: StageId, cta: u32, warp: u32, f: &mut dyn FnMut(DecodeEvent)) {
        let of_stage = &self.graph.stages[stage.0];
        let (length, workers) = (of_stage.n, self.decode.workers);
        let columns = base(length, workers, cta)..base(length, workers, cta + 1);
        if columns.is_empty() {
            return;
        }
        if warp < LOAD_WARPS {
            if let Some(producer) = producer_of(self.graph, of_stage) {
                self.load(producer, cta, warp, f);
            }
            return;
        }
        for operand in of_stage.operands.iter().filter(|o| o.kind == OperandKind::Residual) {
            if let Some(stage) = self.graph.tensors[operand.tensor.0].producer {
                f(DecodeEvent::Residual { stage, columns: columns.clone() });
            }
        }
        f(DecodeEvent::Store { columns: columns.clone() });
        if is_read(self.graph, stage) {
            column_tiles(&columns).for_each(|slot| f(DecodeEvent::Post { slot, amount: 1 }));
        }
    }
}
