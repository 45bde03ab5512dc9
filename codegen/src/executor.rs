//! The ways to run a pipeline, by name.

use serde::{Deserialize, Serialize};

/// The word by which a way to run a pipeline is asked for, and told in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// Host threads, real atomics.
    Cpu,
    /// One stream, kernel after kernel, no semaphores.
    Serial,
    /// The same, with products of matrices by cuBLASLt where those are faster than ours.
    Library,
    /// One stream a stage, released when every producer CTA has started.
    Streams,
    /// One stream, programmatic dependent launch with an early trigger.
    Programmatic,
    /// One persistent kernel for the whole chain.
    Fused,
    /// That kernel, of few tokens, which keeps running and takes job after job from the host.
    Copilot,
}

impl Executor {
    /// The executors of a GPU that run a plan once, as often as they are asked. `copilot` runs jobs instead.
    pub const GPU: [Executor; 5] =
        [Executor::Serial, Executor::Library, Executor::Streams, Executor::Programmatic, Executor::Fused];

    /// All of them.
    pub const ALL: [Executor; 7] = [
        Executor::Cpu,
        Executor::Serial,
        Executor::Library,
        Executor::Streams,
        Executor::Programmatic,
        Executor::Fused,
        Executor::Copilot,
    ];

    /// The name, as the command line writes it.
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
