//! The command line as clap reads it.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use cusync::bench::dag::DagArgs;
use cusync::bench::{MlpArgs, Regime};
use cusync::runtime::{Edges, SHIPPED, shipped};
use cusync_gen::check::Executor;
use cusync_gen::device::{DEVICES, Device};
use cusync_gen::graph::Element;

use super::calibrate::CalibrateRequest;
use super::fault::{Fault, nearest};
use super::request::{
    AgainstRequest, Command, DagRequest, MlpRequest, Output, Request, RunRequest, SimulateRequest, Suite,
    Target, TraceRequest, TunedRequest,
};
use super::schedule::ScheduleRequest;
use super::source::Source;
use super::tune::{TuneRequest, TuneSpec, TuneWhat};

/// Tile-synchronised execution of dependent GPU kernels, proved before it runs.
#[derive(Parser)]
#[command(name = "cusync", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Subcommands,
    /// Answer in JSON (docs/json.md)
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Prove that a pipeline can neither race nor hang, or refute it with a counterexample
    Check(TargetArgs),
    /// Show tiles, dependences, policies, orders and launch mode, and why they were chosen
    Explain(TargetArgs),
    /// Render the C++ header and the Rust handle
    Gen {
        #[command(flatten)]
        target: TargetArgs,
        /// Folder to write to
        #[arg(short, long, value_name = "DIR", default_value = ".")]
        output: PathBuf,
    },
    /// Predict the time of every executor, or hold predictions against measurements
    Simulate {
        /// A RON file, or the name of a pipeline that ships; with --against, only its measurements
        #[arg(value_name = "FILE", required_unless_present = "against")]
        file: Option<String>,
        #[command(flatten)]
        plan: PlanArgs,
        /// Write the predicted timelines: .html is a page that needs nothing else, .json is for Perfetto
        #[arg(short, long, value_name = "FILE", value_parser = timeline_file, conflicts_with = "against")]
        output: Option<PathBuf>,
        /// Predict what `cusync bench mlp --save RECORD` measured, such as with --spread; --dim and --executor choose among it
        #[arg(long, value_name = "RECORD")]
        against: Option<PathBuf>,
    },
    /// Run and verify against an independent reference: on the GPU if there is one, else on the CPU
    Run {
        #[command(flatten)]
        target: TargetArgs,
        /// Of the random inputs
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Host threads of the cpu executor
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        threads: Option<u16>,
        /// Use the tuned plans of this file, not of the usual cache
        #[arg(long, value_name = "FILE", conflicts_with = "no_cache")]
        cache: Option<PathBuf>,
        /// Use no tuned plans: what is predicted
        #[arg(long)]
        no_cache: bool,
    },
    /// Find the fastest configuration: predict, measure the best few where there is a GPU, and keep the answer
    Tune(Box<TuneArgs>),
    /// Measure against the baselines (needs a GPU)
    Bench {
        /// What to measure
        suite: SuiteArg,
        #[command(flatten)]
        mlp: Box<BenchArgs>,
    },
    /// Show where the time of a fused run goes, beside the same kernel stage by stage (needs a Hopper GPU, or --simulate)
    Trace {
        #[command(flatten)]
        target: TargetArgs,
        /// Of the random inputs
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The decode kernel, for few tokens, in place of a chain kernel
        #[arg(long)]
        decode: bool,
        /// Predict the timeline instead of running; --executor says of what, beside serial launches
        #[arg(long, conflicts_with_all = ["seed", "decode"])]
        simulate: bool,
        /// Write the timeline: .html is a page that needs nothing else, .json is for Perfetto or chrome://tracing
        #[arg(short, long, value_name = "FILE", value_parser = timeline_file)]
        output: Option<PathBuf>,
    },
    /// Measure what a device profile needs, and write one (needs a GPU)
    Calibrate {
        /// Which GPU
        #[arg(long, value_name = "N", default_value_t = 0)]
        gpu: u32,
        /// Write the profile, RON; without, it is printed
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Put the kernels of serial code on streams, with the fewest waits, and choose how to run them
    Schedule(ScheduleArgs),
    /// Print driver, GPUs, toolchain and kernels, and for each fault the command that mends it
    Doctor,
}

/// Rested samples of each way under `--spread`: many ways, a figure each that is good to a per cent.
const SPREAD_SAMPLES: usize = 8;

#[derive(ClapArgs)]
struct BenchArgs {
    /// Only these pipelines
    #[arg(long, value_name = "NAME")]
    pipeline: Vec<String>,
    /// Only these sizes
    #[arg(long = "m", value_name = "M", value_delimiter = ',')]
    sizes: Vec<u32>,
    /// bfloat16 in place of fp16
    #[arg(long)]
    bf16: bool,
    /// Stop after so many seconds; what was left out is listed
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Only variants with one of these words in their names, such as fused,cublaslt
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,
    /// No variants with one of these words in their names
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    without: Vec<String>,
    /// Only this regime
    #[arg(long, value_name = "NAME")]
    regime: Option<RegimeArg>,
    /// Also measure the fastest of all chain kernels, modes and ways of cutting
    #[arg(long)]
    tune: bool,
    /// In place of the usual variants, measure N of all ways to run each size, a few samples each: what predictions are held
    /// against
    #[arg(long, value_name = "N", conflicts_with = "tune", value_parser = clap::value_parser!(u16).range(4..=64))]
    spread: Option<u16>,
    /// Also measure the tuned plans of this file, not of the usual cache
    #[arg(long, value_name = "FILE", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Measure no tuned plans of a cache
    #[arg(long)]
    no_cache: bool,
    /// Measure nothing: report what `--save` wrote; may be repeated
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Add the times that benches/pytorch_mlp.py wrote; may be repeated
    #[arg(long, value_name = "FILE")]
    pytorch: Vec<PathBuf>,
    /// Write the report to a file as JSON
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(ClapArgs)]
struct TuneArgs {
    /// A RON file, or the name of a pipeline that ships
    #[arg(value_name = "FILE", required_unless_present_any = ["show", "merge"], conflicts_with_all = ["show", "merge"])]
    file: Option<String>,
    #[command(flatten)]
    plan: PlanArgs,
    /// The cache of tuned plans; without, the one of the user's cache folder
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// Print what the cache holds
    #[arg(long, conflicts_with = "merge")]
    show: bool,
    /// Take in another cache, the later measurement where both have one; may be repeated
    #[arg(long, value_name = "FILE")]
    merge: Vec<PathBuf>,
    /// Configurations that are measured, at most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    candidates: u16,
    /// How consecutive runs of a graph are joined
    #[arg(long, value_name = "HOW", default_value = "plain")]
    edges: EdgesArg,
    /// Of the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum EdgesArg {
    /// A run begins when the one before has ended
    Plain,
    /// Inside a captured graph a run begins while the one before ends
    Captured,
    /// So does every other run
    All,
}

#[derive(Clone, Copy, ValueEnum)]
enum RegimeArg {
    Rested,
    Sustained,
}

#[derive(ClapArgs)]
struct TargetArgs {
    /// A RON file, or the name of a pipeline that ships
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    plan: PlanArgs,
}

/// What a spec is planned for.
#[derive(ClapArgs)]
struct PlanArgs {
    /// Replaces a dim's default; may be repeated
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim)]
    dims: Vec<(String, u64)>,
    /// GPU to plan for: h200, h100, a100, l40s, rtx4090, or a file with a profile (codegen/profiles)
    #[arg(long, value_name = "NAME or FILE", default_value = "h200")]
    device: String,
    /// How to run it
    #[arg(long, value_name = "NAME")]
    executor: Option<ExecutorArg>,
}

#[derive(ClapArgs)]
struct ScheduleArgs {
    /// A RON file, or the name of a program that ships
    #[arg(value_name = "FILE")]
    file: String,
    /// Replaces a dim's default; may be repeated
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim)]
    dims: Vec<(String, u64)>,
    /// GPU to schedule for: h200, h100, a100, l40s, or a profile in a file
    #[arg(long, value_name = "NAME", default_value = "h200")]
    device: String,
    /// No more streams of kernels than these
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Option<u16>,
    /// Issue the program so many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
}

#[derive(Clone, Copy, ValueEnum)]
enum ExecutorArg {
    Cpu,
    Serial,
    Streams,
    Programmatic,
    Fused,
}

#[derive(Clone, Copy, ValueEnum)]
enum SuiteArg {
    /// The MLP layers
    Mlp,
    /// The MLP layers on every chain kernel: what the cost model is held against
    FusedSweep,
    /// Kernel-level scheduling: the suite, chains, tasks with priorities, random programs
    Dag,
    /// One post, one wait, one hand-off
    Sync,
}

fn timeline_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "json") => Ok(path),
        _ => Err("the name must end in .html (a page) or in .json (for Perfetto)".into()),
    }
}

fn dim(text: &str) -> Result<(String, u64), String> {
    let way_out = "write NAME=VALUE, such as M=1024";
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            let value = value.parse().map_err(|_| format!("`{value}` is not a positive whole number"))?;
            Ok((name.into(), value))
        }
        _ => Err(way_out.into()),
    }
}

impl Args {
    /// Looks every name up.
    pub(crate) fn resolve(self) -> Result<Request, Fault> {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let output = Output {
            json: self.json,
            color: !plain && !self.json && std::io::stdout().is_terminal(),
            progress: !self.json && std::io::stderr().is_terminal(),
        };
        let command = match self.command {
            Subcommands::Check(target) => Command::Check(target.resolve()?),
            Subcommands::Explain(target) => Command::Explain(target.resolve()?),
            Subcommands::Gen { target, output } => Command::Generate(target.resolve()?, output),
            Subcommands::Simulate { file, plan, output, against } => match (against, file) {
                (Some(record), file) => Command::Against(plan.resolve_against(file, record)?),
                (None, file) => {
                    let file = file.unwrap_or_default();
                    let target = TargetArgs { file, plan }.resolve()?;
                    Command::Simulate(SimulateRequest { target, file: output })
                }
            },
            Subcommands::Run { target, seed, threads, cache, no_cache } => {
                let threads = threads.map(usize::from);
                let tuned = TunedRequest::of(cache, no_cache);
                Command::Run(RunRequest { target: target.resolve()?, seed, threads, tuned })
            }
            Subcommands::Tune(tune) => Command::Tune(tune.resolve()?),
            Subcommands::Bench { suite, mlp } => Command::Bench(match suite {
                SuiteArg::Sync => Suite::Sync,
                SuiteArg::Dag => Suite::Dag(Box::new(mlp.resolve_dag())),
                SuiteArg::Mlp => Suite::Mlp(Box::new(mlp.resolve()?)),
                SuiteArg::FusedSweep => Suite::Sweep(Box::new(mlp.resolve()?)),
            }),
            Subcommands::Trace { target, seed, decode, simulate, output } => {
                let target = target.resolve()?;
                Command::Trace(TraceRequest { target, seed, decode, simulate, file: output })
            }
            Subcommands::Calibrate { gpu, output } => {
                Command::Calibrate(CalibrateRequest { gpu, file: output })
            }
            Subcommands::Schedule(what) => Command::Schedule(what.resolve(output.color)?),
            Subcommands::Doctor => Command::Doctor,
        };
        Ok(Request { command, output })
    }
}

impl BenchArgs {
    /// The arguments that the kernel-level benchmark shares with the others.
    fn resolve_dag(self) -> DagRequest {
        let usual = DagArgs::default();
        let args = DagArgs {
            seconds: self.seconds.unwrap_or(usual.seconds),
            only: self.only,
            without: self.without,
            regimes: match self.regime {
                Some(RegimeArg::Rested) => vec![Regime::Rested],
                Some(RegimeArg::Sustained) => vec![Regime::Sustained],
                None => usual.regimes.clone(),
            },
            ..usual
        };
        DagRequest { args, save: self.save }
    }

    fn resolve(self) -> Result<MlpRequest, Fault> {
        if let Some(name) = self.pipeline.iter().find(|name| shipped(name).is_none()) {
            let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
            let fault = Fault::input(format!("no pipeline `{name}` ships"));
            return Err(fault.help(format!("one of {}", names.join(", "))));
        }
        let usual = MlpArgs::default();
        let or = |given: Vec<u32>, usual| if given.is_empty() { usual } else { given };
        let args = MlpArgs {
            pipelines: if self.pipeline.is_empty() { usual.pipelines } else { self.pipeline },
            sizes: or(self.sizes, usual.sizes),
            element: if self.bf16 { Element::Bf16 } else { usual.element },
            regimes: match self.regime {
                Some(RegimeArg::Rested) => vec![Regime::Rested],
                Some(RegimeArg::Sustained) => vec![Regime::Sustained],
                None => usual.regimes,
            },
            seconds: self.seconds,
            only: self.only,
            without: self.without,
            tune: self.tune,
            samples: if self.spread.is_some() { SPREAD_SAMPLES } else { usual.samples },
            spread: self.spread.map(usize::from),
            ..usual
        };
        let tuned = TunedRequest::of(self.cache, self.no_cache);
        Ok(MlpRequest { args, tuned, from: self.from, pytorch: self.pytorch, save: self.save })
    }
}

impl TuneArgs {
    fn resolve(self) -> Result<TuneRequest, Fault> {
        let what = match self.file {
            None if self.show => TuneWhat::Show,
            None => TuneWhat::Merge(self.merge),
            Some(file) => {
                let target = TargetArgs { file, plan: self.plan }.resolve()?;
                if target.executor == Some(Executor::Cpu) {
                    let fault = Fault::input("the cpu executor is not tuned");
                    return Err(fault.help("choose an executor of a GPU, or leave --executor out"));
                }
                let edges = match self.edges {
                    EdgesArg::Plain => Edges::Plain,
                    EdgesArg::Captured => Edges::Captured,
                    EdgesArg::All => Edges::All,
                };
                let (candidates, seed) = (self.candidates.into(), self.seed);
                TuneWhat::Spec(Box::new(TuneSpec { target, edges, candidates, seed }))
            }
        };
        Ok(TuneRequest { what, cache: self.cache })
    }
}

impl ScheduleArgs {
    fn resolve(self, color: bool) -> Result<ScheduleRequest, Fault> {
        Ok(ScheduleRequest {
            file: self.file,
            dims: self.dims,
            device: profile(&self.device)?,
            streams: self.streams.map(usize::from),
            repeat: usize::from(self.repeat),
            color,
        })
    }
}

impl TargetArgs {
    fn resolve(self) -> Result<Target, Fault> {
        let TargetArgs { file, plan } = self;
        Ok(Target {
            source: Source::find(&file)?,
            dims: plan.dims,
            device: profile(&plan.device)?,
            executor: plan.executor.map(Executor::from),
        })
    }
}

impl PlanArgs {
    fn resolve_against(self, file: Option<String>, record: PathBuf) -> Result<AgainstRequest, Fault> {
        Ok(AgainstRequest {
            source: file.as_deref().map(Source::find).transpose()?,
            dims: self.dims,
            executor: self.executor.map(Executor::from),
            device: profile(&self.device)?,
            record,
        })
    }
}

impl From<ExecutorArg> for Executor {
    fn from(executor: ExecutorArg) -> Executor {
        match executor {
            ExecutorArg::Cpu => Executor::Cpu,
            ExecutorArg::Serial => Executor::Serial,
            ExecutorArg::Streams => Executor::Streams,
            ExecutorArg::Programmatic => Executor::Programmatic,
            ExecutorArg::Fused => Executor::Fused,
        }
    }
}

/// The profile of a name, or in a file.
pub(crate) fn profile(name: &str) -> Result<Device, Fault> {
    if let Some(shipped) = Device::named(name) {
        return Ok(shipped.clone());
    }
    if name.ends_with(".ron") {
        let text = std::fs::read_to_string(name)
            .map_err(|e| Fault::input(format!("cannot read the device profile {name}: {e}")))?;
        return Device::from_ron(&text).map_err(|d| Fault::input(d.render(&text, name, false)));
    }
    let names = || DEVICES.iter().map(|d| d.name.as_str());
    let near = nearest(name, names()).map(|n| format!("did you mean `{n}`? "));
    let all = names().collect::<Vec<_>>().join(", ");
    Err(Fault::input(format!("no device profile `{name}`"))
        .help(near.unwrap_or_default() + "profiles: " + &all + ", or a file that ends in .ron"))
}
