//! The executors of a pipeline, by name.

use serde::{Deserialize, Serialize};

/// The name of an executor, used in requests and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// Host threads, real atomics.
    Cpu,
    /// One stream, one kernel after another, no semaphores.
    Serial,
    /// The same, with matrix products by cuBLASLt where it is faster than our kernels.
    Library,
    /// One stream per stage, released when every producer CTA has started.
    Streams,
    /// One stream, programmatic dependent launch with an early trigger.
    Programmatic,
    /// One persistent kernel for the whole chain.
    Fused,
    /// The same kind of kernel for few tokens, which keeps running and takes jobs from the host.
    Copilot,
}

impl Executor {
    /// The GPU executors that run a plan once per request. `copilot` runs jobs instead.
    pub const GPU: [Executor; 5] =
        [Executor::Serial, Executor::Library, Executor::Streams, Executor::Programmatic, Executor::Fused];

    /// All executors.
    pub const ALL: [Executor; 7] = [
        Executor::Cpu,
        Executor::Serial,
        Executor::Library,
        Executor::Streams,
        Executor::Programmatic,
        Executor::Fused,
        Executor::Copilot,
    ];

    /// The name, as used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Executor::Cpu => "cpu",
            Executor::Serial => "serial",
            Executor::Library => "library",
            Executor::Streams => "streams",
            Executor::Programmatic => "programmatic",
            Executor::Fused => "fused",
            Executor::Copilot => "copilot",
        }
    }
}
