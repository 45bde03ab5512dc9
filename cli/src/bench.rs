//! `cusync bench`: measures against the baselines.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use cusync::runtime::SHIPPED;
use cusync_bench::copilot::{CopilotArgs, CopilotReport, bench_copilot};
use cusync_bench::dag::{DagArgs, DagReport, bench_dag, tables};
use cusync_bench::{
    self, Ceilings, Digest, LayerArgs, LayerReport, PytorchTimes, Record, Regime, SemaphoreCost, Size,
    SweepReport, add_pytorch, attentions, bench_layers, bench_semaphores, bench_sweep, convolutions, mlps,
    size_text, source_of,
};
use cusync_gen::choose::against::{Measured, Measurements};
use cusync_gen::graph::Element;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;
use super::target::CacheArgs;

/// Rested samples per configuration under `--spread`: there are many configurations, and a precision of one
/// percent is enough.
const SPREAD_SAMPLES: usize = 8;

#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Benchmark suite to run
    suite: SuiteArg,
    /// Measure only these pipelines
    #[arg(long, value_name = "NAME")]
    pipeline: Vec<String>,
    /// Measure only these sizes: tokens of an MLP, images of a convolution, generating sequences
    #[arg(long = "m", visible_alias = "b", value_name = "M", value_delimiter = ',')]
    sizes: Vec<u32>,
    /// Measure only these token counts of prompts or caches
    #[arg(long = "s", value_name = "S", value_delimiter = ',')]
    tokens: Vec<u32>,
    /// Use bfloat16 instead of fp16
    #[arg(long)]
    bf16: bool,
    /// Stop after this many seconds and list what was left out
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Measure only variants whose name contains one of these words, such as fused,cublaslt
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,
    /// Skip variants whose name contains one of these words
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    without: Vec<String>,
    /// Measure only this regime
    #[arg(long, value_name = "NAME")]
    regime: Option<RegimeArg>,
    /// Also measure the fastest combination of chain kernel, mode and split
    #[arg(long)]
    tune: bool,
    /// Number of jobs per latency measurement of sessions
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Number of session jobs to compare with `fused` bit by bit
    #[arg(long, value_name = "N")]
    exact: Option<usize>,
    /// Number of SMs that sessions leave free
    #[arg(long, value_name = "N", default_value_t = 0)]
    free_sms: u32,
    /// Maximum delay inside session kernels, nanoseconds; needs kernels built with CUSYNC_DELAYS
    #[arg(long, value_name = "NS", default_value_t = 0)]
    delays_ns: u32,
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
    /// Write the report to this file, as JSON in columns (docs/json.md)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum SuiteArg {
    /// MLP layers
    Mlp,
    /// Chains of convolutions, and the bodies of ResNet-38 and VGG-19
    Conv,
    /// Attention blocks for token generation and prompts, alone and with norm, rotation and residual;
    /// attention alone
    Attention,
    /// Whole transformer layers, single and four in a row, for token generation and prompts
    Layer,
    /// MLP layers on every chain kernel, to compare with the cost model
    FusedSweep,
    /// Kernel-level scheduling: the suite, chains, tasks with priorities, random programs
    Dag,
    /// Sessions: jobs handed to a persistent kernel, compared with graphs and launches
    Copilot,
    /// One post, one wait, one hand-off
    Sync,
}

#[derive(Clone, Copy, ValueEnum)]
enum RegimeArg {
    Rested,
    Sustained,
}

impl From<RegimeArg> for Regime {
    fn from(regime: RegimeArg) -> Regime {
        match regime {
            RegimeArg::Rested => Regime::Rested,
            RegimeArg::Sustained => Regime::Sustained,
        }
    }
}

/// Parses a number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0);
    seconds.ok_or_else(|| format!("`{text}` is no length of time: state seconds, more than 0"))
}

impl BenchArgs {
    fn regimes(&self) -> Option<Vec<Regime>> {
        self.regime.map(|regime| vec![regime.into()])
    }

    fn copilot(&self) -> CopilotArgs {
        let usual = CopilotArgs::default();
        CopilotArgs {
            jobs: self.jobs.unwrap_or(usual.jobs),
            exact: self.exact.unwrap_or(usual.exact),
            free_sms: self.free_sms,
            delays_ns: self.delays_ns,
            only: self.only.clone(),
            ..usual
        }
    }

    /// Arguments of the kernel-level benchmark that other suites share.
    fn dag(&self) -> DagArgs {
        let usual = DagArgs::default();
        DagArgs {
            seconds: self.seconds.unwrap_or(usual.seconds),
            only: self.only.clone(),
            without: self.without.clone(),
            regimes: self.regimes().unwrap_or(usual.regimes),
            ..usual
        }
    }

    fn layers(&self) -> Result<LayerArgs, Fault> {
        if let Some(name) = self.pipeline.iter().find(|name| source_of(name).is_none()) {
            let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
            let fault = Fault::input("not-found", format!("no pipeline `{name}` ships"));
            return Err(fault.help(format!("one of {}", names.join(", "))));
        }
        let usual = LayerArgs::default();
        Ok(LayerArgs {
            points: match self.suite {
                SuiteArg::Conv => convolutions(&self.pipeline, &self.sizes),
                SuiteArg::Attention => attentions(false, &self.pipeline, &self.sizes, &self.tokens),
                SuiteArg::Layer => attentions(true, &self.pipeline, &self.sizes, &self.tokens),
                SuiteArg::Mlp | SuiteArg::FusedSweep | SuiteArg::Dag | SuiteArg::Copilot | SuiteArg::Sync => {
                    mlps(&self.pipeline, &self.sizes)
                }
            },
            element: if self.bf16 { Element::Bf16 } else { usual.element },
            regimes: self.regimes().unwrap_or(usual.regimes),
            seconds: self.seconds,
            only: self.only.clone(),
            without: self.without.clone(),
            tune: self.tune,
            samples: if self.spread.is_some() { SPREAD_SAMPLES } else { usual.samples },
            spread: self.spread.map(usize::from),
            ..usual
        })
    }
}

/// A benchmark's records.
pub(crate) enum BenchReport {
    Layers(Box<LayerReport>),
    Sweep(Box<SweepReport>),
    Dag(Box<DagReport>),
    Copilot(Box<CopilotReport>),
    Sync(SemaphoreCost),
    /// Times from a record that contains only data for comparison with predictions.
    Times(Box<Measurements>),
}

impl Answer for BenchReport {
    fn good(&self) -> bool {
        match self {
            BenchReport::Layers(r) => r.wrong.is_empty() && r.fault.is_none(),
            BenchReport::Dag(r) => r.wrong.is_empty(),
            BenchReport::Copilot(r) => r.exact.iter().all(|e| e.wrong == 0),
            BenchReport::Sweep(_) | BenchReport::Sync(_) | BenchReport::Times(_) => true,
        }
    }

    fn json(&self) -> serde_json::Result<String> {
        match self {
            BenchReport::Layers(r) => json(&r.records),
            BenchReport::Sweep(r) => json(&r.records),
            BenchReport::Dag(r) => json(r),
            BenchReport::Copilot(r) => json(r),
            BenchReport::Sync(r) => json(r),
            BenchReport::Times(r) => json(&r.records.iter().map(time).collect::<Vec<_>>()),
        }
    }

    fn page(&self, page: &mut Page) {
        match self {
            BenchReport::Layers(r) => {
                ceilings(page, &r.device, &r.ceilings);
                let (header, rows) = cusync_bench::rows(&r.records);
                page.wide_table(&header, rows);
                // A sample of configurations has no peers to compare with.
                let judged = |r: &Record| r.baseline_us.is_some() || r.variant.starts_with("decode");
                if r.records.iter().any(judged) {
                    page.line("");
                    page.line(Digest::from_records(&r.records).markdown());
                }
                r.tuned.iter().for_each(|s| page.line(s));
                r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
                r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
                r.fault.iter().for_each(|s| page.line(format!("ended early: {s}")));
            }
            BenchReport::Sweep(r) => {
                ceilings(page, &r.device, &r.ceilings);
                sweep(page, r);
                r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
            }
            BenchReport::Dag(r) => dag(page, r),
            BenchReport::Copilot(r) => copilot(page, r),
            BenchReport::Sync(r) => page.line(format!(
                "wait {:.0} ns, post {:.0} ns, hand-off {:.0} ns (mean of {})",
                r.wait_ns, r.post_ns, r.hand_off_ns, r.count
            )),
            BenchReport::Times(r) => {
                page.line(&r.device);
                page.table(
                    ["pipeline", "size", "regime", "variant", "median us"],
                    r.records.iter().map(time).map(|t| {
                        let us = format!("{:.1}", t.median_us);
                        [t.pipeline.clone(), size_text(t.dims), t.regime.clone(), t.variant.clone(), us]
                    }),
                );
                page.line("the record keeps no more than `cusync simulate --against` compares with");
            }
        }
    }
}

/// One time of such a record.
#[derive(serde::Serialize)]
struct Time<'a> {
    pipeline: &'a String,
    dims: &'a Vec<(String, u64)>,
    variant: &'a String,
    regime: &'a String,
    median_us: f64,
}

fn time(m: &Measured) -> Time<'_> {
    let Measured { pipeline, dims, variant, regime, median_us, .. } = m;
    Time { pipeline, dims, variant, regime, median_us: *median_us }
}

/// Repetitions of a post or wait that are averaged into one value.
const SEMAPHORE_COUNT: u32 = 10_000;

pub(crate) fn bench(args: &BenchArgs, output: &Output) -> Result<BenchReport, Fault> {
    let progress = Progress::start(output);
    if matches!(args.suite, SuiteArg::Sync | SuiteArg::FusedSweep | SuiteArg::Copilot)
        && !args.from.is_empty()
    {
        return Err(Fault::input(
            "unsupported",
            "the suites sync, copilot and fused-sweep have no reports that are read again",
        )
        .help("leave --from out"));
    }
    // Fails before anything is measured.
    args.save.as_deref().map_or(Ok(()), files::ensure_writable)?;
    match args.suite {
        SuiteArg::Sync => {
            progress.say("measuring semaphores");
            bench_semaphores(0, SEMAPHORE_COUNT).map(BenchReport::Sync).map_err(fault)
        }
        SuiteArg::Mlp | SuiteArg::Conv | SuiteArg::Attention | SuiteArg::Layer
            if is_of_times(&args.from)? =>
        {
            Ok(BenchReport::Times(Box::new(saved(&args.from[0], &files::read(&args.from[0])?)?)))
        }
        SuiteArg::Mlp | SuiteArg::Conv | SuiteArg::Attention | SuiteArg::Layer => {
            layers(args, &progress).map(|r| BenchReport::Layers(Box::new(r)))
        }
        SuiteArg::FusedSweep => {
            let report_size =
                &mut |name: &str, size: &Size| progress.say(format!("{name} {}", size_text(size)));
            let report = bench_sweep(&args.layers()?, report_size).map_err(fault)?;
            save(args.save.as_deref(), &report)?;
            Ok(BenchReport::Sweep(Box::new(report)))
        }
        SuiteArg::Copilot => {
            let report = bench_copilot(&args.copilot(), &mut |part| progress.say(part)).map_err(fault)?;
            save(args.save.as_deref(), &report)?;
            Ok(BenchReport::Copilot(Box::new(report)))
        }
        SuiteArg::Dag if !args.from.is_empty() => match &args.from[..] {
            [file] => Ok(BenchReport::Dag(Box::new(saved(file, &files::read(file)?)?))),
            _ => Err(Fault::input("unsupported", "reports of the kernel-level suite are not joined")
                .help("name one with --from")),
        },
        SuiteArg::Dag => {
            let mut unsaved = None;
            let report = bench_dag(&args.dag(), &mut |part, report| {
                progress.say(part);
                // If a benchmark is interrupted, the finished parts are kept.
                unsaved = save(args.save.as_deref(), report).err();
            })
            .map_err(fault)?;
            unsaved.map_or(Ok(BenchReport::Dag(Box::new(report))), Err)
        }
    }
}

fn layers(args: &BenchArgs, progress: &Progress) -> Result<LayerReport, Fault> {
    let read = |file: &PathBuf| {
        let times = PytorchTimes::parse(&files::read(file)?);
        let bad = |e: &serde_json::Error| format!("not a file of a script of benches: {e}");
        times.map_err(|e| bad_record(file, &bad(&e)).in_json(&e))
    };
    let pytorch = args.pytorch.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut report = if args.from.is_empty() {
        let mut unsaved = None;
        let layers = LayerArgs { tuned: args.cache.load()?, ..args.layers()? };
        let report = bench_layers(&layers, &mut |news| match news {
            cusync_bench::Progress::Begin(name, size, done, all) => {
                progress.say(format!("{name} {} ({} of {all})", size_text(size), done + 1));
            }
            // If a benchmark is interrupted, the finished sizes are kept.
            cusync_bench::Progress::Done(report) => unsaved = save(args.save.as_deref(), report).err(),
        })
        .map_err(fault)?;
        unsaved.map_or(Ok(report), Err)?
    } else {
        earlier(&args.from)?
    };
    pytorch.into_iter().for_each(|times| add_pytorch(&mut report, times));
    save(args.save.as_deref(), &report)?;
    Ok(report)
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

/// Whether the only named file is a record of times rather than a whole report.
fn is_of_times(files: &[PathBuf]) -> Result<bool, Fault> {
    let [file] = files else { return Ok(false) };
    let text = files::read(file)?;
    Ok(saved::<LayerReport>(file, &text).is_err() && saved::<Measurements>(file, &text).is_ok())
}

fn save(file: Option<&Path>, report: &impl serde::Serialize) -> Result<(), Fault> {
    let Some(file) = file else { return Ok(()) };
    let failed = |e| Fault::input("unwritable", format!("{}: {e}", file.display()));
    let text = cusync_gen::columns::write(report).map_err(failed)?;
    files::write(file, &text)
}

fn fault(error: cusync_bench::Error) -> Fault {
    match error {
        cusync_bench::Error::Wrong { .. } => error.into(),
        other => Fault::from(other).help("`cusync doctor` says what is missing"),
    }
}

fn ceilings(page: &mut Page, device: &str, c: &Ceilings) {
    page.line(format!(
        "{device}: {:.0} TFLOP/s rested, {:.0} sustained; reads {:.2} TB/s",
        c.rested.matrix_tflops, c.sustained.matrix_tflops, c.rested.read_tbs
    ));
}

fn sweep(page: &mut Page, r: &SweepReport) {
    let header = [
        "pipeline",
        "size",
        "tile",
        "cluster",
        "mode",
        "cut",
        "predicted us",
        "median us",
        "p10",
        "p90",
        "without waits",
        "floor",
    ];
    page.table(
        header,
        r.records.iter().map(|r| {
            let s = &r.schedule;
            [
                r.pipeline.clone(),
                size_text(&r.dims),
                s.tile.clone(),
                s.cluster.clone(),
                s.mode.clone(),
                if r.splits { s.cut.to_string() } else { "never".into() },
                format!("{:.1}", s.predicted_us),
                format!("{:.1}", r.time.median_us),
                format!("{:.1}", r.time.p10_us),
                format!("{:.1}", r.time.p90_us),
                format!("{:.1}", r.without_waits_us),
                format!("{:.1}", r.floor_us),
            ]
        }),
    );
}

fn dag(page: &mut Page, r: &DagReport) {
    page.line(&r.device);
    for table in tables(r) {
        page.line("");
        page.line(table.title);
        page.wide_table(&table.header, table.rows);
        table.notes.iter().for_each(|note| page.line(note));
    }
    if let Some(e) = &r.exact {
        page.line("");
        page.line(format!(
            "{} random programs ({} kernels) with injected delays, {} runs: {} not bit-exact with the host",
            e.programs,
            e.kernels,
            e.runs,
            e.wrong.len()
        ));
    }
    r.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
    r.wrong.iter().for_each(|s| page.line(format!("WRONG: {s}")));
}

fn copilot(page: &mut Page, r: &CopilotReport) {
    page.line(&r.device);
    for e in &r.exact {
        let (jobs, wrong, launches) = (e.jobs, e.wrong, e.launches);
        page.line(format!(
            "{}: {jobs} jobs, {wrong} not bit-equal to fused, {launches} launches",
            e.pipeline
        ));
    }
    for case in r.handed.chunk_by(|a, b| a.case == b.case) {
        page.line(format!("{}: {} items", case[0].case, case[0].items));
        let one = |h: &cusync_bench::copilot::HandedOut| {
            let us = [h.times.p50_us, h.times.p10_us, h.times.p99_us, h.span_us].map(|us| format!("{us:.1}"));
            let [p50, p10, p99, span] = us;
            let [gap, gap_p90, _] = h.gap_ns.map(|ns| format!("{ns:.0}"));
            [h.way.clone(), p50, p10, p99, span, gap, gap_p90, format!("{:.1}", h.waits_us)]
        };
        page.table(
            [
                "items by",
                "p50 us",
                "p10",
                "p99",
                "first begin to last end",
                "gap ns",
                "gap p90",
                "waits inside us",
            ],
            case.iter().map(one),
        );
        for [launched, word, item] in case.iter().filter_map(|h| h.begins_us) {
            page.line(format!(
                "with a launch, from the decision: it is queued after {launched:.1} us, the first word is written after {word:.1}, \
                 the first item begins after {item:.1}"
            ));
        }
    }
    if let Some(host) = &r.host {
        let (ledger, look) = (host.ledger_ns, host.look_ns);
        page.line(format!("the ledger takes {ledger:.0} ns an item, a look at all workers {look:.0} ns"));
    }
    if !r.kinds.is_empty() {
        let rates =
            |rates: &[f64]| rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
        page.table(
            ["short jobs", "p50 us", "p10", "p99", "max", "jobs", "long jobs a second", "without short ones"],
            r.kinds.iter().map(|k| {
                let us = [k.short.p50_us, k.short.p10_us, k.short.p99_us, k.short.max_us];
                let [p50, p10, p99, max] = us.map(|us| format!("{us:.1}"));
                let jobs = k.short.jobs.to_string();
                [k.way.clone(), p50, p10, p99, max, jobs, rates(&k.long_rates), rates(&k.alone_rates)]
            }),
        );
    }
    let us = |us: f64| format!("{us:.1}");
    let times =
        |t: &cusync_bench::copilot::JobTimes| [us(t.p50_us), us(t.p10_us), us(t.p99_us), us(t.max_us)];
    for l in &r.latency {
        page.line(format!("{} M={}: the kernel in a graph {:.1} us", l.pipeline, l.m, l.kernel_us));
        page.table(
            ["decision to end", "p50 us", "p10", "p99", "max", "less the kernel", "p99 less it"],
            l.ways.iter().map(|(name, t)| {
                let [p50, p10, p99, max] = times(t);
                [name.clone(), p50, p10, p99, max, us(t.p50_us - l.kernel_us), us(t.p99_us - l.kernel_us)]
            }),
        );
    }
    if !r.rows.is_empty() {
        page.line("llama65_mlp, M of 1 to 64 drawn anew for each job");
        page.table(
            ["way", "p50 us", "p10", "p99", "max", "set-up ms", "MiB"],
            r.rows.iter().map(|w| {
                let [p50, p10, p99, max] = times(&w.times);
                [w.way.clone(), p50, p10, p99, max, us(w.setup_ms), us(w.bytes as f64 / f64::from(1 << 20))]
            }),
        );
    }
    for a in &r.ahead {
        let (ahead, job, replay) = (a.ahead, a.us, a.replay_us);
        page.line(format!(
            "{}: {ahead} jobs ahead {job:.1} us a job, replays back to back {replay:.1} us",
            a.pipeline
        ));
    }
    if let Some(s) = &r.stopped {
        page.line(format!(
            "host stopped: GPU idle within {:.0} us, memory allocated and freed elsewhere within {:.0}; kernel stopped: {}",
            s.idle_after_us, s.memory_us, s.unfinished
        ));
    }
}
