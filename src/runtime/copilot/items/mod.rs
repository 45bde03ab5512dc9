//! Items of a persistent chain kernel, handed out one by one by the host.
//!
//! A job is a run of one kind of a plan's stages ([`Ledger`] defines the kinds). Each poll or wait gives
//! every worker with room the next item of the first job that has items left, in ledger order; no worker has
//! more than [`Handing::ahead`] unfinished items. So jobs of several kinds overlap, a job submitted first
//! takes precedence from the next item on, and workers without an SM get no items. After [`Handing::idle`]
//! without a word the kernel ends, and the next launch takes the items that it left. `src/device/mail.rs`
//! documents the words, `docs/progress.md` the absence of deadlock.
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
mod rounds;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cusync_gen::check::{Ledger, Plan, Refutation};

use super::notes::{Noting, SessionNotes};
use super::{CHECK_EVERY, Job, Settings, idle_ns};
use crate::device::{Boxes, Letter, MAIL};
use crate::inputs::Inputs;
use crate::runtime::cpu::{CpuOptions, CpuPipeline};
use crate::runtime::error::{Error, Result};
use crate::runtime::pipeline::Pipeline;
use crate::runtime::traced::ItemTrace;

pub use gpu::Scheduled;

use rounds::{Active, Pace, Worker};

/// Settings for handing out items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handing {
    /// Time the kernel keeps running without a word, 1 ns to 1 s.
    pub idle: Duration,
    /// Time limit of [`Items::wait`].
    pub patience: Duration,
    /// Maximum number of items per worker, including the one being computed; 1 to 7.
    pub ahead: u32,
    /// Time before a worker's expected idle point at which its next item is sent, but not before the
    /// dependences of its last item are done; `None`: as soon as there is room. Items sent early are assigned
    /// before it is known which worker is free first, or whether a job with precedence arrives; items sent
    /// late leave workers idle, and the host sees ends late when many items end at once.
    pub lead: Option<Duration>,
    /// Whether the kernel starts next to other kernels with the SMs that it gets, instead of waiting for all
    /// SMs.
    pub beside: bool,
}

impl Default for Handing {
    fn default() -> Handing {
        let Settings { idle, patience } = Settings::default();
        Handing { idle, patience, ahead: 2, lead: Some(Duration::from_micros(32)), beside: false }
    }
}

/// A kernel or group of threads that takes items, launch after launch.
trait Taker {
    fn boxes(&self) -> Result<Boxes<'_>>;
    /// Starts launch number `launch`. The previous launch has left.
    fn launch(&mut self, launch: u32) -> Result<()>;
    /// Checks that the launch has not failed.
    fn check(&mut self) -> Result<()>;
    /// Waits until the last launch is over.
    fn finish(&mut self) -> Result<()>;
    fn read_f32(&self, name: &str) -> Result<Vec<f32>>;
    fn take_trace(&mut self) -> Result<Vec<ItemTrace>>;
}

/// A kernel, or threads, that compute items as the host hands them out. Nothing else may run the pipeline
/// meanwhile.
pub struct Items<'a> {
    taker: Box<dyn Taker + 'a>,
    ledger: Ledger,
    handing: Handing,
    workers: Vec<Worker>,
    /// Jobs waiting for the previous job of their kind: number, kind, whether it has precedence.
    waiting: VecDeque<(u32, usize, bool)>,
    active: Vec<Active>,
    /// Number of the running job of each kind.
    running: Vec<Option<u32>>,
    submitted: u32,
    launches: u32,
    checked: Instant,
    noting: Noting,
    /// Time per item of each stage.
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
    /// The plan's items are not whole tiles that workers draw, its kernel has no mailboxes, or memory is
    /// short.
    pub fn open(pipeline: &'a mut Pipeline, handing: Handing) -> Result<Items<'a>> {
        let ledger = ledger_of(pipeline.plan(), handing)?;
        let idle_ns = idle_ns(Settings { idle: handing.idle, patience: handing.patience })?;
        let gpu = gpu::GpuTaker::new(pipeline, idle_ns, handing.beside)?;
        Items::new(Box::new(gpu), ledger, handing, Instant::now())
    }

    /// Opens a session on the host with one thread per worker of the plan.
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
        let host = host::HostTaker::new(
            CpuPipeline::new(plan, inputs, options)?,
            plan,
            workers,
            (opened, handing.idle),
        );
        Items::new(Box::new(host), ledger, handing, opened)
    }

    fn new(
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

    /// Submits a job: a run of the stages of a kind. It sees all earlier writes of the host and of copies
    /// that the host has waited for. Each kind runs one job at a time; others wait for it.
    ///
    /// # Errors
    /// There is no such kind, or the session failed.
    pub fn submit(&mut self, kind: usize) -> Result<Job> {
        self.take_up(kind, false)
    }

    /// [`Items::submit`] with precedence over jobs of other kinds from the next item on.
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

    /// Whether a job is over, so that its results can be read. Also hands out items to workers with room.
    ///
    /// # Errors
    /// The kernel failed; the error names the unfinished jobs.
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
    /// As [`Items::poll`]; also if the job takes longer than [`Handing::patience`].
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

    /// Number of unfinished jobs.
    pub fn unfinished(&self) -> usize {
        self.waiting.len() + self.running.iter().flatten().count()
    }

    /// Number of kernel launches.
    pub fn launches(&self) -> u32 {
        self.launches
    }

    /// Starts recording notes, and returns those recorded since the previous call.
    pub fn take_notes(&mut self) -> SessionNotes {
        self.noting.take()
    }

    /// Records of the last run of each item, once the kernel has left. For a pipeline made with
    /// [`crate::runtime::Options::trace`], times are on the GPU's clock; for threads, in nanoseconds since
    /// the session was opened.
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
    /// Jobs are not over within [`Handing::patience`]; the error names them.
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
            for (worker, known) in self.workers.iter().enumerate() {
                boxes.post(worker, known.sent.wrapping_add(1), Letter { item: None, epoch: 0 });
            }
        }
        self.taker.finish()
    }

    /// Error for a session that cannot continue.
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
        // The error was already reported, or the caller did not ask for it.
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
