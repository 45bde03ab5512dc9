//! One tile, or a part of one: waits, loads, products, epilogue, store, posts.

use std::time::Instant;

use cusync_gen::graph::{Activation, Conv, Op, OperandKind, Stage, StageId, TensorId};
use cusync_gen::schedule::Part;
use cusync_gen::schedule::decode::{COLUMN_TILE, Decode, DecodeStage, column_tiles};
use cusync_gen::sync::Tile;

use super::custom::Region;
use super::error::CpuError;
use super::memory::Box2;
use super::semaphore::{Unmet, wait_value};
use super::work::Work;
use super::{Blocked, CpuPipeline};
use crate::device::host_gemm::{MatMut, MatRef, Threads, gemm_f32};
use crate::device::host_policy::SlotWait;

/// Elements of k that one product takes: the panels of a tile then stay in the caches. A fixed number, so that the
/// order of summation, and with it the last bit, does not depend on who was ready when.
const K_RUN: usize = 512;

/// Why a tile was not finished.
pub(super) enum Stop {
    /// Another worker failed first.
    Aborted,
    /// This one failed.
    Failed(CpuError),
}

/// A worker's buffers, reused from tile to tile.
#[derive(Default)]
pub(super) struct Scratch {
    a: Vec<f32>,
    b: Vec<f32>,
    up: Vec<f32>,
    sum: Vec<f32>,
    sum_up: Vec<f32>,
    waits: Vec<SlotWait>,
    pub(super) blocked: Blocked,
}

/// A tile of a stage, in elements of its output.
pub(super) struct Place<'a> {
    pub(super) work: &'a Work,
    pub(super) stage: &'a Stage,
    pub(super) tile: Tile,
    pub(super) at: Box2,
}

fn sized(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    if buffer.len() < length {
        buffer.resize(length, 0.0);
    }
    &mut buffer[..length]
}

impl CpuPipeline {
    /// Computes a tile and posts it, or leaves its part of the sums in a slab.
    pub(super) fn run_work(&self, work: &Work, scratch: &mut Scratch) -> Result<(), Stop> {
        let (stage, tile) = (&self.graph.stages[work.stage], work.tile);
        let mut place = Place { work, stage, tile, at: work.at };
        let area = work.at.rows * work.at.cols;
        if stage.op == Op::Custom {
            self.custom_tile(&place, scratch)?;
        } else if let Op::Attention(shape) = &stage.op {
            self.attend(&place, shape, scratch)?;
        } else {
            self.products(&place, scratch)?;
            match work.part {
                Part::Whole => {}
                Part::Contribute { slab } => {
                    self.contribute(&place, slab, scratch);
                    return Ok(());
                }
                Part::Finish { first, slabs } => {
                    self.collect(&place, first..first + slabs, 0..area, scratch)?;
                }
                Part::Share { first, parts, part } => {
                    self.contribute(&place, first + part, scratch);
                    let rows = share_of(work.at.rows, parts, part);
                    let cells = rows.start * work.at.cols..rows.end * work.at.cols;
                    let others = (0..parts).filter(|p| *p != part).map(|p| first + p);
                    self.collect(&place, others, cells.clone(), scratch)?;
                    // What follows finds its rows at the start.
                    scratch.sum.copy_within(cells.clone(), 0);
                    if stage.op == Op::GatedGemm {
                        scratch.sum_up.copy_within(cells, 0);
                    }
                    place.at = Box2 { row: work.at.row + rows.start, rows: rows.len(), ..work.at };
                }
            }
        }
        match stage.op {
            // A tile of few rows may have none for some of the parts that share it.
            _ if place.at.rows == 0 => {}
            Op::Gemm { activation } | Op::Conv2d(Conv { activation, .. }) => {
                self.epilogue(&place, activation, scratch)?;
            }
            Op::GatedGemm => {
                let area = place.at.rows * place.at.cols;
                let Scratch { sum, sum_up, .. } = scratch;
                sum[..area].iter_mut().zip(&sum_up[..area]).for_each(|(g, u)| *g = silu(*g) * u);
                self.memory.store(stage.out, place.at, &sum[..area]);
            }
            Op::Attention(_) | Op::Custom => {}
        }
        self.post(work);
        self.semaphores.advance();
        Ok(())
    }

    fn post(&self, work: &Work) {
        let value = |edge: usize| u32::from(self.options.starve != Some(edge));
        let Some(decode) = &self.decode else {
            let weight = if self.post_weight == 1 { 1 } else { work.part.weight() };
            for &edge in &self.outgoing[work.stage] {
                self.semaphores.post(self.edges[edge].slot_of(work.tile), weight * value(edge));
            }
            return;
        };
        let read = |s: &DecodeStage| s.producer == Some(StageId(work.stage));
        if !decode.stages.iter().any(read) {
            return;
        }
        let columns = work.at.col as u32..(work.at.col + work.at.cols) as u32;
        let starved = self.outgoing[work.stage].iter().any(|&edge| value(edge) == 0);
        for tile in column_tiles(&columns) {
            let slot = decode.stages[work.stage].slot_base + tile;
            self.semaphores.post(slot, u32::from(!starved));
        }
    }

    /// Leaves the sums in a slab, the gate's before the up's.
    fn contribute(&self, place: &Place<'_>, slab: u32, scratch: &Scratch) {
        let (cta, area) = (place.work.cta, place.at.rows * place.at.cols);
        self.slabs.store(slab, cta, 0, &scratch.sum[..area]);
        if place.stage.op == Op::GatedGemm {
            self.slabs.store(slab, cta, area, &scratch.sum_up[..area]);
        }
        self.semaphores.post(self.slabs.flag(slab, cta), 1);
        self.semaphores.advance();
    }

    /// Adds what others left in some cells of the tile, slab after slab, whoever came first.
    fn collect(
        &self,
        place: &Place<'_>,
        slabs: impl Iterator<Item = u32>,
        cells: std::ops::Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let (cta, area) = (place.work.cta, place.at.rows * place.at.cols);
        for slab in slabs {
            let (flag, want) = (self.slabs.flag(slab, cta), wait_value(self.epoch, 1));
            let since = Instant::now();
            let spun = self.semaphores.wait(flag, want).map_err(|unmet| match unmet {
                Unmet::Aborted => Stop::Aborted,
                Unmet::TimedOut(_) => Stop::Failed(CpuError::StarvedSlab {
                    stage: place.stage.name.clone(),
                    tile_m: place.tile.m,
                    tile_n: place.tile.n,
                    slab,
                }),
            })?;
            if spun {
                scratch.blocked.waits += 1;
                scratch.blocked.time += since.elapsed();
            }
            self.slabs.take(slab, cta, cells.start, &mut scratch.sum[cells.clone()]);
            if place.stage.op == Op::GatedGemm {
                self.slabs.take(slab, cta, area + cells.start, &mut scratch.sum_up[cells.clone()]);
            }
        }
        Ok(())
    }

    /// Sums over k into `scratch.sum` (and `sum_up` when gated), waiting before each k-block as the policy says.
    fn products(&self, place: &Place<'_>, scratch: &mut Scratch) -> Result<(), Stop> {
        let Place { stage, at, .. } = place;
        let block = if self.decode.is_some() { COLUMN_TILE } else { stage.mma_tile.2 } as usize;
        let blocks = place.work.k.clone();
        let run = (K_RUN / block.max(1)).max(1) as u32;
        let (mut a_id, mut b_id, mut up_id) = (None, None, None);
        for operand in &stage.operands {
            match operand.kind {
                OperandKind::A => a_id = Some(operand.tensor),
                OperandKind::B => b_id = Some(operand.tensor),
                OperandKind::Up => up_id = Some(operand.tensor),
                OperandKind::Bias
                | OperandKind::Residual
                | OperandKind::Query
                | OperandKind::Key
                | OperandKind::Value
                | OperandKind::Custom(_) => {}
            }
        }
        for k in blocks.clone().step_by(run as usize) {
            let end = (k + run).min(blocks.end);
            for block in k..end {
                self.wait_for(place, block, &blocks, is_streamed, scratch)?;
            }
            let from = k as usize * block;
            let length = (end as usize * block).min(stage.k as usize) - from;
            let accumulate = k > blocks.start;
            let Scratch { a, b, up, sum, sum_up, .. } = scratch;
            let a = sized(a, at.rows * length);
            if let (Some(id), Op::Conv2d(shape)) = (a_id, &stage.op) {
                self.gather(id, shape, *at, (from, length), a);
            } else if let Some(id) = a_id {
                self.memory.load(id, Box2 { row: at.row, col: from, rows: at.rows, cols: length }, a);
            }
            let weights = [(b_id, b, sum), (up_id, up, sum_up)];
            for (id, panel, sum) in weights {
                let Some(id) = id else { continue };
                let panel = sized(panel, length * at.cols);
                self.memory.load(id, Box2 { row: from, col: at.col, rows: length, cols: at.cols }, panel);
                gemm_f32(
                    MatMut::new(sized(sum, at.rows * at.cols), at.rows, at.cols, at.cols),
                    MatRef::new(a, at.rows, length, length),
                    MatRef::new(panel, length, at.cols, at.cols),
                    accumulate,
                    Threads::Caller,
                );
            }
        }
        Ok(())
    }

    /// Bias, activation, residual; stores the tile.
    fn epilogue(&self, place: &Place<'_>, activation: Activation, scratch: &mut Scratch) -> Result<(), Stop> {
        self.wait_for(place, 0, &(0..1), |kind| !is_streamed(kind), scratch)?;
        let Place { stage, at, .. } = place;
        let area = at.rows * at.cols;
        let Scratch { a, sum, .. } = scratch;
        let sum = &mut sum[..area];
        let operand = |kind| stage.operands.iter().find(|o| o.kind == kind).map(|o| o.tensor);
        if let Some(bias) = operand(OperandKind::Bias) {
            let line = sized(a, at.cols);
            self.memory.load(bias, Box2 { row: 0, col: at.col, rows: 1, cols: at.cols }, line);
            sum.chunks_mut(at.cols).for_each(|row| row.iter_mut().zip(&*line).for_each(|(x, b)| *x += b));
        }
        match activation {
            Activation::Identity => {}
            Activation::GeluTanh => sum.iter_mut().for_each(|x| *x = gelu_tanh(*x)),
            Activation::Relu => sum.iter_mut().for_each(|x| *x = if *x < 0.0 { 0.0 } else { *x }),
        }
        if let Some(residual) = operand(OperandKind::Residual) {
            let other = sized(a, area);
            self.memory.load(residual, *at, other);
            sum.iter_mut().zip(&*other).for_each(|(x, r)| *x += r);
        }
        self.memory.store(stage.out, *at, sum);
        Ok(())
    }

    fn custom_tile(&self, place: &Place<'_>, scratch: &mut Scratch) -> Result<(), Stop> {
        let Place { work, stage, tile, at } = place;
        let Some(kernel) = &self.kernels[work.stage] else {
            return Err(Stop::Failed(CpuError::NoKernel(stage.name.clone())));
        };
        let mut out = Region { row: at.row, col: at.col, rows: at.rows, cols: at.cols, data: Vec::new() };
        out.data.resize(at.rows * at.cols, 0.0);
        for k in 0..stage.k_blocks {
            self.wait_for(place, k, &(0..stage.k_blocks), |_| true, scratch)?;
            let reads: Vec<Region> = stage
                .operands
                .iter()
                .map(|operand| {
                    let tensor = &self.graph.tensors[operand.tensor.0];
                    let rows = operand.footprint.rows.range(tensor.rows, tile.m, tile.n, k);
                    let cols = operand.footprint.cols.range(tensor.cols, tile.m, tile.n, k);
                    self.region(operand.tensor, rows, cols)
                })
                .collect();
            kernel.k_block(*tile, k, &reads, &mut out);
        }
        if out.data.len() != at.rows * at.cols {
            let message = format!("the kernel of `{}` changed the size of its tile", stage.name);
            return Err(Stop::Failed(CpuError::Panicked(message)));
        }
        self.memory.store(stage.out, *at, &out.data);
        Ok(())
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

    /// Blocks until everything that k-block `k` of the chosen operands reads has been posted. `ks`: the k-blocks of this
    /// work.
    pub(super) fn wait_for(
        &self,
        place: &Place<'_>,
        k: u32,
        ks: &std::ops::Range<u32>,
        of: impl Fn(OperandKind) -> bool,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        for incoming in &self.incoming[place.work.stage] {
            if !of(incoming.kind) {
                continue;
            }
            match &self.decode {
                None => self.edges[incoming.edge].waits(place.tile, k, ks, &mut scratch.waits),
                Some(decode) => column_waits(decode, place.work.stage, incoming.kind, k, &mut scratch.waits),
            }
            for wait in &scratch.waits {
                let want = wait_value(self.epoch, wait.posts * self.post_weight);
                if self.semaphores.ready(wait.slot, want) {
                    continue;
                }
                let since = Instant::now();
                self.semaphores.wait(wait.slot, want).map_err(|unmet| match unmet {
                    Unmet::Aborted => Stop::Aborted,
                    Unmet::TimedOut(have) => Stop::Failed(CpuError::Starved {
                        edge: self.edge_names[incoming.edge].clone(),
                        stage: place.stage.name.clone(),
                        tile_m: place.tile.m,
                        tile_n: place.tile.n,
                        k_block: k,
                        slot: wait.slot,
                        have,
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

/// What a decode kernel waits for before k-tile `k`: all columns of it. Operands other than A it never waits for; `check`
/// proves that it need not.
fn column_waits(decode: &Decode, stage: usize, kind: OperandKind, k: u32, out: &mut Vec<SlotWait>) {
    out.clear();
    let producer = decode.stages[stage].producer.filter(|_| kind == OperandKind::A);
    let made = producer.map(|p| &decode.stages[p.0]);
    out.extend(made.map(|s| SlotWait { slot: s.slot_base + k, posts: s.posts[k as usize] }));
}

/// The rows that part `part` of `parts` finishes. Kernels share out units of columns; any division is right.
fn share_of(rows: usize, parts: u32, part: u32) -> std::ops::Range<usize> {
    let begin = |p: u32| rows * p as usize / parts as usize;
    begin(part)..begin(part + 1)
}

/// Whether an operand is read k-block by k-block; the others are read once, after the last.
fn is_streamed(kind: OperandKind) -> bool {
    !matches!(kind, OperandKind::Bias | OperandKind::Residual)
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
fn gelu_tanh(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
}
