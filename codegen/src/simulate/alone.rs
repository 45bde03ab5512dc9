//! Normalizations, grouped convolutions, attentions and mixtures of experts that run alone, by kernels without lists.

use crate::device::{AloneCost, Profile};
use crate::graph::{Attention, Op, OperandKind, Stage};
use crate::schedule::WorkerTimes;

/// Bytes of an element.
const ELEMENT: f64 = 2.0;

/// Queries per tile, and steps that its warpgroups run in parallel (`csrc/kernels/attention/sm90/alone.cu`).
const QUERIES: u32 = 64;
const SIDE_BY_SIDE: u32 = 2;

/// The time of such a stage without the boundary; 0 for other operations.
pub(super) fn stage_us(stage: &Stage, device: &Profile) -> f64 {
    let cost = &device.fused.alone;
    let memory_us = |elements: f64| ELEMENT * elements / (device.read_tbs * 1e6);
    match &stage.op {
        Op::Norm(_) | Op::GroupNorm(_) => {
            cost.norm_us + memory_us(2.0 * f64::from(stage.m) * f64::from(stage.n))
        }
        Op::GroupedConv(conv) => {
            let residual = f64::from(u8::from(stage.operand(OperandKind::Residual).is_some()));
            let outputs = f64::from(stage.m) * f64::from(stage.n);
            cost.norm_us + memory_us(conv.image_elements(stage.n) + (1.0 + residual) * outputs)
        }
        Op::Experts(experts) => {
            let (rows, width) = (f64::from(stage.m), f64::from(experts.width));
            let (pairs, features) = (rows * f64::from(experts.top_k), f64::from(experts.features));
            let weights = 3.0 * experts.expected(stage.m) * features * width;
            let moved_us = memory_us(weights + 2.0 * rows * width + 2.0 * pairs * (features + width));
            let arithmetic_us = 6.0 * pairs * features * width / (cost.experts_rate * device.tflops * 1e6);
            cost.experts_us + moved_us.max(arithmetic_us)
        }
        Op::Attention(attention) => {
            let kept = attention.cache.map_or(0, |_| 2 * attention.heads.kv * attention.heads.dim);
            let appended_us = memory_us(2.0 * f64::from(stage.m) * f64::from(kept));
            attention_us(stage, attention, (cost, device.sms)) + appended_us
        }
        Op::Gemm(_)
        | Op::GatedGemm(_)
        | Op::NormedGemm(_)
        | Op::RotatedGemm(_)
        | Op::Conv2d(_)
        | Op::Attend(_)
        | Op::Pool(_)
        | Op::Custom => 0.0,
    }
}

/// The tiles with the most steps first, each on the first free SM.
fn attention_us(stage: &Stage, attention: &Attention, (cost, sms): (&AloneCost, u32)) -> f64 {
    let ((rows, _, step), dim) = (stage.mma_tile, attention.heads.dim);
    let halves = rows.div_ceil(QUERIES);
    let cached = attention.cached_steps(step);
    let seen = |m| (cached + stage.k_blocks_of(m)).saturating_sub(attention.hidden_steps(m, rows, step));
    let mut steps: Vec<u32> = (0..stage.grid.0).map(seen).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    let tiles = steps.into_iter().flat_map(|steps| (0..halves * stage.grid.1).map(move |_| steps));
    let mut workers = WorkerTimes::new(sms as usize, cost.launch_us);
    let round_us = cost.softmax_us + cost.columns_us * f64::from(dim.div_ceil(64));
    workers.hand_out(tiles, |steps, _, free| {
        free + cost.tile_us + f64::from(steps.div_ceil(SIDE_BY_SIDE)) * round_us
    });
    workers.end()
}
