//! Records of the kernel-level benchmark.

use cusync_dag::Form;
use serde::{Deserialize, Serialize};

use super::suite::SizeClass;
use crate::Regime;
use cusync::runtime::Summary;

/// A variant of a program in a regime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DagRecord {
    /// Name, such as `branch graph`.
    pub variant: String,
    /// Whether it is an alternative available to users.
    pub peer: bool,
    /// The id of the form, for one of ours. Old records have forms that are not offered any more.
    pub form: Option<String>,
    /// Regime.
    pub regime: Regime,
    /// Time of one run on the GPU, from the start of the first work to the end of the last.
    #[serde(flatten)]
    pub time: Summary,
    /// Speedup over serial launches.
    pub speedup: f64,
    /// Median time of the host call that queues a run, microseconds.
    pub host_us: f64,
}

/// A choice of ours timed against a peer, in turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contest {
    /// The id of our form.
    pub form: String,
    /// Regime.
    pub regime: Regime,
    /// Variant of the peer.
    pub peer: String,
    /// Our median, microseconds per run.
    pub ours_us: f64,
    /// Median of the peer, microseconds per run.
    pub peer_us: f64,
    /// Median over rounds of the peer's time over ours in the same round: above 1, ours is faster.
    pub ratio: f64,
    /// Lower end of the 95 % confidence interval of that median.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Rounds.
    pub rounds: usize,
}

/// What a node occupies.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NodeShape {
    /// CTAs.
    pub ctas: u64,
    /// CTAs that fit an SM.
    pub ctas_per_sm: u32,
    /// Bytes moved to and from device memory.
    pub traffic_bytes: u64,
}

/// A program at a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DagPoint {
    /// Benchmark.
    pub name: String,
    /// Size class; `None` for random programs.
    pub class: Option<SizeClass>,
    /// Sizes as text.
    pub size: String,
    /// Number of nodes in the program.
    pub kernels: usize,
    /// Number of dependences.
    pub edges: usize,
    /// Number after transitive reduction.
    pub reduced_edges: usize,
    /// Streams of the distribution.
    pub streams: usize,
    /// Waits between them.
    pub waits: usize,
    /// Measured durations of the kernels, each alone, microseconds.
    pub kernel_us: Vec<f64>,
    /// The shape of each node; zeros for copies.
    pub shapes: Vec<NodeShape>,
    /// KeSCo's speedup over serial launches on an A100.
    pub kesco: Option<f64>,
    /// Predicted time of each form, microseconds.
    pub predicted: Vec<(String, f64)>,
    /// Choice of the scheduler from the measured durations.
    pub model: String,
    /// Choice of an earlier measurement: smallest ratio in its worst regime.
    pub tuned: String,
    /// Both choices against the best peers.
    #[serde(default)]
    pub contests: Vec<Contest>,
    /// Longest path of kernels, by `kernel_us`, microseconds: a lower bound.
    #[serde(default)]
    pub critical_us: f64,
    /// Time that one more independent copy of the program adds when several run together, each with its own
    /// memory, microseconds: the GPU is then full, so no schedule of one copy can be faster. Only for
    /// programs that fill the GPU: others would measure the cost of their many first nodes.
    #[serde(default)]
    pub saturated_us: Option<f64>,
    /// Every variant in every regime.
    pub records: Vec<DagRecord>,
}

impl DagPoint {
    /// Contest of a form against its strongest peer.
    pub fn hardest(&self, form: &str, regime: Regime) -> Option<&Contest> {
        let here = self.contests.iter().filter(|c| c.form == form && c.regime == regime);
        here.min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// Lower bound of any schedule's time, microseconds.
    pub fn bound_us(&self) -> f64 {
        f64::max(self.critical_us, self.saturated_us.unwrap_or(0.0))
    }

    /// Our speedup over serial launches.
    pub fn speedup(&self, form: &str, regime: Regime) -> Option<f64> {
        self.records.iter().find(|r| r.regime == regime && r.form.as_deref() == Some(form)).map(|r| r.speedup)
    }
}

/// A way of running a chain of dependent kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChainRecord {
    /// Number of kernels.
    pub kernels: usize,
    /// CTAs per kernel.
    pub ctas: u32,
    /// Intended duration of each kernel, microseconds.
    pub target_us: f64,
    /// Maximum additional time of a CTA.
    pub uneven_us: f64,
    /// Whether each CTA needs its neighbors' results too, not only those of one other CTA.
    pub neighbours: bool,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Whether it is the schedule's choice for kernels that can wait for tiles.
    pub chosen: bool,
    /// Median duration of its first CTA, from the first instruction after waiting to the last, microseconds.
    pub body_us: f64,
    /// Variant.
    pub variant: String,
    /// Time of the chain.
    #[serde(flatten)]
    pub time: Summary,
    /// From the end of a kernel's first CTA to the start of the next kernel's, microseconds, mean over the
    /// chain.
    pub idle_us: f64,
    /// Time of the chain less the bodies, per kernel, microseconds.
    pub overhead_us: f64,
    /// Duration of the arithmetic alone on the chain's critical path, microseconds: by kernels, and by tiles.
    pub bounds_us: [f64; 2],
}

/// A way of running several tasks together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskRecord {
    /// `MP-1` or `MP-2`.
    pub mix: String,
    /// Variant.
    pub variant: String,
    /// Whether it is the automatic choice.
    pub chosen: bool,
    /// Whether it is the choice of an earlier measurement.
    #[serde(default)]
    pub tuned: bool,
    /// Node of the highest-priority task after which the others begin; `None`: at once.
    #[serde(default)]
    pub gate: Option<String>,
    /// Time of all tasks.
    #[serde(flatten)]
    pub time: Summary,
    /// Each task, highest priority first: its name, and the median time from the common start to its end,
    /// microseconds.
    pub tasks: Vec<(String, f64)>,
    /// Time of each task alone in the same form.
    pub alone_us: Vec<f64>,
    /// Time of each task alone in its fastest form.
    #[serde(default)]
    pub alone_best_us: Vec<f64>,
    /// Median over rounds of the highest-priority task's end relative to its end alone, in its fastest form,
    /// in the same round.
    #[serde(default)]
    pub highest: f64,
    /// Minimum over the other tasks of their fastest time alone divided by their end here, in fair shares
    /// (one of as many equal parts as there are tasks).
    #[serde(default)]
    pub share: f64,
}

/// A gate that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GateRecord {
    /// `MP-1` or `MP-2`.
    pub mix: String,
    /// Form.
    pub form: Form,
    /// Node after which the others begin; `None`: at once.
    pub gate: Option<String>,
    /// As [`TaskRecord::highest`].
    pub highest: f64,
    /// As [`TaskRecord::share`].
    pub share: f64,
    /// From the start to the last task's end, median microseconds.
    pub total_us: f64,
    /// Predicted value of `highest`.
    pub predicted: f64,
}

/// Random programs run with injected delays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExactRecord {
    /// Number of programs.
    pub programs: usize,
    /// Total number of kernels.
    pub kernels: usize,
    /// Number of runs: forms, each with its own delays.
    pub runs: usize,
    /// Runs whose result differed from the host's in any bit.
    pub wrong: Vec<String>,
}

/// Results of the whole benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DagReport {
    /// GPU.
    pub device: String,
    /// The suite and random programs.
    #[serde(default)]
    pub points: Vec<DagPoint>,
    /// Chains of dependent kernels.
    #[serde(default)]
    pub chains: Vec<ChainRecord>,
    /// Tasks with priorities.
    #[serde(default)]
    pub tasks: Vec<TaskRecord>,
    /// Gates that were tried for them.
    #[serde(default)]
    pub gates: Vec<GateRecord>,
    /// Bit-exactness.
    #[serde(default)]
    pub exact: Option<ExactRecord>,
    /// Skipped measurements, with reasons.
    #[serde(default)]
    pub skipped: Vec<String>,
    /// Variants with wrong results; they were not timed.
    #[serde(default)]
    pub wrong: Vec<String>,
}
