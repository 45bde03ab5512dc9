//! What the kernel-level benchmark writes down.

use cusync_dag::Form;
use serde::{Deserialize, Serialize};

use super::suite::Size;
use crate::Regime;
use cusync::runtime::Summary;

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

/// A choice of ours held against a peer, in turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contest {
    /// Ours.
    pub form: Form,
    /// Regime.
    pub regime: Regime,
    /// The peer's variant.
    pub peer: String,
    /// Median of ours, microseconds of one run.
    pub ours_us: f64,
    /// Median of the peer's, microseconds of one run.
    pub peer_us: f64,
    /// Median over rounds of the peer's time over ours of the same round: above 1, ours is faster.
    pub ratio: f64,
    /// Lower end of the interval of that median, 95 of 100.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Rounds.
    pub rounds: usize,
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
    /// CTAs of each node, how many of them an SM holds, and bytes moved to and from device memory; zeros for copies.
    #[serde(default)]
    pub shapes: Vec<(u64, u32, u64)>,
    /// KeSCo's speed-up over serial launches on an A100.
    pub kesco: Option<f64>,
    /// What the cost model predicts for each form, microseconds.
    pub predicted: Vec<(Form, f64)>,
    /// What the cost model chooses, from the measured durations.
    pub model: Form,
    /// What a measurement before this one chose: least in the regime in which it is worst.
    pub tuned: Form,
    /// Both choices against the best peers.
    #[serde(default)]
    pub contests: Vec<Contest>,
    /// The longest path of kernels, by `kernel_us`, microseconds: less is impossible.
    #[serde(default)]
    pub critical_us: f64,
    /// What one more independent copy of the program adds when several run together, each with memory of its own,
    /// microseconds: the GPU being full, no schedule of one copy can be faster. Of programs that fill the GPU only: others
    /// would measure what their many first nodes cost.
    #[serde(default)]
    pub saturated_us: Option<f64>,
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

    /// The contest of a form with the peer that is best against it.
    pub fn hardest(&self, form: Form, regime: Regime) -> Option<&Contest> {
        let here = self.contests.iter().filter(|c| c.form == form && c.regime == regime);
        here.min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// The least time that any schedule of it can take, microseconds.
    pub fn bound_us(&self) -> f64 {
        f64::max(self.critical_us, self.saturated_us.unwrap_or(0.0))
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
    /// Whether the measurement before this one chose it.
    #[serde(default)]
    pub tuned: bool,
    /// The node of the task of highest priority after which the others begin; none: at once.
    #[serde(default)]
    pub gate: Option<String>,
    /// Time of all.
    #[serde(flatten)]
    pub time: Summary,
    /// Each task, the highest priority first: its name, and from the start of all to its end, median microseconds.
    pub tasks: Vec<(String, f64)>,
    /// The same when it runs alone in the same form.
    pub alone_us: Vec<f64>,
    /// The same when it runs alone in the form that is fastest for it.
    #[serde(default)]
    pub alone_best_us: Vec<f64>,
    /// Median over rounds of the highest task's end over its end alone, in its fastest form, in the same round.
    #[serde(default)]
    pub highest: f64,
    /// The least over the other tasks of their fastest time alone over their end here, in fair shares (one of as many equal
    /// parts as there are tasks).
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
    /// The node after which the others begin; none: at once.
    pub gate: Option<String>,
    /// As [`TaskRecord::highest`].
    pub highest: f64,
    /// As [`TaskRecord::share`].
    pub share: f64,
    /// From the start to the last task's end, median microseconds.
    pub total_us: f64,
    /// What the model expects of `highest`.
    pub predicted: f64,
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
    /// What was not measured, and why.
    #[serde(default)]
    pub skipped: Vec<String>,
    /// Variants whose results were wrong: they were not timed.
    #[serde(default)]
    pub wrong: Vec<String>,
}
