//! One tile, or a part of one: its arithmetic, its waits, and its posts.

use std::time::Instant;

use cusync_gen::graph::{Op, OperandKind, Stage, TensorId};
use cusync_gen::sync::Tile;

use super::custom::Region;
use super::error::CpuError;
use super::memory::Box2;
use super::semaphore::{Unmet, wait_value};
use super::work::Work;
use super::{Blocked, CpuPipeline};
use crate::device::host_policy::SlotWait;

/// Reason why a tile was not finished.
pub(super) enum Stop {
    /// Another worker failed first.
    Aborted,
    /// This worker failed.
    Failed(CpuError),
}

/// A worker's buffers, reused from tile to tile.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) a: Vec<f32>,
    pub(super) b: Vec<f32>,
    pub(super) up: Vec<f32>,
    pub(super) sum: Vec<f32>,
    pub(super) sum_up: Vec<f32>,
    waits: Vec<SlotWait>,
    pub(super) blocked: Blocked,
}

/// A tile of a stage, in elements of its output.
pub(super) struct Place<'a> {
    pub(super) work: &'a Work,
    /// Run number.
    pub(super) epoch: u32,
    pub(super) stage: &'a Stage,
    pub(super) tile: Tile,
    pub(super) at: Box2,
}

pub(super) fn sized(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    if buffer.len() < length {
        buffer.resize(length, 0.0);
    }
    &mut buffer[..length]
}

impl CpuPipeline {
    /// Computes a tile of a run and posts it, or leaves its partial sums in a slab.
    pub(super) fn run_work(&self, work: &Work, epoch: u32, scratch: &mut Scratch) -> Result<(), Stop> {
        let (stage, tile) = (&self.graph.stages[work.stage], work.tile);
        let at = Box2 { rows: work.at.rows.min(self.rows.saturating_sub(work.at.row)), ..work.at };
        let mut place = Place { work, epoch, stage, tile, at };
        let finished = match &stage.op {
            Op::Gemm(epilogue) => self.gemm(&mut place, *epilogue, scratch)?,
            Op::GatedGemm(gate) => self.gated_gemm(&mut place, *gate, scratch)?,
            Op::NormedGemm(shape) => self.normed_gemm(&mut place, shape, scratch)?,
            Op::RotatedGemm(shape) => self.rotated_gemm(&mut place, shape, scratch)?,
            Op::Conv2d(shape) => self.convolve(&mut place, shape, scratch)?,
            Op::GroupedConv(shape) => self.convolve_groups(&place, shape, scratch).map(|()| true)?,
            Op::Attention(shape) => self.attend(&place, shape, scratch).map(|()| true)?,
            Op::Attend(shape) => self.generate(&place, shape, scratch).map(|()| true)?,
            Op::Norm(shape) => self.normalise_rows(&place, shape, scratch).map(|()| true)?,
            Op::GroupNorm(shape) => self.normalise_group(&place, shape, scratch).map(|()| true)?,
            Op::Pool(shape) => self.pool(&place, shape, scratch).map(|()| true)?,
            Op::Experts(shape) => self.experts(&place, shape, scratch).map(|()| true)?,
            Op::Custom => self.custom_tile(&place, scratch).map(|()| true)?,
        };
        if finished {
            self.post(work);
            self.semaphores.advance();
        }
        Ok(())
    }

    fn post(&self, work: &Work) {
        let weight = if self.post_weight == 1 { 1 } else { work.part.weight() };
        let starved = self.options.starve.and_then(|edge| Some(self.edges.get(edge)?.slots()));
        for &edge in &self.outgoing[work.stage] {
            let edge = &self.edges[edge];
            let weight = if starved == Some(edge.slots()) { 0 } else { weight };
            edge.posted_by(work.tile).for_each(|slot| self.semaphores.post(slot, weight));
        }
    }

    /// A box of a tensor, widened.
    pub(super) fn region(
        &self,
        id: TensorId,
        rows: std::ops::Range<u32>,
        cols: std::ops::Range<u32>,
    ) -> Region {
        let at =
            Box2 { row: rows.start as usize, col: cols.start as usize, rows: rows.len(), cols: cols.len() };
        let mut data = vec![0.0; at.rows * at.cols];
        if !data.is_empty() {
            self.memory.load(id, at, &mut data);
        }
        Region { row: at.row, col: at.col, rows: at.rows, cols: at.cols, data }
    }

    /// Blocks until everything that k-block `k` of the chosen operands reads has been posted. `ks`: k-blocks
    /// of this work.
    pub(super) fn wait_for(
        &self,
        place: &Place<'_>,
        k: u32,
        ks: &std::ops::Range<u32>,
        chosen: impl Fn(OperandKind) -> bool,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        for incoming in &self.incoming[place.work.stage] {
            if !chosen(incoming.kind) {
                continue;
            }
            self.edges[incoming.edge].waits(place.tile, k, ks, &mut scratch.waits);
            for wait in &scratch.waits {
                let want = wait_value(place.epoch, wait.posts * self.post_weight);
                if self.semaphores.ready(wait.slot, want) {
                    continue;
                }
                let since = Instant::now();
                self.semaphores.wait(wait.slot, want).map_err(|unmet| match unmet {
                    Unmet::Aborted => Stop::Aborted,
                    Unmet::TimedOut => Stop::Failed(CpuError::Starved {
                        edge: self.edge_names[incoming.edge].clone(),
                        stage: place.stage.name.clone(),
                        tile_m: place.tile.m,
                        tile_n: place.tile.n,
                        k_block: k,
                        slot: wait.slot,
                        have: self.semaphores.value(wait.slot),
                        want,
                    }),
                })?;
                scratch.blocked.waits += 1;
                scratch.blocked.time += since.elapsed();
            }
        }
        Ok(())
    }
}
