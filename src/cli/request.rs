//! What the command line asks for, with every name looked up.

use std::path::PathBuf;

use cusync_gen::check::Executor;
use cusync_gen::device::Device;

use super::source::Source;

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
}

/// A benchmark.
pub(crate) enum Suite {
    /// Empty lists: the suite's own.
    Mlp {
        pipelines: Vec<String>,
        sizes: Vec<u32>,
        bf16: bool,
        seconds: Option<f64>,
    },
    Sync,
}

pub(crate) enum Command {
    Check(Target),
    Explain(Target),
    Generate(Target, PathBuf),
    Simulate(Target),
    Run(RunRequest),
    Bench(Suite),
    Doctor,
}
