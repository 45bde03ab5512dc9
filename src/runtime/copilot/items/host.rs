//! Threads that replace the kernel's workers and use the same words to communicate with the host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cusync_gen::check::Plan;
use cusync_gen::schedule::Item;

use super::Taker;
use crate::device::{Boxes, HostMail};
use crate::runtime::cpu::{CpuError, CpuPipeline};
use crate::runtime::error::{Error, Result};
use crate::runtime::traced::ItemTrace;

/// State shared by the threads of a launch.
struct Shared {
    mail: HostMail,
    pipeline: CpuPipeline,
    /// Present workers that have work, for alternating launches; see `csrc/kernels/chain/sm90/mail.cuh`.
    awake: [AtomicU32; 2],
    failed: AtomicBool,
    why: Mutex<Option<CpuError>>,
    opened: Instant,
    idle: Duration,
    /// Items of the plan, and when each ran last.
    sequence: Vec<Item>,
    ran: Mutex<BTreeMap<u32, ItemTrace>>,
}

pub(super) struct HostTaker {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    workers: usize,
}

/// No worker wakes up any more.
const CLOSED: u32 = 1 << 31;

impl HostTaker {
    pub(super) fn new(
        mut pipeline: CpuPipeline,
        plan: &Plan,
        workers: usize,
        (opened, idle): (Instant, Duration),
    ) -> HostTaker {
        pipeline.poison();
        let shared = Shared {
            mail: HostMail::new(workers),
            pipeline,
            awake: Default::default(),
            failed: AtomicBool::new(false),
            why: Mutex::new(None),
            opened,
            idle,
            sequence: plan.launch().work().map_or_else(Vec::new, |work| work.sequence.clone()),
            ran: Mutex::default(),
        };
        HostTaker { shared: Arc::new(shared), threads: Vec::new(), workers }
    }

    fn error(&self) -> Result<()> {
        let mut why = self.shared.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.take().map_or(Ok(()), |error| Err(error.into()))
    }

    fn join(&mut self) -> Result<()> {
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        self.error()
    }
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.opened.elapsed().as_nanos() as u64
    }

    /// A thread records only the start and end of an item, no times in between.
    fn note(&self, worker: usize, index: u32, begin: u64) {
        let Some(item) = self.sequence.get(index as usize).copied() else { return };
        let (worker, end) = (worker as u32, self.now_ns());
        let [ready, loaded, math_end] = [begin, begin, end];
        let trace = ItemTrace { worker, cta: 0, sm: worker, item, begin, ready, loaded, math_end, end };
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).insert(index, trace);
    }

    /// Runs one launch of one worker: item after item, until all workers sleep.
    fn run(&self, worker: usize, launch: u32) {
        let Some(boxes) = self.mail.boxes() else { return };
        let awake = &self.awake[launch as usize % 2];
        if worker == 0 {
            self.awake[(launch as usize + 1) % 2].store(0, Ordering::Release);
        }
        let wake = || awake.fetch_add(1, Ordering::AcqRel) & CLOSED != 0;
        let closed = wake();
        boxes.arrive(worker, launch);
        if closed {
            return;
        }
        let mut hands = self.pipeline.hands();
        let mut number = boxes.done(worker);
        let (mut begin, mut asleep) = (Instant::now(), false);
        while !self.failed.load(Ordering::Relaxed) {
            let next = number.wrapping_add(1);
            if let Some(letter) = boxes.take(worker, next) {
                if asleep && wake() {
                    return;
                }
                let begin_ns = self.now_ns();
                let ran = letter.item.map(|item| hands(item, letter.epoch));
                if let Some(item) = letter.item {
                    self.note(worker, item, begin_ns);
                }
                if let Some(Err(error)) = ran {
                    self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    self.failed.store(true, Ordering::Relaxed);
                    return;
                }
                number = next;
                boxes.tell_done(worker, number);
                if letter.item.is_none() {
                    return;
                }
                (begin, asleep) = (Instant::now(), false);
            } else if !asleep {
                if begin.elapsed() > self.idle / 2 {
                    awake.fetch_sub(1, Ordering::AcqRel);
                    asleep = true;
                }
            } else {
                let others = awake.load(Ordering::Acquire);
                if others & CLOSED != 0 {
                    return;
                }
                let close = || awake.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                if others == 0 && begin.elapsed() > self.idle && close() {
                    boxes.leave(launch);
                    return;
                }
            }
            std::thread::yield_now();
        }
    }
}

impl Taker for HostTaker {
    fn boxes(&self) -> Result<Boxes<'_>> {
        self.shared.mail.boxes().ok_or_else(|| Error::Unsupported("mailboxes of no workers".into()))
    }

    fn launch(&mut self, launch: u32) -> Result<()> {
        self.join()?;
        for worker in 0..self.workers {
            let shared = self.shared.clone();
            self.threads.push(std::thread::spawn(move || shared.run(worker, launch)));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        self.error()
    }

    fn finish(&mut self) -> Result<()> {
        self.join()
    }

    fn read_f32(&self, name: &str) -> Result<Vec<f32>> {
        Ok(self.shared.pipeline.tensor(name)?)
    }

    fn take_trace(&mut self) -> Result<Vec<ItemTrace>> {
        let mut ran = self.shared.ran.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *ran).into_values().collect())
    }
}
