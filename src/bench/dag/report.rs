//! What the kernel-level benchmark writes down.

use serde::{Deserialize, Serialize};

use super::suite::Size;
use crate::bench::Regime;
use crate::dag::Form;
use crate::runtime::Summary;

/// A variant of a program in a regime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DagRecord {
    /// Such as `branch graph`.
    pub variant: String,
    /// Whether it is something else that a user could run.
    pub peer: bool,
    /// Ours: the form.
    pub form: Option<Form>,
    /// Regime.
    pub regime: Regime,
    /// Time of one run on the GPU, from the first thing queued to the end of the last.
    #[serde(flatten)]
    pub time: Summary,
    /// Serial launches over this.
    pub speedup: f64,
    /// Median time of the host's call that queues a run, microseconds.
    pub host_us: f64,
}

/// A program at a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DagPoint {
    /// Benchmark.
    pub name: String,
    /// Size class; `None` for random programs.
    pub class: Option<Size>,
    /// Sizes in words.
    pub size: String,
    /// Nodes of the program.
    pub kernels: usize,
    /// Dependences.
    pub edges: usize,
    /// After transitive reduction.
    pub reduced_edges: usize,
    /// Streams of the distribution.
    pub streams: usize,
    /// Waits between them.
    pub waits: usize,
    /// Measured durations of the kernels, each alone, microseconds.
    pub kernel_us: Vec<f64>,
    /// KeSCo's speed-up over serial launches on an A100.
    pub kesco: Option<f64>,
    /// What the cost model predicts for each form, microseconds.
    pub predicted: Vec<(Form, f64)>,
    /// What the cost model chooses, from the measured durations.
    pub model: Form,
    /// What a short measurement before this one chose.
    pub tuned: Form,
    /// Every variant in every regime.
    pub records: Vec<DagRecord>,
}

impl DagPoint {
    /// The time of ours, and of the best peer, in a regime, microseconds.
    pub fn ours_and_best_peer(&self, form: Form, regime: Regime) -> Option<(f64, f64)> {
        let here = || self.records.iter().filter(move |r| r.regime == regime);
        let ours = here().find(|r| r.form == Some(form))?.time.median_us;
        let peers = here().filter(|r| r.peer).map(|r| r.time.median_us);
        Some((ours, peers.min_by(f64::total_cmp)?))
    }

    /// Serial launches over ours.
    pub fn speedup(&self, form: Form, regime: Regime) -> Option<f64> {
        self.records.iter().find(|r| r.regime == regime && r.form == Some(form)).map(|r| r.speedup)
    }
}

/// A way of running a chain of dependent kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChainRecord {
    /// Kernels.
    pub kernels: usize,
    /// CTAs of each.
    pub ctas: u32,
    /// What each was meant to take, microseconds.
    pub target_us: f64,
    /// How much longer a CTA may take than that.
    pub uneven_us: f64,
    /// Whether each CTA needs its neighbours' results too, not only those of one other.
    pub neighbours: bool,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Whether it is what the schedule of kernels that can wait for tiles chooses.
    pub chosen: bool,
    /// What its first CTA took, from its first instruction after waiting to its last, microseconds, median.
    pub body_us: f64,
    /// Variant.
    pub variant: String,
    /// Time of the chain.
    #[serde(flatten)]
    pub time: Summary,
    /// Time between the end of a kernel's first CTA and the beginning of the next kernel's, microseconds, mean over the chain.
    pub idle_us: f64,
    /// Time of the chain less the bodies, a kernel, microseconds.
    pub overhead_us: f64,
    /// The arithmetic alone of the chain's critical path, microseconds: of kernels, and of tiles.
    pub bounds_us: [f64; 2],
}

/// A way of running several tasks together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskRecord {
    /// `MP-1` or `MP-2`.
    pub mix: String,
    /// Variant.
    pub variant: String,
    /// Whether the cost model chooses it.
    pub chosen: bool,
    /// Time of all.
    #[serde(flatten)]
    pub time: Summary,
    /// Each task, the highest priority first: its name, and from the start of all to its end, median microseconds.
    pub tasks: Vec<(String, f64)>,
    /// The same when it runs alone in the same form.
    pub alone_us: Vec<f64>,
}

/// Random programs run with injected delays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExactRecord {
    /// Programs.
    pub programs: usize,
    /// Kernels of all of them.
    pub kernels: usize,
    /// Runs of programs: forms, each with delays of its own.
    pub runs: usize,
    /// Runs whose result differed from the host's in a bit.
    pub wrong: Vec<String>,
}

/// The whole benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DagReport {
    /// GPU.
    pub device: String,
    /// The suite and random programs.
    pub points: Vec<DagPoint>,
    /// Chains of dependent kernels.
    pub chains: Vec<ChainRecord>,
    /// Tasks with priorities.
    pub tasks: Vec<TaskRecord>,
    /// Bit-exactness.
    pub exact: Option<ExactRecord>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    /// Variants whose results were wrong: they were not timed.
    pub wrong: Vec<String>,
}
