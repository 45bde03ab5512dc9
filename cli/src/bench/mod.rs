//! `cusync bench`: measures against the baselines. Each suite has its own arguments.

mod page;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use cusync::runtime::SHIPPED;
use cusync_bench::copilot::{CopilotArgs, CopilotReport, bench_copilot};
use cusync_bench::dag::{DagArgs, DagReport, bench_dag};
use cusync_bench::{
    self, LayerArgs, LayerPoint, LayerReport, PytorchTimes, Regime, SemaphoreCost, add_pytorch, attentions,
    bench_layers, bench_semaphores, convolutions, mlps, size_text, source_of,
};
use cusync_gen::choose::against::Measurements;
use cusync_gen::graph::Element;

use super::fault::Fault;
use super::files;
use super::print::Output;
use super::progress::Progress;
use super::target::CacheArgs;

/// Rested samples per configuration under `--spread`: there are many configurations, and a precision of one
/// percent is enough.
const SPREAD_SAMPLES: usize = 8;

/// Repetitions of a post or wait that are averaged into one value.
const SEMAPHORE_COUNT: u32 = 10_000;

#[derive(Subcommand)]
pub(crate) enum Suite {
    /// MLP layers
    Mlp(LayerSuite),
    /// Chains of convolutions, and the bodies of ResNet-38 and VGG-19
    Conv(LayerSuite),
    /// Attention blocks for token generation and prompts, alone and with norm, rotation and residual;
    /// attention alone
    Attention(TokenSuite),
    /// Whole transformer layers, single and four in a row, for token generation and prompts
    Layer(TokenSuite),
    /// Kernel-level scheduling: the suite, chains, tasks with priorities, random programs
    Dag(DagSuite),
    /// Sessions: jobs handed to a persistent kernel, compared with graphs and launches
    Copilot(CopilotSuite),
    /// One post, one wait, one hand-off
    Sync,
}

/// Suites of attention and layers.
#[derive(Args)]
pub(crate) struct TokenSuite {
    /// Measure only these token counts of prompts or caches
    #[arg(long = "s", value_name = "S", value_delimiter = ',')]
    tokens: Vec<u32>,
    #[command(flatten)]
    layers: LayerSuite,
}

#[derive(Args)]
pub(crate) struct LayerSuite {
    #[command(flatten)]
    points: PointArgs,
    #[command(flatten)]
    variants: VariantArgs,
    /// Also measure the fastest combination of chain kernel, mode and split
    #[arg(long)]
    tune: bool,
    /// Measure N sampled configurations of each size instead of the usual variants, to compare predictions
    /// with
    #[arg(long, value_name = "N", conflicts_with = "tune", value_parser = clap::value_parser!(u16).range(4..=64))]
    spread: Option<u16>,
    #[command(flatten)]
    cache: CacheArgs,
    /// Report the contents of this file, written by `--save`, without measuring; may be repeated
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Add times written by a script of benches/; may be repeated
    #[arg(long, value_name = "FILE")]
    pytorch: Vec<PathBuf>,
    #[command(flatten)]
    save: SaveArgs,
}

#[derive(Args)]
pub(crate) struct DagSuite {
    #[command(flatten)]
    variants: VariantArgs,
    /// Stop after this many seconds and list what was left out
    #[arg(long, value_name = "S", value_parser = seconds, default_value_t = DagArgs::default().seconds)]
    seconds: f64,
    /// Report the contents of this file, written by `--save`, without measuring
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    save: SaveArgs,
}

#[derive(Args)]
pub(crate) struct CopilotSuite {
    /// Measure only parts whose name contains one of these words, such as exact,latency
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of jobs per latency measurement of sessions
    #[arg(long, value_name = "N", default_value_t = CopilotArgs::default().jobs)]
    jobs: usize,
    /// Number of session jobs to compare with `fused` bit by bit
    #[arg(long, value_name = "N", default_value_t = CopilotArgs::default().exact)]
    exact: usize,
    /// Number of SMs that sessions leave free
    #[arg(long, value_name = "N", default_value_t = 0)]
    free_sms: u32,
    /// Maximum delay inside session kernels, nanoseconds; needs kernels built with CUSYNC_DELAYS
    #[arg(long, value_name = "NS", default_value_t = 0)]
    delays_ns: u32,
    #[command(flatten)]
    save: SaveArgs,
}

#[derive(Args)]
struct PointArgs {
    /// Measure only these pipelines
    #[arg(long, value_name = "NAME")]
    pipeline: Vec<String>,
    /// Measure only these sizes: tokens of an MLP, images of a convolution, generating sequences
    #[arg(long = "m", visible_alias = "b", value_name = "M", value_delimiter = ',')]
    sizes: Vec<u32>,
    /// Use bfloat16 instead of fp16
    #[arg(long)]
    bf16: bool,
    /// Stop after this many seconds and list what was left out
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
}

#[derive(Args)]
struct VariantArgs {
    /// Measure only variants whose name contains one of these words, such as fused,cublaslt
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,
    /// Skip variants whose name contains one of these words
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    without: Vec<String>,
    /// Measure only this regime
    #[arg(long, value_name = "NAME")]
    regime: Option<RegimeArg>,
}

#[derive(Args)]
struct SaveArgs {
    /// Write the report to this file, as JSON in columns (docs/json.md)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum RegimeArg {
    Rested,
    Sustained,
}

/// Parses a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0);
    seconds.ok_or_else(|| format!("`{text}` is no length of time: state seconds, more than 0"))
}

impl VariantArgs {
    fn regimes(&self) -> Vec<Regime> {
        match self.regime {
            None => vec![Regime::Rested, Regime::Sustained],
            Some(RegimeArg::Rested) => vec![Regime::Rested],
            Some(RegimeArg::Sustained) => vec![Regime::Sustained],
        }
    }
}

impl SaveArgs {
    /// Called before anything is measured.
    fn ensure_writable(&self) -> Result<(), Fault> {
        self.save.as_deref().map_or(Ok(()), files::ensure_writable)
    }

    fn write(&self, report: &impl serde::Serialize) -> Result<(), Fault> {
        let Some(file) = &self.save else { return Ok(()) };
        let failed = |e| Fault::input("unwritable", format!("{}: {e}", file.display()));
        let text = cusync_gen::columns::write(report).map_err(failed)?;
        files::write(file, &text)
    }
}

impl PointArgs {
    /// The benchmark of these points, all else as usual.
    fn layers(&self, points: Vec<LayerPoint>) -> Result<LayerArgs, Fault> {
        if let Some(name) = self.pipeline.iter().find(|name| source_of(name).is_none()) {
            let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
            let fault = Fault::input("not-found", format!("no pipeline `{name}` ships"));
            return Err(fault.help(format!("one of {}", names.join(", "))));
        }
        let element = if self.bf16 { Element::Bf16 } else { Element::F16 };
        Ok(LayerArgs { points, element, seconds: self.seconds, ..LayerArgs::default() })
    }
}

impl LayerSuite {
    fn layers(&self, points: Vec<LayerPoint>) -> Result<LayerArgs, Fault> {
        let usual = self.points.layers(points)?;
        Ok(LayerArgs {
            regimes: self.variants.regimes(),
            only: self.variants.only.clone(),
            without: self.variants.without.clone(),
            tune: self.tune,
            samples: if self.spread.is_some() { SPREAD_SAMPLES } else { usual.samples },
            spread: self.spread.map(usize::from),
            tuned: self.cache.load()?,
            ..usual
        })
    }
}

/// A benchmark's records.
pub(crate) enum BenchReport {
    Layers(Box<LayerReport>),
    Dag(Box<DagReport>),
    Copilot(Box<CopilotReport>),
    Sync(SemaphoreCost),
    /// Times from a record that contains only data for comparison with predictions.
    Times(Box<Measurements>),
}

pub(crate) fn bench(suite: &Suite, output: &Output) -> Result<BenchReport, Fault> {
    let progress = Progress::start(output);
    let attentions = |whole, args: &TokenSuite| {
        attentions(whole, &args.layers.points.pipeline, &args.layers.points.sizes, &args.tokens)
    };
    match suite {
        Suite::Mlp(args) => layers(mlps(&args.points.pipeline, &args.points.sizes), args, &progress),
        Suite::Conv(args) => layers(convolutions(&args.points.pipeline, &args.points.sizes), args, &progress),
        Suite::Attention(args) => layers(attentions(false, args), &args.layers, &progress),
        Suite::Layer(args) => layers(attentions(true, args), &args.layers, &progress),
        Suite::Dag(args) => dag(args, &progress),
        Suite::Copilot(args) => copilot(args, &progress),
        Suite::Sync => {
            progress.say("measuring semaphores");
            bench_semaphores(0, SEMAPHORE_COUNT).map(BenchReport::Sync).map_err(fault)
        }
    }
}

fn layers(points: Vec<LayerPoint>, args: &LayerSuite, progress: &Progress) -> Result<BenchReport, Fault> {
    args.save.ensure_writable()?;
    if let Some(times) = only_times(&args.from)? {
        return Ok(BenchReport::Times(Box::new(times)));
    }
    let read = |file: &PathBuf| {
        let times = PytorchTimes::parse(&files::read(file)?);
        let bad = |e: &serde_json::Error| format!("not a file of a script of benches: {e}");
        times.map_err(|e| bad_record(file, &bad(&e)).in_json(&e))
    };
    let pytorch = args.pytorch.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut report = if args.from.is_empty() {
        let mut unsaved = None;
        let report = bench_layers(&args.layers(points)?, &mut |news| match news {
            cusync_bench::LayerProgress::Begin(name, size, done, all) => {
                progress.say(format!("{name} {} ({} of {all})", size_text(size), done + 1));
            }
            // If a benchmark is interrupted, the finished sizes are kept.
            cusync_bench::LayerProgress::Done(report) => unsaved = args.save.write(report).err(),
        })
        .map_err(fault)?;
        unsaved.map_or(Ok(report), Err)?
    } else {
        earlier(&args.from)?
    };
    pytorch.into_iter().for_each(|times| add_pytorch(&mut report, times));
    args.save.write(&report)?;
    Ok(BenchReport::Layers(Box::new(report)))
}

fn dag(args: &DagSuite, progress: &Progress) -> Result<BenchReport, Fault> {
    args.save.ensure_writable()?;
    if let Some(file) = &args.from {
        return Ok(BenchReport::Dag(Box::new(saved(file, &files::read(file)?)?)));
    }
    let dag = DagArgs {
        seconds: args.seconds,
        only: args.variants.only.clone(),
        without: args.variants.without.clone(),
        regimes: args.variants.regimes(),
        ..DagArgs::default()
    };
    let mut unsaved = None;
    let report = bench_dag(&dag, &mut |part, report| {
        progress.say(part);
        // If a benchmark is interrupted, the finished parts are kept.
        unsaved = args.save.write(report).err();
    })
    .map_err(fault)?;
    unsaved.map_or(Ok(BenchReport::Dag(Box::new(report))), Err)
}

fn copilot(args: &CopilotSuite, progress: &Progress) -> Result<BenchReport, Fault> {
    args.save.ensure_writable()?;
    let CopilotSuite { jobs, exact, free_sms, delays_ns, .. } = *args;
    let only = args.only.clone();
    let copilot = CopilotArgs { jobs, exact, free_sms, delays_ns, only, ..CopilotArgs::default() };
    let report = bench_copilot(&copilot, &mut |part| progress.say(part)).map_err(fault)?;
    args.save.write(&report)?;
    Ok(BenchReport::Copilot(Box::new(report)))
}

/// Reports of earlier runs, merged.
fn earlier(files: &[PathBuf]) -> Result<LayerReport, Fault> {
    let mut all: Option<LayerReport> = None;
    for file in files {
        let report: LayerReport = saved(file, &files::read(file)?)?;
        match &mut all {
            Some(all) => all.absorb(report),
            None => all = Some(report),
        }
    }
    all.ok_or_else(|| Fault::input("usage", "no file to read"))
}

/// Parses a report written by `--save`.
fn saved<T: serde::de::DeserializeOwned>(file: &Path, text: &str) -> Result<T, Fault> {
    let bad = |e: serde_json::Error| bad_record(file, &format!("not a saved report: {e}")).in_json(&e);
    cusync_gen::columns::read(text).map_err(bad)
}

/// Error for a file with other contents than its option expects.
fn bad_record(file: &Path, why: &dyn std::fmt::Display) -> Fault {
    let file = file.display().to_string();
    let fault = Fault::input("bad-record", format!("{file}: {why}")).in_file(file);
    fault.help("`--from` takes what `--save` wrote, `--pytorch` what a script of benches/ wrote")
}

/// The record if the only named file holds times rather than a whole report.
fn only_times(files: &[PathBuf]) -> Result<Option<Measurements>, Fault> {
    let [file] = files else { return Ok(None) };
    let text = files::read(file)?;
    Ok(match saved::<LayerReport>(file, &text) {
        Ok(_) => None,
        Err(_) => saved(file, &text).ok(),
    })
}

fn fault(error: cusync_bench::Error) -> Fault {
    match error {
        cusync_bench::Error::Wrong { .. } => error.into(),
        other => Fault::from(other).help("`cusync doctor` says what is missing"),
    }
}
