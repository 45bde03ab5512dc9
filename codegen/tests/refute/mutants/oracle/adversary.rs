//! Who decides what comes next in an execution.

/// Where an item is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before its first look or load.
    Loader,
    /// Before its epilogue.
    Finisher,
    /// When it has left its sums for others.
    Given,
    /// Before its last step.
    Last,
    /// When all is loaded: its worker draws no other item.
    Draw,
}

/// A part of an item that only moves when nothing else does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) work: u32,
    pub(super) cta: usize,
    pub(super) phase: Phase,
}

/// On which SM a CTA is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    First,
    Emptiest,
    Fullest,
    Any,
}

/// Who decides what comes next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adversary {
    pub(super) hold: Option<Hold>,
    /// Turns, chunks and placements by lot.
    pub(super) lot: Option<u64>,
    /// Later workers first.
    pub(super) reverse: bool,
    /// Later stages are placed first.
    pub(super) consumers_first: bool,
    pub(super) fit: Fit,
    /// Threads of the `cpu` executor.
    pub(super) workers: usize,
    /// Runs that have ended well before the first.
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
