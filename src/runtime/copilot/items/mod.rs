//! Items of a chain kernel that keeps running, handed out one by one by the host.
//!
//! A job is a run of one kind of a plan's stages ([`Ledger`] says which belong together). Whoever polls or waits gives each worker that has
//! room the next item of the first job that has any left, in the order that the ledger numbers them; no worker has more than
//! [`Handing::ahead`] that are not done. So jobs of several kinds overlap, a job that is submitted first goes ahead of all others from the next item
//! on, and workers without an SM are sent nothing. Without words for [`Handing::idle`] the kernel ends, and what it left lying is the next
//! launch's. Which words say what is in `src/device/mail.rs`, and why nothing stands still in `docs/progress.md`.
//!
//! ```
//! use cusync::codegen::check::Executor;
//! use cusync::codegen::device::Profile;
//! use cusync::codegen::schedule::Hand;
//! use cusync::inputs::Inputs;
//! use cusync::runtime::copilot::{Handing, Items};
//! use cusync::runtime::cpu::CpuOptions;
//! use cusync::runtime::{ChainOverride, Overrides, plan_text};
//!
//! let spec = r#"Pipeline(name: "p", dims: { "M": 256, "S": 8, "H": 128 }, stages: [
//!     Gemm(name: "many", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
//!     Gemm(name: "few", a: "XS(S,H)", b: "W(H,H)", out: "YS(S,H)"),
//! ])"#;
//! let h200 = Profile::named("h200").expect("it ships");
//! let few = Profile { sms: 3, ..h200.clone() };
//! let drawn = ChainOverride { kernel: Some(((128, 128), (1, 1))), mode: Hand::Drawn, splits: false };
//! let overrides = Overrides { chain: Some(drawn), ..Overrides::default() };
//! let plan = plan_text(spec, "spec", &overrides, &few, Executor::Fused)?;
//! let inputs = Inputs::random(plan.graph(), 1);
//! let mut items = Items::on_host(&plan, &inputs, CpuOptions::default(), Handing::default())?;
//! let long = items.submit(0)?;
//! let short = items.submit_first(1)?;
//! items.wait(short)?;
//! items.wait(long)?;
//! assert!(items.read_f32("YS")?.iter().all(|x| x.is_finite()));
//! items.close()?;
//! # Ok::<(), cusync::runtime::Error>(())
//! ```

mod gpu;
mod host;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cusync_gen::check::{Ledger, Plan, Refutation};

use super::notes::{Noting, Sent, SessionNotes};
use super::{CHECK_EVERY, Job, Settings, idle_ns};
use crate::device::{Boxes, Letter, MAIL};
use crate::inputs::Inputs;
use crate::runtime::cpu::{CpuOptions, CpuPipeline};
use crate::runtime::error::{Error, Result};
use crate::runtime::pipeline::Pipeline;
use crate::runtime::traced::ItemTrace;

pub use gpu::Scheduled;

/// How items are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handing {
    /// How long the kernel goes on without a word, 1 ns to 1 s.
    pub idle: Duration,
    /// How long [`Items::wait`] waits for a job.
    pub patience: Duration,
    /// Items that a worker has at most, the one that it computes included; 1 to 7.
    pub ahead: u32,
    /// How long before a worker is expected to have none its next item is sent, and not before what its last one waits for is done; `None`: as soon as
    /// there is room. What is sent early is settled before it is known which worker will be free first, or whether a job comes that goes first; what
    /// is sent late is missed, and a host sees ends of items late when many come at once.
    pub lead: Option<Duration>,
    /// The kernel begins with the SMs that it gets, beside others; else when it gets all.
    pub beside: bool,
}

impl Default for Handing {
    fn default() -> Handing {
        let Settings { idle, patience } = Settings::default();
        Handing { idle, patience, ahead: 2, lead: Some(Duration::from_micros(32)), beside: false }
    }
}

/// What takes items, launch after launch.
trait Taker {
    fn boxes(&self) -> Result<Boxes<'_>>;
    /// Starts launch number `launch`. The one before has left.
    fn launch(&mut self, launch: u32) -> Result<()>;
    /// Whether it is still whole.
    fn check(&mut self) -> Result<()>;
    /// Waits until the last launch is over.
    fn finish(&mut self) -> Result<()>;
    fn read_f32(&self, name: &str) -> Result<Vec<f32>>;
    fn take_trace(&mut self) -> Result<Vec<ItemTrace>>;
}

/// A worker as the host knows it.
#[derive(Debug, Default)]
struct Worker {
    /// Number of its last word.
    sent: u32,
    /// Items of its words that are not done.
    items: VecDeque<Out>,
    /// Since when it can compute the first of them, as far as the host knows: it has turned to it, and what that waits for is done. And when it is then
    /// expected to have none.
    since: Option<(Duration, Duration)>,
    /// How many of the words that the first waits for are known to be full.
    fed: usize,
    /// Whether it has begun the present launch.
    here: bool,
}

/// An item that a worker has.
#[derive(Clone, Copy, Debug)]
struct Out {
    item: u32,
    epoch: u32,
    at: Duration,
}

impl Worker {
    /// Notes whether it can compute its first item, where that is not known.
    fn note_fed(&mut self, ledger: &Ledger, paces: &[Pace], now: Duration) {
        let Some(first) = self.items.front().filter(|_| self.since.is_none()) else { return };
        let (fed, of) = ledger.fed(first.item, self.fed);
        self.fed = fed;
        if fed == of {
            let takes = self.items.iter().map(|out| paces[ledger.stage_of(out.item)].0).sum::<Duration>();
            self.since = Some((now, now + takes));
        }
    }
}

/// How long the items of a stage take, as the host sees it. More often too little than too much: what it sees late is what it did not look at.
#[derive(Clone, Copy, Debug, Default)]
struct Pace(Duration);

impl Pace {
    fn learn(&mut self, took: Duration) {
        let Pace(usual) = *self;
        self.0 = match took < usual || usual.is_zero() {
            true => (usual + took) / if usual.is_zero() { 1 } else { 2 },
            false => usual + (took - usual) / 16,
        };
    }
}

/// A job under way.
#[derive(Debug)]
struct Active {
    kind: usize,
    first: bool,
    /// Items that are handed out.
    next: usize,
}

/// A kernel, or threads, that take items as the host hands them out. Nothing else runs the pipeline meanwhile.
pub struct Items<'a> {
    taker: Box<dyn Taker + 'a>,
    ledger: Ledger,
    handing: Handing,
    workers: Vec<Worker>,
    /// Jobs that wait for the one before of their kind: number, kind, whether it goes first.
    waiting: VecDeque<(u32, usize, bool)>,
    active: Vec<Active>,
    /// The number of the job under way, for each kind.
    running: Vec<Option<u32>>,
    submitted: u32,
    launches: u32,
    checked: Instant,
    noting: Noting,
    /// How long the items of each stage take.
    paces: Vec<Pace>,
    closed: bool,
}

impl std::fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Items of {} workers, {} jobs submitted", self.workers.len(), self.submitted)
    }
}

impl<'a> Items<'a> {
    /// Opens a session on a GPU, with the first set of a pipeline. The first job launches the kernel.
    ///
    /// # Errors
    /// The plan's items are not whole tiles that workers draw; its kernel has no mailboxes; memory is short.
    pub fn open(pipeline: &'a mut Pipeline, handing: Handing) -> Result<Items<'a>> {
        let ledger = ledger_of(pipeline.plan(), handing)?;
        let idle_ns = idle_ns(Settings { idle: handing.idle, patience: handing.patience })?;
        let gpu = gpu::Gpu::new(pipeline, idle_ns, handing.beside)?;
        Items::of(Box::new(gpu), ledger, handing, Instant::now())
    }

    /// Opens a session on the host: threads take the items, one for each of the plan's workers.
    ///
    /// # Errors
    /// As [`Items::open`].
    pub fn on_host(
        plan: &Plan,
        inputs: &Inputs,
        options: CpuOptions,
        handing: Handing,
    ) -> Result<Items<'static>> {
        let ledger = ledger_of(plan, handing)?;
        let workers = plan.launch().work().map_or(0, |work| work.lists.len());
        let opened = Instant::now();
        let host =
            host::Host::new(CpuPipeline::new(plan, inputs, options)?, plan, workers, (opened, handing.idle));
        Items::of(Box::new(host), ledger, handing, opened)
    }

    fn of(
        taker: Box<dyn Taker + 'a>,
        ledger: Ledger,
        handing: Handing,
        opened: Instant,
    ) -> Result<Items<'a>> {
        let workers = taker.boxes()?.workers();
        Ok(Items {
            taker,
            handing,
            workers: (0..workers).map(|_| Worker::default()).collect(),
            waiting: VecDeque::new(),
            active: Vec::new(),
            running: vec![None; ledger.kinds()],
            paces: vec![Pace::default(); ledger.stages()],
            ledger,
            submitted: 0,
            launches: 0,
            checked: opened,
            noting: Noting::new(opened),
            closed: false,
        })
    }

    /// Kinds of jobs, in the order of their first stages.
    pub fn kinds(&self) -> usize {
        self.ledger.kinds()
    }

    /// Hands over a job: a run of the stages of a kind. What the host, or copies that it has waited for, wrote before is seen by it. A kind
    /// has one job under way; others wait for it.
    ///
    /// # Errors
    /// There is no such kind; the session failed.
    pub fn submit(&mut self, kind: usize) -> Result<Job> {
        self.take_up(kind, false)
    }

    /// [`Items::submit`], ahead of jobs of other kinds from the next item on.
    ///
    /// # Errors
    /// As [`Items::submit`].
    pub fn submit_first(&mut self, kind: usize) -> Result<Job> {
        self.take_up(kind, true)
    }

    fn take_up(&mut self, kind: usize, first: bool) -> Result<Job> {
        if kind >= self.kinds() {
            let known = self.kinds();
            return Err(Error::Unsupported(format!(
                "a job of kind {kind}: this plan has {known}, numbered from 0\n  help: stages that read what others write are of one kind"
            )));
        }
        self.submitted = self.submitted.wrapping_add(1);
        self.noting.submitted(self.submitted, kind, None);
        self.waiting.push_back((self.submitted, kind, first));
        self.pump()?;
        Ok(Job(self.submitted))
    }

    /// Whether a job is over; what it wrote can then be read. Hands out what there is room for.
    ///
    /// # Errors
    /// The kernel failed; which jobs are not over is said.
    pub fn poll(&mut self, job: Job) -> Result<bool> {
        self.pump()?;
        if self.checked.elapsed() > CHECK_EVERY {
            self.checked = Instant::now();
            self.taker.check().map_err(|e| self.stopped(&e.to_string()))?;
        }
        Ok(self.is_over(job))
    }

    /// Polls until a job is over.
    ///
    /// # Errors
    /// As [`Items::poll`]; it takes longer than [`Handing::patience`].
    pub fn wait(&mut self, job: Job) -> Result<()> {
        let begin = Instant::now();
        while !self.poll(job)? {
            std::hint::spin_loop();
            if begin.elapsed() > self.handing.patience {
                let limit = self.handing.patience.as_secs_f64();
                return Err(self.stopped(&format!("waited {limit} s for job {}", job.0)));
            }
        }
        Ok(())
    }

    fn is_over(&self, job: Job) -> bool {
        let open = self.waiting.iter().any(|(number, ..)| *number == job.0);
        !open && !self.running.contains(&Some(job.0))
    }

    /// Jobs that were submitted and are not over.
    pub fn unfinished(&self) -> usize {
        self.waiting.len() + self.running.iter().flatten().count()
    }

    /// How often the kernel was launched.
    pub fn launches(&self) -> u32 {
        self.launches
    }

    /// Notes all that is handed out from now on; returns what was noted since it was called last.
    pub fn take_notes(&mut self) -> SessionNotes {
        self.noting.take()
    }

    /// What was noted of each item when it ran last, when the kernel has left: by a pipeline made with [`crate::runtime::Options::trace`], on
    /// the GPU's clock, or by threads, in nanoseconds since the session was opened.
    ///
    /// # Errors
    /// As [`Pipeline::take_trace`].
    pub fn take_trace(&mut self) -> Result<Vec<ItemTrace>> {
        self.taker.take_trace()
    }

    /// A tensor, row-major, widened to float32. Wait for the job that writes it first.
    ///
    /// # Errors
    /// There is no such tensor.
    pub fn read_f32(&self, name: &str) -> Result<Vec<f32>> {
        self.taker.read_f32(name)
    }

    /// Waits for all jobs, ends the kernel and returns when it has ended.
    ///
    /// # Errors
    /// Jobs are not over within [`Handing::patience`]; they are named.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let begin = Instant::now();
        while self.unfinished() > 0 {
            self.pump()?;
            self.taker.check().map_err(|e| self.stopped(&e.to_string()))?;
            if begin.elapsed() > self.handing.patience {
                return Err(self.stopped("it was closed"));
            }
        }
        if self.launches > 0 {
            let boxes = self.taker.boxes()?;
            for (worker, of) in self.workers.iter().enumerate() {
                boxes.post(worker, of.sent.wrapping_add(1), Letter { item: None, epoch: 0 });
            }
        }
        self.taker.finish()
    }

    /// One look: what is done, what can begin, who has room, and whether the kernel is there.
    fn pump(&mut self) -> Result<()> {
        // Before what is done: a kernel has done all that it took when it leaves, and what it did not take is the next one's.
        let gone = self.taker.boxes()?.left() == self.launches;
        let now = self.noting.now();
        self.look(now)?;
        self.begin()?;
        if !gone {
            return self.hand_out(now);
        }
        if self.unfinished() > 0 {
            self.launches = self.launches.wrapping_add(1);
            // Those of the next launch say so themselves: some may get no SM for a while.
            self.workers.iter_mut().for_each(|worker| worker.here = false);
            let begin = self.noting.now();
            self.taker.launch(self.launches)?;
            self.noting.launched(begin);
        }
        Ok(())
    }

    /// Notes what workers have done.
    fn look(&mut self, now: Duration) -> Result<()> {
        let boxes = self.taker.boxes()?;
        let mut over = false;
        for (at, worker) in self.workers.iter_mut().enumerate().filter(|(_, worker)| !worker.items.is_empty())
        {
            let left = worker.sent.wrapping_sub(boxes.done(at)) as usize;
            // Of several at once it is not known how long each took.
            let one = worker.items.len() == left + 1;
            while worker.items.len() > left {
                let Some(Out { item, epoch, at: sent }) = worker.items.pop_front() else { break };
                if let Some((since, _)) = worker.since.take().filter(|_| one) {
                    self.paces[self.ledger.stage_of(item)].learn(now.saturating_sub(since));
                }
                worker.fed = 0;
                // After the look: its item had ended by then.
                let seen = self.noting.stamp(now);
                self.noting.sent(Sent { at: sent, seen, worker: at as u32, item, epoch });
                if self.ledger.done(item).map_err(refused)? {
                    let kind = self.ledger.kind_of(item).unwrap_or(0);
                    self.running[kind] = None;
                    over = true;
                }
            }
        }
        if over {
            let open = |number: u32| {
                self.waiting.iter().any(|(other, ..)| *other == number)
                    || self.running.contains(&Some(number))
            };
            self.noting.seen(|number| !open(number));
        }
        Ok(())
    }

    /// Begins the first job that waits of each kind without one.
    fn begin(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some(&(number, kind, first)) = self.waiting.get(at) {
            if self.running[kind].is_some() {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            self.ledger.begin(kind).map_err(refused)?;
            self.running[kind] = Some(number);
            let behind = |active: &Active| active.first || !first;
            let place = self.active.iter().take_while(|active| behind(active)).count();
            self.active.insert(place, Active { kind, first, next: 0 });
        }
        Ok(())
    }

    /// Gives workers that are here and have room, and will soon have nothing, the next items, first those that have least.
    fn hand_out(&mut self, now: Duration) -> Result<()> {
        if self.active.is_empty() {
            return Ok(());
        }
        let boxes = self.taker.boxes()?;
        for room in 1..=self.handing.ahead as usize {
            for (at, worker) in
                self.workers.iter_mut().enumerate().filter(|(_, worker)| worker.items.len() < room)
            {
                if let Some(lead) = self.handing.lead.filter(|_| !worker.items.is_empty()) {
                    worker.note_fed(&self.ledger, &self.paces, now);
                    // One that waits for others may wait long, and what is sent behind it waits with it.
                    if worker.since.is_none_or(|(_, until)| until > now + lead) {
                        continue;
                    }
                }
                let Some(job) = self.active.first_mut() else { return Ok(()) };
                if !worker.here {
                    worker.here = boxes.here(at) == self.launches;
                    if !worker.here {
                        continue;
                    }
                }
                let list = self.ledger.items(job.kind);
                let (item, last) = (list[job.next], job.next + 1 == list.len());
                job.next += 1;
                let entry = self.ledger.number(item).map_err(refused)?;
                worker.sent = worker.sent.wrapping_add(1);
                let out = Out { item, epoch: entry.epoch(), at: self.noting.stamp(now) };
                if let Some((_, until)) = &mut worker.since {
                    *until += self.paces[self.ledger.stage_of(item)].0;
                }
                worker.items.push_back(out);
                boxes.post(at, worker.sent, Letter { item: Some(entry.item()), epoch: entry.epoch() });
                if last {
                    self.active.remove(0);
                }
            }
        }
        Ok(())
    }

    /// The session will not get on.
    fn stopped(&mut self, why: &str) -> Error {
        self.closed = true;
        let numbers =
            self.waiting.iter().map(|(number, ..)| *number).chain(self.running.iter().flatten().copied());
        let first = numbers.min().unwrap_or(self.submitted);
        Error::Unfinished { first, last: self.submitted, why: why.into() }
    }
}

impl Drop for Items<'_> {
    fn drop(&mut self) {
        // An error here has been told, or nobody asked for it.
        let _ = self.end();
    }
}

fn refused(refutation: Refutation) -> Error {
    let facts: String = refutation.story.iter().map(|fact| format!("\n  {fact}")).collect();
    let help =
        if refutation.help.is_empty() { String::new() } else { format!("\n  help: {}", refutation.help) };
    Error::Unsupported(format!("{}{facts}{help}", refutation.message))
}

fn ledger_of(plan: &Plan, handing: Handing) -> Result<Ledger> {
    if !(1..MAIL).contains(&handing.ahead) {
        let most = MAIL - 1;
        return Err(Error::Unsupported(format!(
            "{} items ahead\n  help: choose 1 to {most}; the default is 2",
            handing.ahead
        )));
    }
    Ledger::from_plan(plan).map_err(refused)
}

#[cfg(test)]
mod tests;
