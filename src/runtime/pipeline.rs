//! A plan with memory: semaphores, outputs, bound inputs and kernels ready to launch.

use std::sync::{Arc, Mutex, PoisonError};

use cusync_gen::check::{How, Launch, Plan};
use cusync_gen::graph::{OperandKind, StageId, TensorId};

use super::desc::Descriptors;
use super::error::{Error, Result};
use super::one::OneKernel;
use super::options::{Options, Overlap};
use super::supported::{runnable, suits};
use crate::device::{
    CublasLt, Device, DeviceBuffer, Event, GraphExec, GroupMember, Kernel, KernelArgs, Notes, OwnKernel,
    RepackedWeights, Stream, TimeoutReport, helpers, scratch_bytes,
};
use crate::ffi;

/// A tensor of 16-bit floats in device memory.
pub type TensorBuffer = Arc<DeviceBuffer<u16>>;

/// A tensor of lengths or page numbers in device memory.
pub type Integers = Arc<DeviceBuffer<i32>>;

/// Memory that runs share. Graphs also hold a reference, so a captured graph outlives its pipeline.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) descriptors: Descriptors,
    pub(super) report: Arc<TimeoutReport>,
    pub(super) work: LaunchWork,
    pub(super) notes: Option<Arc<Notes>>,
    /// Scratch memory of the stages that need some, which run in turn.
    pub(super) scratch: Option<Arc<DeviceBuffer<u8>>>,
    /// Memory of each tensor that a stage writes; `None` for inputs and weights.
    pub(super) outputs: Vec<Option<TensorBuffer>>,
}

/// Work and counters of a launch's kernels, in device memory.
#[derive(Debug)]
pub(super) enum LaunchWork {
    /// One kernel per stage draws its tiles in order.
    Stages {
        semaphores: Arc<DeviceBuffer<u32>>,
        tickets: Arc<DeviceBuffer<u64>>,
        /// Runs that the gate of each edge has seen, if there are gates.
        gates: DeviceBuffer<u64>,
        /// Chain kernel of each stage that has one to itself.
        chains: Vec<Option<OneKernel>>,
    },
    /// One kernel follows lists, or computes its shares itself.
    One(Box<OneKernel>),
}

impl LaunchWork {
    /// Trace buffer of a kernel for all stages, if it records times.
    pub(super) fn trace(&self) -> Option<&Arc<DeviceBuffer<ffi::cusync_trace>>> {
        match self {
            LaunchWork::Stages { .. } => None,
            LaunchWork::One(one) => one.sync.trace.as_ref(),
        }
    }
}

/// A stage's own kernel.
#[derive(Debug)]
pub(super) struct StageKernels {
    pub(super) stage: usize,
    /// Static schedule, no semaphores; launched by serial chains.
    pub(super) serial: Kernel,
    /// Ticket schedule, waits and posts; only if semaphores carry the dependences.
    pub(super) tiled: Option<Kernel>,
    /// Replacement by cuBLASLt; only if the plan allows it and it is faster.
    pub(super) library: Option<CublasLt>,
}

/// The kernels of one set of inputs.
#[derive(Debug)]
pub(super) enum Kernels {
    /// One per stage, in launch order.
    Stages(Vec<StageKernels>),
    /// One for all stages.
    One(Box<Kernel>),
}

/// Runs captured into a CUDA graph. Shares ownership of all memory that it uses.
#[derive(Debug)]
pub struct Captured {
    pub(super) graph: GraphExec,
    pub(super) shared: Arc<Shared>,
    /// Sets of its runs, in order.
    pub(super) sets: Vec<usize>,
    pub(super) _kernels: Vec<Arc<Kernels>>,
}

/// Inputs and weights bound together: a pipeline may hold several sets and rotate among them at no cost.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) bound: Vec<Option<TensorBuffer>>,
    /// Lengths and pages of caches.
    pub(super) integers: Vec<Option<Integers>>,
    /// Interleaved gate and up weights, by stage.
    pub(super) packed: Vec<Option<TensorBuffer>>,
    /// Repacked weights of a decode plan, by stage.
    pub(super) repacked: Vec<Option<Arc<RepackedWeights>>>,
    pub(super) kernels: Option<Arc<Kernels>>,
    /// One run, if kernels are on several streams: only in a graph do events between streams become edges
    /// that a trigger satisfies.
    pub(super) graph: Option<Captured>,
}

impl Set {
    /// Drops the kernels and the graph after another tensor was bound.
    pub(super) fn changed(&mut self) {
        (self.kernels, self.graph) = (None, None);
    }
}

/// Implementation of a stage under the `library` executor. Decided once per pipeline, by the first set of
/// inputs.
#[derive(Debug)]
pub(super) enum Faster {
    /// Our kernel.
    Ours,
    /// cuBLASLt with its fastest algorithm.
    Library(Box<CublasLt>),
}

/// Outputs with memory of their own, or of the output that they alias.
fn allocate_outputs(plan: &Plan, device: &Device) -> Result<Vec<Option<TensorBuffer>>> {
    let tensors = &plan.graph().tensors;
    let mut outputs: Vec<Option<TensorBuffer>> = vec![None; tensors.len()];
    let elements = |i: usize| tensors[i].rows as usize * tensors[i].cols as usize;
    for index in 0..tensors.len() {
        if tensors[index].producer.is_none() {
            continue;
        }
        let mut owner = index;
        while let Some(TensorId(next)) = tensors[owner].alias {
            owner = next;
        }
        if tensors[owner].producer.is_none() || elements(owner) != elements(index) {
            return Err(Error::Unsupported(format!(
                "{} shares memory with {}: outputs may share only with an output of the same size",
                tensors[index].name, tensors[owner].name
            )));
        }
        if outputs[owner].is_none() {
            let memory = DeviceBuffer::new(device, elements(owner), &tensors[owner].name)?;
            memory.written_by_runs();
            outputs[owner] = Some(Arc::new(memory));
        }
        outputs[index] = outputs[owner].clone();
    }
    Ok(outputs)
}

/// Chain kernels that run one stage each.
fn chains(plan: &Plan, device: &Device, report: &Arc<TimeoutReport>) -> Result<Vec<Option<OneKernel>>> {
    let one = |stage| {
        let schedule = plan.launch().kernel(stage).and_then(|launched| launched.kernel.lists());
        let kernel = |schedule| {
            OneKernel::chain(&plan.graph().only(stage), 0, schedule, device, report.clone(), false)
        };
        schedule.map(kernel).transpose()
    };
    (0..plan.graph().stages.len()).map(|stage| one(StageId(stage))).collect()
}

/// A proved plan ready to run on one GPU.
///
/// Semaphores and ticket counters are zeroed once, here. They keep counting from run to run on the device, so
/// graph replays and eager launches are equivalent to them.
#[derive(Debug)]
pub struct Pipeline {
    pub(super) device: Device,
    pub(super) plan: Plan,
    pub(super) options: Options,
    pub(super) shared: Arc<Shared>,
    pub(super) sets: Vec<Set>,
    /// Kernels of Custom stages, by stage.
    pub(super) own: Vec<Option<OwnKernel>>,
    /// Implementation of each stage under the `library` executor; `None` until decided.
    pub(super) faster: Vec<Option<Faster>>,
    /// Carries every run from beginning to end, and stage 0.
    pub(super) main: Stream,
    /// The stream of stage i + 1, for the `streams` executor.
    pub(super) side: Vec<Stream>,
    pub(super) fork: Event,
    /// Events per stage, recorded when all its CTAs have begun: guaranteed, except behind gates, where it is
    /// a hint.
    pub(super) started: Vec<Event>,
    /// Events per stage, recorded when it is done.
    pub(super) done: Vec<Event>,
    pub(super) poisoned: Option<String>,
    /// Shared with forks: two runs at once could take each other's SMs and deadlock.
    pub(super) turn: Arc<Turn>,
    /// Place among the GPUs that run the plan together.
    pub(super) group: Option<Arc<GroupMember>>,
}

/// Orders the runs of a pipeline and its forks, on any stream.
#[derive(Debug)]
pub(super) struct Turn {
    /// End of the last run.
    done: Mutex<Event>,
}

impl Pipeline {
    /// Allocates everything but inputs and weights.
    ///
    /// # Errors
    /// The plan was proved for another GPU or has a stage that no built-in kernel runs, or memory is short. Custom
    /// stages get their kernels from [`Pipeline::set_kernel`].
    pub fn new(plan: &Plan, device: &Device) -> Result<Pipeline> {
        Self::with_options(plan, device, Options::default())
    }

    /// [`Pipeline::new`] with options.
    pub fn with_options(plan: &Plan, device: &Device, options: Options) -> Result<Pipeline> {
        let graph = plan.graph();
        suits(plan, device)?;
        (0..graph.stages.len()).try_for_each(|stage| runnable(plan, StageId(stage)))?;
        let outputs = allocate_outputs(plan, device)?;
        let stages = graph.stages.len();
        let events =
            || (0..stages).map(|_| Event::ordering(device)).collect::<std::result::Result<Vec<_>, _>>();
        let report = Arc::new(TimeoutReport::new(device)?);
        let work = match plan.launch() {
            Launch::Stages { .. } => LaunchWork::Stages {
                semaphores: Arc::new(DeviceBuffer::zeroed(
                    device,
                    plan.slot_count().max(1) as usize,
                    "semaphores",
                )?),
                tickets: Arc::new(DeviceBuffer::zeroed(device, stages, "ticket counters")?),
                gates: DeviceBuffer::zeroed(device, plan.edges().len().max(1), "words of gates")?,
                chains: chains(plan, device, &report)?,
            },
            Launch::Lists(schedule) => {
                let (traced, slots) = (options.trace, plan.slot_count());
                let one = OneKernel::chain(plan.graph(), slots, schedule, device, report.clone(), traced);
                LaunchWork::One(Box::new(one?))
            }
            Launch::Shares(decode) => {
                let one = OneKernel::decode(plan, decode, device, report.clone(), options.trace);
                LaunchWork::One(Box::new(one?))
            }
        };
        if options.stream_only && plan.launch().shares().is_none() {
            return Err(Error::Unsupported(
                "only decode kernels can stream weights and do nothing else".into(),
            ));
        }
        let streams = plan.launch().kernels().len().max(1);
        let notes =
            (options.notes > 0).then(|| Notes::new(device, options.notes).map(Arc::new)).transpose()?;
        let bytes = plan.graph().stages.iter().map(scratch_bytes).max().unwrap_or(0);
        let scratch = (bytes > 0)
            .then(|| DeviceBuffer::new(device, bytes, "the lists of experts").map(Arc::new))
            .transpose()?;
        let descriptors = Descriptors::new(plan, device)?;
        let shared = Shared { descriptors, report, work, notes, scratch, outputs };
        Ok(Pipeline {
            main: Stream::new(device)?,
            side: (1..streams).map(|_| Stream::new(device)).collect::<std::result::Result<_, _>>()?,
            fork: Event::ordering(device)?,
            started: events()?,
            done: events()?,
            device: device.clone(),
            plan: plan.clone(),
            options,
            shared: Arc::new(shared),
            sets: Vec::new(),
            own: vec![None; stages],
            faster: (0..stages).map(|_| None).collect(),
            poisoned: None,
            turn: Arc::new(Turn { done: Mutex::new(Event::ordering(device)?) }),
            group: None,
        })
    }

    /// Another pipeline of the same plan. It shares inputs, weights and their packed forms, and has its own
    /// results, semaphores and streams, so both may be queued, and their graphs replayed, side by side. If
    /// the proof needs all SMs for one run, as it does for one kernel of all stages, runs and replays of the
    /// two take turns on the GPU; runs captured by the caller ([`Pipeline::run_on`]) must then be ordered by
    /// the launcher of that graph. Caches that runs append to are not shared: bind others to the fork. Waits
    /// for the GPU.
    ///
    /// # Errors
    /// Memory is short.
    pub fn fork(&self) -> Result<Pipeline> {
        if self.group.is_some() {
            return Err(Error::Unsupported("a pipeline of a group of GPUs has no forks".into()));
        }
        let mut fork = Pipeline::with_options(&self.plan, &self.device, self.options)?;
        self.device.synchronize()?;
        fork.turn = self.turn.clone();
        fork.own = self.own.clone();
        let graph = self.plan.graph();
        let input = |(tensor, bound): (&cusync_gen::graph::Tensor, &Option<TensorBuffer>)| {
            bound.clone().filter(|_| tensor.producer.is_none() && !tensor.state)
        };
        let shared = |set: &Set| Set {
            bound: graph.tensors.iter().zip(&set.bound).map(input).collect(),
            integers: set.integers.clone(),
            packed: set.packed.clone(),
            repacked: set.repacked.clone(),
            ..Set::default()
        };
        fork.sets = self.sets.iter().map(shared).collect();
        Ok(fork)
    }

    /// Queues work of this pipeline on a stream, behind the work of its forks if two at once could deadlock.
    pub(super) fn in_turn(&self, stream: &Stream, queue: impl FnOnce() -> Result<()>) -> Result<()> {
        let launch = self.plan.launch();
        let forked = Arc::strong_count(&self.turn) > 1;
        // Gates of several concurrent runs could exceed the number in the proof.
        let anyhow = launch.guarantees_starts() && !launch.has_gates(self.plan.device().arch);
        let couples =
            launch.has_semaphores() || launch.is_in_turn() && self.options.overlap != Overlap::Plain;
        if !forked || !couples || anyhow || stream.is_capturing()? {
            return queue();
        }
        let done = self.turn.done.lock().unwrap_or_else(PoisonError::into_inner);
        stream.wait(&done)?;
        queue()?;
        Ok(stream.record(&done)?)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The GPU.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream on which every run begins and ends.
    pub fn stream(&self) -> &Stream {
        &self.main
    }

    /// Number of sets bound so far.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Names of the tensors that no stage produces.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.plan.graph().tensors.iter().filter(|t| t.producer.is_none()).map(|t| t.name.as_str())
    }

    /// Fills every output with NaNs, in stream order. State that persists between runs is not an output.
    pub fn poison_outputs(&self) -> Result<()> {
        for output in self.shared.outputs.iter().flatten() {
            output.fill_bytes(0xFF, &self.main)?;
        }
        Ok(())
    }

    /// Whether every set has its kernels.
    pub(super) fn is_prepared(&self) -> bool {
        !self.sets.is_empty() && self.sets.iter().all(|set| set.kernels.is_some())
    }

    /// Creates the kernels of every set that lacks them. Modules are loaded and tensor maps encoded here
    /// because doing so may wait for a kernel that is itself waiting. Runs call it; call it yourself to pay
    /// the cost early. Weights are laid out here, so they must have their values.
    pub fn prepare(&mut self) -> Result<()> {
        self.has_kernels()?;
        if self.sets.is_empty() {
            self.set_mut(0)?;
        }
        for set in 0..self.sets.len() {
            if self.sets[set].kernels.is_some() {
                continue;
            }
            self.main.synchronize()?;
            match self.plan.launch().shares().map(|d| d.workers()) {
                Some(workers) => self.repack(set, workers)?,
                None => self.pack(set)?,
            }
            let kernels = match &self.shared.work {
                LaunchWork::One(one) => {
                    Kernels::One(Box::new(Kernel::new(&self.device, self.one_kernel(set, one)?)?))
                }
                LaunchWork::Stages { .. } => {
                    let launched: Vec<usize> =
                        self.plan.launch().kernels().iter().map(|kernel| kernel.stage.0).collect();
                    let kernels = launched.into_iter().map(|stage| self.stage_kernels(set, stage));
                    Kernels::Stages(kernels.collect::<Result<_>>()?)
                }
            };
            self.sets[set].kernels = Some(Arc::new(kernels));
        }
        Ok(())
    }

    /// Kernels of stage `index`.
    fn stage_kernels(&mut self, set: usize, index: usize) -> Result<StageKernels> {
        let make = |args: KernelArgs, waits: bool| match &self.own[index] {
            Some(own) => Kernel::own(&self.device, own, args, &self.own_reads(StageId(index), waits)),
            None => Kernel::new(&self.device, args),
        };
        let launch = self.plan.launch();
        let tiled = launch
            .has_semaphores()
            .then(|| Ok::<_, Error>(make(self.tiled(set, index)?, true)?))
            .transpose()?;
        // Without a start guarantee, progress was proved for a fixed number of CTAs per SM.
        if let Some(kernel) = tiled.as_ref().filter(|_| launch.on_gpu() && !launch.guarantees_starts()) {
            let (have, proved) = (kernel.grid().1, launch.ctas_per_sm(StageId(index)));
            if have != proved {
                let name = &self.plan.graph().stages[index].name;
                return Err(Error::Unsupported(format!(
                    "stage {name}: {have} CTAs of its kernel fit an SM, and the plan was proved for {proved}"
                )));
            }
        }
        let serial = make(self.alone(set, index)?, false)?;
        let by_library = launch.how() == Some(How::Library);
        let library = if by_library { self.library_stage(set, index)? } else { None };
        Ok(StageKernels { stage: index, serial, tiled, library })
    }

    /// Kernels that an executor launches.
    pub(super) fn kernels(&self, set: usize) -> Result<Arc<Kernels>> {
        let kernels = self.sets.get(set).and_then(|s| s.kernels.clone());
        kernels.ok_or_else(|| Error::Unsupported(format!("there is no set {set} of inputs")))
    }

    /// Interleaves the gate and up weights of a set that are not interleaved yet.
    pub(super) fn pack(&mut self, set: usize) -> Result<()> {
        for (index, stage) in self.plan.graph().stages.iter().enumerate() {
            if !stage.op.is_gated() || self.sets[set].packed[index].is_some() {
                continue;
            }
            let gate = self.operand(set, stage, OperandKind::B)?;
            let up = self.operand(set, stage, OperandKind::Up)?;
            let name = format!("packed weights of {}", stage.name);
            let packed = DeviceBuffer::new(&self.device, gate.len() * 2, &name)?;
            helpers::pack_gated(&gate, &up, &packed, stage.k, stage.n, &self.main)?;
            self.main.synchronize()?;
            self.sets[set].packed[index] = Some(Arc::new(packed));
        }
        Ok(())
    }
}
