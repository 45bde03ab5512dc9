//! What a pipeline's runs may deviate in.

use crate::device::Delays;

/// Which launches of the `fused` executor, and of chain kernels that `serial` and `library` launch a stage each, may begin while the
/// kernel before them ends. Weights then stream early, and everything else waits for that kernel's memory: so the kernels before must
/// not write the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Those alone that follow another of their run and whose workers do not wait for each other: nothing can write their weights,
    /// and nothing on the GPU can hold them up.
    #[default]
    Plain,
    /// All of a captured graph that follow another of it. Workers that wait for each other then share the GPU with nobody.
    Captured,
    /// All, eager ones too. Whoever asks for it writes no weights in stream order.
    All,
}

/// What a run may deviate in; the default deviates in nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Limit of one wait in nanoseconds.
    pub timeout_ns: u64,
    /// Leaves the waits out: for timing alone, the results are meaningless.
    pub skip_waits: bool,
    /// Streams the weights of a decode plan and does nothing else: the limit that reading them sets.
    pub stream_only: bool,
    /// Leaves the posts without effect, so that every consumer starves: for the test of the time limit.
    pub starve: bool,
    /// Programmatic launches of chain and decode kernels.
    pub overlap: Overlap,
    /// Lets the `fused` executor note when each of its items began and ended.
    pub trace: bool,
    /// Delays of pseudo-random length inside Hopper kernels: for tests of the waits and posts.
    pub delays: Delays,
    /// Events of its runs that Hopper kernels may note before they are read: for the test that holds them against the plan. 0:
    /// none. Like delays, notes need kernels that are built for them.
    pub notes: usize,
    /// Reads the tables of pages back before runs, captures and replays, and refuses those that would append to a
    /// page which two sequences share: a premise of the proof. It waits for all that is queued, so builds without debug assertions do
    /// it only where it is asked for.
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
