//! `cusync tune`: the fastest configuration, by prediction and, if there is a GPU, by measurement.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cusync::device;
use cusync::element::Bits;
use cusync::runtime::Overlap;
use cusync::tune::{
    self, CacheEntry, Confirmed, Machine, Measure, Origin, Proposal, Store, Tried, asked_name,
};
use cusync_gen::check::{Executor, check};
use serde::Serialize;

use super::fault::Fault;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;
use super::prove::{refused, resolve_runnable};
use super::report::{ObstacleReport, obstacles, title};
use super::target::{PlanArgs, Target, TargetArgs};

#[derive(Args)]
pub(crate) struct TuneArgs {
    /// A RON file, or the name of a shipped pipeline
    #[arg(value_name = "FILE", required_unless_present_any = ["show", "merge"], conflicts_with_all = ["show", "merge"])]
    file: Option<String>,
    #[command(flatten)]
    plan: PlanArgs,
    /// Store tuned plans in this file instead of the user's cache
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// Print the contents of the cache
    #[arg(long, conflicts_with = "merge")]
    show: bool,
    /// Merge another cache into this one, keeping the later of two measurements; may be repeated
    #[arg(long, value_name = "FILE")]
    merge: Vec<PathBuf>,
    /// Measure at most this many configurations
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    candidates: u16,
    /// When a run may begin while the previous one ends
    #[arg(long, value_name = "HOW", default_value = "plain")]
    edges: EdgesArg,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum EdgesArg {
    /// Never
    Plain,
    /// Inside a captured graph
    Captured,
    /// Always
    All,
}

impl From<EdgesArg> for Overlap {
    fn from(edges: EdgesArg) -> Overlap {
        match edges {
            EdgesArg::Plain => Overlap::Plain,
            EdgesArg::Captured => Overlap::Captured,
            EdgesArg::All => Overlap::All,
        }
    }
}

/// Answers of `cusync tune`.
pub(crate) enum TuneReport {
    Show(ShowReport),
    Merge(MergeReport),
    Spec(Box<SpecReport>),
}

#[derive(Serialize)]
pub(crate) struct ShowReport {
    pub(crate) cache: String,
    pub(crate) entries: Vec<CacheEntry>,
}

#[derive(Serialize)]
pub(crate) struct MergeReport {
    pub(crate) cache: String,
    /// Path of each file, number of its entries, and number of entries taken.
    pub(crate) files: Vec<(String, usize, usize)>,
    /// Number of cache entries afterward.
    pub(crate) entries: usize,
}

/// A configuration with its times.
#[derive(Serialize)]
pub(crate) struct CandidateReport {
    /// Description of the configuration.
    pub(crate) name: String,
    pub(crate) config: tune::Config,
    pub(crate) predicted_us: f64,
    pub(crate) median_us: Option<f64>,
    pub(crate) p10_us: Option<f64>,
    pub(crate) p90_us: Option<f64>,
}

#[derive(Serialize)]
pub(crate) struct SpecReport {
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) element: &'static str,
    /// The GPU, or the profile used for prediction.
    pub(crate) device: String,
    /// Requested executor, or `any`.
    pub(crate) executor: &'static str,
    #[serde(rename = "edges")]
    pub(crate) overlap: Overlap,
    /// Origin of the choice, in the words of `cusync run`.
    pub(crate) plan: String,
    pub(crate) measured: bool,
    pub(crate) chosen: CandidateReport,
    /// Choice without measurements, if it was measured.
    pub(crate) first_choice: Option<CandidateReport>,
    /// Its median relative to the fastest, less 1.
    pub(crate) regret: Option<f64>,
    /// Measured ones first, fastest first; then the others by prediction.
    pub(crate) candidates: Vec<CandidateReport>,
    /// Cache that stores the result.
    pub(crate) cache: Option<String>,
    pub(crate) skipped: Vec<String>,
    pub(crate) wrong: Vec<String>,
    /// Reason why nothing was measured.
    pub(crate) note: Option<String>,
    /// Obstacles that keep executors from running it.
    pub(crate) obstacles: Vec<ObstacleReport>,
}

pub(crate) fn tune(args: TuneArgs, output: &Output) -> Result<TuneReport, Fault> {
    let store = match &args.cache {
        Some(file) => Store::at(file),
        None => Store::usual()?,
    };
    let TuneArgs { file, plan, show, merge: files, candidates, edges, seed, .. } = args;
    match file {
        None if show => {
            let cache = store.load()?;
            let entries = cache.entries().cloned().collect();
            Ok(TuneReport::Show(ShowReport { cache: shown(&store), entries }))
        }
        None => merge(&store, &files).map(TuneReport::Merge),
        Some(file) => {
            let target = TargetArgs { file, plan }.resolve()?;
            if let Some(other) = target.executor.filter(|e| !Executor::GPU.contains(e)) {
                let fault =
                    Fault::input("unsupported", format!("the {} executor is not tuned", other.name()));
                return Err(fault.help("choose an executor of a GPU, or leave --executor out"));
            }
            let how =
                Measure { candidates: candidates.into(), seed, overlap: edges.into(), ..Measure::default() };
            tune_spec(&target, &how, &store, &Progress::start(output)).map(|r| TuneReport::Spec(Box::new(r)))
        }
    }
}

fn shown(store: &Store) -> String {
    store.path().display().to_string()
}

fn merge(store: &Store, files: &[PathBuf]) -> Result<MergeReport, Fault> {
    // Reads all of them before changing anything.
    let read = |file: &PathBuf| {
        if !file.exists() {
            let fault = Fault::input("not-found", format!("{}: no such file", file.display()));
            return Err(fault
                .in_file(file.display().to_string())
                .help("`--merge` takes a cache that `cusync tune` wrote"));
        }
        Ok(Store::at(file).load()?)
    };
    let caches = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let merge = |cache: &mut tune::PlanCache| {
        let one = |(file, other): (&PathBuf, tune::PlanCache)| {
            let held = other.entries().count();
            (file.display().to_string(), held, cache.merge(other))
        };
        let files = files.iter().zip(caches).map(one).collect();
        (files, cache.entries().count())
    };
    let (files, entries) = store.update(merge)?;
    Ok(MergeReport { cache: shown(store), files, entries })
}

fn tune_spec(
    target: &Target,
    how: &Measure,
    store: &Store,
    progress: &Progress,
) -> Result<SpecReport, Fault> {
    let gpu = gpu(target);
    let device = gpu.as_ref().map_or(&target.device, |(_, profile)| profile).clone();
    let target = &Target { device, ..target.clone() };
    let (resolved, profile) = (resolve_runnable(target)?, &target.device);
    // An unreadable cache must fail before time on a GPU is spent.
    store.load()?;
    if gpu.is_ok() {
        // So must an unwritable one.
        store.update(|_| ())?;
    }
    progress.say("predicting");
    let proposals = tune::proposals(&resolved, profile, target.executor);
    let mut proposals = proposals.map_err(|d| refused(target, &resolved, &d))?;
    let found = match &gpu {
        Err(_) => Confirmed::default(),
        Ok((device, _)) => {
            let measuring = &mut |name: &str| progress.say(format!("measuring {name}"));
            tune::in_turn(&mut proposals, &resolved, device, how, measuring).map_err(doctor)?;
            tune::confirm(&proposals, device, how, measuring).map_err(doctor)?
        }
    };
    let measured = |t: &Tried| CandidateReport {
        name: t.config.to_string(),
        config: t.config.clone(),
        predicted_us: t.predicted_us,
        median_us: Some(t.time.median_us),
        p10_us: Some(t.time.p10_us),
        p90_us: Some(t.time.p90_us),
    };
    let mut plan = Origin::Predicted { refused: None };
    let mut kept = None;
    if let (Ok((device, _)), false) = (&gpu, found.tried.is_empty()) {
        let machine = Machine::for_device(device)?;
        let entries = found.entries(&resolved, &machine, target.executor, how.overlap);
        if let Some(entry) = entries.first() {
            plan = Origin::from_entry(entry);
        }
        let keep = |cache: &mut tune::PlanCache| {
            for entry in entries {
                cache.insert(entry);
            }
        };
        store.update(keep)?;
        kept = Some(shown(store));
    }
    if found.tried.is_empty() {
        // Measured configurations are proved before; here, skip those before the first that is proved.
        let refuted = proposals.iter().take_while(|p| check(p.candidate.clone()).is_err()).count();
        proposals.drain(..refuted);
    }
    let mut candidates: Vec<CandidateReport> = found.tried.iter().map(measured).collect();
    let unmeasured = |p: &&Proposal| !found.tried.iter().any(|t| t.config == p.config);
    candidates.extend(proposals.iter().filter(unmeasured).map(predicted));
    let best = found.tried.first().map(measured).or_else(|| proposals.first().map(predicted));
    let chosen = best.ok_or_else(|| {
        Fault::refuted("refuted", "no configuration is proved")
            .help("`cusync check` shows the counterexample")
    })?;
    let first = tune::first_choice(&proposals).map(|p| &p.config);
    let first = found.tried.iter().find(|t| Some(&t.config) == first);
    let fastest = found.tried.first();
    Ok(SpecReport {
        pipeline: resolved.name.clone(),
        dims: resolved.dims.iter().cloned().collect(),
        element: resolved.element.name(),
        device: gpu.as_ref().map_or_else(|_| profile.name.to_string(), |(device, _)| device.name().into()),
        executor: asked_name(target.executor),
        overlap: how.overlap,
        plan: plan.to_string(),
        measured: kept.is_some(),
        chosen,
        first_choice: first.map(measured),
        regret: first.zip(fastest).map(|(first, best)| first.time.median_us / best.time.median_us - 1.0),
        candidates,
        cache: kept,
        skipped: found.skipped,
        wrong: found.wrong,
        obstacles: obstacles(&resolved, profile),
        note: gpu.err(),
    })
}

/// Error for a failed measurement.
fn doctor(error: tune::Error) -> Fault {
    Fault::from(error).help("`cusync doctor` says what is missing")
}

/// The GPU and its profile, or the reason why nothing is measured. Results are stored for this GPU, so
/// nothing is measured for another one.
fn gpu(target: &Target) -> Result<(device::Device, cusync_gen::device::Profile), String> {
    let first = |e: device::Error| e.to_string().lines().next().unwrap_or("no GPU").to_owned();
    let gpu = device::Device::open(0).map_err(|e| format!("{}: the choice is the prediction", first(e)))?;
    let old = || format!("{} is older than compute capability 8.0: the choice is the prediction", gpu.name());
    let profile = gpu.profile().ok_or_else(old)?;
    if target.device_stated && target.device != profile {
        return Err(format!("--device {} is not this GPU: the choice is the prediction", target.device.name));
    }
    if target.free_sms > 0 {
        return Err(
            "a tuned plan has all SMs of its GPU, and some are to be left free: the choice is the prediction"
                .into(),
        );
    }
    if device::kernels().is_empty() {
        return Err("this binary was built without kernels: the choice is the prediction".into());
    }
    Ok((gpu, profile))
}

fn predicted(p: &Proposal) -> CandidateReport {
    CandidateReport {
        name: p.config.to_string(),
        config: p.config.clone(),
        predicted_us: p.predicted_us,
        median_us: None,
        p10_us: None,
        p90_us: None,
    }
}

impl Answer for TuneReport {
    fn good(&self) -> bool {
        match self {
            TuneReport::Spec(r) => r.wrong.is_empty(),
            TuneReport::Show(_) | TuneReport::Merge(_) => true,
        }
    }

    fn json(&self) -> serde_json::Result<String> {
        match self {
            TuneReport::Show(r) => json(r),
            TuneReport::Merge(r) => json(r),
            TuneReport::Spec(r) => json(r),
        }
    }

    fn page(&self, page: &mut Page) {
        match self {
            TuneReport::Show(r) => show_page(page, r),
            TuneReport::Merge(r) => merge_page(page, r),
            TuneReport::Spec(r) => spec_page(page, r),
        }
    }
}

/// Number of unmeasured configurations listed.
const LISTED: usize = 12;

fn show_page(page: &mut Page, r: &ShowReport) {
    page.line(format!("{}: {} tuned plans", r.cache, r.entries.len()));
    if r.entries.is_empty() {
        return;
    }
    let row = |e: &CacheEntry| {
        [
            title(&e.pipeline, &e.key.dims),
            e.key.element.clone(),
            format!("{}, CUDA {}", e.key.machine.gpu, e.key.machine.driver),
            asked_name(e.key.executor).into(),
            format!("{:?}", e.key.overlap).to_lowercase(),
            e.best.config.to_string(),
            format!("{:.1}", e.best.time.median_us),
            format!("{:.1}", e.best.predicted_us),
            format!("{}, {} candidates", e.day(), e.candidates()),
        ]
    };
    page.table(
        ["pipeline", "type", "GPU", "executor", "edges", "fastest", "median us", "predicted us", "measured"],
        r.entries.iter().map(row),
    );
}

fn merge_page(page: &mut Page, r: &MergeReport) {
    for (file, held, taken) in &r.files {
        page.line(format!("{file}: {taken} of {held} entries taken"));
    }
    page.line(format!("{}: {} tuned plans", r.cache, r.entries));
}

fn spec_page(page: &mut Page, r: &SpecReport) {
    let title = title(&r.pipeline, &r.dims);
    page.line(format!("{title}, {}, {} executor, on {}", r.element, r.executor, r.device));
    r.note.iter().for_each(|note| page.line(note));
    let us = |us: Option<f64>| us.map_or_else(|| "-".into(), |us| format!("{us:.1}"));
    let measured = r.candidates.iter().filter(|c| c.median_us.is_some()).count();
    let row = |c: &CandidateReport| {
        [c.name.clone(), format!("{:.1}", c.predicted_us), us(c.median_us), us(c.p10_us), us(c.p90_us)]
    };
    let listed = measured + LISTED;
    page.table(
        ["configuration", "predicted us", "median us", "p10", "p90"],
        r.candidates.iter().take(listed).map(row),
    );
    if let Some(more @ 1..) = r.candidates.len().checked_sub(listed) {
        page.line(format!("{more} more, predicted to be slower (--json lists them)"));
    }
    page.line(format!("plan: {}", r.plan));
    page.line(format!("    {}", r.chosen.name));
    if let (Some(first), Some(regret)) = (&r.first_choice, r.regret) {
        // The fastest may be the first choice itself.
        let slower = format!("{:.1} % slower than the fastest", regret.max(0.0) * 100.0);
        page.line(format!("without measurements: {}, {slower}", first.name));
    }
    r.cache.iter().for_each(|cache| page.line(format!("kept in {cache}")));
    r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
    r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
}
