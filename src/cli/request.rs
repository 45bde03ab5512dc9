//! What the command line asks for, with every name looked up.

use std::path::PathBuf;

use cusync::bench::MlpArgs;
use cusync::bench::dag::DagArgs;
use cusync::tune::{Cache, Store};
use cusync_gen::check::Executor;
use cusync_gen::device::Device;

use super::calibrate::CalibrateRequest;
use super::fault::Fault;
use super::schedule::ScheduleRequest;
use super::source::Source;
use super::tune::TuneRequest;

/// One invocation.
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) output: Output,
}

/// How to answer.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// JSON on standard output, and nothing else there.
    pub(crate) json: bool,
    /// Colours on standard output.
    pub(crate) color: bool,
    /// Progress on standard error.
    pub(crate) progress: bool,
}

/// A spec with its dims, for a device.
pub(crate) struct Target {
    pub(crate) source: Source,
    pub(crate) dims: Vec<(String, u64)>,
    pub(crate) device: Device,
    /// As asked for; `None`: whatever suits.
    pub(crate) executor: Option<Executor>,
}

/// A run.
pub(crate) struct RunRequest {
    pub(crate) target: Target,
    pub(crate) seed: u64,
    /// Of the cpu executor; `None`: all.
    pub(crate) threads: Option<usize>,
    /// Tuned plans.
    pub(crate) tuned: TunedRequest,
}

/// Which tuned plans are used.
#[derive(Default)]
pub(crate) enum TunedRequest {
    /// Those of the usual cache.
    #[default]
    Usual,
    /// Those of a file.
    File(PathBuf),
    /// None: what is predicted.
    Never,
}

/// A prediction.
pub(crate) struct SimulateRequest {
    pub(crate) target: Target,
    /// Where the timelines go.
    pub(crate) file: Option<PathBuf>,
}

impl TunedRequest {
    /// Of the two arguments that commands have for it.
    pub(crate) fn of(cache: Option<PathBuf>, no_cache: bool) -> Self {
        match cache {
            Some(file) => TunedRequest::File(file),
            None if no_cache => TunedRequest::Never,
            None => TunedRequest::Usual,
        }
    }

    /// Reads the cache. A file that cannot be read is told, not passed over; having no folder for one is having none.
    pub(crate) fn load(&self) -> Result<Cache, Fault> {
        let store = match self {
            TunedRequest::Never => return Ok(Cache::default()),
            TunedRequest::File(file) => Store::at(file),
            TunedRequest::Usual => match Store::usual() {
                Ok(store) => store,
                Err(_) => return Ok(Cache::default()),
            },
        };
        store.load().map_err(|e| Fault::input(e.to_string()))
    }
}

/// Predictions held against a record.
pub(crate) struct AgainstRequest {
    /// Only this pipeline; without, all that the record has.
    pub(crate) source: Option<Source>,
    /// Only sizes with these dims.
    pub(crate) dims: Vec<(String, u64)>,
    /// Only ways of this executor.
    pub(crate) executor: Option<Executor>,
    pub(crate) device: Device,
    /// What `cusync bench` saved.
    pub(crate) record: PathBuf,
}

/// A traced run.
pub(crate) struct TraceRequest {
    pub(crate) target: Target,
    pub(crate) seed: u64,
    /// The decode kernel in place of a chain kernel.
    pub(crate) decode: bool,
    /// Predicted, not run.
    pub(crate) simulate: bool,
    /// Where the timeline goes.
    pub(crate) file: Option<PathBuf>,
}

/// A benchmark.
pub(crate) enum Suite {
    /// Every executor and peer.
    Mlp(Box<MlpRequest>),
    /// Every chain kernel, mode and way of cutting; the request's files are not read.
    Sweep(Box<MlpRequest>),
    /// Kernel-level scheduling.
    Dag(Box<DagRequest>),
    Sync,
}

/// What the kernel-level benchmark measures.
pub(crate) struct DagRequest {
    pub(crate) args: DagArgs,
    /// Where the report goes as JSON.
    pub(crate) save: Option<PathBuf>,
}

/// What the MLP benchmarks measure, or read.
pub(crate) struct MlpRequest {
    pub(crate) args: MlpArgs,
    /// Tuned plans that are measured too.
    pub(crate) tuned: TunedRequest,
    /// Records of earlier runs: with any, nothing is measured.
    pub(crate) from: Vec<PathBuf>,
    /// Times of `benches/pytorch_mlp.py`.
    pub(crate) pytorch: Vec<PathBuf>,
    /// Where the report goes as JSON.
    pub(crate) save: Option<PathBuf>,
}

pub(crate) enum Command {
    Check(Target),
    Explain(Target),
    Generate(Target, PathBuf),
    Simulate(SimulateRequest),
    Against(AgainstRequest),
    Run(RunRequest),
    Bench(Suite),
    Trace(TraceRequest),
    Tune(TuneRequest),
    Calibrate(CalibrateRequest),
    Schedule(ScheduleRequest),
    Doctor,
}
