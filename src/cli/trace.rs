//! `cusync trace`: where the time of a fused run goes. And the files that timelines are written to.

use std::path::{Path, PathBuf};

use clap::Args;
use cusync::device::Device;
use cusync::runtime::{Overrides, plan_text};
use cusync::trace::{
    Run, Timeline, TraceReport, events, page, simulated, simulated_chain, simulated_kernels,
};
use cusync_gen::check::Executor;

use super::check::{breakdown, usual_executor};
use super::fault::Fault;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;
use super::prove::Proof;
use super::report::title;
use super::target::{Target, TargetArgs};

/// Sets of inputs in rotation: weights come from device memory, as in a model.
const SETS: usize = 4;

#[derive(Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Trace the decode kernel, for few tokens, instead of a chain kernel
    #[arg(long)]
    decode: bool,
    /// Predict the timeline instead of running; serial launches stand beside --executor
    #[arg(long, conflicts_with_all = ["seed", "decode"])]
    simulate: bool,
    /// Write the timeline: to a page (.html) or for Perfetto and chrome://tracing (.json)
    #[arg(short, long, value_name = "FILE", value_parser = timeline_file)]
    output: Option<PathBuf>,
}

/// Accepts the names of files that timelines can be written to.
pub(crate) fn timeline_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "json") => Ok(path),
        _ => Err("the name must end in .html (a page) or in .json (for Perfetto)".into()),
    }
}

impl Answer for TraceReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(format!(
            "{} on {}, {}",
            title(&self.pipeline, &self.dims.iter().cloned().collect()),
            self.device,
            self.kernel
        ));
        page.line("microseconds of an average SM, from the first item's beginning to the last one's end:");
        let us = |us: f64| format!("{us:.1}");
        let mut rows = Vec::new();
        for run in &self.runs {
            let s = &run.shares;
            let all = [s.math_us, s.epilogue_us, s.load_us, s.wait_us, s.idle_us, s.span_us].map(us);
            let [math, epilogue, load, wait, idle, span] = all;
            rows.push([run.name.to_owned(), "all".into(), math, epilogue, load, wait, idle, span]);
            for (stage, s) in &run.stages {
                let [math, epilogue, load, wait] = [s.math_us, s.epilogue_us, s.load_us, s.wait_us].map(us);
                let (none, span) = ("".to_owned(), us(s.span_us));
                rows.push([none.clone(), stage.clone(), math, epilogue, load, wait, none, span]);
            }
        }
        page.table(["run", "stage", "math", "epilogue", "load", "wait", "idle", "span"], rows);
    }
}

pub(crate) fn trace(args: TraceArgs, output: &Output) -> Result<TraceReport, Fault> {
    let target = args.target.resolve()?;
    let report =
        if args.simulate { predict(&target)? } else { measure(&target, args.seed, args.decode, output)? };
    if let Some(file) = &args.output {
        write(&report.timeline, file)?;
    }
    Ok(report)
}

fn measure(target: &Target, seed: u64, decode: bool, output: &Output) -> Result<TraceReport, Fault> {
    let progress = Progress::start(output);
    let fault = |e: &dyn std::fmt::Display| Fault::input(e.to_string()).help("--simulate needs no GPU");
    let gpu = Device::open(0).map_err(|e| fault(&e))?;
    let profile = gpu.profile().ok_or_else(|| {
        Fault::input(format!("{} is older than compute capability 8.0", gpu.name()))
            .help("use a Hopper GPU, or --simulate")
    })?;
    let source = &target.source;
    let overrides = Overrides { dims: target.dims.clone(), decode, ..Overrides::default() };
    let plan = plan_text(&source.text, &source.origin, &overrides, &profile, Executor::Fused);
    let plan = plan.map_err(|e| Fault::input(e.to_string()))?;
    progress.say(format!("tracing {} on {}", plan.graph().name, gpu.name()));
    cusync::trace::trace(&plan, &profile, 0, SETS, seed as u32).map_err(|e| fault(&e))
}

/// Serial launches beside the executor that was asked for; without one, the one that is best where it can be predicted.
fn predict(target: &Target) -> Result<TraceReport, Fault> {
    let serial = Proof::of(target, Executor::Serial)?;
    let mut timeline = simulated(serial.candidate());
    timeline.runs.push(simulated_kernels(serial.candidate(), Executor::Serial));
    let synchronised = match target.executor {
        Some(Executor::Serial) => None,
        Some(Executor::Fused) => Some(chain(target)?.ok_or_else(|| {
            Fault::input("the model tells only the length of this plan, not where its time goes")
                .help("ask for another executor, or for more rows: a decode kernel runs few")
        })?),
        Some(executor) => Some(kernels(target, executor)?),
        None => Some(match chain(target) {
            Ok(Some(run)) => run,
            _ => kernels(target, usual_executor(target)?.0)?,
        }),
    };
    timeline.runs.extend(synchronised);
    Ok(TraceReport::of(timeline))
}

fn kernels(target: &Target, executor: Executor) -> Result<Run, Fault> {
    Ok(simulated_kernels(Proof::of(target, executor)?.candidate(), executor))
}

/// The predicted run of a chain kernel; `None` where the fused executor has another.
fn chain(target: &Target) -> Result<Option<Run>, Fault> {
    let proof = Proof::of(target, Executor::Fused)?;
    let candidate = proof.candidate();
    let Some(schedule) = candidate.launch.lists() else { return Ok(None) };
    let breakdown = breakdown(&candidate.graph, &target.device, schedule);
    Ok(breakdown.map(|b| simulated_chain(candidate, schedule, &b)))
}

/// Every executor's predicted run, serial launches first.
pub(crate) fn predictions(target: &Target, executors: &[Executor]) -> Result<Timeline, Fault> {
    let by_kernel = Proof::of(target, Executor::Serial)?;
    let mut timeline = simulated(by_kernel.candidate());
    for &executor in executors {
        timeline.runs.push(kernels(target, executor)?);
    }
    timeline.runs.extend(chain(target).ok().flatten());
    Ok(timeline)
}

/// Writes a page or events for Perfetto, as the file's name says.
pub(crate) fn write(timeline: &Timeline, file: &Path) -> Result<(), Fault> {
    let text = match file.extension().and_then(|e| e.to_str()) {
        Some("html") => page(timeline),
        _ => events(timeline).to_string(),
    };
    let failed = |e: std::io::Error| {
        Fault::input(format!("{}: {e}", file.display()))
            .help("name a file in a folder that can be written to")
    };
    std::fs::write(file, text).map_err(failed)
}
