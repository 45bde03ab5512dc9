//! The space of configurations that the search, tuning, "what if?" and benchmark samples choose from. It is defined
//! only here.

use super::ChainOverride;
use crate::check::Executor;
use crate::device::{ChainKernel, Operations, Profile};
use crate::diagnostic::Spanned;
use crate::graph::{Dependence, Graph, Resolved, StageId, StatedEdge};
use crate::schedule::Hand;
use crate::sync::{Order, Policy};

/// An MMA tile, (M, N, K).
pub type TileShape = (u32, u32, u32);

/// Rows of tiles per order group, or columns if a consumer waits for whole columns.
pub const GROUPS: [u32; 4] = [1, 2, 4, 8];

/// Tile orders available to every stage.
pub const ORDERS: [Order; 6] = [
    Order::RowMajor,
    Order::ColumnMajor,
    Order::GroupedRows(2),
    Order::GroupedRows(4),
    Order::GroupedRows(8),
    Order::GroupedColumns(4),
];

/// Policies available to every edge. The search and tuning try the first [`SEARCHED`] of them, on all edges together.
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

/// Policies that benchmarks compare, applied to all edges; `None` is the automatic choice.
pub const COMPARED: [Option<Policy>; 3] = [None, Some(Policy::Tile), Some(Policy::Row)];

/// How the items of a chain kernel are handed out, and whether tiles may be split along k. Tuning leaves out the last
/// strategy, which gains nothing over the one before it.
pub const STRATEGIES: [(Hand, bool); 4] =
    [(Hand::Fixed, false), (Hand::Fixed, true), (Hand::Drawn, true), (Hand::Drawn, false)];

/// The executors of a device.
pub fn executors(device: &Profile) -> Vec<Executor> {
    let offered = |executor: &Executor| match executor {
        // Running jobs is not comparable with running a plan once.
        Executor::Cpu | Executor::Copilot => false,
        Executor::Serial | Executor::Streams => true,
        // Without library timings there is no prediction before a measurement.
        Executor::Library => device.library.is_some(),
        // Programmatic launch and the kernels of the fused executor need Hopper.
        Executor::Programmatic | Executor::Fused => device.arch >= 90,
    };
    Executor::GPU.into_iter().filter(offered).collect()
}

/// The policy, beyond those of [`POLICIES`], that the consumer's operation defines for an edge.
pub fn special_policy(graph: &Graph, dependence: &Dependence) -> Option<Policy> {
    let consumer = &graph.stages[dependence.consumer.0];
    let columns = graph.stages[dependence.producer.0].out_tile().1;
    consumer.op.rules().policy(&consumer.operands[dependence.operand], columns)
}

/// One shape for all stages, except those with a fixed shape. Such a shape can lose in each stage alone and still win
/// overall, because tiles of different shapes leave less to overlap. `shapes` lists the shapes of each stage.
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

/// The chain kernels for these operations that the overrides allow. The CTAs of a cluster cannot draw items: each
/// would draw separately.
pub fn chain_kernels(
    operations: Operations,
    asked: ChainOverride,
) -> impl Iterator<Item = &'static ChainKernel> {
    ChainKernel::running(operations)
        .filter(move |k| asked.kernel.is_none_or(|wanted| wanted == ((k.tile.0, k.tile.1), k.cluster)))
        .filter(move |k| asked.mode == Hand::Fixed || k.cluster == (1, 1))
}

/// The chain kernel configurations for these operations that tuning tries: kernel, item distribution, and whether
/// tiles may be split.
pub fn chains(operations: Operations) -> impl Iterator<Item = ChainOverride> {
    ChainKernel::running(operations).flat_map(move |kernel| {
        let kernel = Some(((kernel.tile.0, kernel.tile.1), kernel.cluster));
        let ways = STRATEGIES.into_iter().take(3);
        ways.map(move |(mode, splits)| ChainOverride { kernel, mode, splits })
            .filter(move |asked| chain_kernels(operations, *asked).next().is_some())
    })
}

/// The dependences of a spec: every read of a stage's output.
pub fn dependences(resolved: &Resolved) -> impl Iterator<Item = Dependence> + '_ {
    resolved.stages.iter().enumerate().flat_map(move |(consumer, stage)| {
        stage.reads.iter().enumerate().filter_map(move |(operand, read)| {
            let producer = resolved.tensors[read.tensor.0].producer?;
            Some(Dependence { producer, consumer: StageId(consumer), operand })
        })
    })
}

/// States a policy for every dependence that has none.
pub fn state_policy(resolved: &mut Resolved, policy: &Policy) {
    let missing = dependences(resolved).filter(|dependence| resolved.stated_edge(dependence).is_none());
    let stated = missing.map(|Dependence { producer, consumer, operand }| {
        let (stage, span) = (&resolved.stages[consumer.0], resolved.stages[consumer.0].name.span);
        StatedEdge {
            span,
            producer,
            consumer,
            operand: Some(stage.reads[operand].kind),
            policy: Some(Spanned::new(policy.clone(), span)),
            wait_at: None,
        }
    });
    let stated: Vec<StatedEdge> = stated.collect();
    resolved.edges.extend(stated);
}
