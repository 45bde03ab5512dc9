//! `cusync tune`: the fastest configuration, by prediction and, where there is a GPU, by measurement.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cusync::device;
use cusync::runtime::Edges;
use cusync::runtime::element::Bits;
use cusync::tune::{self, Confirmed, Entry, Machine, Measure, Origin, Proposal, Store, Tried, wish_name};
use cusync_gen::check::check;
use cusync_gen::diagnostic::Diagnostic;
use serde::Serialize;

use super::fault::Fault;
use super::progress::Progress;
use super::request::{Output, Target};

/// What `cusync tune` is asked for.
pub(crate) struct TuneRequest {
    pub(crate) what: TuneWhat,
    /// The cache's file; `None`: the usual one.
    pub(crate) cache: Option<PathBuf>,
}

/// The kinds of request.
pub(crate) enum TuneWhat {
    /// Prints what the cache holds.
    Show,
    /// Takes in other caches.
    Merge(Vec<PathBuf>),
    /// Tunes a spec.
    Spec(Box<TuneSpec>),
}

/// A spec to be tuned.
pub(crate) struct TuneSpec {
    pub(crate) target: Target,
    pub(crate) edges: Edges,
    /// Configurations that are measured, at most.
    pub(crate) candidates: usize,
    /// Of the random inputs.
    pub(crate) seed: u32,
}

/// The answers of `cusync tune`.
pub(crate) enum TuneReport {
    Show(ShowReport),
    Merge(MergeReport),
    Spec(Box<SpecReport>),
}

#[derive(Serialize)]
pub(crate) struct ShowReport {
    pub(crate) cache: String,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Serialize)]
pub(crate) struct MergeReport {
    pub(crate) cache: String,
    /// By file: its path, its entries, those that were taken.
    pub(crate) files: Vec<(String, usize, usize)>,
    /// Entries of the cache afterwards.
    pub(crate) entries: usize,
}

/// A configuration with its times.
#[derive(Serialize)]
pub(crate) struct CandidateReport {
    /// In words.
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
    /// The GPU, or the profile that was predicted for.
    pub(crate) device: String,
    /// The executor that was asked for, or `any`.
    pub(crate) executor: &'static str,
    pub(crate) edges: Edges,
    /// Where the choice comes from, as `cusync run` says it.
    pub(crate) plan: String,
    pub(crate) measured: bool,
    pub(crate) chosen: CandidateReport,
    /// What is chosen without measurements, where that was measured.
    pub(crate) first_choice: Option<CandidateReport>,
    /// Its median over that of the fastest, less 1.
    pub(crate) regret: Option<f64>,
    /// Measured ones first, fastest first; then the others by prediction.
    pub(crate) candidates: Vec<CandidateReport>,
    /// The cache that the answer was kept in.
    pub(crate) cache: Option<String>,
    pub(crate) skipped: Vec<String>,
    pub(crate) wrong: Vec<String>,
    /// Why nothing was measured.
    pub(crate) note: Option<String>,
}

pub(crate) fn tune(request: &TuneRequest, output: &Output) -> Result<TuneReport, Fault> {
    let store = store(request.cache.as_deref())?;
    match &request.what {
        TuneWhat::Show => {
            let cache = store.load().map_err(fault)?;
            let entries = cache.entries().cloned().collect();
            Ok(TuneReport::Show(ShowReport { cache: shown(&store), entries }))
        }
        TuneWhat::Merge(files) => merge(&store, files).map(TuneReport::Merge),
        TuneWhat::Spec(spec) => {
            of_spec(spec, &store, &Progress::start(output)).map(|r| TuneReport::Spec(Box::new(r)))
        }
    }
}

/// The cache that a command line names, or the usual one.
pub(crate) fn store(file: Option<&Path>) -> Result<Store, Fault> {
    file.map_or_else(|| Store::usual().map_err(fault), |file| Ok(Store::at(file)))
}

/// A fault of the cache or of a measurement, for the command line.
pub(crate) fn fault(error: tune::Error) -> Fault {
    Fault::input(error.to_string())
}

fn shown(store: &Store) -> String {
    store.path().display().to_string()
}

fn merge(store: &Store, files: &[PathBuf]) -> Result<MergeReport, Fault> {
    // All are read before anything is changed.
    let read = |file: &PathBuf| {
        if !file.is_file() {
            return Err(Fault::input(format!("{}: no such file", file.display()))
                .help("`--merge` takes a cache that `cusync tune` wrote"));
        }
        Store::at(file).load().map_err(fault)
    };
    let caches = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let merge = |cache: &mut tune::Cache| {
        let one = |(file, other): (&PathBuf, tune::Cache)| {
            let held = other.entries().count();
            (file.display().to_string(), held, cache.merge(other))
        };
        let files = files.iter().zip(caches).map(one).collect();
        (files, cache.entries().count())
    };
    let (files, entries) = store.update(merge).map_err(fault)?;
    Ok(MergeReport { cache: shown(store), files, entries })
}

fn of_spec(spec: &TuneSpec, store: &Store, progress: &Progress) -> Result<SpecReport, Fault> {
    let target = &spec.target;
    let (text, origin) = (&target.source.text, &target.source.origin);
    let refused = |d: Diagnostic| Fault::input(d.render(text, origin, false));
    let parsed = cusync_gen::spec::parse(text, origin).map_err(refused)?;
    let resolved = parsed.resolve(&target.dims).map_err(refused)?;
    // A cache that cannot be read is told before a GPU works for it.
    store.load().map_err(fault)?;
    let gpu = gpu();
    let profile = gpu.as_ref().map_or(&target.device, |(_, profile)| profile);
    progress.say("predicting");
    let proposals = tune::proposals(&resolved, profile, target.executor).map_err(refused)?;
    let found = match &gpu {
        Err(_) => Confirmed::default(),
        Ok((device, _)) => {
            let how = Measure {
                candidates: spec.candidates,
                seed: spec.seed,
                edges: spec.edges,
                ..Measure::default()
            };
            let told = &mut |name: &str| progress.say(format!("measuring {name}"));
            tune::confirm(&proposals, device, &how, told).map_err(|e| fault(e).help(DOCTOR))?
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
        let machine = Machine::of(device).map_err(|e| Fault::input(e.to_string()))?;
        let entries = found.entries(&resolved, &machine, target.executor, spec.edges);
        if let Some(entry) = entries.first() {
            plan = Origin::of(entry);
        }
        let keep = |cache: &mut tune::Cache| {
            for entry in entries {
                cache.insert(entry);
            }
        };
        store.update(keep).map_err(fault)?;
        kept = Some(shown(store));
    }
    let mut candidates: Vec<CandidateReport> = found.tried.iter().map(measured).collect();
    let unmeasured = |p: &&Proposal| !found.tried.iter().any(|t| t.config == p.config);
    candidates.extend(proposals.iter().filter(unmeasured).map(predicted));
    let best = found.tried.first().map(measured).or_else(|| proved(&proposals));
    let chosen = best.ok_or_else(|| {
        Fault::refuted("no configuration is proved").help("`cusync check` shows the counterexample")
    })?;
    let first = tune::first_choice(&proposals).map(|p| &p.config);
    let first = found.tried.iter().find(|t| Some(&t.config) == first);
    let fastest = found.tried.first();
    Ok(SpecReport {
        pipeline: resolved.name.clone(),
        dims: resolved.dims.iter().cloned().collect(),
        element: resolved.element.name(),
        device: gpu.as_ref().map_or_else(|_| profile.name.to_string(), |(device, _)| device.name().into()),
        executor: wish_name(target.executor),
        edges: spec.edges,
        plan: plan.to_string(),
        measured: kept.is_some(),
        chosen,
        first_choice: first.map(measured),
        regret: first.zip(fastest).map(|(first, best)| first.time.median_us / best.time.median_us - 1.0),
        candidates,
        cache: kept,
        skipped: found.skipped,
        wrong: found.wrong,
        note: gpu.err(),
    })
}

const DOCTOR: &str = "`cusync doctor` says what is missing";

/// The GPU and its profile, or why nothing is measured.
fn gpu() -> Result<(device::Device, cusync_gen::device::Device), String> {
    let first = |e: device::Error| e.to_string().lines().next().unwrap_or("no GPU").to_owned();
    let gpu = device::Device::open(0).map_err(|e| format!("{}: the choice is the prediction", first(e)))?;
    let old = || format!("{} is older than compute capability 8.0: the choice is the prediction", gpu.name());
    let profile = gpu.profile().ok_or_else(old)?;
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

/// The best of the proposals that has a proof.
fn proved(proposals: &[Proposal]) -> Option<CandidateReport> {
    proposals.iter().find(|p| check(p.candidate.clone()).is_ok()).map(predicted)
}
