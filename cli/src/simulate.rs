//! `cusync simulate`: predicts the time of every executor.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use cusync::runtime::executor_name;
use cusync_gen::check::Executor;
use cusync_gen::choose::{self, space::executors};
use cusync_gen::device::Profile;
use cusync_gen::emit::StageView;
use cusync_gen::graph::Resolved;
use cusync_gen::simulate::simulate as predict;
use serde::Serialize;

use super::against::against;
use super::fault::Fault;
use super::print::{Answer, Page, json};
use super::prove::{Proof, resolve_runnable};
use super::report::{ObstacleReport, obstacles, title};
use super::target::{PlanArgs, Target, TargetArgs};
use super::trace;

#[derive(Args)]
pub(crate) struct SimulateArgs {
    /// A RON file, or the name of a shipped pipeline; with --against, the only pipeline to compare
    #[arg(value_name = "FILE", required_unless_present = "against")]
    file: Option<String>,
    #[command(flatten)]
    plan: PlanArgs,
    /// Write the predicted timelines: to a page (.html) or for Perfetto (.json)
    #[arg(short, long, value_name = "FILE", value_parser = trace::timeline_file, conflicts_with = "against")]
    output: Option<PathBuf>,
    /// Predict the times measured by `cusync bench mlp --save RECORD`; FILE, --dim and --executor select
    /// among them
    #[arg(long, value_name = "RECORD")]
    against: Option<PathBuf>,
}

#[derive(Serialize)]
pub(crate) struct PredictedTime {
    pub(crate) executor: &'static str,
    /// The kind of kernel or launch.
    pub(crate) kernel: &'static str,
    pub(crate) time_us: f64,
    /// Speedup over `serial`, if that has a kernel for every stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) speedup: Option<f64>,
    pub(crate) stages: Vec<StageView>,
}

#[derive(Serialize)]
pub(crate) struct SimulateReport {
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) device: String,
    /// Source of the device's numbers.
    pub(crate) source: String,
    /// Requested executor, or `auto`: each executor's own choices.
    pub(crate) chosen_for: &'static str,
    /// Executor with the shortest time.
    pub(crate) best: Option<&'static str>,
    pub(crate) times: Vec<PredictedTime>,
    /// Obstacles that keep executors from running it.
    pub(crate) obstacles: Vec<ObstacleReport>,
}

impl Answer for SimulateReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(format!(
            "{} on {}, each executor with its own choices",
            title(&self.pipeline, &self.dims),
            self.device
        ));
        let span = |t: &PredictedTime| -> String {
            let interval = |s: &StageView| Some(format!("{} {:.1}-{:.1}", s.name, s.begin_us?, s.end_us?));
            t.stages.iter().filter_map(interval).collect::<Vec<_>>().join(", ")
        };
        page.table(
            ["executor", "runs", "predicted us", "speed-up", "stages, begin-end us"],
            self.times.iter().map(|t| {
                let name = if self.best == Some(t.executor) { "(best)" } else { "" };
                let name = format!("{} {name}", t.executor).trim_end().to_owned();
                let speedup = t.speedup.map_or_else(|| "-".into(), |s| format!("{s:.2}x"));
                [name, t.kernel.into(), format!("{:.1}", t.time_us), speedup, span(t)]
            }),
        );
        page.line(format!("profile: {}", self.source));
    }
}

pub(crate) fn simulate(args: SimulateArgs) -> Result<Box<dyn Answer>, Fault> {
    let SimulateArgs { file, plan, output, against: record } = args;
    if let Some(record) = record {
        return Ok(Box::new(against(file, plan, record)?));
    }
    let target = &TargetArgs { file: file.unwrap_or_default(), plan }.resolve()?;
    let resolved = resolve_runnable(target)?;
    if target.executor == Some(Executor::Cpu) {
        return Err(trace::unpredicted());
    }
    let proofs = proofs(target, &resolved)?;
    if let Some(file) = &output {
        trace::write(&trace::timeline(&proofs)?, file)?;
    }
    // Common to all: time of the best serial chain.
    let serial = proofs.iter().find(|proof| proof.executor == Executor::Serial);
    let serial_us = serial.and_then(|proof| Some(proof.predicted()?.synchronised_us));
    let time = |proof: &Proof| time(proof, &target.device, serial_us);
    let times: Vec<PredictedTime> = proofs.iter().filter_map(time).collect();
    let best = times.iter().min_by(|a, b| a.time_us.total_cmp(&b.time_us)).map(|t| t.executor);
    Ok(Box::new(SimulateReport {
        pipeline: resolved.name.clone(),
        dims: resolved.dims.iter().cloned().collect(),
        device: target.device.name.clone(),
        source: target.device.source.clone(),
        chosen_for: target.executor.map_or("auto", executor_name),
        best,
        times,
        obstacles: obstacles(&resolved, &target.device),
    }))
}

/// Proved choices of the requested executors, and of `serial` for comparison.
fn proofs(target: &Target, resolved: &Resolved) -> Result<Vec<Proof>, Fault> {
    let runs = |executor: &Executor| choose::obstacle(resolved, &target.device, *executor).is_none();
    let mut chosen: Vec<Executor> = executors(&target.device).into_iter().filter(runs).collect();
    if let Some(stated) = target.executor {
        chosen.retain(|executor| *executor == Executor::Serial);
        if stated == Executor::Library && target.device.library.is_none() {
            let message = format!("the profile of {} has no times of cuBLASLt", target.device.name);
            return Err(Fault::input("no-library-times", message)
                .help("choose another executor, or a profile with `library`"));
        }
        if stated != Executor::Serial || chosen.is_empty() {
            chosen.push(stated);
        }
    }
    let proofs = chosen.into_iter().map(|executor| Proof::for_executor(target, Some(executor)));
    let (proved, refuted): (Vec<Proof>, Vec<Proof>) =
        proofs.collect::<Result<Vec<_>, _>>()?.into_iter().partition(Proof::proved);
    let asked = |proof: &&Proof| target.executor == Some(proof.executor);
    let first = refuted.iter().find(|proof| proved.is_empty() || asked(proof));
    first.and_then(Proof::refuted).map_or(Ok(proved), Err)
}

/// Predicted time of an executor's own choices.
fn time(proof: &Proof, device: &Profile, serial_us: Option<f64>) -> Option<PredictedTime> {
    let (candidate, predicted) = (proof.candidate(), proof.predicted()?);
    let mut stages = StageView::from_graph(&candidate.graph, &candidate.launch, device);
    for (stage, (begin_us, end_us)) in stages.iter_mut().zip(predict(candidate).stages) {
        (stage.begin_us, stage.end_us) = (Some(begin_us), Some(end_us));
    }
    Some(PredictedTime {
        executor: executor_name(proof.executor),
        kernel: predicted.kernel,
        time_us: predicted.synchronised_us,
        speedup: serial_us.map(|us| us / predicted.synchronised_us),
        stages,
    })
}
