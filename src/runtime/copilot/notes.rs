//! Notes that sessions record for traces: when the host submitted work, and when it saw the end.

use std::time::{Duration, Instant};

/// Events of a session since its notes were last taken. Times count from the opening of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNotes {
    /// Calls that launched the kernel, start and end.
    pub launches: Vec<(Duration, Duration)>,
    /// Finished jobs.
    pub jobs: Vec<JobNote>,
    /// Mailbox words, one per item; only for sessions of items.
    pub sent: Vec<Sent>,
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobNote {
    /// Its number, from 1.
    pub number: u32,
    /// Its set, or its kind.
    pub what: usize,
    /// Its row count, if jobs choose it.
    pub rows: Option<u32>,
    /// When it was submitted.
    pub at: Duration,
    /// When the host saw that it was over.
    pub seen: Duration,
}

/// One item handed to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When the word was written.
    pub at: Duration,
    /// When the host saw that the item was done.
    pub seen: Duration,
    /// Worker whose mailbox it is.
    pub worker: u32,
    /// Index in the plan's sequence.
    pub item: u32,
    /// Run number of its kind.
    pub epoch: u32,
}

/// The clock of a session, and its notes if they were requested.
#[derive(Debug)]
pub(super) struct Noting {
    opened: Instant,
    notes: Option<SessionNotes>,
    /// Unfinished jobs.
    open: Vec<JobNote>,
}

impl Noting {
    pub(super) fn new(opened: Instant) -> Noting {
        Noting { opened, notes: None, open: Vec::new() }
    }

    pub(super) fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Time at which a word is sent or seen: exact if notes are recorded, `about` otherwise.
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

    pub(super) fn submitted(&mut self, number: u32, kind: usize, rows: Option<u32>) {
        if self.notes.is_some() {
            let at = self.now();
            self.open.push(JobNote { number, what: kind, rows, at, seen: at });
        }
    }

    /// Records the submitted jobs for which `over` returns true.
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
