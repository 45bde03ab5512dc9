//! What a tile costs when nothing makes it wait.

use crate::device::{Device, KERNELS};
use crate::graph::{Graph, Op, OperandKind, Stage, StageId};
use crate::policy::{Order, Tile};

/// The cost of a stage's tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileCost {
    /// Main loop, microseconds.
    pub loop_us: f64,
    /// Fill and drain of the ring, epilogue.
    pub fixed_us: f64,
    /// Main-loop time that a full ring of the operand that nobody produces saves a tile that had to wait.
    pub prefetch_us: f64,
}

/// What an attention reaches of the matrix rate: published kernels, with causal masks and heads of 128 columns, on H100.
const ATTENTION_EFFICIENCY: f64 = 0.6;

/// Ring depth of the kernel with this tile.
fn ring(device: &Device, tile: (u32, u32, u32)) -> u32 {
    KERNELS.iter().find(|k| k.arch == device.arch && k.tile == tile).map_or(1, |k| k.stages)
}

/// CTAs of a stage that fit an SM: the Hopper kernels fill its shared memory, the others are bounded by it and by
/// registers (64 x 64 a warp at up to 255 a thread).
pub fn ctas_per_sm(device: &Device, stage: &Stage) -> u32 {
    let tile = stage.mma_tile;
    if device.arch >= 90 || matches!(stage.op, Op::Custom | Op::Attention(_)) {
        return 1;
    }
    let shared = ring(device, tile) * (tile.0 + tile.1) * tile.2 * 2 + 1024;
    let warps = (tile.0 * tile.1 / 4096).max(4);
    (device.shared_per_sm / shared).min(8 / warps).max(1)
}

impl TileCost {
    /// The cost of `stage`'s tiles in this order, `per_sm` CTAs to an SM.
    pub fn of(graph: &Graph, stage: &Stage, order: &Order, device: &Device, per_sm: u32) -> TileCost {
        let (bm, bn, bk) = stage.mma_tile;
        let slots = f64::from(device.sms * per_sm);
        let tiles = f64::from(stage.tiles());
        let k_blocks = f64::from(stage.k_blocks.max(1));
        let bytes = |o: &crate::graph::Operand| {
            let t = &graph.tensors[o.tensor.0];
            2.0 * f64::from(t.rows) * f64::from(t.cols)
        };
        let sum = |wanted: &dyn Fn(OperandKind) -> bool| -> f64 {
            stage.operands.iter().filter(|o| wanted(o.kind)).map(bytes).sum()
        };
        let out = 2.0 * f64::from(stage.m) * f64::from(stage.n);
        if stage.op == Op::Custom {
            let stage_us = (sum(&|_| true) + out) / (device.read_tbs * 1e6);
            let waves = (tiles / slots).ceil().max(1.0);
            return TileCost { loop_us: stage_us / waves, fixed_us: device.tile_us, prefetch_us: 0.0 };
        }
        // One k-block by the tensor cores of an SM; of an attention two products, of queries and keys and of the weights
        // and values, and the exponentials between them.
        let shape = device.tile_rate((bm, bn));
        let (products, reached) = match stage.op {
            Op::Attention(_) => (2.0, ATTENTION_EFFICIENCY),
            _ => (1.0, shape.rate),
        };
        let flop = 2.0 * products * f64::from(bm) * f64::from(bn) * f64::from(bk);
        let rate = (device.tflops / tiles.min(slots)).min(device.sm_tflops / f64::from(per_sm));
        let math = flop / (rate * 1e6 * reached);
        // One k-block through a ring of limited depth: a slot comes back after a copy's latency.
        let ring_depth = f64::from(ring(device, stage.mma_tile));
        let latency = device.load_latency_us / ring_depth;
        // All SMs together: weights are read again for each group of rows that are not in flight together.
        let (gm, gn) = (f64::from(stage.grid.0), f64::from(stage.grid.1));
        let group = match order {
            Order::GroupedRows(g) => f64::from(*g),
            Order::ColumnMajor | Order::GroupedColumns(_) => gm,
            Order::RowMajor | Order::Table(_) => 1.0,
        };
        let together = group.max(slots / gn).min(gm).max(1.0);
        let (weights, activations) = if let Op::Attention(_) = stage.op {
            // Its three reads are slices of one matrix, and what tiles share fits the L2 cache.
            (0.0, sum(&|k| k == OperandKind::Query))
        } else {
            let is_weight = |k| matches!(k, OperandKind::B | OperandKind::Up);
            let again = (group * gn / slots).ceil().max(1.0);
            (sum(&is_weight) * (gm / together).ceil(), sum(&|k| !is_weight(k)) * again)
        };
        let traffic = (weights + activations + out) / (device.read_tbs * 1e6);
        let shared = traffic * tiles.min(slots) / (tiles * k_blocks);
        // The two overlap, but not perfectly.
        let (slow, fast) = if math > shared { (math, shared) } else { (shared, math) };
        let k_us = (slow + device.unhidden * fast).max(latency);
        TileCost {
            loop_us: k_us * k_blocks,
            fixed_us: device.tile_us + device.fused.epilogue_of(&stage.op, &shape),
            prefetch_us: (ring_depth * k_us).min(k_us * k_blocks) * 0.5,
        }
    }

    /// Time of one tile, whose main loop is `share` of the longest. Tiles of a wave do not end together on a real GPU: a fixed, reproducible spread of +-3 % keeps the
    /// model from crediting policies with a coincidence.
    pub fn tile_us(&self, stage: StageId, tile: Tile, share: f64) -> f64 {
        let mut x = (stage.0 as u32 + 1).wrapping_mul(0x9e37_79b9)
            ^ tile.m.wrapping_mul(0x85eb_ca6b)
            ^ tile.n.wrapping_mul(0xc2b2_ae35);
        x ^= x >> 15;
        x = x.wrapping_mul(0x2c1b_3c6d);
        x ^= x >> 12;
        let spread = f64::from(x & 0xffff) / 65535.0 * 0.06 - 0.03;
        self.loop_us * share * (1.0 + spread) + self.fixed_us
    }
}
