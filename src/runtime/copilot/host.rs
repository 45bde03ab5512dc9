//! A session's jobs on the host: a thread replaces the kernel and uses the same words to communicate with the
//! caller.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cusync_gen::check::Plan;
use cusync_gen::schedule::Item;

use super::Runner;
use crate::device::{Command, Words};
use crate::inputs::Inputs;
use crate::runtime::cpu::{CpuError, CpuOptions, CpuPipeline};
use crate::runtime::error::{Error, Result};
use crate::runtime::traced::ItemTrace;

/// State shared by a launch and the session.
struct Shared {
    words: Words,
    sets: Vec<Mutex<CpuPipeline>>,
    opened: Instant,
    idle: Duration,
    /// Last item of the last job.
    last: Option<Item>,
    ran: Mutex<Option<ItemTrace>>,
}

pub(super) struct HostRunner {
    shared: Arc<Shared>,
    launch: Option<JoinHandle<std::result::Result<(), CpuError>>>,
}

impl HostRunner {
    pub(super) fn new(
        plan: &Plan,
        sets: &[Inputs],
        options: CpuOptions,
        (opened, idle): (Instant, Duration),
    ) -> Result<HostRunner> {
        let set = |inputs| CpuPipeline::new(plan, inputs, options).map(Mutex::new).map_err(Error::from);
        let sets = sets.iter().map(set).collect::<Result<_>>()?;
        let last = plan.launch().work().and_then(|work| work.sequence.last().copied());
        let shared = Shared { words: Words::default(), sets, opened, idle, last, ran: Mutex::default() };
        Ok(HostRunner { shared: Arc::new(shared), launch: None })
    }

    /// Waits for the launch to end.
    fn join(&mut self) -> Result<()> {
        let Some(launch) = self.launch.take() else { return Ok(()) };
        let ended = launch.join();
        Ok(ended.unwrap_or_else(|_| Err(CpuError::Panicked("the thread of a session".into())))?)
    }
}

impl Shared {
    /// Runs one launch: job after job, until none arrives within the idle limit.
    fn run(&self, launch: u32) -> std::result::Result<(), CpuError> {
        while let Some(job) = self.next() {
            let mut set = self.sets[usize::from(job.set)].lock().unwrap_or_else(PoisonError::into_inner);
            let begin = self.opened.elapsed().as_nanos() as u64;
            set.run_rows(job.m.into())?;
            drop(set);
            self.note(begin);
            self.words.end(job.sequence);
        }
        self.words.leave(launch);
        Ok(())
    }

    fn note(&self, begin: u64) {
        let end = self.opened.elapsed().as_nanos() as u64;
        let trace = |item| ItemTrace {
            worker: 0,
            cta: 0,
            sm: 0,
            item,
            begin,
            ready: begin,
            loaded: begin,
            math_end: end,
            end,
        };
        *self.ran.lock().unwrap_or_else(PoisonError::into_inner) = self.last.map(trace);
    }

    fn next(&self) -> Option<Command> {
        let sequence = self.words.ended().wrapping_add(1);
        let begin = Instant::now();
        loop {
            if let Some(command) = self.words.command(sequence) {
                return (command.m > 0).then_some(command);
            }
            if begin.elapsed() > self.idle {
                return None;
            }
            std::thread::yield_now();
        }
    }
}

impl Runner for HostRunner {
    fn words(&self) -> &Words {
        &self.shared.words
    }

    fn launch(&mut self, launch: u32) -> Result<()> {
        self.join()?;
        let shared = self.shared.clone();
        self.launch = Some(std::thread::spawn(move || shared.run(launch)));
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        // A thread that ended without reporting it has failed.
        let over = self.launch.as_ref().is_some_and(JoinHandle::is_finished);
        if over { self.join() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<()> {
        self.join()
    }

    fn read_f32(&self, set: usize, name: &str) -> Result<Vec<f32>> {
        let none = || Error::Unsupported(format!("this session has no set {set}"));
        let set = self.shared.sets.get(set).ok_or_else(none)?;
        Ok(set.lock().unwrap_or_else(PoisonError::into_inner).tensor(name)?)
    }

    fn take_trace(&mut self) -> Result<Vec<ItemTrace>> {
        Ok(self.shared.ran.lock().unwrap_or_else(PoisonError::into_inner).take().into_iter().collect())
    }
}
