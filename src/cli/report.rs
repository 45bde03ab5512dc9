//! What commands answer. The JSON forms are a stable contract: docs/json.md.

use std::collections::BTreeMap;

use cusync::bench::dag::DagReport;
use cusync::bench::{MlpReport, SemaphoreCost, SweepReport};
use cusync::trace::TraceReport;
use serde::Serialize;

use super::against::AgainstReport;
use super::calibrate::CalibrateReport;
use super::schedule::ProgramReport;

use super::tune::TuneReport;

/// An answer.
pub(crate) enum Report {
    Check(CheckReport),
    Explain(ExplainReport),
    Generate(GenerateReport),
    Simulate(SimulateReport),
    Against(Box<AgainstReport>),
    Run(Box<RunReport>),
    Bench(BenchReport),
    Trace(Box<TraceReport>),
    Tune(Box<TuneReport>),
    Calibrate(Box<CalibrateReport>),
    Schedule(Box<ProgramReport>),
    Doctor(DoctorReport),
}

#[derive(Serialize)]
pub(crate) struct ObligationReport {
    pub(crate) id: &'static str,
    pub(crate) verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counterexample: Option<String>,
}

/// The work lists of the fused executor.
#[derive(Serialize)]
pub(crate) struct ScheduleReport {
    /// `static` or `dynamic`.
    pub(crate) mode: &'static str,
    /// MMA tile of a CTA.
    pub(crate) tile: [u32; 3],
    /// CTAs of a worker.
    pub(crate) cluster: [u32; 2],
    pub(crate) workers: usize,
    pub(crate) items: usize,
    pub(crate) longest_list: usize,
    /// Tiles that are split along k, and the parts of all of them.
    pub(crate) split_tiles: usize,
    pub(crate) parts: usize,
    pub(crate) slabs: u32,
    pub(crate) predicted_us: f64,
    /// Where a worker's predicted time goes, on average.
    pub(crate) shares: Option<TimeReport>,
}

/// What a worker does with its time, microseconds; the sum is the length of the schedule.
#[derive(Serialize)]
pub(crate) struct TimeReport {
    pub(crate) math_us: f64,
    /// Ring fills and epilogues.
    pub(crate) fixed_us: f64,
    pub(crate) wait_us: f64,
    /// Slabs written and added.
    pub(crate) split_us: f64,
    pub(crate) idle_us: f64,
}

/// The plan of a decode kernel.
#[derive(Serialize)]
pub(crate) struct DecodeReport {
    pub(crate) workers: u32,
    /// Tokens of the kernel.
    pub(crate) width: u32,
    /// Columns that a slot stands for.
    pub(crate) column_tile: u32,
    pub(crate) slots: u32,
    pub(crate) predicted_us: f64,
}

#[derive(Serialize)]
pub(crate) struct CheckReport {
    pub(crate) verdict: &'static str,
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) device: String,
    pub(crate) executor: &'static str,
    pub(crate) obligations: Vec<ObligationReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<ScheduleReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decode: Option<DecodeReport>,
    /// For people.
    #[serde(skip)]
    pub(crate) refutations: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct StageReport {
    pub(crate) name: String,
    pub(crate) shape: [u32; 3],
    pub(crate) tile: [u32; 3],
    pub(crate) grid: [u32; 2],
    pub(crate) tiles: u32,
    pub(crate) k_blocks: u32,
    pub(crate) waves: f64,
    pub(crate) order: String,
}

#[derive(Serialize)]
pub(crate) struct EdgeReport {
    pub(crate) name: String,
    pub(crate) operand: String,
    pub(crate) policy: String,
    pub(crate) wait_at: String,
    pub(crate) slots: u32,
}

#[derive(Serialize)]
pub(crate) struct ChoiceReport {
    pub(crate) subject: String,
    pub(crate) decision: String,
    pub(crate) stated: bool,
    pub(crate) reason: String,
    pub(crate) alternatives: Vec<(String, f64)>,
}

#[derive(Serialize)]
pub(crate) struct PredictionReport {
    pub(crate) device: String,
    pub(crate) executor: &'static str,
    pub(crate) serial_us: f64,
    pub(crate) synchronised_us: f64,
}

#[derive(Serialize)]
pub(crate) struct ExplainReport {
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) device: String,
    pub(crate) executor: &'static str,
    pub(crate) start: String,
    pub(crate) stages: Vec<StageReport>,
    pub(crate) edges: Vec<EdgeReport>,
    pub(crate) choices: Vec<ChoiceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<ScheduleReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decode: Option<DecodeReport>,
    pub(crate) predicted: Option<PredictionReport>,
}

#[derive(Serialize)]
pub(crate) struct GenerateReport {
    pub(crate) pipeline: String,
    pub(crate) files: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct OutputReport {
    pub(crate) tensor: String,
    pub(crate) max_rel_err: f64,
    pub(crate) rel_l2_err: f64,
    pub(crate) verified: bool,
}

/// One executor of a run on a GPU.
#[derive(Serialize)]
pub(crate) struct VariantReport {
    pub(crate) executor: String,
    pub(crate) verified: bool,
    pub(crate) max_rel_err: f64,
    pub(crate) rel_l2_err: f64,
    pub(crate) time_us: f64,
    pub(crate) p10_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) speedup: Option<f64>,
    /// Where its choices come from: `predicted`, or when and where it was tuned.
    pub(crate) plan: String,
}

#[derive(Serialize)]
pub(crate) struct RunReport {
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) element: &'static str,
    pub(crate) device: String,
    pub(crate) executor: String,
    pub(crate) verified: bool,
    pub(crate) max_rel_err: f64,
    pub(crate) rel_l2_err: f64,
    pub(crate) time_us: f64,
    /// Where its choices come from: `predicted`, or when and where it was tuned.
    pub(crate) plan: String,
    pub(crate) obligations: Vec<ObligationReport>,
    pub(crate) stages: Vec<StageReport>,
    pub(crate) edges: Vec<EdgeReport>,
    pub(crate) outputs: Vec<OutputReport>,
    /// Executors side by side; empty on the host.
    pub(crate) variants: Vec<VariantReport>,
    pub(crate) threads: Option<usize>,
    pub(crate) waits_blocked: Option<u64>,
    pub(crate) predicted: Option<PredictionReport>,
    /// Why it ran where it ran.
    pub(crate) note: Option<String>,
    /// For people.
    #[serde(skip)]
    pub(crate) timeline: Vec<String>,
}

/// When a stage's first tile begins and its last ends, as predicted.
#[derive(Serialize)]
pub(crate) struct PredictedStage {
    pub(crate) name: String,
    pub(crate) begin_us: f64,
    pub(crate) end_us: f64,
}

#[derive(Serialize)]
pub(crate) struct PredictedTime {
    pub(crate) executor: &'static str,
    pub(crate) time_us: f64,
    pub(crate) speedup: f64,
    pub(crate) stages: Vec<PredictedStage>,
}

#[derive(Serialize)]
pub(crate) struct SimulateReport {
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) device: String,
    /// Where the device's numbers come from.
    pub(crate) source: String,
    pub(crate) chosen_for: &'static str,
    pub(crate) times: Vec<PredictedTime>,
}

/// A benchmark's records.
pub(crate) enum BenchReport {
    Mlp(Box<MlpReport>),
    Sweep(Box<SweepReport>),
    Dag(Box<DagReport>),
    Sync(SemaphoreCost),
}

#[derive(Serialize)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    pub(crate) ok: bool,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct DoctorReport {
    pub(crate) findings: Vec<Finding>,
}
