//! `cusync run`: on the GPU if there is one, else on the host.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use clap::Args;
use cusync::device::{self, KernelCode};
use cusync::element::Bits;
use cusync::inputs::Inputs;
use cusync::reference::{Accuracy, Judge, Wrong};
use cusync::runtime::copilot::{JobSession, Settings};
use cusync::runtime::cpu::{CpuOptions, CpuPipeline};
use cusync::runtime::{RunOptions, executor_name, run_gpu_with};
use cusync::tune::{Machine, Origin};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::emit::StageView;
use cusync_gen::graph::Resolved;
use serde::Serialize;

use super::check::dims;
use super::devices::{self, DevicesReport, devices_line};
use super::explain::{edges, stages};
use super::fault::Fault;
use super::kernel::{self, KernelFiles};
use super::memory::too_large;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;
use super::prove::{Proof, resolve};
use super::report::{
    EdgeReport, ObligationReport, ObstacleReport, PredictionReport, counted, obstacles, prediction, title,
};
use super::target::{CacheArgs, Target, TargetArgs};
use super::timeline;

#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Host threads of the cpu executor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    kernels: KernelFiles,
}

struct Request {
    target: Target,
    seed: u64,
    /// Threads of the cpu executor; `None`: all.
    threads: Option<usize>,
    cache: CacheArgs,
    /// Kernels of Custom stages.
    kernels: Vec<(String, KernelCode)>,
}

/// A tensor that a stage has written or changed, compared with the result expected from the stage's operands.
#[derive(Serialize)]
pub(crate) struct OutputReport {
    pub(crate) tensor: String,
    pub(crate) max_rel_err: f64,
    pub(crate) rel_l2_err: f64,
    /// Largest error in units of its bound.
    pub(crate) of_bound: f64,
    /// Norm of the error relative to the expected result of the whole pipeline from its inputs.
    pub(crate) end_to_end: Option<f64>,
    pub(crate) verified: bool,
    /// `element`, `norm` or `overflow`, with the numbers.
    pub(crate) wrong: Option<Wrong>,
    /// The same as text.
    #[serde(skip)]
    text: String,
}

impl From<Accuracy> for OutputReport {
    fn from(judged: Accuracy) -> Self {
        let text = judged.to_string();
        let Accuracy { tensor, relative_l2, relative_max, of_bound, end_to_end, verified, wrong } = judged;
        OutputReport {
            tensor,
            max_rel_err: relative_max,
            rel_l2_err: relative_l2,
            of_bound,
            end_to_end,
            verified,
            wrong,
            text,
        }
    }
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
    /// Origin of its choices: `predicted`, or time and place of the tuning.
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
    /// Origin of its choices: `predicted`, or time and place of the tuning.
    pub(crate) plan: String,
    pub(crate) obligations: Vec<ObligationReport>,
    pub(crate) stages: Vec<StageView>,
    pub(crate) edges: Vec<EdgeReport>,
    pub(crate) outputs: Vec<OutputReport>,
    /// Executors side by side; empty on the host.
    pub(crate) variants: Vec<VariantReport>,
    pub(crate) threads: Option<usize>,
    pub(crate) waits_blocked: Option<u64>,
    /// Devices that ran it at once; left out for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<DevicesReport>,
    pub(crate) predicted: Option<PredictionReport>,
    /// Reason why it ran on this executor and device.
    pub(crate) note: Option<String>,
    /// Obstacles that keep executors from running it on the device.
    pub(crate) obstacles: Vec<ObstacleReport>,
    /// Readable text lines; not in JSON.
    #[serde(skip)]
    pub(crate) timeline: Vec<String>,
}

impl Answer for RunReport {
    fn good(&self) -> bool {
        self.verified
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        if let Some(note) = &self.note {
            page.line(note);
        }
        let tiles = |s: &StageView| format!("{}: {} tiles of {} x {}", s.name, s.tiles, s.tile.0, s.tile.1);
        let mut rows = vec![
            ["pipeline".to_owned(), format!("{}, {}", title(&self.pipeline, &self.dims), self.element)],
            ["stages".to_owned(), self.stages.iter().map(tiles).collect::<Vec<_>>().join("\n")],
            ["proved".to_owned(), proved_line(&self.obligations)],
        ];
        let edge = |e: &EdgeReport| format!("{}: {}, waits at {}", e.name, e.policy, e.wait_at);
        if !self.edges.is_empty() {
            rows.push(["policies".to_owned(), self.edges.iter().map(edge).collect::<Vec<_>>().join("\n")]);
        }
        let time = match self.threads {
            Some(threads) => {
                let waits = |blocked| format!(", {} had to spin", counted(blocked as usize, "wait"));
                let threads = counted(threads, "thread");
                let waits = self.waits_blocked.map(waits).unwrap_or_default();
                format!("{:.1} ms on {threads}{waits}", self.time_us / 1e3)
            }
            None => format!("{:.1} us on {} ({})", self.time_us, self.device, self.executor),
        };
        rows.push(["time".to_owned(), time]);
        rows.extend(self.devices.iter().map(|d| ["devices".to_owned(), devices_line(d)]));
        rows.push(["plan".to_owned(), self.plan.clone()]);
        rows.push(["result".to_owned(), self.result(page)]);
        if let Some(p) = &self.predicted {
            rows.push([format!("predicted on {}", p.device), prediction(p)]);
        }
        page.table(["", "cusync run"], rows);
        if !self.variants.is_empty() {
            page.table(
                ["executor", "median us", "p10", "p90", "speed-up", "max rel. error", "", "plan"],
                self.variants.iter().map(|v| {
                    let verdict = if v.verified { "right" } else { "WRONG" };
                    [
                        v.executor.clone(),
                        format!("{:.1}", v.time_us),
                        format!("{:.1}", v.p10_us),
                        format!("{:.1}", v.p90_us),
                        v.speedup.map_or_else(|| "-".into(), |s| format!("{s:.2}x")),
                        format!("{:.1e}", v.max_rel_err),
                        verdict.into(),
                        v.plan.clone(),
                    ]
                }),
            );
        }
        if !self.timeline.is_empty() {
            page.line("tiles at work over the run, by stage:");
            self.timeline.iter().for_each(|l| page.line(l));
        }
    }
}

impl RunReport {
    /// Sets the verdict on all tensors.
    fn judged(&mut self, outputs: Vec<OutputReport>) {
        let worst = |f: fn(&OutputReport) -> f64| outputs.iter().map(f).fold(0.0, f64::max);
        (self.max_rel_err, self.rel_l2_err) = (worst(|o| o.max_rel_err), worst(|o| o.rel_l2_err));
        self.verified = !outputs.is_empty() && outputs.iter().all(|o| o.verified);
        self.outputs = outputs;
    }

    /// The verdict with the first wrong tensor, or with the margin of all tensors.
    fn result(&self, page: &Page) -> String {
        let overflow = |o: &&OutputReport| matches!(o.wrong, Some(Wrong::Overflow(_)));
        // Tensors computed from one that has overflowed are irrelevant.
        let wrong = self.outputs.iter().find(overflow).or(self.outputs.iter().find(|o| !o.verified));
        if let Some(output) = wrong {
            let word = if overflow(&output) { "OVERFLOW" } else { "WRONG" };
            return format!("{}: {}", page.good(false, word), output.text);
        }
        if self.outputs.is_empty() {
            return format!("{}: every stage is Custom", page.good(false, "not verified"));
        }
        let most = |f: fn(&OutputReport) -> f64| self.outputs.iter().map(f).fold(0.0, f64::max);
        format!(
            "{}: off by at most {:.2} of the bounds, {:.1e} in norm; end to end {:.1e}",
            page.good(self.verified, if self.verified { "right" } else { "WRONG" }),
            most(|o| o.of_bound),
            self.rel_l2_err,
            most(|o| o.end_to_end.unwrap_or(0.0)),
        )
    }
}

fn proved_line(obligations: &[ObligationReport]) -> String {
    let proved: Vec<_> = obligations.iter().filter(|o| o.verdict == "proved").map(|o| o.id).collect();
    format!("{} of {}: {}", proved.len(), obligations.len(), proved.join(", "))
}

pub(crate) fn run(args: RunArgs, output: &Output) -> Result<RunReport, Fault> {
    let RunArgs { target, seed, threads, cache, kernels } = args;
    let mut target = target.resolve()?;
    let kernels = kernels.read()?;
    target.kernels = kernels.iter().map(|(stage, _)| stage.clone()).collect();
    let mut request = Request { target, seed, threads: threads.map(usize::from), cache, kernels };
    let progress = Progress::start(output);
    if request.target.executor == Some(Executor::Cpu) {
        return on_host(&request, &progress, None);
    }
    let gpu = device::Device::open(0);
    if let Ok(gpu) = &gpu {
        request.target.device = request.target.device_on(profile(gpu)?)?;
    }
    let target = &request.target;
    let resolved = resolve(target)?;
    if let Some(executor) = target.executor
        && let Some(why) = choose::obstacle(&resolved, &target.device, executor)
    {
        // A requested GPU executor that cannot run is an error; without a request the host runs it.
        let obstacles = obstacles(&resolved, &target.device);
        let message = format!("the {} executor cannot run this pipeline: {why}", executor.name());
        return Proof::for_executor(target, Some(executor))
            .and_then(|_| Err(Fault::input("no-kernel", message).obstacles(obstacles)));
    }
    if let (None, Some((_, note))) = (target.executor, choose::fallback(&resolved, &target.device)) {
        return on_host(&request, &progress, Some(note));
    }
    match gpu {
        Ok(_) if resolved.devices() > 1 => on_gpus(&request, &devices::gpus(&resolved)?, &progress),
        Ok(gpu) => on_gpu(&request, &gpu, &resolved, &progress),
        Err(e) if target.executor.is_none_or(|e| e.how().is_none()) => {
            let first = e.to_string().lines().next().unwrap_or("no GPU").to_owned();
            on_host(&request, &progress, Some(format!("{first}: running on the CPU")))
        }
        Err(e) => Err(e.into()),
    }
}

/// Data that a run takes from the proof of its plan.
struct Proved {
    executor: Executor,
    obligations: Vec<ObligationReport>,
    obstacles: Vec<ObstacleReport>,
    predicted: Option<PredictionReport>,
}

/// A report with everything that does not depend on where the plan runs.
fn blank(plan: &Plan, proved: Proved) -> RunReport {
    let graph = plan.graph();
    RunReport {
        pipeline: graph.name.clone(),
        dims: dims(graph),
        element: graph.element.name(),
        device: String::new(),
        executor: executor_name(proved.executor).into(),
        verified: false,
        max_rel_err: f64::INFINITY,
        rel_l2_err: f64::INFINITY,
        time_us: 0.0,
        plan: Origin::Predicted { refused: None }.to_string(),
        obligations: proved.obligations,
        stages: stages(plan),
        edges: edges(plan),
        outputs: Vec::new(),
        variants: Vec::new(),
        threads: None,
        waits_blocked: None,
        devices: DevicesReport::of_graph(graph),
        predicted: proved.predicted,
        note: None,
        obstacles: proved.obstacles,
        timeline: Vec::new(),
    }
}

fn on_host(request: &Request, progress: &Progress, note: Option<String>) -> Result<RunReport, Fault> {
    progress.say("proving");
    // The schedule of a chain kernel also runs on host threads, one per CTA.
    let executor = request.target.executor.filter(|e| e.how().is_none()).unwrap_or(Executor::Cpu);
    let mut proof = Proof::for_executor(&request.target, Some(executor))?;
    let (obligations, obstacles) =
        (std::mem::take(&mut proof.obligations), std::mem::take(&mut proof.obstacles));
    // Predicted time of the same pipeline on the requested GPU executor.
    let on_gpu = request.target.executor.filter(|e| *e != Executor::Cpu);
    let predicted = match executor {
        Executor::Fused | Executor::Copilot => proof.predicted(),
        _ => Proof::for_executor(&request.target, on_gpu).ok().and_then(|gpu| gpu.predicted()),
    };
    let plan = proof.plan()?;
    let graph = plan.graph();
    if let Some(fault) = kernel::on_host(graph, &request.target.kernels) {
        return Err(fault);
    }
    // Host threads also follow the work lists of a chain kernel.
    let mut report = blank(&plan, Proved { executor: Executor::Cpu, obligations, obstacles, predicted });
    report.device = "host".into();
    report.note = note;
    progress.say("making random inputs");
    let mut options = CpuOptions::default();
    options.threads = request.threads.unwrap_or(options.threads);
    if graph.devices() > 1 {
        progress.say(format!("running {} devices on the CPU", graph.devices()));
        let ran = devices::run(&plan, options, request.seed);
        let (seconds, outputs) = ran.map_err(|e| devices::fault(e, &request.target))?;
        report.time_us = seconds * 1e6;
        let workers = plan.launch().shares().map_or(options.threads, |shares| shares.workers() as usize);
        report.threads = Some(workers * graph.devices() as usize);
        report.judged(outputs.into_iter().map(OutputReport::from).collect());
        return Ok(report);
    }
    let inputs = Inputs::checked_random(graph, request.seed);
    let inputs = inputs.map_err(|e| too_large(e, &request.target))?;
    progress.say("running on the CPU");
    let written = if executor == Executor::Copilot {
        as_job(&plan, inputs.clone(), options, &mut report)?
    } else {
        let mut pipeline = CpuPipeline::new(&plan, &inputs, options)?;
        let stats = pipeline.run().map_err(|e| Fault { status: 1, ..e.into() })?;
        report.time_us = stats.time.as_secs_f64() * 1e6;
        report.threads = Some(stats.threads);
        report.waits_blocked = Some(stats.blocked.waits);
        let names: Vec<&str> = graph.stages.iter().map(|s| s.name.as_str()).collect();
        report.timeline = timeline::stages(&stats.tiles, &names, stats.threads, stats.time);
        pipeline.written()
    };
    progress.say("computing the reference");
    let judge = Judge::new(graph, &inputs, HashMap::new())?;
    let judged = judge.compare(&|tensor| written.get(tensor).cloned())?;
    report.judged(judged.into_iter().map(OutputReport::from).collect());
    Ok(report)
}

/// One GPU for each device of the pipeline.
fn on_gpus(request: &Request, gpus: &[device::Device], progress: &Progress) -> Result<RunReport, Fault> {
    progress.say("proving");
    let mut proof = Proof::for_executor(&request.target, Some(Executor::Fused))?;
    let (obligations, obstacles) =
        (std::mem::take(&mut proof.obligations), std::mem::take(&mut proof.obstacles));
    let predicted = proof.predicted();
    let plan = proof.plan()?;
    let mut report = blank(&plan, Proved { executor: Executor::Fused, obligations, obstacles, predicted });
    report.device = format!("{} x {}", gpus.len(), gpus[0].name());
    progress.say(format!("running on {} GPUs, and computing the reference", gpus.len()));
    let ran = devices::run_on_gpus(&plan, gpus, request.seed);
    let (seconds, outputs) = ran.map_err(|e| devices::fault(e, &request.target))?;
    report.time_us = seconds * 1e6;
    report.judged(outputs.into_iter().map(OutputReport::from).collect());
    Ok(report)
}

/// A session on the host with one job with all rows.
fn as_job(
    plan: &Plan,
    inputs: Inputs,
    options: CpuOptions,
    report: &mut RunReport,
) -> Result<HashMap<String, Vec<f32>>, Fault> {
    let job = || -> cusync::runtime::Result<_> {
        let graph = plan.graph();
        let mut session = JobSession::on_host(plan, &[inputs], options, Settings::default())?;
        let begin = Instant::now();
        let submitted = session.submit(0, graph.stages.iter().map(|s| s.m).min().unwrap_or(0))?;
        session.wait(submitted)?;
        report.time_us = begin.elapsed().as_secs_f64() * 1e6;
        let tensors = graph.tensors.iter().filter(|tensor| tensor.producer.is_some() || tensor.state);
        let written = tensors.map(|t| Ok((t.name.clone(), session.read_f32(0, &t.name)?)));
        let written = written.collect::<cusync::runtime::Result<_>>()?;
        session.close()?;
        Ok(written)
    };
    let written = job().map_err(|e| Fault { status: 1, ..e.into() })?;
    report.threads = plan.launch().shares().map(|shares| shares.workers() as usize);
    Ok(written)
}

/// The profile of a GPU.
fn profile(gpu: &device::Device) -> Result<Profile, Fault> {
    let old = || Fault::input("old-gpu", format!("{} is older than compute capability 8.0", gpu.name()));
    gpu.profile().ok_or_else(|| old().help("use --executor cpu"))
}

/// Runs on the GPU whose profile is the target's device.
fn on_gpu(
    request: &Request,
    gpu: &device::Device,
    resolved: &Resolved,
    progress: &Progress,
) -> Result<RunReport, Fault> {
    let stated = &request.target;
    let profile = &stated.device;
    let cache = request.cache.load()?;
    let machine = Machine::for_device(gpu)?;
    let executors = match stated.executor {
        Some(one) => vec![one],
        None => {
            let built = |e: &Executor| {
                e.how().is_some() || !device::kernels_of(cusync::ffi::CUSYNC_FAMILY_CHAIN).is_empty()
            };
            let measured = |e: &Executor| *e != Executor::Library || profile.arch >= 90;
            let runs = |e: &Executor| choose::obstacle(resolved, profile, *e).is_none();
            Executor::GPU.into_iter().filter(measured).filter(built).filter(runs).collect()
        }
    };
    let mut report: Option<RunReport> = None;
    let mut variants: Vec<VariantReport> = Vec::new();
    for executor in executors {
        progress.say(format!("{} on {}", executor_name(executor), gpu.name()));
        let target = Target { executor: Some(executor), ..stated.clone() };
        let (mut proof, from) = Proof::tuned(&target, executor, (&cache, &machine))?;
        let (obligations, obstacles) =
            (std::mem::take(&mut proof.obligations), std::mem::take(&mut proof.obstacles));
        let proved = Proved { executor, obligations, obstacles, predicted: proof.predicted() };
        let plan = proof.plan()?;
        let seed = request.seed as u32;
        let options = RunOptions { seed, executor: Some(executor), ..RunOptions::default() };
        let ran = run_gpu_with(&plan, options, &request.kernels)?;
        let serial = variants.first().filter(|v| v.executor == "serial").map(|v| v.time_us);
        variants.push(VariantReport {
            executor: ran.executor.clone(),
            verified: ran.verified,
            max_rel_err: ran.max_rel_err,
            rel_l2_err: ran.l2_rel_err,
            time_us: ran.time_us,
            p10_us: ran.p10_us,
            p90_us: ran.p90_us,
            speedup: serial.map(|s| s / ran.time_us),
            plan: from.to_string(),
        });
        // The report describes the fastest.
        if report.as_ref().is_none_or(|best| ran.time_us < best.time_us) {
            let mut best = blank(&plan, proved);
            best.device = ran.device;
            (best.max_rel_err, best.rel_l2_err) = (ran.max_rel_err, ran.l2_rel_err);
            best.time_us = ran.time_us;
            best.plan = from.to_string();
            best.note = kernel::given_note(plan.graph());
            best.outputs = ran.outputs.into_iter().map(OutputReport::from).collect();
            report = Some(best);
        }
    }
    let mut report = report.ok_or_else(|| Fault::input("unsupported", "no executor was run"))?;
    report.verified = variants.iter().all(|v| v.verified);
    report.variants = variants;
    Ok(report)
}
