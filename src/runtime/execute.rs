//! The executors: how a prepared pipeline is queued, captured and replayed.
//!
//! `serial`: one stream, kernel after kernel; no waits, no posts, static schedule.
//!
//! `streams`: stage i on its own stream. A consumer's stream waits for the launch-completion event of each of its
//! producers, which is recorded when all their CTAs have begun. So when a consumer's CTA takes an SM, its producers
//! are resident or done; and by induction over the topological order so are the producers' producers. At the
//! end every stream is joined into the first, so a run's end is a full boundary.
//!
//! `programmatic`: one stream in topological order, every kernel but the first launched programmatically: it may
//! begin when every CTA of the kernel just before it has issued its trigger, which is the first thing a CTA does.
//! That kernel began under the same rule, so every earlier stage, producer or not, has all its CTAs resident or
//! done: the guarantee of `streams` holds for any DAG, though each kernel only waits for its neighbour. The first
//! kernel of a run is an ordinary launch and waits for everything before it.
//!
//! `fused`: one launch of one persistent kernel, a chain kernel or a decode kernel. Runs follow each other on the main stream, with programmatic edges
//! where [`Edges`] allows them.

use std::sync::Arc;

use cusync_gen::check::{Coupling, Executor, StartGuarantee};

use super::error::{Error, Result};
use super::options::Edges;
use super::pipeline::{Kernels, Pipeline, Shared};
use crate::device::{self, Gemm, GraphExec, Launch};

/// Runs captured into a CUDA graph. Holds a share of all the memory that it uses.
#[derive(Debug)]
pub struct Captured {
    graph: GraphExec,
    shared: Arc<Shared>,
    _kernels: Vec<Arc<Kernels>>,
}

impl Kernels {
    /// Queues the one kernel of all stages.
    pub(super) fn launch_fused(&self, launch: Launch<'_>) -> Result<()> {
        match self {
            Kernels::Chain(chain) => Ok(chain.launch(launch)?),
            Kernels::Decode(decode) => Ok(decode.launch(launch)?),
            Kernels::Stages { .. } => Err(Error::Unsupported("the stages have a kernel each".into())),
        }
    }
}

impl Pipeline {
    /// Queues one run of set 0.
    pub fn run(&mut self, executor: Executor) -> Result<()> {
        self.run_set(executor, 0)
    }

    /// Queues one run of a set. Returns before it is done; [`Pipeline::synchronize`] waits.
    ///
    /// # Errors
    /// If a kernel cannot be queued after others were, those have posted and the run is incomplete: the pipeline
    /// is poisoned, and later calls say so.
    pub fn run_set(&mut self, executor: Executor, set: usize) -> Result<()> {
        self.ready(executor)?;
        let kernels = self.kernels(set)?;
        let programmatic = self.options.edges == Edges::All;
        self.enqueue(executor, &kernels, programmatic).map_err(|e| self.poison(e))
    }

    /// Captures one run of each named set, in order, into one graph.
    pub fn capture(&mut self, executor: Executor, sets: &[usize]) -> Result<Captured> {
        self.ready(executor)?;
        let kernels = sets.iter().map(|&s| self.kernels(s)).collect::<Result<Vec<_>>>()?;
        let programmatic = |place| match self.options.edges {
            Edges::Plain => false,
            Edges::Captured => place > 0,
            Edges::All => true,
        };
        let each = || kernels.iter().enumerate();
        let graph = self
            .main
            .capture(|| each().try_for_each(|(place, k)| self.enqueue(executor, k, programmatic(place))))?;
        Ok(Captured { graph, shared: self.shared.clone(), _kernels: kernels })
    }

    /// Queues a captured graph. Replays and eager runs may be mixed freely.
    pub fn replay(&mut self, captured: &Captured) -> Result<()> {
        self.healthy()?;
        if !Arc::ptr_eq(&self.shared, &captured.shared) {
            return Err(Error::Unsupported("the graph was captured from another pipeline".into()));
        }
        captured.graph.launch(&self.main).map_err(|e| self.poison(e.into()))
    }

    /// Waits for everything queued, and turns a wait that timed out into the edge that it waited on.
    pub fn synchronize(&mut self) -> Result<()> {
        self.healthy()?;
        self.main.synchronize().map_err(|e| {
            let error = self.starved().unwrap_or(Error::Device(e));
            self.poison(error)
        })
    }

    /// Whether an earlier failure forbids further runs.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    fn healthy(&self) -> Result<()> {
        self.poisoned.clone().map_or(Ok(()), |why| Err(Error::Poisoned(why)))
    }

    fn ready(&mut self, executor: Executor) -> Result<()> {
        self.healthy()?;
        let proved = self.plan.executor();
        if executor == Executor::Cpu {
            return Err(Error::Unsupported("the cpu executor does not run on a GPU pipeline".into()));
        }
        // Serial needs no proof beyond the stage order, which every plan has; but the tiles of a chain kernel need not
        // have a kernel of their own.
        let serial = executor == Executor::Serial && proved != Executor::Fused;
        if !serial && executor != proved {
            return Err(Error::NotProved { proved, asked: executor });
        }
        self.prepare()
    }

    fn poison(&mut self, error: Error) -> Error {
        self.poisoned = Some(error.to_string());
        error
    }

    /// What the report says, if a wait filled it.
    fn starved(&self) -> Option<Error> {
        let record = self.shared.report.read()?;
        let stages = &self.plan.graph().stages;
        let known = (record.edge as usize) < self.plan.edges().len();
        Some(Error::Starved {
            edge: if known { self.plan.edge_name(record.edge as usize) } else { format!("#{}", record.edge) },
            consumer: stages
                .get(record.stage as usize)
                .map_or_else(|| format!("stage {}", record.stage), |s| s.name.clone()),
            tile: (record.tile_m, record.tile_n),
            k_block: record.k_block,
            slot: record.slot,
            have: record.have,
            want: record.want,
            sm: record.sm,
            waited_s: self.options.timeout_ns as f64 * 1e-9,
        })
    }

    /// `programmatic` matters to the `fused` executor alone.
    fn enqueue(&self, executor: Executor, kernels: &Kernels, programmatic: bool) -> Result<()> {
        let (serial, tiled) = match kernels {
            Kernels::Stages { serial, tiled } => (serial, tiled),
            one => return one.launch_fused(Launch { stream: &self.main, started: None, programmatic }),
        };
        match executor {
            // A plan may find overlap not worth its while: then its executor is a serial chain.
            Executor::Streams | Executor::Programmatic
                if self.plan.coupling() == Coupling::KernelBoundary =>
            {
                self.enqueue_serial(serial)?
            }
            Executor::Serial => self.enqueue_serial(serial)?,
            Executor::Programmatic => self.enqueue_programmatic(tiled)?,
            Executor::Streams => self.enqueue_streams(tiled)?,
            Executor::Cpu | Executor::Fused => {
                return Err(Error::NotProved { proved: self.plan.executor(), asked: executor });
            }
        }
        Ok(())
    }

    fn enqueue_serial(&self, kernels: &[Gemm]) -> device::Result<()> {
        let launch = Launch { stream: &self.main, started: None, programmatic: false };
        kernels.iter().try_for_each(|kernel| kernel.launch(launch))
    }

    fn enqueue_programmatic(&self, kernels: &[Gemm]) -> device::Result<()> {
        kernels.iter().enumerate().try_for_each(|(stage, kernel)| {
            kernel.launch(Launch { stream: &self.main, started: None, programmatic: stage > 0 })
        })
    }

    fn enqueue_streams(&self, kernels: &[Gemm]) -> device::Result<()> {
        self.main.record(&self.fork)?;
        for (stage, kernel) in kernels.iter().enumerate() {
            let stream = if stage == 0 { &self.main } else { &self.side[stage - 1] };
            let producers: Vec<usize> = self.distinct(stage, |d| (d.consumer.0, d.producer.0));
            let feeds_others = !self.distinct(stage, |d| (d.producer.0, d.consumer.0)).is_empty();
            let guarded = self.plan.start() == StartGuarantee::AllProducersStarted && !producers.is_empty();
            if guarded {
                // Their start implies the fork: they waited for it, or lie on the main stream after it.
                producers.iter().try_for_each(|&p| stream.wait(&self.started[p]))?;
            } else if stage > 0 {
                stream.wait(&self.fork)?;
            }
            let started = feeds_others.then_some(&self.started[stage]);
            kernel.launch(Launch { stream, started, programmatic: false })?;
        }
        for (stream, done) in self.side.iter().zip(&self.done) {
            stream.record(done)?;
            self.main.wait(done)?;
        }
        Ok(())
    }

    /// The other ends of a stage's edges, each once: of the pairs that `ends` makes, the second where the first is
    /// `stage`.
    fn distinct(
        &self,
        stage: usize,
        ends: impl Fn(&cusync_gen::graph::Dependence) -> (usize, usize),
    ) -> Vec<usize> {
        let pairs = self.plan.edges().iter().map(|e| ends(e.dependence()));
        let mut others: Vec<usize> = pairs.filter(|p| p.0 == stage).map(|p| p.1).collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}
