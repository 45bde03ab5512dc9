//! The space of configurations: what the search, tuning, "what if?" and samples of benchmarks choose from. It is listed here
//! and nowhere else.

use super::ChainOverride;
use crate::check::Executor;
use crate::device::{ChainKernel, Operations, Profile};
use crate::graph::{Dependence, Graph};
use crate::schedule::Hand;
use crate::sync::{Order, Policy};

/// An MMA tile, (M, N, K).
pub type TileShape = (u32, u32, u32);

/// Rows of tiles that orders take at a time, or columns where a consumer waits for whole columns.
pub const GROUPS: [u32; 4] = [1, 2, 4, 8];

/// Tile orders of any stage.
pub const ORDERS: [Order; 6] = [
    Order::RowMajor,
    Order::ColumnMajor,
    Order::GroupedRows(2),
    Order::GroupedRows(4),
    Order::GroupedRows(8),
    Order::GroupedColumns(4),
];

/// Policies of any edge. The search and tuning try the first [`SEARCHED`] of them, on all edges together.
pub const POLICIES: [Policy; 7] = [
    Policy::Row,
    Policy::Tile,
    Policy::Batched { rows: 1, cols: 4 },
    Policy::Batched { rows: 1, cols: 2 },
    Policy::Batched { rows: 2, cols: 1 },
    Policy::Batched { rows: 2, cols: 2 },
    Policy::Strided(4),
];

/// See [`POLICIES`].
pub const SEARCHED: usize = 3;

/// How the items of a chain kernel are handed out, and whether tiles may be cut along k. Tuning leaves out the last, which
/// gains nothing over the one before.
pub const STRATEGIES: [(Hand, bool); 4] =
    [(Hand::Fixed, false), (Hand::Fixed, true), (Hand::Drawn, true), (Hand::Drawn, false)];

/// The executors of a device.
pub fn executors(device: &Profile) -> &'static [Executor] {
    // Programmatic launch and the kernels of the fused executor need Hopper.
    if device.arch >= 90 { &Executor::GPU } else { &Executor::GPU[..2] }
}

/// The policy that the consumer's operation has for what an edge brings it, beyond those of [`POLICIES`].
pub fn special_policy(graph: &Graph, dependence: &Dependence) -> Option<Policy> {
    let consumer = &graph.stages[dependence.consumer.0];
    let columns = graph.stages[dependence.producer.0].out_tile().1;
    consumer.op.rules().policy(&consumer.operands[dependence.operand], columns)
}

/// One shape for all stages, which can lose in each stage alone and win together, because tiles of unlike shape leave less to
/// overlap; a stage whose shape is fixed keeps it. `shapes` are those of each stage.
pub fn uniform_tiles(shapes: &[Vec<TileShape>]) -> Vec<Vec<TileShape>> {
    let every = shapes.iter().max_by_key(|of_stage| of_stage.len()).into_iter().flatten();
    let uniform = |shape: &TileShape| {
        let own = |of_stage: &Vec<TileShape>| {
            if of_stage.contains(shape) { Some(*shape) } else { of_stage.first().copied() }
        };
        shapes.iter().map(own).collect::<Option<Vec<_>>>()
    };
    every.filter_map(uniform).collect()
}

/// The ways to run these operations in a chain kernel that tuning tries: which one, how items are handed out, whether tiles may
/// be cut.
pub fn chains(operations: Operations) -> impl Iterator<Item = ChainOverride> {
    ChainKernel::running(operations).flat_map(|kernel| {
        // The CTAs of a cluster cannot draw items.
        let alone = kernel.cluster == (1, 1);
        let kernel = Some(((kernel.tile.0, kernel.tile.1), kernel.cluster));
        let ways = STRATEGIES.into_iter().take(3).filter(move |(mode, _)| alone || *mode == Hand::Fixed);
        ways.map(move |(mode, splits)| ChainOverride { kernel, mode, splits })
    })
}
