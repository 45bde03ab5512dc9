//! Options of a pipeline's runs.

use crate::device::Delays;

/// Which launches may begin while the previous kernel ends: those of the `fused` executor, and chain kernels
/// that `serial` and `library` launch per stage. Such a launch streams its weights early and waits for the
/// previous kernel's memory with everything else, so earlier kernels must not write the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Only launches that follow another launch of their run and whose workers do not wait for each other:
    /// nothing can write their weights, and nothing on the GPU can delay them.
    #[default]
    Plain,
    /// All launches of a captured graph that follow another launch of that graph. Workers that wait for each
    /// other then do not share the GPU with other work.
    Captured,
    /// All launches, including eager ones. The caller must not write weights in stream order.
    All,
}

/// Options of a run; the default is normal operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Limit of one wait, nanoseconds.
    pub timeout_ns: u64,
    /// Skips all waits: for timing only, results are meaningless.
    pub skip_waits: bool,
    /// Only streams the weights of a decode plan: measures the limit set by reading them.
    pub stream_only: bool,
    /// Makes posts ineffective so that every consumer starves: tests the time limit.
    pub starve: bool,
    /// Programmatic launches of chain and decode kernels.
    pub overlap: Overlap,
    /// Lets the `fused` executor record when each of its items began and ended.
    pub trace: bool,
    /// Pseudo-random delays inside Hopper kernels: tests waits and posts.
    pub delays: Delays,
    /// Number of events that Hopper kernels may record between reads, for the test that compares them with
    /// the plan; 0 for none. Like delays, notes need kernels that are built for them.
    pub notes: usize,
    /// Reads page tables back before runs, captures and replays, and refuses those that would append to a
    /// page shared by two sequences: the proof assumes that there is none. Waits for all queued work, so
    /// builds without debug assertions do it only on request.
    pub check_pages: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            timeout_ns: 1_000_000_000,
            skip_waits: false,
            stream_only: false,
            starve: false,
            overlap: Overlap::Plain,
            trace: false,
            delays: Delays::default(),
            notes: 0,
            check_pages: cfg!(debug_assertions),
        }
    }
}
