//! The graph as the scheduler sees it: grids of cluster tiles, needs, and costs of k-blocks and slabs.

use super::needs::Needs;
use super::{Hand, ItemTime, Part, ScheduleRequest};
use crate::device::{CostModel, Fetch, k_block_us};
use crate::graph::{Graph, Op, OperandKind, Stage, StageId};

/// Maximum parts that share a tile.
const MOST_PARTS: u32 = 16;

/// A stage, and the costs of its tiles.
pub(super) struct StageCost<'a> {
    stage: &'a Stage,
    /// Grid of cluster tiles.
    pub(super) grid: (u32, u32),
    pub(super) k_blocks: u32,
    pub(super) needs: Needs,
    /// A consumer reads the output as its operand B and so waits for whole columns.
    pub(super) by_columns: bool,
    /// Arithmetic of a k-block while every worker is busy, microseconds.
    math_us: f64,
    /// Bytes that a cluster tile of a row-wise operation reads and writes; 0 for matrix products.
    rows_bytes: f64,
    /// See [`crate::device::TileRate::first_us`].
    first_us: f64,
    /// Bytes of a k-block of a row and of a column of cluster tiles.
    row_bytes: f64,
    col_bytes: f64,
    /// Units of a tile that parts can share.
    pub(super) units: u32,
    /// Blocks of a tile that a warpgroup finishes one after another.
    blocks: u32,
    epilogue_us: f64,
    /// Area of a CTA's MMA tile over 128 x 256, times [`crate::device::cost::TileRate::slabs`].
    slabs: f64,
}

impl StageCost<'_> {
    /// Whether a tile may be split along k; a tile without k-blocks to divide may not.
    pub(super) fn may_cut(&self) -> bool {
        self.rows_bytes == 0.0
    }

    /// Whether parts that share a tile finish whole blocks.
    pub(super) fn whole_units(&self) -> bool {
        self.units <= self.blocks
    }

    /// Cluster tiles.
    pub(super) fn tiles(&self) -> u32 {
        self.grid.0 * self.grid.1
    }
}

/// A cluster tile: its row-major index, and the class of its needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TileAt {
    pub(super) index: u32,
    pub(super) class: u32,
}

/// A graph, the workers and the cost model.
pub(super) struct Problem<'a> {
    pub(super) cost: &'a CostModel,
    pub(super) workers: u32,
    /// CTAs per worker.
    cluster: (u32, u32),
    pub(super) stages: Vec<StageCost<'a>>,
    /// Whether parts of a tile may wait for each other: each needs its own worker, which is unknown if items are
    /// drawn.
    pub(super) may_share: bool,
}

/// Costs of one stage's items under one order, microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemCost {
    pub(super) k_us: f64,
    /// Paid when a k-block has to wait.
    pub(super) fill_us: f64,
    pub(super) epilogue_us: f64,
    pub(super) slab_write_us: f64,
    pub(super) slab_read_us: f64,
    /// Minimum fraction of an epilogue that a part of a tile takes: it finishes its share of a block at once.
    least: f64,
}

/// Costs of a part of a tile in addition to its arithmetic, microseconds.
pub(super) struct Beside {
    /// Leaving sums for others.
    pub(super) write_us: f64,
    /// Adding the sums of others.
    pub(super) read_us: f64,
    /// Epilogue.
    pub(super) fixed_us: f64,
}

impl ItemCost {
    /// Costs of a part of a tile in addition to its arithmetic.
    pub(super) fn beside(&self, part: Part) -> Beside {
        let costs = |write, read, fixed| Beside {
            write_us: write * self.slab_write_us,
            read_us: read * self.slab_read_us,
            fixed_us: fixed * self.epilogue_us,
        };
        match part {
            Part::Whole => costs(0.0, 0.0, 1.0),
            Part::Contribute { .. } => costs(1.0, 0.0, 0.0),
            Part::Finish { slabs, .. } => costs(0.0, f64::from(slabs), 1.0),
            Part::Share { parts, .. } => {
                let others = f64::from(parts - 1) / f64::from(parts);
                costs(others, others, self.least.max(1.0 / f64::from(parts)))
            }
        }
    }

    /// The times of an item of `blocks` k-blocks: everything except arithmetic and fixed costs is waiting.
    pub(super) fn time(&self, begin_us: f64, blocks: u32, part: Part, end_us: f64) -> ItemTime {
        let Beside { write_us, read_us, fixed_us } = self.beside(part);
        let (math_us, split_us) = (f64::from(blocks) * self.k_us, write_us + read_us);
        let wait_us = (end_us - begin_us - math_us - fixed_us - split_us).max(0.0);
        ItemTime { begin_us, wait_us, math_us, fixed_us, split_us }
    }

    /// Time of a whole tile that never waits.
    pub(super) fn whole_us(&self, k_blocks: u32) -> f64 {
        f64::from(k_blocks) * self.k_us + self.epilogue_us
    }
}

impl<'a> Problem<'a> {
    pub(super) fn new(graph: &'a Graph, request: &ScheduleRequest<'a>) -> Problem<'a> {
        let stages = (0..graph.stages.len()).map(|i| stage_cost(graph, StageId(i), request)).collect();
        let may_share = request.mode == Hand::Fixed;
        Problem {
            cost: request.cost,
            workers: request.workers.max(1),
            cluster: request.cluster,
            stages,
            may_share,
        }
    }

    /// The cost of a stage's items if `group` rows of cluster tiles (columns, if the stage goes by columns) are taken
    /// at a time. `shared`: every worker has a part in the stage, not only as many as there are tiles.
    pub(super) fn item_cost(&self, stage: usize, group: u32, shared: bool) -> ItemCost {
        let (s, cost) = (&self.stages[stage], self.cost);
        let workers = f64::from(self.workers);
        if s.rows_bytes > 0.0 {
            let busy = workers.min(f64::from(s.tiles()));
            let k_us =
                (s.rows_bytes / (cost.rows.sm_gbs * 1e3)).max(busy * s.rows_bytes / (cost.read_tbs * 1e6));
            // Its loads wait for the item, so there is nothing to fill; a tile is never split.
            let fill_us = 0.0;
            let epilogue_us = cost.rows.fixed_us;
            return ItemCost {
                k_us,
                fill_us,
                epilogue_us,
                slab_write_us: 0.0,
                slab_read_us: 0.0,
                least: 1.0,
            };
        }
        let (gm, gn) = (f64::from(s.grid.0), f64::from(s.grid.1));
        let (along, across) = if s.by_columns { (gn, gm) } else { (gm, gn) };
        // Tiles in flight together: a block of `lines` x `others`, fetched once for all of them.
        let lines = f64::from(group).max(workers / across).min(along).max(1.0);
        let others = (workers / lines).min(across).max(1.0);
        let (rows, cols) = if s.by_columns { (others, lines) } else { (lines, others) };
        // Workers that share a tile along k fetch different k-blocks.
        let depth = if shared { (workers / (gm * gn)).max(1.0) } else { 1.0 };
        let traffic = depth * (rows * s.row_bytes + cols * s.col_bytes) / (cost.read_tbs * 1e6);
        let busy = if shared { workers } else { workers.min(gm * gn) };
        let math = s.math_us * (cost.sm_tflops / cost.rate_of(busy, workers));
        let group = if s.by_columns { rows } else { f64::from(group).min(gm) };
        let ctas = f64::from(self.cluster.0 * self.cluster.1);
        let fetch = Fetch { bytes: (s.row_bytes, s.col_bytes), group, workers: (busy, ctas) };
        let fed = traffic.max(cost.l2.fetch_us(&fetch));
        let readers = (s.grid.0 * s.grid.1).min(self.workers) * self.cluster.0 * self.cluster.1;
        let (m, height) = (s.stage.m, s.stage.out_tile().0);
        let ragged = cost.l2.ragged_us(m, m.div_ceil(height.max(1)), height, readers);
        // If all rows of tiles are in flight together, every weight comes from memory.
        let first_us = if lines >= along { s.first_us } else { 0.0 };
        ItemCost {
            k_us: k_block_us(&[math, fed], cost.unhidden, first_us, ragged),
            fill_us: cost.fill_us,
            epilogue_us: s.epilogue_us,
            slab_write_us: cost.slab_write_us * s.slabs,
            slab_read_us: cost.slab_read_us * s.slabs,
            least: 1.0 / f64::from(s.blocks),
        }
    }

    /// A stage's cluster tiles, `group` rows at a time and column by column inside a group; transposed if the stage
    /// goes by columns.
    pub(super) fn order(&self, stage: usize, group: u32) -> Vec<TileAt> {
        let s = &self.stages[stage];
        let (lines, others) = if s.by_columns { (s.grid.1, s.grid.0) } else { s.grid };
        let mut tiles = Vec::with_capacity(s.tiles() as usize);
        for begin in (0..lines).step_by(group.max(1) as usize) {
            for other in 0..others {
                for line in begin..lines.min(begin + group.max(1)) {
                    let (m, n) = if s.by_columns { (other, line) } else { (line, other) };
                    tiles.push(TileAt { index: m * s.grid.1 + n, class: s.needs.class_of(m, n) as u32 });
                }
            }
        }
        tiles
    }

    /// Launch plus arithmetic and traffic of all stages, divided evenly: no schedule is shorter.
    pub(super) fn floor_us(&self) -> f64 {
        let work: f64 = (0..self.stages.len())
            .map(|i| {
                let s = &self.stages[i];
                let (gm, gn) = (f64::from(s.grid.0), f64::from(s.grid.1));
                let once =
                    (gm * (s.row_bytes + s.rows_bytes) + gn * s.col_bytes) / (self.cost.read_tbs * 1e6);
                f64::from(s.k_blocks) * (gm * gn * s.math_us / f64::from(self.workers)).max(once)
            })
            .sum();
        work + self.cost.launch_us + self.cost.fill_us
    }
}

fn stage_cost<'a>(graph: &'a Graph, id: StageId, request: &ScheduleRequest) -> StageCost<'a> {
    let (stage, cost, cluster) = (&graph.stages[id.0], request.cost, request.cluster);
    let (tile_m, tile_n, tile_k) = stage.mma_tile;
    let shape = cost.tile_rate((tile_m, tile_n), cluster);
    let rate = cost.sm_tflops * shape.rate;
    let area = f64::from(tile_m) * f64::from(tile_n);
    let multiplied = f64::from(stage.op.rows_multiplied(stage.mma_tile)) * f64::from(tile_n);
    let k_bytes = 2.0 * f64::from(tile_k);
    let cluster_of = |d: &crate::graph::Dependence| {
        d.producer == id && graph.stages[d.consumer.0].operands[d.operand].kind == OperandKind::B
    };
    // Such an operation reads and writes its data once.
    let rows = rows_of(stage, tile_m);
    let moved = 2.0 * f64::from(stage.n) * (stage.op.rows_loaded(rows) + f64::from(rows));
    let adds =
        matches!(stage.op, Op::Gemm(_) | Op::Conv2d(_)) && stage.operand(OperandKind::Residual).is_some();
    let products = stage.op.has_kernel_tiles();
    let rows_bytes = if products { 0.0 } else { moved };
    let product = |value: f64| if products { value } else { 0.0 };
    StageCost {
        stage,
        grid: (stage.grid.0.div_ceil(cluster.0), stage.grid.1.div_ceil(cluster.1)),
        k_blocks: stage.k_blocks.max(1),
        needs: Needs::for_stage(graph, id, cluster),
        by_columns: graph.dependences.iter().any(cluster_of),
        math_us: product(
            2.0 * multiplied * f64::from(tile_k) / (rate * 1e6) + cost.window_us * windows_after_first(stage),
        ),
        rows_bytes,
        first_us: shape.first_us,
        row_bytes: product(stage.op.rows_loaded(rows_of(stage, tile_m)) * f64::from(cluster.0) * k_bytes),
        col_bytes: product(f64::from(tile_n * cluster.1) * k_bytes),
        units: if !products { 1 } else { super::units(stage).min(MOST_PARTS) },
        blocks: super::blocks(stage),
        epilogue_us: cost.epilogue_us(stage.op.epilogue().activation, (stage.op.is_gated(), adds), &shape),
        slabs: shape.slabs * area / (128.0 * 256.0),
    }
}

/// Windows of a convolution after the first of each block of channels, per k-block.
fn windows_after_first(stage: &Stage) -> f64 {
    match &stage.op {
        Op::Conv2d(conv) => f64::from(conv.classes() - 1) / f64::from(conv.filter.0 * conv.filter.1),
        _ => 0.0,
    }
}

/// Rows of a tile that exist: the last row of tiles may be partial.
fn rows_of(stage: &Stage, tile_m: u32) -> u32 {
    tile_m.min(stage.m)
}
