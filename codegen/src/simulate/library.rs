//! Matrix products by cuBLASLt, for which only sizes are known.

use super::PredictedRun;
use crate::check::Candidate;
use crate::device::{LibraryCost, Profile};
use crate::graph::{Op, Stage};

/// Tiles of the library's kernels, output rows and columns.
const TILES: [(u32, u32); 8] =
    [(64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 192), (128, 256), (256, 128)];

/// Bytes of an element.
const ELEMENT: f64 = 2.0;

/// The serial chain with each stage run by the faster of our kernel and the library's, which has unknown tiles.
pub(super) fn chain(candidate: &Candidate, mut serial: PredictedRun) -> PredictedRun {
    let (graph, device) = (&candidate.graph, &candidate.device);
    let Some(cost) = &device.library else { return serial };
    let mut gained = 0.0;
    let mut before = 0.0;
    for kernel in candidate.launch.kernels() {
        let stage = &graph.stages[kernel.stage.0];
        let (begin, end) = serial.stages[kernel.stage.0];
        let opened = if before > 0.0 { before + device.boundary_us } else { 0.0 };
        let own = end - opened;
        let by_library = stage.in_library().then(|| stage_us(stage, cost, device));
        let faster = by_library.filter(|us| *us < own);
        serial.tiles.retain(|tile| tile.stage != kernel.stage || faster.is_none());
        for tile in serial.tiles.iter_mut().filter(|tile| tile.stage == kernel.stage) {
            (tile.start, tile.end) = (tile.start - gained, tile.end - gained);
        }
        let span = &mut serial.stages[kernel.stage.0];
        *span = (begin - gained, end - gained);
        if let Some(us) = faster {
            *span = (opened - gained, opened - gained + us);
            gained += own - us;
        }
        before = end;
    }
    serial.total_us -= gained;
    serial
}

/// A stage's time: a product in its best tile, limited by the rate of the SMs that have one or by memory reads, plus
/// gating or rotating as a separate kernel.
fn stage_us(stage: &Stage, cost: &LibraryCost, device: &Profile) -> f64 {
    let columns = if stage.op.is_gated() { 2 * stage.n } else { stage.n };
    let (m, n, k) = (f64::from(stage.m), f64::from(columns), f64::from(stage.k));
    let bytes = ELEMENT * (m * k + k * n + m * n);
    let sms = u64::from(device.sms.max(1));
    let tile_us = |(rows, cols): (u32, u32)| {
        let tiles = u64::from(stage.m.div_ceil(rows)) * u64::from(columns.div_ceil(cols));
        let flop = 2.0 * f64::from(rows) * f64::from(cols) * k;
        let arithmetic_us = tiles.div_ceil(sms) as f64 * flop / (cost.sm_tflops * 1e6);
        let most_tbs = cost.sm_read_gbs.map_or(f64::INFINITY, |gbs| tiles.min(sms) as f64 * gbs * 1e-3);
        arithmetic_us.max(bytes / (cost.read_tbs.min(most_tbs) * 1e6))
    };
    let product_us = TILES.into_iter().map(tile_us).fold(f64::INFINITY, f64::min);
    let gated_us = if stage.op.is_gated() { moving_us(1.5 * m * n, device) } else { 0.0 };
    cost.launch_us + product_us + gated_us + rotation_us(stage, device)
}

/// The time of the kernel that rotates the heads of a product; 0 for other stages.
pub(super) fn rotation_us(stage: &Stage, device: &Profile) -> f64 {
    match &stage.op {
        Op::RotatedGemm(rotated) => {
            moving_us(2.0 * f64::from(stage.m) * f64::from(rotated.columns()), device)
        }
        Op::Gemm(_)
        | Op::GatedGemm(_)
        | Op::NormedGemm(_)
        | Op::Conv2d(_)
        | Op::GroupedConv(_)
        | Op::Attention(_)
        | Op::Attend(_)
        | Op::Norm(_)
        | Op::GroupNorm(_)
        | Op::Pool(_)
        | Op::Experts(_)
        | Op::Custom => 0.0,
    }
}

/// A boundary, and the time of a kernel that reads and writes this many elements in all.
fn moving_us(elements: f64, device: &Profile) -> f64 {
    device.boundary_us + ELEMENT * elements / (device.read_tbs * 1e6)
}
