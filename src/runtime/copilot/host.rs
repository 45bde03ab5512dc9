//! A session's jobs on the host: a thread in place of the kernel, with the same words between it and the caller.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cusync_gen::check::Plan;

use super::Runner;
use crate::device::{Command, Words};
use crate::inputs::Inputs;
use crate::runtime::cpu::{CpuError, CpuOptions, CpuPipeline};
use crate::runtime::error::{Error, Result};

/// What a launch shares with the session.
struct Shared {
    words: Words,
    sets: Vec<Mutex<CpuPipeline>>,
    idle: Duration,
}

pub(super) struct Host {
    shared: Arc<Shared>,
    launch: Option<JoinHandle<std::result::Result<(), CpuError>>>,
}

impl Host {
    pub(super) fn new(plan: &Plan, sets: &[Inputs], options: CpuOptions, idle: Duration) -> Result<Host> {
        let set = |inputs| CpuPipeline::new(plan, inputs, options).map(Mutex::new).map_err(Error::from);
        let sets = sets.iter().map(set).collect::<Result<_>>()?;
        Ok(Host { shared: Arc::new(Shared { words: Words::default(), sets, idle }), launch: None })
    }

    /// Waits for the launch to end.
    fn join(&mut self) -> Result<()> {
        let Some(launch) = self.launch.take() else { return Ok(()) };
        let ended = launch.join();
        Ok(ended.unwrap_or_else(|_| Err(CpuError::Panicked("the thread of a session".into())))?)
    }
}

impl Shared {
    /// One launch: job after job, until there is none for the limit.
    fn run(&self, launch: u32) -> std::result::Result<(), CpuError> {
        while let Some(job) = self.next() {
            let mut set = self.sets[usize::from(job.set)].lock().unwrap_or_else(PoisonError::into_inner);
            set.run_rows(job.m.into())?;
            drop(set);
            self.words.end(job.sequence);
        }
        self.words.leave(launch);
        Ok(())
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

impl Runner for Host {
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
        // A thread that has ended without saying so has failed.
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
}
