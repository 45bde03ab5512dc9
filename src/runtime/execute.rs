//! The executors: how a prepared pipeline is queued, captured and replayed.
//!
//! The proved [`cusync_gen::check::Launch`] determines which kernels are launched, and in which order.
//!
//! `serial`: one stream, one kernel after another; no waits, no posts, static schedule. If a plan found that
//! overlap does not pay, it is a serial chain under every executor. If a stage has no kernel that follows an
//! order, normalizations and attentions are launched by kernels that run alone, and every other stage by the
//! chain kernel that is best for it; workers of such a launch wait for each other's partial sums, but for no
//! other stage. Programmatic edges join these launches if no tile is split, and otherwise if [`Overlap`]
//! allows it: a chain kernel loads weights, then waits for the end of the previous kernel. A product whose
//! heads are rotated is followed by the kernel that rotates them.
//!
//! `library`: like `serial`, but cuBLASLt may compute matrix products. Preparing a pipeline times each stage
//! both ways and keeps the faster one. These results never count as ours.
//!
//! `streams`: every stage has its own stream. A consumer's stream waits for one event per producer, recorded
//! when all CTAs of the producer have issued their triggers, which is the first thing a CTA does. So when a
//! consumer's CTA takes an SM, its producers are resident or done; by induction over the topological order,
//! so are the producers' producers. At the end every stream is joined into the first, so the end of a run is
//! a full boundary. A run is always queued as a graph with these events as edges. Kernels for sm_80 have no
//! trigger: the event of their launch completion is only a hint, so a one-thread gate kernel behind it waits
//! until all tiles of the producer have been drawn.
//!
//! `programmatic`: one stream in topological order. Every kernel but the first is launched programmatically:
//! it may begin when every CTA of the previous kernel has issued its trigger, which is the first thing a CTA
//! does. That kernel began under the same rule, so all CTAs of every earlier stage, producer or not, are
//! resident or done: the guarantee of `streams` holds for any DAG, though each kernel waits only for its
//! neighbor. The first kernel of a run is an ordinary launch and waits for everything before it.
//!
//! `fused`: one launch of one persistent kernel, a chain kernel or a decode kernel. Runs follow each other on
//! the main stream, with programmatic edges where [`Overlap`] allows them.

use std::sync::Arc;

use cusync_gen::check::Executor;
use cusync_gen::graph::{OperandKind, Stage};

use super::error::{Error, Result};
use super::options::Overlap;
use super::pipeline::{Captured, Kernels, LaunchWork, Pipeline, StageKernels};
use super::queue::{Queued, queue, side_by_side};
use crate::device::{LaunchAttributes, Stream};
use crate::ffi;
use crate::inputs::sequences::{SequenceFault, Sequences, SharedPage, named};

impl Kernels {
    /// Queues the kernel that runs all stages.
    pub(super) fn launch_fused(&self, launch: LaunchAttributes<'_>) -> Result<()> {
        match self {
            Kernels::One(kernel) => Ok(kernel.launch(launch)?),
            Kernels::Stages(_) => Err(Error::Unsupported("the stages have a kernel each".into())),
        }
    }
}

impl Pipeline {
    /// Queues one run of set 0.
    pub fn run(&mut self, executor: Executor) -> Result<()> {
        self.run_set(executor, 0)
    }

    /// Queues one run of a set and returns before it is done; [`Pipeline::synchronize`] waits.
    ///
    /// # Errors
    /// If a kernel cannot be queued after others were, those have posted and the run is incomplete: the
    /// pipeline is poisoned, and later calls return an error.
    pub fn run_set(&mut self, executor: Executor, set: usize) -> Result<()> {
        self.ready(executor)?;
        self.pages_are_own(set)?;
        self.make_graph(executor, set)?;
        self.in_turn(&self.main, || self.queue_run(executor, set, &self.main)).map_err(|e| self.poison(e))
    }

    /// Queues one run of set 0 on the caller's stream. If the stream is capturing, the run becomes part of
    /// that capture, and the pipeline must outlive its graph. Call [`Pipeline::prepare`] before a capture
    /// begins. Otherwise, a run that has to prepare first waits for the stream.
    ///
    /// All runs of a pipeline, including replays, must follow each other by stream order or events, because
    /// its semaphores count runs. Use [`Pipeline::fork`] to run side by side.
    ///
    /// # Errors
    /// As [`Pipeline::run_set`].
    pub fn run_on(&mut self, executor: Executor, stream: &Stream) -> Result<()> {
        self.run_set_on(executor, 0, stream)
    }

    /// As [`Pipeline::run_on`], for a set of tensors.
    ///
    /// # Errors
    /// As [`Pipeline::run_set`].
    pub fn run_set_on(&mut self, executor: Executor, set: usize, stream: &Stream) -> Result<()> {
        // Weights are laid out on a stream of the pipeline, while work on the caller's may still be writing them.
        if !self.is_prepared() && !stream.is_capturing()? {
            stream.synchronize()?;
        }
        self.ready(executor)?;
        // Only the driver knows whether a stream is capturing, and asking takes time.
        let graph = side_by_side(&self.plan, executor);
        if (graph || self.checks_pages()) && !stream.is_capturing()? {
            if self.checks_pages() {
                stream.synchronize()?;
                self.pages_are_own(set)?;
            }
            self.make_graph(executor, set)?;
        }
        self.in_turn(stream, || self.queue_run(executor, set, stream)).map_err(|e| self.poison(e))
    }

    /// Captures a run that uses several streams. If its kernels were queued one by one, an event that waits
    /// for triggers would fire only when its kernel ends, and nothing would overlap.
    fn make_graph(&mut self, executor: Executor, set: usize) -> Result<()> {
        if side_by_side(&self.plan, executor) && self.sets.get(set).is_some_and(|s| s.graph.is_none()) {
            self.sets[set].graph = Some(self.capture(executor, &[set])?);
        }
        Ok(())
    }

    /// Queues one run on a stream: as a graph if it uses several streams, unless it becomes part of another
    /// graph.
    fn queue_run(&self, executor: Executor, set: usize, stream: &Stream) -> Result<()> {
        let kernels = self.kernels(set)?;
        match self.sets[set].graph.as_ref().filter(|_| side_by_side(&self.plan, executor)) {
            Some(captured) if !stream.is_capturing()? => Ok(captured.graph.launch(stream)?),
            _ => {
                let early = self.options.overlap == Overlap::All;
                self.enqueue(executor, &kernels, (early, early), stream)
            }
        }
    }

    /// Captures one run of each named set, in order, into one graph.
    pub fn capture(&mut self, executor: Executor, sets: &[usize]) -> Result<Captured> {
        self.ready(executor)?;
        sets.iter().try_for_each(|set| self.pages_are_own(*set))?;
        let kernels = sets.iter().map(|&s| self.kernels(s)).collect::<Result<Vec<_>>>()?;
        let early = |place| match self.options.overlap {
            Overlap::Plain => (false, false),
            Overlap::Captured => (place > 0, true),
            Overlap::All => (true, true),
        };
        let each = || kernels.iter().enumerate();
        let graph = self.main.capture(|| {
            each().try_for_each(|(place, k)| self.enqueue(executor, k, early(place), &self.main))
        })?;
        Ok(Captured { graph, shared: self.shared.clone(), sets: sets.to_vec(), _kernels: kernels })
    }

    /// Queues a captured graph. Replays and eager runs may be mixed freely.
    pub fn replay(&mut self, captured: &Captured) -> Result<()> {
        self.healthy()?;
        if !Arc::ptr_eq(&self.shared, &captured.shared) {
            return Err(Error::Unsupported("the graph was captured from another pipeline".into()));
        }
        captured.sets.iter().try_for_each(|set| self.pages_are_own(*set))?;
        let queue = || Ok(captured.graph.launch(&self.main)?);
        self.in_turn(&self.main, queue).map_err(|e| self.poison(e))
    }

    /// Waits for all queued work, and reports a timed-out wait as the edge that it waited on. A sequence
    /// without room for its tokens is also an error, for these runs only.
    pub fn synchronize(&mut self) -> Result<()> {
        self.healthy()?;
        self.main.synchronize().map_err(|e| {
            let error = self.starved().unwrap_or(Error::Device(e));
            self.poison(error)
        })?;
        self.bad_sequence().map_or(Ok(()), Err)
    }

    /// The error that runs have reported so far, without waiting for those in flight: for callers who queue runs on
    /// streams of their own, and may learn of a lost context from another library.
    pub fn fault(&mut self) -> Option<Error> {
        match self.starved() {
            Some(error) => Some(self.poison(error)),
            None => self.bad_sequence(),
        }
    }

    /// Waits for all runs and returns the kernels' notes since the last call: every event comes after those
    /// that it was ordered after. Empty without [`super::Options::notes`].
    pub fn take_notes(&mut self) -> Result<Vec<ffi::cusync_note>> {
        self.synchronize()?;
        let notes = self.shared.notes.as_ref().map(|notes| notes.take()).transpose()?;
        Ok(notes.unwrap_or_default())
    }

    /// Sequences that runs have skipped since the last check. The report names the first one; the current
    /// lengths and pages identify the others.
    fn bad_sequence(&self) -> Option<Error> {
        let record = self.shared.report.read()?;
        if !matches!(record.kind, ffi::CUSYNC_REPORT_BAD_LENGTH | ffi::CUSYNC_REPORT_BAD_PAGE) {
            return None;
        }
        self.shared.report.clear();
        let (sequence, have, want) = (record.tile_m, record.have as i32, record.want);
        let sets = 0..self.sets.len();
        let known = sets.filter_map(|set| self.judge_sequences(set, |s| Some(s.left_out())).ok());
        let has = |faults: &[SequenceFault]| faults.iter().any(|(at, _)| *at == sequence as usize);
        let attends = |s: &&Stage| s.op.cache().is_some();
        let first =
            self.plan.graph().stages.iter().find(attends).map_or_else(String::new, |s| s.name.clone());
        let mut known = known.filter(|stages| stages.iter().any(|(_, faults)| has(faults)));
        let named = known
            .next()
            .and_then(|stages| named(&stages))
            .map(|(stage, sequence, fault)| Error::Cache { stage, sequence: sequence as u32, fault });
        Some(named.unwrap_or_else(|| {
            let fault = match record.kind {
                ffi::CUSYNC_REPORT_BAD_LENGTH => {
                    format!("its length was {have}, and the cache has room for {want} tokens")
                }
                _ => format!("its page {} was number {have} of a pool of {want}", record.tile_n),
            };
            let fault = fault + "; lengths or pages are others now, which may have been left out, too";
            Error::Cache { stage: first, sequence, fault }
        }))
    }

    /// Applies `f` to the tables of lengths and pages of a set, stage by stage. Waits for all queued work.
    fn judge_sequences<T>(
        &self,
        set: usize,
        f: impl Fn(&Sequences<'_>) -> Option<T>,
    ) -> Result<Vec<(String, T)>> {
        let mut all = Vec::new();
        for stage in self.plan.graph().stages.iter().filter(|stage| stage.op.cache().is_some()) {
            self.main.synchronize()?;
            let integers = |kind| -> Result<Option<Vec<i32>>> {
                let Some(operand) = stage.operand(kind) else { return Ok(None) };
                let buffer = self.integers(set, operand.tensor)?;
                let mut numbers = vec![0; buffer.len()];
                buffer.download(&mut numbers)?;
                Ok(Some(numbers))
            };
            let (lengths, pages) = (integers(OperandKind::Lengths)?, integers(OperandKind::Pages)?);
            let sequences = Sequences::new(stage, lengths.as_deref(), pages.as_deref());
            if let Some(found) = sequences.and_then(|sequences| f(&sequences)) {
                all.push((stage.name.clone(), found));
            }
        }
        Ok(all)
    }

    fn checks_pages(&self) -> bool {
        let paged = |stage: &Stage| stage.operand(OperandKind::Pages).is_some();
        self.options.check_pages && self.plan.graph().stages.iter().any(paged)
    }

    /// Refuses runs of a set that would append to a page shared with another sequence. Waits for all queued
    /// work and reads the tables back, so it runs only if [`super::Options::check_pages`] asks for it.
    fn pages_are_own(&self, set: usize) -> Result<()> {
        if !self.checks_pages() {
            return Ok(());
        }
        match self.judge_sequences(set, |sequences| sequences.shared())?.into_iter().next() {
            Some((stage, SharedPage { sequence, other, page })) => {
                Err(Error::SharedPage { stage, sequence, other, page })
            }
            None => Ok(()),
        }
    }

    /// Whether an earlier failure forbids further runs.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    pub(super) fn healthy(&self) -> Result<()> {
        self.poisoned.clone().map_or(Ok(()), |why| Err(Error::Poisoned(why)))
    }

    fn ready(&mut self, executor: Executor) -> Result<()> {
        self.healthy()?;
        if executor == Executor::Cpu {
            return Err(Error::Unsupported("the cpu executor does not run on a GPU pipeline".into()));
        }
        if executor == Executor::Copilot {
            let why = "the copilot executor runs jobs, not plans once\n  help: open a session (`runtime::copilot::Session`)";
            return Err(Error::Unsupported(why.into()));
        }
        if !self.plan.runs_as(executor) {
            return Err(Error::NotProved { proved: self.plan.executor(), asked: executor });
        }
        let devices = self.plan.graph().devices();
        if devices > 1 && self.group.is_none() {
            let help = "form a group of pipelines, one on each GPU (`Group`, `Pipeline::form_group`)";
            let why = format!("{} is planned for {devices} devices\n  help: {help}", self.plan.graph().name);
            return Err(Error::Unsupported(why));
        }
        self.prepare()
    }

    fn poison(&mut self, error: Error) -> Error {
        self.poisoned = Some(error.to_string());
        error
    }

    /// Error that the report describes, if a wait filled it.
    fn starved(&self) -> Option<Error> {
        let fatal = |record: &ffi::cusync_report| {
            matches!(record.kind, ffi::CUSYNC_REPORT_LATE | ffi::CUSYNC_REPORT_NO_SUMS)
        };
        let record = self.shared.report.read().filter(fatal)?;
        let stages = &self.plan.graph().stages;
        if record.kind == ffi::CUSYNC_REPORT_NO_SUMS {
            let stage = stages.get(record.stage as usize);
            return Some(Error::NoSums {
                stage: stage.map_or_else(|| format!("stage {}", record.stage), |s| s.name.clone()),
                device: self.group.as_ref().map_or(0, |group| group.number()),
                sender: record.slot,
                row: record.tile_m,
                column: record.tile_n,
                have: record.have,
                want: record.want,
                // Kernels wait three quarters of the limit for other GPUs.
                waited_s: self.options.timeout_ns as f64 * 0.75e-9,
            });
        }
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

    /// `early`: whether chain and decode kernels may begin before the previous run ends, and before the
    /// previous launch of this run ends. `main` carries the run from beginning to end.
    fn enqueue(
        &self,
        executor: Executor,
        kernels: &Kernels,
        early: (bool, bool),
        main: &Stream,
    ) -> Result<()> {
        let stages = match kernels {
            Kernels::Stages(stages) => stages,
            one => {
                let programmatic = early.0;
                let launch = LaunchAttributes { stream: main, started: None, programmatic };
                return one.launch_fused(launch);
            }
        };
        let queue = queue(&self.plan, executor);
        let side_by_side = queue.iter().any(|queued| queued.stream > 0);
        if side_by_side {
            main.record(&self.fork)?;
        }
        for (place, (queued, kernel)) in queue.iter().zip(stages).enumerate() {
            let stream = if queued.stream == 0 { main } else { &self.side[queued.stream - 1] };
            // The start of a producer implies the fork: the producer waited for it, or is behind it on the
            // main stream.
            for &producer in &queued.after {
                stream.wait(&self.started[producer])?;
            }
            if self.plan.launch().has_gates(self.plan.device().arch) {
                self.hold_back(stages, queued, stream)?;
            }
            if queued.stream > 0 && queued.after.is_empty() {
                stream.wait(&self.fork)?;
            }
            let started = queued.announces.then_some(&self.started[queued.stage]);
            if let Some(stage) = kernel.library.as_ref().filter(|_| queued.library) {
                stage.launch(stream)?;
                continue;
            }
            let gemm = kernel.tiled.as_ref().filter(|_| queued.tiled).unwrap_or(&kernel.serial);
            let early = queued.early && if place > 0 { early.1 || queued.apart } else { early.0 };
            gemm.launch(LaunchAttributes { stream, started, programmatic: queued.programmatic || early })?;
        }
        if side_by_side {
            for (stream, done) in self.side.iter().zip(&self.done) {
                stream.record(done)?;
                main.wait(done)?;
            }
        }
        Ok(())
    }

    /// Queues the gates of a stage: one behind the start of each producer, which verifies that start.
    fn hold_back(&self, stages: &[StageKernels], queued: &Queued, stream: &Stream) -> Result<()> {
        let LaunchWork::Stages { gates, .. } = &self.shared.work else { return Ok(()) };
        for (edge, e) in self.plan.edges().iter().enumerate() {
            let d = e.dependence();
            let first = self.plan.edges()[..edge].iter().all(|before| {
                (before.dependence().producer, before.dependence().consumer) != (d.producer, d.consumer)
            });
            if d.consumer.0 != queued.stage || !queued.after.contains(&d.producer.0) || !first {
                continue;
            }
            let producer = stages.iter().find(|s| s.stage == d.producer.0).and_then(|s| s.tiled.as_ref());
            if let Some(kernel) = producer {
                kernel.hold_back(stream, gates, edge, (edge as u32, queued.stage as u32))?;
            }
        }
        Ok(())
    }
}
