//! What sessions note of themselves, for traces: what the host handed over when, and when it saw the end of it.

use std::time::{Duration, Instant};

/// What a session did since its notes were asked for last. Times count from when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNotes {
    /// Calls that launched the kernel, from begin to end.
    pub launches: Vec<(Duration, Duration)>,
    /// Jobs that are over.
    pub jobs: Vec<JobNote>,
    /// Words in mailboxes, each for one item; of sessions of items.
    pub sent: Vec<Sent>,
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobNote {
    /// Its number, from 1.
    pub number: u32,
    /// Its set, or its kind.
    pub what: usize,
    /// Its rows, where they are its own.
    pub rows: Option<u32>,
    /// When it was submitted.
    pub at: Duration,
    /// When the host saw that it was over.
    pub seen: Duration,
}

/// One hand-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When the word was written.
    pub at: Duration,
    /// When the host saw that the item was done.
    pub seen: Duration,
    /// Whose mailbox.
    pub worker: u32,
    /// Which item of the plan's sequence.
    pub item: u32,
    /// Number of the run of its kind.
    pub epoch: u32,
}

/// The clock of a session, and its notes where somebody asks for them.
#[derive(Debug)]
pub(super) struct Noting {
    opened: Instant,
    notes: Option<SessionNotes>,
    /// Jobs that are not over.
    open: Vec<JobNote>,
}

impl Noting {
    pub(super) fn new(opened: Instant) -> Noting {
        Noting { opened, notes: None, open: Vec::new() }
    }

    pub(super) fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// What time a word is sent or seen: its own where somebody will look at it.
    pub(super) fn stamp(&self, about: Duration) -> Duration {
        if self.notes.is_some() { self.now() } else { about }
    }

    pub(super) fn take(&mut self) -> SessionNotes {
        self.notes.replace(SessionNotes::default()).unwrap_or_default()
    }

    pub(super) fn launched(&mut self, begin: Duration) {
        let end = self.now();
        self.notes.iter_mut().for_each(|notes| notes.launches.push((begin, end)));
    }

    pub(super) fn submitted(&mut self, number: u32, what: usize, rows: Option<u32>) {
        if self.notes.is_some() {
            let at = self.now();
            self.open.push(JobNote { number, what, rows, at, seen: at });
        }
    }

    /// Jobs that were submitted and of which `over` says so are over.
    pub(super) fn seen(&mut self, over: impl Fn(u32) -> bool) {
        if self.open.is_empty() {
            return;
        }
        let seen = self.now();
        let Noting { notes, open, .. } = self;
        open.retain(|job| {
            let ended = over(job.number);
            if ended {
                notes.iter_mut().for_each(|notes| notes.jobs.push(JobNote { seen, ..*job }));
            }
            !ended
        });
    }

    pub(super) fn sent(&mut self, sent: Sent) {
        self.notes.iter_mut().for_each(|notes| notes.sent.push(sent));
    }
}
