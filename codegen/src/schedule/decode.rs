//! The plan of a decode kernel: few tokens, so the weights are everything, and each CTA streams an equal share of every
//! stage's weights.
//!
//! A share is a range of output columns over all of k. The columns of a stage's output are announced in column tiles of
//! [`COLUMN_TILE`]: a CTA adds one to the slot of each column tile that its share meets, and a CTA of the next stage loads
//! the activations by k-tiles of the same width, each when its slot has had the posts of all its owners.

use std::ops::Range;

use crate::device::Device;
use crate::graph::{Graph, Op, OperandKind};

/// Width of the column tiles that slots stand for, and of the k-tiles that consumers wait for.
pub const COLUMN_TILE: u32 = 64;
/// Most tokens (rows) that a decode kernel takes: they are the N side of one WGMMA.
pub const MAX_TOKENS: u32 = 64;

/// The plan of a decode kernel: one CTA an SM, each of which has its share of every stage, in the order of the stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Decode {
    /// CTAs.
    pub workers: u32,
    /// By stage.
    pub stages: Vec<DecodeStage>,
    /// Predicted length, microseconds.
    pub predicted_us: f64,
}

/// One stage of a decode plan.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeStage {
    /// Where shares begin: CTA `c` computes output columns `bounds[c] .. bounds[c + 1]`.
    pub bounds: Vec<u32>,
    /// First slot of its column tiles in the pipeline's array; none where no stage reads the output.
    pub slot_base: u32,
    /// By column tile: the posts of a run, which consumers wait for. Empty where no stage reads the output.
    pub posts: Vec<u32>,
}

impl DecodeStage {
    /// The output columns of a CTA.
    pub fn columns(&self, cta: u32) -> Range<u32> {
        let at = |c: u32| self.bounds.get(c as usize).copied().unwrap_or(0);
        at(cta)..at(cta + 1)
    }
}

/// The column tiles that a range of columns meets.
pub fn column_tiles(columns: &Range<u32>) -> Range<u32> {
    if columns.is_empty() {
        return 0..0;
    }
    columns.start / COLUMN_TILE..columns.end.div_ceil(COLUMN_TILE)
}

/// Where CTA `cta` of `workers` begins in `columns` columns.
pub fn base(columns: u32, workers: u32, cta: u32) -> u32 {
    // At most `columns`, so it fits.
    (u64::from(cta) * u64::from(columns) / u64::from(workers.max(1))) as u32
}

/// Why a graph has no decode plan; `None` when it has one.
pub fn unfit(graph: &Graph) -> Option<String> {
    for (s, stage) in graph.stages.iter().enumerate() {
        let why = if stage.op == Op::Custom {
            "is Custom".into()
        } else if stage.m > MAX_TOKENS {
            format!("has {} rows; a decode kernel takes {MAX_TOKENS}", stage.m)
        } else if stage.split_k > 1 {
            "states a split along k".into()
        } else if stage.operands.iter().any(|o| {
            let produced = graph.tensors[o.tensor.0].producer.is_some();
            match o.kind {
                OperandKind::A => produced != (s > 0),
                OperandKind::B | OperandKind::Up => produced,
                OperandKind::Bias | OperandKind::Residual | OperandKind::Custom(_) => true,
            }
        }) {
            "reads more than weights and the output of the stage before it".into()
        } else if s > 0 && graph.tensors[stage.operands[0].tensor.0].producer.map(|p| p.0 + 1) != Some(s) {
            "does not read the output of the stage before it".into()
        } else {
            continue;
        };
        return Some(format!("`{}` {why}", stage.name));
    }
    graph.tensors.iter().find(|t| t.alias.is_some()).map(|t| format!("`{}` shares memory", t.name))
}

/// Equal shares for one CTA an SM.
///
/// # Errors
/// Why there is none: see [`unfit`].
pub fn decode(graph: &Graph, device: &Device) -> Result<Decode, String> {
    if let Some(why) = unfit(graph) {
        return Err(why);
    }
    let workers = device.sms;
    let mut slots = 0;
    let stages = graph.stages.iter().enumerate().map(|(s, stage)| {
        let bounds: Vec<u32> = (0..=workers).map(|c| base(stage.n, workers, c)).collect();
        let read = s + 1 < graph.stages.len();
        let mut posts = vec![0; if read { stage.n.div_ceil(COLUMN_TILE) as usize } else { 0 }];
        if read {
            for share in bounds.windows(2) {
                column_tiles(&(share[0]..share[1])).for_each(|t| posts[t as usize] += 1);
            }
        }
        let slot_base = slots;
        slots += posts.len() as u32;
        DecodeStage { bounds, slot_base, posts }
    });
    let stages = stages.collect();
    Ok(Decode { workers, stages, predicted_us: predicted_us(graph, device) })
}

/// The streams of weights one after the other, with a hand-off between them.
fn predicted_us(graph: &Graph, device: &Device) -> f64 {
    let cost = device.cost_model();
    let bytes: f64 = graph
        .stages
        .iter()
        .flat_map(|s| &s.operands)
        .map(|o| &graph.tensors[o.tensor.0])
        .map(|t| 2.0 * f64::from(t.rows) * f64::from(t.cols))
        .sum();
    let hand_offs = graph.stages.len().saturating_sub(1) as f64;
    bytes / (cost.read_tbs * 1e6) + cost.launch_us + hand_offs * (cost.post_us + cost.handoff_us)
}

impl Decode {
    /// Slots of all stages.
    pub fn slot_count(&self) -> u32 {
        self.stages.iter().map(|s| s.posts.len() as u32).sum()
    }
}
