//! The `cpu` executor: a plan on host threads, with real arithmetic per tile and real atomics as semaphores.
//!
//! The slots that a k-block waits for, the slot that a tile posts and the order of tiles come from the same
//! C++ code that kernels run ([`crate::device::host_policy`]); only the arithmetic differs.
//!
//! # Why it makes progress
//! *One pool* ([`Workers::Pool`]): all tiles form one list, stage after stage in the proved launch order,
//! producers first, each stage in its tile order; a worker draws the next entry and finishes it before it
//! draws again. A tile waits only for tiles of earlier stages, so only for entries that have already been
//! drawn. The first unfinished drawn entry waits for finished entries only, so it finishes; by induction all
//! do, with any number of threads.
//!
//! *A team per stage* ([`Workers::TeamPerStage`]): each stage has at least one thread, so the first
//! unfinished stage in topological order can always run. In this mode consumers really spin.
//!
//! *A schedule* of the `fused` executor: one thread per CTA; each follows its worker's list, or all draw from
//! the sequence. `check` proves progress of the schedule: every list is part of one order in which an item
//! waits for earlier items only. The options that assign workers do not apply then, nor do they apply to a
//! *decode plan*, which also has one thread per CTA: each computes its columns of stage after stage, and
//! waits for columns of earlier stages.
//!
//! A wait fails if no tile of the pipeline was finished for [`CpuOptions::timeout`]; the run then returns an
//! error that names the edge.

mod activation;
mod attention;
mod conv;
mod custom;
mod devices;
mod error;
mod experts;
mod gemm;
mod generate;
mod grouped_conv;
mod memory;
mod norm;
mod pool;
mod semaphore;
mod slabs;
mod tile;
mod work;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cusync_gen::check::Plan;
use cusync_gen::graph::{DataType, Graph, OperandKind, StageId, TensorId};
use cusync_gen::schedule::{POST_WEIGHT, Part};

pub use custom::{CustomKernel, Region};
pub(crate) use devices::Areas;
pub use error::CpuError;
pub use memory::tensor_bytes;

use self::devices::Member;
use self::memory::Memory;
use self::semaphore::Semaphores;
use self::slabs::Slabs;
use self::tile::{Scratch, Stop};
use self::work::Rota;
use crate::device::host_policy::{HostEdge, HostOrder};
use crate::inputs::sequences::{Sequences, SharedPage, named};
use crate::inputs::{Inputs, Values};

/// Assignment of workers to stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Workers {
    /// All workers draw from one list.
    #[default]
    Pool,
    /// Every stage has its own workers; all start together.
    TeamPerStage,
}

/// Options of a run on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Total number of workers; `TeamPerStage` starts at least one per stage.
    pub threads: usize,
    /// Assignment.
    pub workers: Workers,
    /// A wait fails if no tile was finished for this long.
    pub timeout: Duration,
    /// An edge whose posts are withheld: tests the time limit of waits.
    pub starve: Option<usize>,
}

impl Default for CpuOptions {
    fn default() -> Self {
        CpuOptions {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            workers: Workers::Pool,
            timeout: Duration::from_secs(10),
            starve: None,
        }
    }
}

/// Waits that were not satisfied at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// Number of waits.
    pub waits: u64,
    /// Total time over all workers.
    pub time: Duration,
}

/// Time of work on a tile, or a part of one, from the start of its run.
#[derive(Clone, Copy, Debug)]
pub struct TileSpan {
    /// Worker.
    pub worker: usize,
    /// Index of the stage.
    pub stage: usize,
    /// Start.
    pub begin: Duration,
    /// End, after its posts.
    pub end: Duration,
}

/// Statistics of a run.
#[derive(Clone, Debug)]
pub struct RunStats {
    /// From the first draw to the last post.
    pub time: Duration,
    /// Workers.
    pub threads: usize,
    /// Every tile, in order of completion.
    pub tiles: Vec<TileSpan>,
    /// Waits that had to spin.
    pub blocked: Blocked,
}

struct Incoming {
    edge: usize,
    kind: OperandKind,
}

/// A plan with its tensors in host memory, ready to run any number of times.
pub struct CpuPipeline {
    graph: Graph,
    edges: Vec<HostEdge>,
    edge_names: Vec<String>,
    incoming: Vec<Vec<Incoming>>,
    outgoing: Vec<Vec<usize>>,
    kernels: Vec<Option<Arc<dyn CustomKernel>>>,
    memory: Memory,
    semaphores: Semaphores,
    slabs: Slabs,
    rota: Rota,
    /// Amount that a tile adds to its slot: parts that share a tile add a share each.
    post_weight: u32,
    options: CpuOptions,
    /// Rows that the current run computes; later rows stay poison.
    rows: usize,
    /// Number of runs so far: slots are never cleared between runs.
    epoch: u32,
    /// Its group, if the plan is for several devices.
    member: Option<Member>,
}

impl CpuPipeline {
    /// Allocates the tensors.
    ///
    /// # Errors
    /// The machine has too little memory, or an input has no values.
    pub fn new(plan: &Plan, inputs: &Inputs, options: CpuOptions) -> Result<Self, CpuError> {
        let graph = plan.graph().clone();
        memory::ensure_memory(&graph)?;
        let mut incoming: Vec<Vec<Incoming>> = graph.stages.iter().map(|_| Vec::new()).collect();
        let mut outgoing = vec![Vec::new(); graph.stages.len()];
        let edges: Vec<_> = (0..plan.edges().len()).map(|id| HostEdge::new(plan, id)).collect();
        for (id, edge) in plan.edges().iter().enumerate().filter(|(id, _)| edges[*id].slots().1) {
            let dependence = edge.dependence();
            let kind = graph.stages[dependence.consumer.0].operands[dependence.operand].kind;
            incoming[dependence.consumer.0].push(Incoming { edge: id, kind });
            // In a decode plan, edges share the slots of their producer, which posts them once.
            let posts = &mut outgoing[dependence.producer.0];
            if !posts.iter().any(|other: &usize| edges[*other].slots() == edges[id].slots()) {
                posts.push(id);
            }
        }
        let orders: Vec<_> = (0..graph.stages.len()).map(|s| HostOrder::new(plan, StageId(s))).collect();
        let rota = match plan.launch().work() {
            Some(lists) => Rota::of_schedule(&graph, lists),
            None => {
                let stages: Vec<usize> = plan.launch().kernels().iter().map(|k| k.stage.0).collect();
                Rota::of_tiles(&graph, &stages, &orders, options.workers, options.threads)
            }
        };
        let split = rota.lists.iter().flatten().find(|w| w.part != Part::Whole);
        if let Some(work) = split.filter(|w| graph.stages[w.stage].op.is_custom()) {
            return Err(CpuError::SplitCustom(graph.stages[work.stage].name.clone()));
        }
        let lists = plan.launch().lists();
        let (count, ctas) = lists.map_or((0, 1), |s| (s.slabs, s.cluster.0 * s.cluster.1));
        let area = graph.stages.iter().map(|s| s.mma_tile.0 as usize * s.mma_tile.1 as usize);
        let slabs = Slabs::new(count, ctas, area.max().unwrap_or(0), plan.slot_count());
        let slots = plan.slot_count() + count * ctas;
        Ok(CpuPipeline {
            edges,
            edge_names: (0..plan.edges().len()).map(|id| plan.edge_name(id)).collect(),
            incoming,
            outgoing,
            kernels: graph.stages.iter().map(|_| None).collect(),
            memory: Memory::new(&graph, inputs)?,
            semaphores: Semaphores::new(slots, options.timeout),
            slabs,
            rota,
            post_weight: if lists.is_some() { POST_WEIGHT } else { 1 },
            graph,
            options,
            rows: usize::MAX,
            epoch: 0,
            member: None,
        })
    }

    /// Sets the arithmetic of a custom stage.
    ///
    /// # Errors
    /// There is no custom stage of that name.
    pub fn custom(self, stage: &str, kernel: impl CustomKernel + 'static) -> Result<Self, CpuError> {
        self.shared_custom(stage, Arc::new(kernel))
    }

    /// [`CpuPipeline::custom`] with a kernel that others use too.
    pub(crate) fn shared_custom(
        mut self,
        stage: &str,
        kernel: Arc<dyn CustomKernel>,
    ) -> Result<Self, CpuError> {
        let found = self.graph.stages.iter().position(|s| s.name == stage && s.op.is_custom());
        let index = found.ok_or_else(|| CpuError::NoCustomStage(stage.into()))?;
        self.kernels[index] = Some(kernel);
        Ok(self)
    }

    /// Runs the pipeline once. Outputs are poisoned with NaN first.
    ///
    /// # Errors
    /// A wait was never satisfied, a custom stage has no kernel, a cache has no room for a sequence, or a
    /// worker panicked. The pipeline can be run again after an error.
    pub fn run(&mut self) -> Result<RunStats, CpuError> {
        self.run_rows(u32::MAX)
    }

    /// [`CpuPipeline::run`] for the first `rows` rows of all tensors; the remaining output rows stay poison.
    pub(super) fn run_rows(&mut self, rows: u32) -> Result<RunStats, CpuError> {
        self.rows = rows as usize;
        self.member.iter_mut().for_each(Member::begin);
        let result = self.run_once();
        if let (Err(error), Some(member)) = (&result, &self.member) {
            member.abort(error);
        }
        result
    }

    fn run_once(&mut self) -> Result<RunStats, CpuError> {
        let custom = self.graph.stages.iter().zip(&self.kernels);
        if let Some((stage, _)) = custom.clone().find(|(s, k)| s.op.is_custom() && k.is_none()) {
            return Err(CpuError::NoKernel(stage.name.clone()));
        }
        let left_out = self.left_out()?;
        self.memory.reset();
        let result = self.run_workers();
        if result.is_ok() {
            self.epoch = self.epoch.wrapping_add(1);
            if let Some(error) = left_out {
                return Err(error);
            }
        } else {
            // Some posts of this run are missing: only a reset makes the counts consistent again.
            self.semaphores.reset();
            self.epoch = 0;
        }
        result
    }

    fn run_workers(&self) -> Result<RunStats, CpuError> {
        let Rota { lists, teams } = &self.rota;
        let drawn: Vec<AtomicUsize> = lists.iter().map(|_| AtomicUsize::new(0)).collect();
        let failure = Mutex::new(None);
        let start = Instant::now();
        let worker = |number: usize, team: usize| {
            let mut scratch = Scratch::default();
            let mut spans = Vec::new();
            loop {
                let ticket = drawn[team].fetch_add(1, Ordering::Relaxed);
                let Some(item) = lists[team].get(ticket) else { break };
                if self.semaphores.aborted() {
                    break;
                }
                let begin = start.elapsed();
                let work = std::panic::AssertUnwindSafe(|| self.run_work(item, self.epoch, &mut scratch));
                let error = match std::panic::catch_unwind(work) {
                    Ok(Ok(())) => {
                        let stage = item.stage;
                        spans.push(TileSpan { worker: number, stage, begin, end: start.elapsed() });
                        continue;
                    }
                    Ok(Err(Stop::Aborted)) => break,
                    Ok(Err(Stop::Failed(error))) => error,
                    Err(payload) => CpuError::Panicked(panic_text(payload.as_ref())),
                };
                self.semaphores.abort();
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                break;
            }
            (spans, scratch.blocked)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let worker = &worker;
            let spawned: Vec<_> =
                teams.iter().enumerate().map(|(n, &team)| scope.spawn(move || worker(n, team))).collect();
            spawned.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let time = start.elapsed();
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let mut stats =
            RunStats { time, threads: teams.len(), tiles: Vec::new(), blocked: Blocked::default() };
        for (spans, blocked) in results {
            stats.tiles.extend(spans);
            stats.blocked.waits += blocked.waits;
            stats.blocked.time += blocked.time;
        }
        stats.tiles.sort_by_key(|t| t.end);
        Ok(stats)
    }

    /// Returns a function for one worker that computes items of a plan with drawn items; its arguments are
    /// the item and the run number. Outputs are not poisoned, and an item waits for the items that it needs.
    pub(super) fn hands(&self) -> impl FnMut(u32, u32) -> Result<(), CpuError> + '_ {
        let mut scratch = Scratch::default();
        move |item, epoch| {
            let none = || CpuError::Panicked(format!("no item {item}"));
            let work = self.rota.lists.first().and_then(|list| list.get(item as usize)).ok_or_else(none)?;
            let run = std::panic::AssertUnwindSafe(|| self.run_work(work, epoch, &mut scratch));
            let error = match std::panic::catch_unwind(run) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Stop::Aborted)) => CpuError::Panicked("another worker failed".into()),
                Ok(Err(Stop::Failed(error))) => error,
                Err(payload) => CpuError::Panicked(panic_text(payload.as_ref())),
            };
            self.semaphores.abort();
            Err(error)
        }
    }

    /// Fills every output with NaNs.
    pub(super) fn poison(&mut self) {
        self.memory.reset();
    }

    /// A tensor's values after the last run, row-major, widened to float32.
    ///
    /// # Errors
    /// There is no such tensor.
    pub fn tensor(&self, name: &str) -> Result<Vec<f32>, CpuError> {
        let found = self.graph.tensors.iter().position(|t| t.name == name);
        let id = found.ok_or_else(|| CpuError::NoTensor(name.into()))?;
        let tensor = &self.graph.tensors[id];
        Ok(self.region(TensorId(id), 0..tensor.rows, 0..tensor.cols).data)
    }

    /// Every tensor that a stage writes or changes, by name, with its values after the last run.
    pub fn written(&self) -> HashMap<String, Vec<f32>> {
        let tensors = self.graph.tensors.iter().filter(|tensor| tensor.producer.is_some() || tensor.state);
        tensors.filter_map(|t| self.tensor(&t.name).ok().map(|values| (t.name.clone(), values))).collect()
    }

    /// Replaces an input, or a tensor that persists, before the next run. The caller has checked length and
    /// type.
    pub(crate) fn put(&mut self, id: TensorId, values: &Values) {
        match values {
            Values::Bits(bits) => self.memory.set_bits(id, bits),
            Values::Integers(integers) => {
                self.memory.set_integers(id, integers);
            }
        }
    }

    /// Replaces the integers of a tensor before the next run: the lengths or pages of a cache.
    ///
    /// # Errors
    /// The pipeline has no such tensor, or it takes another number of integers.
    pub fn set_integers(&mut self, name: &str, values: &[i32]) -> Result<(), CpuError> {
        let tensors = &self.graph.tensors;
        let found = tensors.iter().position(|t| t.name == name);
        let id = found.ok_or_else(|| CpuError::NoTensor(name.into()))?;
        if self.memory.set_integers(TensorId(id), values) {
            return Ok(());
        }
        let want = if tensors[id].data == DataType::Int32 { tensors[id].elements() } else { 0 };
        Err(CpuError::Integers { name: name.into(), want })
    }

    /// Error that lists the sequences skipped because a cache has no room for them.
    ///
    /// # Errors
    /// A run would append to a page that another sequence also uses.
    fn left_out(&self) -> Result<Option<CpuError>, CpuError> {
        let mut faults = Vec::new();
        for stage in &self.graph.stages {
            let integers = |kind| {
                let tensor = stage.operand(kind)?.tensor;
                Some(self.memory.integers(tensor, 0, self.graph.tensors[tensor.0].elements() as usize))
            };
            let (lengths, pages) = (integers(OperandKind::Lengths), integers(OperandKind::Pages));
            let Some(sequences) = Sequences::new(stage, lengths.as_deref(), pages.as_deref()) else {
                continue;
            };
            let stage = stage.name.clone();
            if let Some(SharedPage { sequence, other, page }) = sequences.shared() {
                return Err(CpuError::SharedPage { stage, sequence, other, page });
            }
            faults.push((stage, sequences.left_out()));
        }
        Ok(named(&faults).map(|(stage, sequence, fault)| CpuError::Cache { stage, sequence, fault }))
    }

    /// Number of runs so far.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
