//! The plan of a decode kernel: few tokens, so the weights are everything, and each worker streams an equal share of every
//! stage's weights.
//!
//! A share is a range of output columns over all of k, and a worker is a CTA. The columns of a stage's output are announced
//! in column tiles of [`COLUMN_TILE`]: every worker adds one to the slot of each column tile that its share meets, and
//! workers of a later stage load the activations by k-tiles of the same width, each when its slot has had the posts of all
//! its owners.
//!
//! The arithmetic mirrors `csrc/kernels/decode/layout.h`, which kernels run.

use std::ops::Range;

use super::MAX_STAGES;
use crate::device::{DECODE_KERNELS, Profile};
use crate::graph::{Graph, OperandKind, Stage, StageId};

/// Width of the column tiles that slots stand for, and of the k-tiles that consumers wait for.
pub const COLUMN_TILE: u32 = 64;

/// 64-row tiles of weights that a worker may own in a stage: what the accumulators have registers for.
const MAX_ROW_TILES: u32 = 4;

/// The plan of a decode kernel: one CTA an SM, each of which has its share of every stage, in the order of the stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Decode {
    /// CTAs, and so shares.
    pub workers: u32,
    /// Tokens of the kernel, the least that holds all.
    pub width: u32,
    /// By stage.
    pub stages: Vec<DecodeStage>,
    /// Predicted length, microseconds.
    pub predicted_us: f64,
}

/// One stage of a decode plan.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeStage {
    /// Where shares begin: worker `w` computes output columns `bounds[w] .. bounds[w + 1]`.
    pub bounds: Vec<u32>,
    /// The stage that writes operand A; `None` for an input of the pipeline.
    pub producer: Option<StageId>,
    /// First slot of its column tiles in the pipeline's array.
    pub slot_base: u32,
    /// By column tile: the posts of a run, which consumers wait for. A stage that no stage reads posts none.
    pub posts: Vec<u32>,
}

impl DecodeStage {
    /// The output columns of a worker.
    pub fn columns(&self, worker: u32) -> Range<u32> {
        let at = |w: u32| self.bounds.get(w as usize).copied().unwrap_or(0);
        at(worker)..at(worker + 1)
    }
}

/// The column tiles that a range of columns meets.
pub fn column_tiles(columns: &Range<u32>) -> Range<u32> {
    if columns.is_empty() {
        return 0..0;
    }
    columns.start / COLUMN_TILE..columns.end.div_ceil(COLUMN_TILE)
}

/// Where worker `worker` of `workers` begins in `columns` columns.
pub fn base(columns: u32, workers: u32, worker: u32) -> u32 {
    // At most `columns`, so it fits.
    (u64::from(worker) * u64::from(columns) / u64::from(workers.max(1))) as u32
}

/// Workers that own some of the columns of a column tile, from the ends of the tile alone, as kernels reckon.
pub fn owners_of_tile(tile: u32, columns: u32, workers: u32) -> u32 {
    let owner = |column: u32| {
        let (column, workers) = (u64::from(column), u64::from(workers.max(1)));
        (((column + 1) * workers - 1) / u64::from(columns.max(1))) as u32
    };
    let (begin, end) = (tile * COLUMN_TILE, ((tile + 1) * COLUMN_TILE).min(columns));
    if begin >= end {
        return 0;
    }
    // With fewer columns than workers, some between own nothing.
    (owner(end - 1) - owner(begin) + 1).min(end - begin)
}

/// The stage that writes a stage's operand A.
pub(crate) fn producer_of(graph: &Graph, stage: &Stage) -> Option<StageId> {
    let a = stage.operands.iter().find(|o| o.kind == OperandKind::A)?;
    graph.tensors[a.tensor.0].producer
}

/// Whether some stage reads the output of `stage` as its operand A: only then it is announced.
pub(crate) fn is_read(graph: &Graph, stage: StageId) -> bool {
    graph.stages.iter().any(|s| producer_of(graph, s) == Some(stage))
}

/// Rows of weights of the widest share.
fn rows_of(stage: &Stage, workers: u32) -> u32 {
    let features = stage.n.div_ceil(workers.max(1));
    if stage.op.is_gated() { features * 2 } else { features }
}

/// The kernel's tokens for so many rows; `None` for more than any kernel takes.
pub fn width_of(rows: u32) -> Option<u32> {
    DECODE_KERNELS.iter().map(|kernel| kernel.width).filter(|width| rows <= *width).min()
}

/// The most tokens that a decode kernel takes.
pub fn most_tokens() -> u32 {
    DECODE_KERNELS.iter().map(|kernel| kernel.width).max().unwrap_or(0)
}

/// Why `workers` workers of a decode kernel cannot run a graph; `None` when they can.
pub fn unfit(graph: &Graph, workers: u32) -> Option<String> {
    if graph.stages.len() > MAX_STAGES {
        return Some(format!("{} stages; a decode kernel takes {MAX_STAGES}", graph.stages.len()));
    }
    for (s, stage) in graph.stages.iter().enumerate() {
        if width_of(stage.m).is_none() {
            let most = most_tokens();
            return Some(format!("`{}` has {} rows; a decode kernel takes {most}", stage.name, stage.m));
        }
        // Of activations, a worker adds only what it has written itself, or what nobody writes.
        let activation = |kind| matches!(kind, OperandKind::A | OperandKind::Residual);
        let constant =
            |o: &crate::graph::Operand| activation(o.kind) || graph.tensors[o.tensor.0].producer.is_none();
        let plain = |o: &crate::graph::Operand| o.kind != OperandKind::Bias;
        let rows = rows_of(stage, workers);
        let why = if !stage.op.is_gemm() {
            format!("is {}", stage.op.name())
        } else if stage.split_k > 1 {
            "states a split along k".into()
        } else if !stage.operands.iter().all(constant) {
            "has a weight or a bias that a stage writes".into()
        } else if stage.op.is_gated() && !stage.operands.iter().all(plain) {
            "is gated and has a bias".into()
        } else if is_read(graph, StageId(s)) && stage.n % 8 != 0 {
            format!("hands on rows of {} elements, no multiple of 8", stage.n)
        } else if u64::from(stage.n + 1) * u64::from(workers) > u64::from(u32::MAX) {
            format!("has {} columns, too many for 32 bits of arithmetic", stage.n)
        } else if rows > 64 * MAX_ROW_TILES {
            format!("gives a worker {rows} rows of weights; it has room for {}", 64 * MAX_ROW_TILES)
        } else {
            continue;
        };
        return Some(format!("`{}` {why}", stage.name));
    }
    graph.tensors.iter().find(|t| t.alias.is_some()).map(|t| format!("`{}` shares memory", t.name))
}

/// Equal shares for one worker an SM.
///
/// # Errors
/// Why there is none: see [`unfit`].
pub fn decode(graph: &Graph, device: &Profile) -> Result<Decode, String> {
    let workers = device.sms;
    if let Some(why) = unfit(graph, workers) {
        return Err(why);
    }
    let width = graph.stages.first().and_then(|s| width_of(s.m)).unwrap_or_default();
    let mut slots = 0;
    let stages = graph.stages.iter().enumerate().map(|(s, stage)| {
        let bounds: Vec<u32> = (0..=workers).map(|w| base(stage.n, workers, w)).collect();
        let read = is_read(graph, StageId(s));
        let posts = |tile| if read { owners_of_tile(tile, stage.n, workers) } else { 0 };
        let posts: Vec<u32> = (0..stage.n.div_ceil(COLUMN_TILE)).map(posts).collect();
        let slot_base = slots;
        slots += posts.len() as u32;
        DecodeStage { bounds, producer: producer_of(graph, stage), slot_base, posts }
    });
    let stages = stages.collect();
    Ok(Decode { workers, width, stages, predicted_us: predicted_us(graph, device) })
}

/// The launch and the stages one after the other.
fn predicted_us(graph: &Graph, device: &Profile) -> f64 {
    device.decode.launch_us + graph.stages.iter().map(|s| stage_us(graph, s, device)).sum::<f64>()
}

/// The time of a stage, microseconds: all SMs together read its constants, every SM reads all activations beside them, and
/// the stage ends.
pub(crate) fn stage_us(graph: &Graph, stage: &Stage, device: &Profile) -> f64 {
    let constant =
        stage.operands.iter().filter(|o| o.kind != OperandKind::A).map(|o| &graph.tensors[o.tensor.0]);
    let weights: f64 = constant.map(|t| 2.0 * f64::from(t.rows) * f64::from(t.cols)).sum();
    let activations = 2.0 * f64::from(stage.m) * f64::from(stage.k) * f64::from(device.sms);
    let read_us = weights / (device.decode.read_tbs * 1e6) + activations / (device.decode.l2_tbs * 1e6);
    read_us + device.decode.stage_us
}

impl Decode {
    /// Slots of all stages.
    pub fn slot_count(&self) -> u32 {
        self.stages.iter().map(|s| s.posts.len() as u32).sum()
    }
}
