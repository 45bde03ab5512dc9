//! The plan of a decode kernel. With few tokens, the time is dominated by weights, and each worker streams an even
//! share of every stage's weights.
//!
//! A share is a range of output columns over all of k, and a worker is a CTA. A stage's output is announced in column
//! tiles of [`COLUMN_TILE`]: every worker adds one to the slot of each column tile that its share overlaps. Workers of
//! a later stage load activations in k-tiles of the same width, each once its slot has the posts of all its owners.
//!
//! A share with more rows of weights than a worker has registers for is processed in rounds ([`rounds_of`]): the
//! output then has more parts than there are workers, and each worker computes consecutive parts, one per round.
//!
//! Attention uses tiles instead: a sequence and the heads that share keys and values. Which worker finishes which tile
//! is decided on the device, from the sequence lengths, to balance ragged batches (`csrc/kernels/decode/attend.h`); a
//! plan lists them as for equal lengths. Each tile is finished and posted once, regardless of lengths: a column of
//! tiles is a slot, with one post per sequence.
//!
//! A normalization also uses tiles, one row each: its worker waits for the whole row. All rows share a slot.
//!
//! Neighboring workers process a stage of few rows and many tokens in pairs ([`in_pairs`]): each takes half of the
//! k-tiles of both shares, and they exchange sums before either stores. So a share is still stored and posted by its
//! own worker, once all of its k-tiles are summed.
//!
//! The arithmetic mirrors `csrc/kernels/decode/layout.h` and `share.h`, which the kernels use.

use std::ops::Range;

use super::{Hand, Item, MAX_STAGES, Part, Schedule, uncounted};
use crate::device::{DECODE_KERNELS, DecodeKernel, Operation, Operations, Profile};
use crate::graph::{
    Activation, Attend, Dependence, Epilogue, Graph, Op, OperandKind, PAGE, Partition, Stage, StageId,
    Tensor, share_begin,
};
use crate::obstacle::Obstacle;
use crate::sync::Policy;

/// Width of the column tiles that slots represent, and of the k-tiles that consumers wait for.
pub const COLUMN_TILE: u32 = 64;
/// Warps of a CTA that load activations; they take k-tiles in turn.
pub(crate) const LOAD_WARPS: u32 = 4;

/// Maximum elements of a row that fit a worker's registers during normalization.
pub const MAX_NORMED: u32 = 16384;

/// Head widths of the attention of decode kernels (`HeadColumns`).
const HEADS: [u32; 5] = [64, 80, 96, 128, 256];
/// Maximum query heads per cache head: one side of the matrix product that a kernel computes for them (`kMaxGroup`).
const MAX_GROUP: u32 = 8;
/// Maximum columns of these query heads together: four for each thread of a worker (`kGroupColumns`).
const MAX_GROUP_COLUMNS: u32 = 1024;
/// Tokens of the widest kernel with norms or attention that runs activations without code of their own
/// (`takes_curves`).
const MOST_CURVED: u32 = 16;
/// Maximum attention stages in a kernel's parameters (`kMaxAttends`).
const MAX_ATTENDS: usize = 16;

/// Maximum rows of weights with sums that fit a worker's registers: four tiles of 64.
const MAX_ROWS: u32 = 256;

/// Maximum parts of an output: kernels multiply three such numbers in 32 bits.
pub const MAX_PARTS: u32 = 1625;

/// The plan of a decode kernel for a graph in even shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Decode {
    /// Token capacity of the kernel: the smallest that holds all tokens.
    pub width: u32,
    /// One worker per CTA, one CTA per SM: its share of every stage, in stage order.
    pub work: Schedule,
}

/// The policy of a dependence in a decode kernel, which has no other. A share adds only what its worker has written
/// itself or has waited for anyway, so residuals have no slots.
pub fn policy(graph: &Graph, dependence: &Dependence) -> Policy {
    let producer = &graph.stages[dependence.producer.0];
    let kind = graph.stages[dependence.consumer.0].operands[dependence.operand].kind;
    match producer.partition {
        _ if !kind.is_activation() => Policy::Own,
        Partition::Even { .. } => Policy::Columns { width: COLUMN_TILE, columns: producer.n },
        Partition::Tiles { .. } => Policy::Batched { rows: producer.grid.0, cols: 1 },
    }
}

/// Workers that begin at the same k-tile if rows are few.
const NEIGHBOURS: u32 = 16;
/// If a stage has more rows than this, all workers begin with the first k-tile (`kFewTokens`).
const FEW_ROWS: u32 = 32;

/// Maximum rows of a pair's weights with sums that fit a warp's registers (`kPairRows`).
const PAIR_ROWS: u32 = 48;
/// Minimum k-tiles of a stage for which halving them is worth an exchange of sums (`kPairBlocks`).
const PAIR_TILES: u32 = 64;
/// Token capacity of the kernel with stages that may run in pairs (`kPairWidth`).
const PAIR_WIDTH: u32 = 32;
/// The k-tiles of an even worker are a multiple of this (`kPhases`).
const PAIR_STEP: u32 = 8;

/// Whether neighboring workers of a kernel with this token capacity compute a `k` by `n` product in pairs, with the
/// kernels' arithmetic. Only kernels with attention do that.
pub fn in_pairs((k, n): (u32, u32), gated: bool, workers: u32, width: u32) -> bool {
    let (even, fits) = (workers.is_multiple_of(2), |n: u32| n.div_ceil(workers / 2) <= PAIR_ROWS);
    width == PAIR_WIDTH && !gated && even && n >= workers && fits(n) && k.div_ceil(COLUMN_TILE) >= PAIR_TILES
}

/// Whether a stage runs in pairs, in a kernel for these operations with this token capacity.
pub fn stage_in_pairs(stage: &Stage, operations: Operations, workers: u32, width: u32) -> bool {
    // Kernels with products only have no pairs. A worker of a pair has the squares of half a row.
    let attends = [Operation::Attend, Operation::Norm, Operation::InputNorm];
    let whole_rows = matches!(stage.op, Op::NormedGemm(_));
    attends.iter().any(|operation| operations.contains(*operation))
        && stage.op.is_gemm()
        && !whole_rows
        && in_pairs((stage.k, stage.n), stage.op.is_gated(), workers, width)
}

/// Whether a stage of a graph runs in pairs.
pub fn is_in_pairs(graph: &Graph, stage: &Stage, workers: u32) -> bool {
    let width = width_of(graph, stage.m).unwrap_or_default();
    stage_in_pairs(stage, graph.operations(), workers, width)
}

/// The k-tiles of a stage that a worker processes; each worker of a pair takes one half.
fn k_tiles_of(graph: &Graph, stage: &Stage, workers: u32, worker: u32) -> Range<u32> {
    let (all, half) = (stage.k_blocks, stage.k_blocks.div_ceil(2).next_multiple_of(PAIR_STEP));
    match (is_in_pairs(graph, stage, workers), worker.is_multiple_of(2)) {
        (false, _) => 0..all,
        (true, true) => 0..half,
        (true, false) => half..all,
    }
}

/// The k-tiles of a stage that each warp of a worker loads, in order. Groups of neighbors begin at different k-tiles
/// and wrap around.
pub(crate) fn k_tiles(graph: &Graph, stage: &Stage, workers: u32, worker: u32) -> Vec<Vec<u32>> {
    let (range, group) = (k_tiles_of(graph, stage, workers, worker), worker / NEIGHBOURS * NEIGHBOURS);
    let tiles = range.end - range.start;
    let start = if stage.m > FEW_ROWS { 0 } else { share_begin(tiles, workers, group) };
    let of_warp = |warp| {
        (warp..tiles).step_by(LOAD_WARPS as usize).map(|number| range.start + (start + number) % tiles)
    };
    (0..LOAD_WARPS).map(|warp| of_warp(warp).collect()).collect()
}

/// The stage that writes a stage's activations; `None` for a pipeline input.
pub fn producer_of(graph: &Graph, stage: &Stage) -> Option<StageId> {
    let read = stage.operands.iter().find(|o| o.kind.is_activation())?;
    graph.tensors[read.tensor.0].producer
}

/// Whether some stage reads the output of `stage` as its activations; only then is it announced.
pub fn is_read(graph: &Graph, stage: StageId) -> bool {
    graph.stages.iter().any(|s| producer_of(graph, s) == Some(stage))
}

/// Whether decode kernels support an operation.
fn decodes(op: &Op) -> bool {
    match op {
        Op::Gemm(_) | Op::GatedGemm(_) | Op::NormedGemm(_) | Op::Attend(_) | Op::Norm(_) => true,
        Op::RotatedGemm(_)
        | Op::Conv2d(_)
        | Op::GroupedConv(_)
        | Op::Attention(_)
        | Op::GroupNorm(_)
        | Op::Pool(_)
        | Op::Experts(_)
        | Op::Custom => false,
    }
}

/// Why a decode kernel cannot run an attention; `None` if it can, and for other stages.
fn unfit_attention(graph: &Graph, stage: StageId, workers: u32) -> Option<Obstacle> {
    // Units are computed from the lengths once on the device, for all attentions of a kernel.
    let lengths = |stage: &Stage| {
        let shape = stage.op.attend()?;
        let lengths = stage.operand(OperandKind::Lengths)?;
        Some((lengths.tensor, shape.cache.capacity, shape.heads.kv))
    };
    let this_stage = &graph.stages[stage.0];
    let Attend { heads, cache, .. } = this_stage.op.attend()?;
    if !HEADS.contains(&heads.dim) {
        let [some @ .., last] = HEADS.map(|columns| columns.to_string());
        let text = format!(
            "has heads of {} columns, and decode kernels have {} or {last}",
            heads.dim,
            some.join(", ")
        );
        return Some(Obstacle::new(text));
    }
    let most = MAX_GROUP.min(MAX_GROUP_COLUMNS / heads.dim);
    if heads.group() > most {
        let text = format!(
            "has {} query heads of {} columns per head of the cache; a decode kernel takes {most}",
            heads.group(),
            heads.dim
        );
        return Some(Obstacle::new(text).numbers(heads.group(), most));
    }
    let producer = producer_of(graph, this_stage).map(|p| &graph.stages[p.0]);
    if let Some(producer) = producer.filter(|p| !p.op.is_gemm()) {
        let text = format!("attends to the output of `{}`, which is not a matrix product", producer.name);
        return Some(Obstacle::new(text));
    }
    let first = graph.stages.iter().find(|s| lengths(s).is_some())?;
    if lengths(first) != lengths(this_stage) {
        return Some(Obstacle::new(format!(
            "has other lengths, or another capacity or number of heads of keys and values, than `{}`",
            first.name
        )));
    }
    let units = u64::from(this_stage.m) * u64::from(heads.kv) * u64::from(cache.capacity / PAGE + 1);
    let most = u64::from(u32::MAX / workers.max(1)) - 1;
    let text = || format!("has {units} pages' worth of tokens, too many for 32 bits of arithmetic");
    (units > most).then(|| Obstacle::new(text()).numbers(units, most))
}

/// Why a decode kernel has no code for an activation: the widest that attends or normalizes has none for those that are
/// numbers to kernels.
fn unfit_activation(graph: &Graph, stage: &Stage) -> Option<Obstacle> {
    let Epilogue { activation, .. } = stage.op.epilogue();
    let own = match stage.op.is_gated() {
        true => activation == Activation::Silu,
        false => matches!(activation, Activation::Identity | Activation::GeluTanh | Activation::Relu),
    };
    let products = Operations::products().contains_all(graph.operations());
    let width = width_of(graph, stage.m)?;
    let text = || {
        format!(
            "applies {activation} to {} tokens; a decode kernel with norms or attention does to {MOST_CURVED}",
            stage.m
        )
    };
    if !own && stage.devices > 1 {
        let text = format!("applies {activation} to a sum over devices");
        return Some(Obstacle::new(text).help("apply it in a stage behind the sum"));
    }
    (!own && stage.op.is_gemm() && !products && width > MOST_CURVED)
        .then(|| Obstacle::new(text()).numbers(stage.m, MOST_CURVED))
}

/// Rounds in which workers process a stage: the fewest for which each part's rows of weights fit in registers.
pub fn rounds_of(stage: &Stage, workers: u32) -> u32 {
    let most = if stage.op.is_gated() { MAX_ROWS / 2 } else { MAX_ROWS };
    let features = if stage.op.is_gemm() { stage.n.div_ceil(workers.max(1)) } else { 0 };
    features.div_ceil(most).max(1)
}

/// Parts into which the output of a product is cut for this many workers.
pub fn parts_of(stage: &Stage, workers: u32) -> u32 {
    workers.saturating_mul(rounds_of(stage, workers))
}

/// Rounds of a stage in a graph that is cut for this many workers.
pub fn rounds_in(stage: &Stage, workers: u32) -> u32 {
    match stage.partition {
        Partition::Even { parts } => parts / workers.max(1),
        Partition::Tiles { .. } => 1,
    }
}

/// Token capacities of the decode kernels that run these operations.
pub fn widths(operations: Operations) -> impl Iterator<Item = u32> {
    let runs = move |kernel: &&DecodeKernel| kernel.operations.contains_all(operations);
    DECODE_KERNELS.iter().filter(runs).map(|kernel| kernel.width)
}

/// The token capacity of the kernel that runs a graph with this many rows; `None` if no kernel holds that many.
pub fn width_of(graph: &Graph, rows: u32) -> Option<u32> {
    widths(graph.operations()).filter(|width| rows <= *width).min()
}

/// Why `workers` workers of a decode kernel cannot run a graph; `None` if they can.
pub fn unfit(graph: &Graph, workers: u32) -> Option<Obstacle> {
    let few = |have: usize, most: usize, noun: &str| {
        let text = format!("there are {have} {noun}; a decode kernel takes {most}");
        (have > most).then(|| Obstacle::new(text).numbers(have as u64, most as u64))
    };
    let attends = graph.stages.iter().filter(|stage| stage.op.attend().is_some()).count();
    let rounds = graph.stages.iter().map(|stage| rounds_of(stage, workers) as usize).sum();
    few(graph.stages.len(), MAX_STAGES, "stages")
        .or_else(|| few(rounds, MAX_STAGES, "rounds of all stages"))
        .or_else(|| few(attends, MAX_ATTENDS, "attentions"))
        .or_else(|| {
            let stages = graph.stages.iter().enumerate();
            let unfit = |(s, stage): (usize, &Stage)| {
                unfit_stage(graph, StageId(s), workers).map(|why| why.of_stage(&stage.name))
            };
            stages.filter_map(unfit).next()
        })
        .or_else(|| {
            let shared = graph.tensors.iter().find(|t| t.alias.is_some())?;
            Some(Obstacle::new(format!(
                "`{}` shares memory, and a decode kernel looks after none",
                shared.name
            )))
        })
}

/// Why a decode kernel cannot run a stage.
fn unfit_stage(graph: &Graph, id: StageId, workers: u32) -> Option<Obstacle> {
    let stage = &graph.stages[id.0];
    // If no kernel has all operations, name the stage that has none.
    if let Some(most) = widths(graph.operations()).max().filter(|most| stage.m > *most) {
        let text = format!("has {} rows; a decode kernel takes {most}", stage.m);
        return Some(Obstacle::new(text).numbers(stage.m, most));
    }
    // A worker adds only activations that it has written itself, that are pipeline inputs, or that it has waited for
    // anyway.
    let activation = |kind: OperandKind| kind.is_activation() || kind == OperandKind::Residual;
    let constant =
        |o: &crate::graph::Operand| activation(o.kind) || graph.tensors[o.tensor.0].producer.is_none();
    let plain = |o: &crate::graph::Operand| o.kind != OperandKind::Bias;
    let added = stage.operands.iter().find(|o| o.kind == OperandKind::Residual);
    let added = added.and_then(|o| graph.tensors[o.tensor.0].producer);
    // A worker makes whole rows of a normalization, and some columns of all rows of a product.
    let rows = |stage: &Stage| matches!(stage.op, Op::Norm(_));
    let of_others =
        |p: &StageId| rows(&graph.stages[p.0]) != rows(stage) && producer_of(graph, stage) != Some(*p);
    let others = added.filter(of_others);
    let first = graph.stages.first().map_or(stage.m, |first| first.m);
    let parts = parts_of(stage, workers);
    let columns = u64::from(u32::MAX / parts.max(1)) - 1;
    Some(if !decodes(&stage.op) {
        Obstacle::new(format!("is {}, which no decode kernel runs", stage.op.name()))
    } else if stage.split_k > 1 {
        Obstacle::new("states a split along k").numbers(stage.split_k, 1u32)
    } else if let Some(viewed) = stage.operands.iter().find(|o| o.view.is_some()) {
        let Tensor { name, rows, cols, .. } = &graph.tensors[viewed.tensor.0];
        Obstacle::new(format!(
            "reads `{name}`, {rows} x {cols}, under another shape, which no decode kernel does"
        ))
    } else if !stage.operands.iter().all(constant) {
        Obstacle::new("has a weight or a bias that a stage writes")
    } else if let Some(other) = others {
        Obstacle::new(format!("adds rows of `{}`, which other workers make", graph.stages[other.0].name))
    } else if stage.op.is_gated() && !stage.operands.iter().all(plain) {
        Obstacle::new("is gated and has a bias")
    } else if is_read(graph, id) && !stage.n.is_multiple_of(8) {
        let text = format!("hands on rows of {} elements, no multiple of 8", stage.n);
        Obstacle::new(text).numbers(stage.n, 8u32)
    } else if u64::from(stage.n) > columns {
        let text = format!("has {} columns, too many for 32 bits of arithmetic", stage.n);
        Obstacle::new(text).numbers(stage.n, columns)
    } else if let Some(why) = unfit_attention(graph, id, workers) {
        why
    } else if matches!(stage.op, Op::Norm(_)) && stage.n > MAX_NORMED {
        let text = format!("normalises rows of {} elements; a decode kernel takes {MAX_NORMED}", stage.n);
        Obstacle::new(text).numbers(stage.n, MAX_NORMED)
    } else if let Some(why) = unfit_activation(graph, stage) {
        why
    } else if parts > MAX_PARTS {
        let text = format!("is made of {parts} parts; a decode kernel takes {MAX_PARTS}");
        Obstacle::new(text).numbers(parts, MAX_PARTS)
    } else if width_of(graph, stage.m) != width_of(graph, first) {
        let text = format!("has {} rows and the first stage {first}, which are of kernels apart", stage.m);
        Obstacle::new(text).numbers(stage.m, first)
    } else {
        return None;
    })
}

/// Cuts the graph into even shares with one worker per SM; returns it and the plan.
///
/// # Errors
/// Why there is none: see [`unfit`].
pub fn decode(graph: &Graph, device: &Profile) -> Result<(Graph, Decode), Obstacle> {
    let workers = device.sms;
    if let Some(why) = unfit(graph, workers) {
        return Err(why);
    }
    let width = graph.stages.first().and_then(|s| width_of(graph, s.m)).unwrap_or_default();
    let graph = graph.clone().in_even_shares(|stage| parts_of(stage, workers));
    if let Some(uncounted) = graph.stages.iter().find_map(|stage| uncounted(stage, (1, 1))) {
        return Err(uncounted);
    }
    let predicted_us = spans(&graph, device).last().map_or(0.0, |(_, end)| *end);
    let work = Schedule { predicted_us, ..work(&graph, workers) };
    Ok((graph, Decode { width, work }))
}

/// The work of a decode kernel's CTAs for a graph that is cut for them: each has its share of one stage after another,
/// or an equal number of its tiles.
pub fn work(graph: &Graph, workers: u32) -> Schedule {
    let (mut sequence, mut lists) = (Vec::new(), vec![Vec::new(); workers as usize]);
    for (s, stage) in graph.stages.iter().enumerate() {
        let (first, tiles) = (sequence.len() as u32, stage.tiles());
        let item = |i: u32| {
            let (m, n) = (i / stage.grid.1, i % stage.grid.1);
            Item { stage: StageId(s), m, n, k_begin: 0, k_end: stage.k_blocks, part: Part::Whole }
        };
        sequence.extend((0..tiles).map(item));
        for (worker, list) in (0..).zip(&mut lists) {
            let begin = |worker| share_begin(tiles, workers, worker);
            list.extend((begin(worker)..begin(worker + 1)).map(|i| first + i));
        }
    }
    Schedule { cluster: (1, 1), mode: Hand::Fixed, sequence, lists, slabs: 0, predicted_us: 0.0 }
}

/// Begin and end of each stage, microseconds: the stages follow each other after the launch.
pub(crate) fn spans(graph: &Graph, device: &Profile) -> Vec<(f64, f64)> {
    let mut end_us = device.decode.launch_us;
    let span = |stage| {
        let begin_us = end_us;
        end_us += stage_us(graph, stage, device);
        (begin_us, end_us)
    };
    graph.stages.iter().map(span).collect()
}

/// The time of a stage, microseconds: all SMs together read its constants while every SM reads all activations (half
/// of them in pairs), and then the stage ends. For an attention, this includes the cache with the expected number of
/// tokens, in whole units of a page.
fn stage_us(graph: &Graph, stage: &Stage, device: &Profile) -> f64 {
    let cost = &device.decode;
    if let Some(Attend { heads, expected, .. }) = stage.op.attend() {
        let tokens = f64::from(stage.m * heads.kv) * f64::from(expected.next_multiple_of(PAGE));
        let bytes = 2.0 * 2.0 * tokens * f64::from(heads.dim);
        return bytes / (cost.read_tbs * 1e6) + cost.stage_us + cost.attend_us;
    }
    // A row is read by one worker.
    if matches!(stage.op, Op::Norm(_)) {
        return cost.stage_us;
    }
    let constants = stage.operands.iter().filter(|o| o.kind != OperandKind::A);
    let weights: f64 = constants.map(|o| graph.tensors[o.tensor.0].bytes() as f64).sum();
    // Each round loads all activations again.
    let rounds = f64::from(rounds_of(stage, device.sms));
    let each = if is_in_pairs(graph, stage, device.sms) { 0.5 } else { rounds };
    let activations = each * 2.0 * f64::from(stage.m) * f64::from(stage.k) * f64::from(device.sms);
    let exchange = if stage.devices > 1 { cost.exchange_us } else { 0.0 };
    weights / (cost.read_tbs * 1e6) + activations / (cost.l2_tbs * 1e6) + cost.stage_us + exchange
}

impl Decode {
    /// CTAs, which equals the shares of each stage.
    pub fn workers(&self) -> u32 {
        self.work.lists.len() as u32
    }
}
