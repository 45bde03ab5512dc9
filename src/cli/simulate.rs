//! `cusync simulate`: what the model predicts for every executor.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use cusync::runtime::executor_name;
use cusync_gen::check::Executor;
use cusync_gen::choose;
use cusync_gen::simulate::{simulate as predict, simulate_serial};
use serde::Serialize;

use super::against::against;
use super::check::{breakdown, usual_executor};
use super::fault::Fault;
use super::print::{Answer, Page, json};
use super::prove::{Proof, resolve};
use super::report::title;
use super::target::{PlanArgs, TargetArgs};
use super::trace;

#[derive(Args)]
pub(crate) struct SimulateArgs {
    /// A RON file, or the name of a pipeline that ships; with --against, the only pipeline that is compared
    #[arg(value_name = "FILE", required_unless_present = "against")]
    file: Option<String>,
    #[command(flatten)]
    plan: PlanArgs,
    /// Write the predicted timelines: to a page (.html) or for Perfetto (.json)
    #[arg(short, long, value_name = "FILE", value_parser = trace::timeline_file, conflicts_with = "against")]
    output: Option<PathBuf>,
    /// Predict what `cusync bench mlp --save RECORD` measured; FILE, --dim and --executor choose among it
    #[arg(long, value_name = "RECORD")]
    against: Option<PathBuf>,
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
    /// Over `serial`, where that has a kernel for every stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) speedup: Option<f64>,
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

impl Answer for SimulateReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(format!(
            "{} on {}, chosen for {}",
            title(&self.pipeline, &self.dims),
            self.device,
            self.chosen_for
        ));
        let span = |t: &PredictedTime| -> String {
            let of = |s: &PredictedStage| format!("{} {:.1}-{:.1}", s.name, s.begin_us, s.end_us);
            t.stages.iter().map(of).collect::<Vec<_>>().join(", ")
        };
        page.table(
            ["executor", "predicted us", "speed-up", "stages, begin-end us"],
            self.times.iter().map(|t| {
                let speedup = t.speedup.map_or_else(|| "-".into(), |s| format!("{s:.2}x"));
                [t.executor.into(), format!("{:.1}", t.time_us), speedup, span(t)]
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
    let (chosen_for, _) = usual_executor(target)?;
    let resolved = resolve(target)?;
    let runs = |executor: &Executor| resolved.without_kernel(&target.device, *executor).is_none();
    if let (Executor::Cpu, Some(why)) = choose::usual_executor(&resolved, &target.device) {
        return Err(Fault::input(format!("{why}, and there is nothing to predict"))
            .help("`cusync run` runs it on the CPU; `cusync check` and `cusync explain` judge it"));
    }
    // A chain kernel has its own tiles; kernels launched one by one are predicted at those chosen for them.
    let by_kernel = if chosen_for.how().is_some() { chosen_for } else { Executor::Programmatic };
    let mut executors = vec![Executor::Serial, Executor::Streams];
    if target.device.arch >= 90 {
        executors.push(Executor::Programmatic);
    }
    executors.retain(runs);
    if let Some(file) = &output {
        trace::write(&trace::predictions(target, &executors)?, file)?;
    }
    let proof = if executors.is_empty() { None } else { Some(Proof::of(target, by_kernel)?) };
    let candidate = proof.as_ref().map(Proof::candidate);
    let serial_us = candidate.map(|candidate| simulate_serial(candidate).total_us);
    let by_kernel = executors.into_iter().zip(std::iter::repeat(candidate).flatten());
    let mut times: Vec<PredictedTime> = by_kernel
        .map(|(executor, candidate)| {
            let serial = executor == Executor::Serial;
            let timeline = if serial { simulate_serial(candidate) } else { predict(candidate) };
            let stages = candidate.graph.stages.iter().zip(&timeline.stages);
            PredictedTime {
                executor: executor_name(executor),
                time_us: timeline.total_us,
                speedup: serial_us.map(|us| us / timeline.total_us),
                stages: stages
                    .map(|(s, &(begin_us, end_us))| PredictedStage { name: s.name.clone(), begin_us, end_us })
                    .collect(),
            }
        })
        .collect();
    match Proof::of(target, Executor::Fused) {
        Ok(proof) => {
            let fused = proof.candidate();
            let time = fused.launch.predicted_us();
            let spans = fused.launch.lists().and_then(|s| breakdown(&fused.graph, &target.device, s));
            let spans = spans.map(|b| b.stages).unwrap_or_default();
            let stages = fused.graph.stages.iter().zip(spans);
            if let Some(time_us) = time.filter(|_| proof.proved()) {
                times.push(PredictedTime {
                    executor: executor_name(Executor::Fused),
                    time_us,
                    speedup: serial_us.map(|us| us / time_us),
                    stages: stages
                        .map(|(s, (begin_us, end_us))| PredictedStage {
                            name: s.name.clone(),
                            begin_us,
                            end_us,
                        })
                        .collect(),
                });
            }
        }
        // Not every chain and device has chain kernels: that is an error only for a user who asked for them.
        Err(fault) if chosen_for == Executor::Fused => return Err(fault),
        Err(_) => {}
    }
    Ok(Box::new(SimulateReport {
        pipeline: resolved.name.clone(),
        dims: resolved.dims.iter().cloned().collect(),
        device: target.device.name.clone(),
        source: target.device.source.clone(),
        chosen_for: executor_name(chosen_for),
        times,
    }))
}
