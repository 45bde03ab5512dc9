//! Cost of a tile that never waits.

use crate::device::{Fetch, KernelShape, Profile, k_block_us};
use crate::graph::{Bound, Cost, Graph, OperandKind, Stage, StageId};
use crate::sync::{Order, Tile};

/// Maximum relative deviation of a tile's main loop from its cost.
const SPREAD: f64 = 0.01;

/// The cost of a stage's tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileCost {
    /// Main loop, microseconds.
    pub loop_us: f64,
    /// The same in the last wave, where other SMs are idle.
    pub last_us: f64,
    /// Fill and drain of the ring, epilogue.
    pub fixed_us: f64,
    /// Main-loop time that a tile which had to wait saves through a full ring of the operand without a producer.
    pub prefetch_us: f64,
}

/// Ring depth of the kernel that runs a stage.
fn ring(device: &Profile, stage: &Stage) -> u32 {
    let mut kernels =
        stage.op.operation().into_iter().flat_map(|operation| KernelShape::built(device.arch, operation));
    kernels.find(|k| k.tile == stage.mma_tile).map_or(1, |k| k.stages)
}

/// CTAs of a stage that fit an SM: the Hopper kernels fill its shared memory; the others are limited by shared memory
/// and by registers (64 x 64 a warp at up to 255 a thread).
pub fn ctas_per_sm(device: &Profile, stage: &Stage) -> u32 {
    let tile = stage.mma_tile;
    if device.arch >= 90 || stage.op.rules().cost().bound != Bound::Kernel {
        return 1;
    }
    let shared = ring(device, stage) * (tile.0 + tile.1) * tile.2 * 2 + 1024;
    let warps = (tile.0 * tile.1 / 4096).max(4);
    (device.shared_per_sm / shared).min(8 / warps).max(1)
}

impl TileCost {
    /// The cost of `stage`'s tiles in this order with `per_sm` CTAs per SM. `drawn`: tiles are drawn from a counter,
    /// otherwise each CTA takes every n-th tile.
    pub fn new(
        graph: &Graph,
        stage: &Stage,
        order: &Order,
        device: &Profile,
        (per_sm, drawn): (u32, bool),
    ) -> TileCost {
        let (slots, tiles) = (device.sms * per_sm, stage.tiles());
        let k_blocks = f64::from(stage.k_blocks.max(1));
        if stage.op.rules().cost().bound == Bound::Bytes {
            let read: f64 = stage.operands.iter().map(|o| graph.tensors[o.tensor.0].bytes() as f64).sum();
            let out = 2.0 * f64::from(stage.m) * f64::from(stage.n);
            let stage_us = (read + out) / (device.read_tbs * 1e6);
            let loop_us = stage_us / f64::from(tiles.div_ceil(slots).max(1));
            return TileCost { loop_us, last_us: loop_us, fixed_us: device.tile_us, prefetch_us: 0.0 };
        }
        let busy = Busy { graph, stage, order, device, per_sm, drawn };
        let k_us = busy.k_block_us(tiles.min(slots));
        let last_us = match tiles % slots {
            0 => k_us,
            rest => busy.k_block_us(rest).min(k_us),
        };
        let (bm, bn, _) = stage.mma_tile;
        let ring_depth = f64::from(ring(device, stage));
        TileCost {
            loop_us: k_us * k_blocks,
            last_us: last_us * k_blocks,
            fixed_us: device.tile_us
                + device.fused.epilogue_us(
                    stage.op.epilogue().activation,
                    (stage.op.is_gated(), false),
                    &device.tile_rate((bm, bn)),
                ),
            prefetch_us: (ring_depth * k_us).min(k_us * k_blocks) * 0.5,
        }
    }

    /// Time of one tile with a main loop of `share` of the longest. Tiles of a wave do not end together on a real GPU:
    /// a fixed, reproducible `SPREAD` keeps the model from crediting policies with a coincidence. `last`: in the
    /// last wave of a stage that has the GPU to itself.
    pub fn tile_us(&self, stage: StageId, tile: Tile, share: f64, last: bool) -> f64 {
        let mut x = (stage.0 as u32 + 1).wrapping_mul(0x9e37_79b9)
            ^ tile.m.wrapping_mul(0x85eb_ca6b)
            ^ tile.n.wrapping_mul(0xc2b2_ae35);
        x ^= x >> 15;
        x = x.wrapping_mul(0x2c1b_3c6d);
        x ^= x >> 12;
        let spread = f64::from(x & 0xffff) / 65535.0 * (2.0 * SPREAD) - SPREAD;
        let loop_us = if last { self.last_us } else { self.loop_us };
        loop_us * share * (1.0 + spread) + self.fixed_us
    }

    /// A lower bound for such tiles before the last wave.
    pub(super) fn least_us(&self, share: f64) -> f64 {
        self.loop_us * share * (1.0 - SPREAD) + self.fixed_us
    }

    /// Maximum time that a tile of the last wave saves.
    pub(super) fn gained_us(&self) -> f64 {
        (self.loop_us - self.last_us).max(0.0)
    }
}

/// A stage with tiles in progress.
struct Busy<'a> {
    graph: &'a Graph,
    stage: &'a Stage,
    order: &'a Order,
    device: &'a Profile,
    per_sm: u32,
    drawn: bool,
}

impl Busy<'_> {
    /// Time of a k-block while `busy` CTAs are running, microseconds: the maximum of arithmetic, memory reads and L2
    /// reads, plus the part of the others that it does not hide.
    fn k_block_us(&self, busy: u32) -> f64 {
        let Busy { stage, device, .. } = *self;
        let (bm, bn, bk) = stage.mma_tile;
        let Cost { products, bound, .. } = stage.op.rules().cost();
        let reached = match bound {
            Bound::Rate(share) => share,
            Bound::Kernel | Bound::Bytes => device.tile_rate((bm, bn)).rate,
        };
        let (rows, cols) = stage.out_tile();
        let flop = 2.0 * products * f64::from(rows) * f64::from(cols) * f64::from(bk);
        let rate = (device.tflops / f64::from(busy)).min(device.sm_tflops / f64::from(self.per_sm));
        let math = flop / (rate * 1e6 * reached);
        // A ring slot is free again after the latency of a copy.
        let latency = device.load_latency_us / f64::from(ring(device, stage));
        let (rows, group) = (stage.grid.0, self.group());
        let k_bytes = 2.0 * f64::from(bk);
        let fetch = Fetch {
            bytes: (f64::from(bm.min(stage.m)) * k_bytes, f64::from(bn) * k_bytes),
            group: group.min(f64::from(rows)),
            workers: (f64::from(busy), 1.0 / f64::from(self.per_sm)),
        };
        // Data shared by tiles of other operations fits the L2 cache.
        let l2 = if bound == Bound::Kernel { device.l2.fetch_us(&fetch) } else { 0.0 };
        let readers = stage.tiles().min(device.sms * self.per_sm);
        let memory = self.traffic_us(group) * f64::from(busy)
            / (f64::from(stage.tiles()) * f64::from(stage.k_blocks.max(1)));
        // Tiles of a first wave start together.
        let apart = self.drawn && stage.tiles() > device.sms * self.per_sm;
        let apart = if apart { 1.0 + device.l2.drawn } else { 1.0 };
        let all = [math, memory * apart, l2 * apart];
        let ragged = device.l2.ragged_us(stage.m, rows, bm, readers);
        k_block_us(&all, device.unhidden, latency, ragged)
    }

    /// Rows of tiles taken at a time.
    fn group(&self) -> f64 {
        match self.order {
            Order::GroupedRows(g) => f64::from(*g),
            Order::ColumnMajor | Order::GroupedColumns(_) => f64::from(self.stage.grid.0),
            Order::RowMajor | Order::Table(_) => 1.0,
        }
    }

    /// Memory traffic of the whole stage, microseconds: weights are read again for each group of rows not in flight
    /// together, activations again for each group of columns unless the L2 cache keeps them.
    fn traffic_us(&self, group: f64) -> f64 {
        let Busy { graph, stage, device, .. } = *self;
        let slots = f64::from(device.sms * self.per_sm);
        let (gm, gn) = (f64::from(stage.grid.0), f64::from(stage.grid.1));
        let bytes = |wanted: &dyn Fn(OperandKind) -> bool| -> f64 {
            let operands = stage.operands.iter().filter(|o| wanted(o.kind));
            operands.map(|o| graph.tensors[o.tensor.0].bytes() as f64).sum()
        };
        let out = 2.0 * f64::from(stage.m) * f64::from(stage.n);
        let (weights, activations) = if stage.op.rules().cost().bound != Bound::Kernel {
            let first = stage.operands.first().map(|o| o.kind);
            (0.0, bytes(&|k| Some(k) == first))
        } else {
            let is_weight = |k| matches!(k, OperandKind::B | OperandKind::Up);
            let together = group.max(slots / gn).min(gm).max(1.0);
            let across = (slots / together).min(gn).max(1.0);
            let in_flight = 2.0 * group.min(gm) * f64::from(stage.mma_tile.0) * f64::from(stage.k);
            let again = if in_flight > device.l2.keeps_mb * 1e6 { gn / across } else { 1.0 };
            (bytes(&is_weight) * (gm / together), bytes(&|k| !is_weight(k)) * again)
        };
        (weights + activations + out) / (device.read_tbs * 1e6)
    }
}
