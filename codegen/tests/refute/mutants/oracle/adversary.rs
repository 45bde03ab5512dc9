//! Scheduling decisions in an execution.

/// The point at which an item is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before its first wait or load.
    Loader,
    /// Before its epilogue.
    Finisher,
    /// After it has left its sums for others.
    Given,
    /// Before its last step.
    Last,
    /// After all loads, its worker draws no other item.
    Draw,
}

/// A part of an item that moves only if nothing else can.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) work: u32,
    pub(super) cta: usize,
    pub(super) phase: Phase,
}

/// The policy that picks an SM for a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    First,
    Emptiest,
    Fullest,
    Any,
}

/// Decides the next step of an execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adversary {
    pub(super) hold: Option<Hold>,
    /// Seed for random turns, chunks and placements.
    pub(super) lot: Option<u64>,
    /// Later workers first.
    pub(super) reverse: bool,
    /// Later stages are placed first.
    pub(super) consumers_first: bool,
    pub(super) fit: Fit,
    /// Threads of the `cpu` executor.
    pub(super) workers: usize,
    /// Runs that have completed before the first.
    pub(super) before: u32,
}

impl Default for Adversary {
    fn default() -> Self {
        Adversary {
            hold: None,
            lot: None,
            reverse: false,
            consumers_first: false,
            fit: Fit::First,
            workers: 6,
            before: 1 << 20,
        }
    }
}
