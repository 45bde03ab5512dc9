//! `cusync trace`: shows where the time of a fused run goes, and writes timeline files.

use std::path::{Path, PathBuf};

use clap::Args;
use cusync::device::{Device, kernels};
use cusync::runtime::{ChainOverride, Overrides, plan_source};
use cusync::trace::{Timeline, TraceReport, events, page, simulated, simulated_run};
use cusync_gen::check::Executor;
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::schedule::Hand;
use serde::Serialize;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;
use super::prove::{Proof, resolve, resolve_runnable};
use super::report::{ObstacleReport, obstacles, title};
use super::target::{Target, TargetArgs};

/// Sets of inputs in rotation: weights are read from device memory, as in a model.
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
    /// Predict the timeline instead of running, with serial launches for comparison to --executor. Without
    /// it, `--executor copilot` traces a session, and all others trace the kernel of `fused`
    #[arg(long, conflicts_with_all = ["seed", "decode"])]
    simulate: bool,
    /// Write the timeline: to a page (.html) or for Perfetto and chrome://tracing (.json)
    #[arg(short, long, value_name = "FILE", value_parser = timeline_file)]
    output: Option<PathBuf>,
}

/// Accepts file names to which timelines can be written.
pub(crate) fn timeline_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "json") => Ok(path),
        _ => Err("the name must end in .html (a page) or in .json (for Perfetto)".into()),
    }
}

/// A trace, and the obstacles that keep executors from running the pipeline.
#[derive(Serialize)]
pub(crate) struct TraceAnswer {
    #[serde(flatten)]
    report: TraceReport,
    obstacles: Vec<ObstacleReport>,
}

impl Answer for TraceAnswer {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        let report = &self.report;
        page.line(format!(
            "{} on {}, {}",
            title(&report.pipeline, &report.dims.iter().cloned().collect()),
            report.device,
            report.kernel
        ));
        page.line("microseconds of an average SM, over the whole run:");
        let us = |us: f64| format!("{us:.1}");
        let mut rows = Vec::new();
        for run in &report.runs {
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

pub(crate) fn trace(args: TraceArgs, output: &Output) -> Result<TraceAnswer, Fault> {
    let target = args.target.resolve()?;
    args.output.as_deref().map_or(Ok(()), files::ensure_writable)?;
    let answer = match target.executor {
        _ if args.simulate => predict(&target)?,
        Some(Executor::Copilot) => session(&target, args.seed, output)?,
        _ => measure(&target, args.seed, args.decode, output)?,
    };
    if let Some(file) = &args.output {
        write(&answer.report.timeline, file)?;
    }
    Ok(answer)
}

fn measure(target: &Target, seed: u64, decode: bool, output: &Output) -> Result<TraceAnswer, Fault> {
    let progress = Progress::start(output);
    let fault = |e: cusync::runtime::Error| Fault::from(e).help("--simulate needs no GPU");
    let gpu = Device::open(0).map_err(|e| fault(e.into()))?;
    let profile = gpu.profile().ok_or_else(|| {
        Fault::input("old-gpu", format!("{} is older than compute capability 8.0", gpu.name()))
            .help("use a Hopper GPU, or --simulate")
    })?;
    let profile = target.device_on(profile)?;
    let source = &target.source;
    let resolved = resolve(target)?;
    let obstacles = obstacles(&resolved, &profile);
    let overrides = Overrides { dims: target.dims.clone(), decode, ..Overrides::default() };
    let plan = plan_source(&source.text, &source.origin, &overrides, &profile, Executor::Fused);
    let plan = plan.map_err(|d| source.refused(&d).obstacles(obstacles.clone()))?;
    progress.say(format!("tracing {} on {}", plan.graph().name, gpu.name()));
    let report = cusync::trace::trace(&resolved, &plan, 0, SETS, seed as u32).map_err(fault)?;
    Ok(TraceAnswer { report, obstacles })
}

/// Traces a session: of a decode kernel if one runs the plan, otherwise of the items of a chain kernel.
/// Without a GPU, host threads take them.
fn session(target: &Target, seed: u64, output: &Output) -> Result<TraceAnswer, Fault> {
    let gpu = Device::open(0).ok().filter(|gpu| gpu.profile().is_some() && !kernels().is_empty());
    let profile = match gpu.as_ref().and_then(Device::profile) {
        Some(own) => target.device_on(own)?,
        None => Profile { sms: THREADS, ..target.device.clone() },
    };
    let source = &target.source;
    let chain = ChainOverride { kernel: Some(((128, 128), (1, 1))), mode: Hand::Drawn, splits: false };
    let planned = |chain, executor| {
        let overrides = Overrides { dims: target.dims.clone(), chain, ..Overrides::default() };
        plan_source(&source.text, &source.origin, &overrides, &profile, executor)
    };
    let plan = planned(None, Executor::Copilot).or_else(|_| planned(Some(chain), Executor::Fused));
    let obstacles = obstacles(&resolve(target)?, &profile);
    let plan = plan.map_err(|d| source.refused(&d).obstacles(obstacles.clone()))?;
    let on = gpu.as_ref().map_or("threads of this host", Device::name);
    Progress::start(output).say(format!("tracing a session of {} on {on}", plan.graph().name));
    let report = cusync::trace::trace_session(&plan, gpu.as_ref(), seed as u32)?;
    Ok(TraceAnswer { report, obstacles })
}

/// Number of workers that host threads represent.
const THREADS: u32 = 4;

/// Serial launches next to the requested executor or, without one, to the best predicted one.
fn predict(target: &Target) -> Result<TraceAnswer, Fault> {
    if target.executor == Some(Executor::Cpu) {
        return Err(unpredicted());
    }
    if target.executor == Some(Executor::Library) {
        return Err(Fault::input(
            "unsupported",
            "cuBLASLt's kernels have tiles that nobody else knows, so there is no timeline of them",
        )
        .help("`cusync simulate` has their times; --executor fused has a timeline"));
    }
    let resolved = resolve_runnable(target)?;
    let runs = |executor: &Executor| choose::obstacle(&resolved, &target.device, *executor).is_none();
    let own = choose::one_by_one(&target.device);
    let best = Proof::for_executor(target, target.executor)?;
    // Tiles of a library are unknown; if no executor is predicted to beat serial launches, the usual one is
    // shown next to them.
    let others = match best.executor {
        Executor::Library => vec![Executor::Fused, own],
        Executor::Serial if target.executor.is_none() => vec![own, Executor::Fused],
        Executor::Serial => Vec::new(),
        other => vec![other],
    };
    let shown = [Executor::Serial].into_iter().filter(runs).chain(others.iter().copied().find(runs));
    let proofs = shown
        .map(|executor| Proof::for_executor(target, Some(executor)))
        .collect::<Result<Vec<Proof>, Fault>>()?;
    if let Some(refuted) = proofs.iter().find_map(Proof::refuted) {
        return Err(refuted);
    }
    let report = TraceReport::new(timeline(&proofs)?);
    Ok(TraceAnswer { report, obstacles: obstacles(&resolved, &target.device) })
}

/// The model covers GPUs only.
pub(crate) fn unpredicted() -> Fault {
    Fault::input("unsupported", "the model has no times of host threads")
        .help("choose an executor of a GPU, or leave --executor out")
}

/// Predicted runs of one pipeline's choices; those of a library have no tiles to show.
pub(crate) fn timeline(proofs: &[Proof]) -> Result<Timeline, Fault> {
    let first = proofs.first().ok_or_else(|| Fault::input("unsupported", "there is nothing to predict"))?;
    let mut timeline = simulated(first.candidate());
    let shown = proofs.iter().filter(|p| p.executor != Executor::Library);
    timeline.runs.extend(shown.map(|p| simulated_run(p.candidate(), p.executor)));
    Ok(timeline)
}

/// Writes a page or events for Perfetto, depending on the file name.
pub(crate) fn write(timeline: &Timeline, file: &Path) -> Result<(), Fault> {
    let text = match file.extension().and_then(|e| e.to_str()) {
        Some("html") => page(timeline),
        _ => events(timeline).to_string(),
    };
    files::write(file, &text)
}
