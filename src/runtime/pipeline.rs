//! A plan with memory: semaphores, outputs, bound inputs and kernels ready to launch.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cusync_gen::check::{How, Launch, Plan};
use cusync_gen::graph::{DataType, Graph, Operand, OperandKind, Stage, StageId, TensorId};

use super::bound;
use super::desc::Descriptors;
use super::error::{Error, Result};
use super::execute::Captured;
use super::library::Faster;
use super::one::OneKernel;
use super::options::{Options, Overlap};
use super::outputs;
use super::supported::{allocate_outputs, runnable, suits};
use crate::device::{
    CublasLt, Device, DeviceBuffer, Event, Kernel, KernelArgs, Notes, Plain, RepackedWeights, Report, Stream,
    helpers,
};
use crate::ffi;

/// A tensor of 16-bit floats in device memory.
pub type Tensor = Arc<DeviceBuffer<u16>>;

/// A tensor of lengths or page numbers in device memory.
pub type Integers = Arc<DeviceBuffer<i32>>;

/// Memory that runs share. Graphs also hold a reference, so a captured graph outlives its pipeline.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) descriptors: Descriptors,
    pub(super) report: Arc<Report>,
    pub(super) work: Work,
    pub(super) notes: Option<Arc<Notes>>,
    /// Memory of each tensor that a stage writes; `None` for inputs and weights.
    pub(super) outputs: Vec<Option<Tensor>>,
}

/// Work and counters of a launch's kernels, in device memory.
#[derive(Debug)]
pub(super) enum Work {
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

impl Work {
    /// Trace buffer of a kernel for all stages, if it records times.
    pub(super) fn trace(&self) -> Option<&Arc<DeviceBuffer<ffi::cusync_trace>>> {
        match self {
            Work::Stages { .. } => None,
            Work::One(one) => one.sync.trace.as_ref(),
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

/// Inputs and weights bound together: a pipeline may hold several sets and rotate among them at no cost.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) bound: Vec<Option<Tensor>>,
    /// Lengths and pages of caches.
    pub(super) integers: Vec<Option<Integers>>,
    /// Interleaved gate and up weights, by stage.
    pub(super) packed: Vec<Option<Tensor>>,
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

/// Chain kernels that run one stage each.
fn chains(plan: &Plan, device: &Device, report: &Arc<Report>) -> Result<Vec<Option<OneKernel>>> {
    let one = |stage| {
        let schedule = plan.launch().kernel(stage).and_then(|launched| launched.kernel.lists());
        let kernel = |schedule| {
            OneKernel::chain(&plan.graph().only(stage), 0, schedule, device, report.clone(), false)
        };
        schedule.map(kernel).transpose()
    };
    (0..plan.graph().stages.len()).map(|stage| one(StageId(stage))).collect()
}

/// Whether a run loads a tensor before it waits for earlier runs: the weights of a product.
fn constant(graph: &Graph, tensor: usize) -> bool {
    let weight = |o: &Operand| o.tensor.0 == tensor && matches!(o.kind, OperandKind::B | OperandKind::Up);
    graph.stages.iter().any(|s| s.operands.iter().any(weight))
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
    /// The plan was proved for another GPU or has a stage that no built-in kernel runs, or memory is short.
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
        let report = Arc::new(Report::new(device)?);
        let work = match plan.launch() {
            Launch::Stages { .. } => Work::Stages {
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
                Work::One(Box::new(one?))
            }
            Launch::Shares(decode) => {
                let one = OneKernel::decode(plan, decode, device, report.clone(), options.trace);
                Work::One(Box::new(one?))
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
        let shared = Shared { descriptors: Descriptors::new(plan, device)?, report, work, notes, outputs };
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
            faster: (0..stages).map(|_| None).collect(),
            poisoned: None,
            turn: Arc::new(Turn { done: Mutex::new(Event::ordering(device)?) }),
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
        let mut fork = Pipeline::with_options(&self.plan, &self.device, self.options)?;
        self.device.synchronize()?;
        fork.turn = self.turn.clone();
        let graph = self.plan.graph();
        let input = |(tensor, bound): (&cusync_gen::graph::Tensor, &Option<Tensor>)| {
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

    /// Binds an input, a weight or a result in set 0.
    pub fn bind(&mut self, name: &str, tensor: Tensor) -> Result<()> {
        self.bind_in(0, name, tensor)
    }

    /// Binds an input, a weight or a result in a set. Sets are numbered from 0; naming the next number
    /// creates that set. A result that shares no memory with other tensors is written in place; unbound
    /// results use memory of the pipeline. Derived copies are made when a set is first used: gate and up
    /// weights of a gated GEMM are interleaved, all weights of a decode plan are repacked, and `library` may
    /// transpose weights. Bind weights again after changing them.
    pub fn bind_in(&mut self, set: usize, name: &str, tensor: Tensor) -> Result<()> {
        let index = self.bindable(name, DataType::Element, tensor.len())?;
        let graph = self.plan.graph();
        self.may_bind(set, name, Some(index), constant(graph, index), &*tensor)?;
        if graph.tensors[index].producer.is_some() || graph.tensors[index].state {
            tensor.written_by_runs();
        }
        // Packed forms of the old weights are stale.
        let uses = |s: &Stage| s.operands.iter().any(|o| o.tensor.0 == index);
        let stale: Vec<usize> =
            graph.stages.iter().enumerate().filter(|(_, s)| uses(s)).map(|(i, _)| i).collect();
        let slot = self.set_mut(set)?;
        slot.bound[index] = Some(tensor);
        slot.changed();
        for stage in stale {
            slot.packed[stage] = None;
            slot.repacked[stage] = None;
        }
        Ok(())
    }

    /// Binds lengths or page numbers in set 0: see [`Pipeline::bind_integers_in`].
    pub fn bind_integers(&mut self, name: &str, tensor: Integers) -> Result<()> {
        self.bind_integers_in(0, name, tensor)
    }

    /// Binds lengths or page numbers in a set. Kernels read them in every run, so writes to their memory
    /// between runs, in stream order, affect the next run; values out of range are detected then.
    pub fn bind_integers_in(&mut self, set: usize, name: &str, tensor: Integers) -> Result<()> {
        let index = self.bindable(name, DataType::Int32, tensor.len())?;
        self.may_bind(set, name, Some(index), false, &*tensor)?;
        let slot = self.set_mut(set)?;
        slot.integers[index] = Some(tensor);
        slot.changed();
        Ok(())
    }

    /// Index of the input or result of that name, which must take `have` elements of this kind.
    fn bindable(&self, name: &str, data: DataType, have: usize) -> Result<usize> {
        let graph = self.plan.graph();
        let tensors = &graph.tensors;
        let alone =
            |id: TensorId| tensors[id.0].alias.is_none() && tensors.iter().all(|t| t.alias != Some(id));
        let open = |i: usize| {
            tensors[i].producer.is_none() || outputs(graph).any(|id| id == TensorId(i) && alone(id))
        };
        let Some(index) = tensors.iter().position(|t| t.name == name).filter(|&i| open(i)) else {
            let known: Vec<_> =
                (0..tensors.len()).filter(|&i| open(i)).map(|i| tensors[i].name.as_str()).collect();
            return Err(Error::NotBindable(name.into(), known.join(", ")));
        };
        if tensors[index].data != data {
            let (is, with) = match tensors[index].data {
                DataType::Element => ("of the element type", "`bind`"),
                DataType::Int32 => ("of int32", "`bind_integers`"),
            };
            return Err(Error::Unsupported(format!("{name} is a tensor {is}: bind it with {with}")));
        }
        let want = tensors[index].elements() as usize;
        if have != want {
            return Err(crate::device::Error::Length { what: name.into(), have, want }.into());
        }
        Ok(index)
    }

    /// Binds interleaved gate and up weights of stage `name` ([`helpers::pack_gated`]) in place of the two
    /// tensors. Call it after binding the tensors, if you bind them at all.
    pub fn bind_packed(&mut self, set: usize, name: &str, packed: Tensor) -> Result<()> {
        let found = self.plan.graph().stages.iter().position(|s| s.name == name && s.op.is_gated());
        let Some(stage) = found else {
            return Err(Error::Unsupported(format!("{name} is not a gated stage of this pipeline")));
        };
        self.may_bind(set, &format!("the packed weights of {name}"), None, true, &packed)?;
        let slot = self.set_mut(set)?;
        slot.packed[stage] = Some(packed);
        slot.changed();
        Ok(())
    }

    /// Checks memory that is about to be bound against the proof: see [`bound`].
    fn may_bind<T: Plain>(
        &self,
        set: usize,
        name: &str,
        index: Option<usize>,
        constant: bool,
        tensor: &DeviceBuffer<T>,
    ) -> Result<()> {
        let tensors = &self.plan.graph().tensors;
        fn taken<T: Plain>(
            list: &[Option<Arc<DeviceBuffer<T>>>],
        ) -> impl Iterator<Item = (usize, Range<usize>)> {
            list.iter().enumerate().filter_map(|(i, tensor)| Some((i, tensor.as_ref()?.addresses())))
        }
        let none = Set::default();
        let bound = self.sets.get(set).unwrap_or(&none);
        let all = taken(&self.shared.outputs).chain(taken(&bound.bound)).chain(taken(&bound.integers));
        let known = all.filter(|(i, _)| Some(*i) != index).map(|(i, bytes)| bound::Known {
            name: tensors[i].name.clone(),
            bytes,
            written: tensors[i].producer.is_some() || tensors[i].state,
        });
        let new = bound::New { name, bytes: tensor.addresses(), constant, output: tensor.is_written() };
        bound::conflict(&new, &known.collect::<Vec<_>>())
            .map_or(Ok(()), |conflict| Err(Error::Bound(conflict)))
    }

    pub(super) fn set_mut(&mut self, set: usize) -> Result<&mut Set> {
        let (tensors, stages) = (self.plan.graph().tensors.len(), self.plan.graph().stages.len());
        let have = self.sets.len();
        if set > have {
            return Err(Error::Unsupported(format!("set {set} was bound before set {have}")));
        }
        if set == have {
            self.sets.push(Set {
                bound: vec![None; tensors],
                integers: vec![None; tensors],
                packed: vec![None; stages],
                repacked: vec![None; stages],
                ..Set::default()
            });
        }
        Ok(&mut self.sets[set])
    }

    /// Memory of a tensor: the pipeline's output, or the memory bound in a set.
    pub fn tensor(&self, set: usize, name: &str) -> Result<Tensor> {
        let tensors = &self.plan.graph().tensors;
        let index = tensors.iter().position(|t| t.name == name);
        let index = index.ok_or_else(|| Error::Unsupported(format!("this pipeline has no tensor {name}")))?;
        self.memory(set, TensorId(index))
    }

    pub(super) fn memory(&self, set: usize, tensor: TensorId) -> Result<Tensor> {
        let bound = self.sets.get(set).and_then(|s| s.bound[tensor.0].clone());
        bound
            .or_else(|| self.shared.outputs[tensor.0].clone())
            .ok_or_else(|| Error::Unbound { tensor: self.plan.graph().tensors[tensor.0].name.clone(), set })
    }

    /// Memory of a tensor of lengths or page numbers, as bound in a set.
    pub(super) fn integers(&self, set: usize, tensor: TensorId) -> Result<Integers> {
        let bound = self.sets.get(set).and_then(|s| s.integers[tensor.0].clone());
        bound.ok_or_else(|| Error::Unbound { tensor: self.plan.graph().tensors[tensor.0].name.clone(), set })
    }

    /// Fills every output with NaNs, in stream order. State that persists between runs is not an output.
    pub fn poison_outputs(&self) -> Result<()> {
        for output in self.shared.outputs.iter().flatten() {
            output.fill_bytes(0xFF, &self.main)?;
        }
        Ok(())
    }

    /// Creates the kernels of every set that lacks them. Modules are loaded and tensor maps encoded here
    /// because doing so may wait for a kernel that is itself waiting. Runs call it; call it yourself to pay
    /// the cost early.
    pub fn prepare(&mut self) -> Result<()> {
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
                Work::One(one) => {
                    Kernels::One(Box::new(Kernel::new(&self.device, self.one_kernel(set, one)?)?))
                }
                Work::Stages { .. } => {
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
        let make = |args: Result<KernelArgs>| -> Result<Kernel> { Ok(Kernel::new(&self.device, args?)?) };
        let launch = self.plan.launch();
        let tiled = launch.has_semaphores().then(|| make(self.tiled(set, index))).transpose()?;
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
        let serial = make(self.alone(set, index))?;
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

    pub(super) fn operand(&self, set: usize, stage: &Stage, kind: OperandKind) -> Result<Tensor> {
        let operand = stage.operand(kind).ok_or_else(|| {
            Error::Unsupported(format!("stage {} has no operand of kind {kind:?}", stage.name))
        })?;
        self.memory(set, operand.tensor)
    }
}
