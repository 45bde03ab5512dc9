//! The input of a proof: a graph with a choice for every open decision.

use super::{How, Launch};
use crate::device::Profile;
use crate::graph::{Dependence, EdgeNumbers, Graph, StageId};
use crate::schedule::decode;
use crate::sync::{Policy, SlotMap, WaitAt};

/// Source of the run number that a kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochSource {
    /// A counter in device memory.
    DeviceCounter,
    /// A kernel parameter that the host sets at each launch.
    LaunchParameter,
}

/// How a producer knows that its stores are complete before it posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreCompletion {
    /// Ordinary stores, then a barrier over the storing threads.
    Barrier,
    /// Bulk stores, then `cp.async.bulk.wait_group 0` by the issuing thread.
    BulkWait,
    /// Bulk stores, then only `cp.async.bulk.wait_group.read`: shared memory is reusable, but global memory may not be
    /// written yet.
    BulkWaitRead,
}

/// Kernel behavior that obligations assume. The default describes this project's kernels; other values describe
/// third-party kernels and mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelContract {
    /// Source of the epoch.
    pub epoch: EpochSource,
    /// A run starts only after every kernel of the previous run has ended.
    pub full_run_boundary: bool,
    /// Runs are replayed from a captured graph.
    pub graph_replay: bool,
    /// Completion of stores before a post.
    pub stores: StoreCompletion,
    /// The post is a release at device scope.
    pub post_releases: bool,
    /// Every poll of the wait, including the first, is an acquire at device scope.
    pub wait_acquires: bool,
    /// Dependent operands are read by bulk copies.
    pub bulk_loads: bool,
    /// A proxy fence lies between the acquire and the dependent bulk copies.
    pub proxy_fence: bool,
    /// Posts are plain stores instead of atomic additions.
    pub plain_store_posts: bool,
    /// A run may be launched before the previous run has ended, by a programmatic edge between runs.
    pub overlap: bool,
    /// Every read of data that a run writes, every store and every access to a semaphore or flag comes after
    /// `griddepcontrol.wait`, which returns when the previous runs have ended. Only weights are loaded before it.
    pub dependency_wait: bool,
    /// A chain kernel makes an item's posts only when all waits of its worker's next item are satisfied.
    pub deferred_post: bool,
    /// How a chain kernel passes partial sums of a split tile.
    pub slabs: SlabContract,
    /// How an attention stage uses its cache, and how a decode kernel combines the parts of its tiles.
    pub cache: CacheContract,
    /// How sums pass from one device to another.
    pub exchange: ExchangeContract,
}

/// How partial sums pass between devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeContract {
    /// Sets of places, used in turn from run to run.
    pub sets: u32,
    /// Each word holds the number of its run beside the sum, and is written and read at once.
    pub numbered: bool,
}

/// How a decode attention stage uses state that persists across runs, and how workers combine the parts of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheContract {
    /// Lengths and page numbers are read from device memory in every run.
    pub lengths_each_run: bool,
    /// Where runs overlap, every read of the cache, its lengths and its page numbers comes after
    /// `griddepcontrol.wait`, even though the same thread streams weights before it.
    pub reads_wait: bool,
    /// The keys and values of the new token are computed in this run and never read from the cache.
    pub new_from_run: bool,
    /// The last worker to arrive among those with parts of a tile finishes it. The arrival counter is incremented with
    /// acquire and release at device scope, after a barrier over the threads that store a part.
    pub parts_ordered: bool,
    /// The worker that finishes a tile resets its count, so the next run starts from zero.
    pub parts_recounted: bool,
}

/// How partial sums pass through slabs to the item that finishes the tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabContract {
    /// A barrier over the storing threads separates the stores from the flag.
    pub barrier: bool,
    /// The flag is stored with release semantics at device scope.
    pub flag_releases: bool,
    /// Every poll of the flag is an acquire at device scope, and a barrier separates it from the loads.
    pub flag_acquires: bool,
    /// The flag holds the run number, so it need not be cleared. Otherwise it is only set.
    pub flag_is_epoch: bool,
}

impl KernelContract {
    /// The contract of the kernels for an architecture.
    pub fn of_kernels(arch: u32) -> Self {
        let bulk = arch >= 90;
        KernelContract {
            epoch: EpochSource::DeviceCounter,
            full_run_boundary: true,
            graph_replay: true,
            stores: if bulk { StoreCompletion::BulkWait } else { StoreCompletion::Barrier },
            post_releases: true,
            wait_acquires: true,
            bulk_loads: bulk,
            proxy_fence: bulk,
            plain_store_posts: false,
            overlap: false,
            dependency_wait: false,
            deferred_post: false,
            slabs: SlabContract {
                barrier: true,
                flag_releases: true,
                flag_acquires: true,
                flag_is_epoch: true,
            },
            cache: CacheContract {
                lengths_each_run: true,
                reads_wait: true,
                new_from_run: true,
                parts_ordered: true,
                parts_recounted: true,
            },
            exchange: ExchangeContract { sets: 2, numbered: true },
        }
    }

    /// The contract of the chain kernels of the `fused` executor.
    pub fn of_chain_kernels(arch: u32) -> Self {
        KernelContract { overlap: true, dependency_wait: true, ..KernelContract::of_kernels(arch) }
    }

    /// The contract of the decode kernels of the `fused` executor: ordinary stores, and ordinary copies of
    /// activations.
    pub fn of_decode_kernels(arch: u32) -> Self {
        KernelContract {
            stores: StoreCompletion::Barrier,
            bulk_loads: false,
            proxy_fence: false,
            ..KernelContract::of_chain_kernels(arch)
        }
    }
}

impl Launch {
    /// The contract of the kernels that run it.
    pub fn contract(&self, arch: u32) -> KernelContract {
        match self {
            Launch::Stages { .. } if self.is_in_turn() => KernelContract::of_chain_kernels(arch),
            Launch::Stages { .. } => KernelContract::of_kernels(arch),
            Launch::Lists(_) => KernelContract::of_chain_kernels(arch),
            Launch::Shares(_) => KernelContract::of_decode_kernels(arch),
        }
    }
}

/// Predicted times of a plan, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The same tiles, with kernels run one after another.
    pub serial_us: f64,
    /// The plan.
    pub synchronised_us: f64,
}

/// A candidate's choices for one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeChoice {
    /// Slot policy.
    pub policy: Policy,
    /// Where the consumer waits.
    pub wait_at: WaitAt,
}

/// A named decision and its reason, for `cusync explain`.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The subject of the decision, such as `order of up` or `policy of up -> down`.
    pub subject: String,
    /// The decision.
    pub decision: String,
    /// Whether the spec stated it.
    pub stated: bool,
    /// The reason, one sentence.
    pub reason: String,
    /// Alternatives with their predicted time in microseconds.
    pub alternatives: Vec<(String, f64)>,
}

/// A graph with a choice for every open decision.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The pipeline.
    pub graph: Graph,
    /// The device.
    pub device: Profile,
    /// How it is launched.
    pub launch: Launch,
    /// Policies, one for each of [`Graph::dependences`].
    pub edges: Vec<EdgeChoice>,
    /// How the kernels behave.
    pub contract: KernelContract,
    /// Decisions and their reasons; carried into the plan.
    pub choices: Vec<Choice>,
    /// Predicted times, if a model made the choices.
    pub predicted: Option<Prediction>,
}

impl Candidate {
    /// The predicted time, microseconds.
    pub fn predicted_us(&self) -> Option<f64> {
        self.launch.predicted_us().or_else(|| Some(self.predicted?.synchronised_us))
    }

    /// A pipeline with one kernel per stage and neutral choices: those of [`Launch::stages`], and one slot per row.
    pub fn new(graph: Graph, device: Profile, how: How) -> Self {
        let launch = Launch::stages(&graph, how);
        Candidate::launched(graph, device, launch)
    }

    /// A pipeline with a launch and neutral policies: one slot per row, one slot per tile if one chain kernel runs all
    /// stages, or the policies that a decode kernel has.
    pub fn launched(graph: Graph, device: Profile, launch: Launch) -> Self {
        let policy = |d: &Dependence| match &launch {
            Launch::Shares(_) => decode::policy(&graph, d),
            Launch::Lists(_) => Policy::Tile,
            Launch::Stages { .. } => Policy::Row,
        };
        let edge = |d: &Dependence| EdgeChoice { policy: policy(d), wait_at: WaitAt::PerKBlock };
        Candidate {
            edges: graph.dependences.iter().map(edge).collect(),
            contract: launch.contract(device.arch),
            choices: Vec::new(),
            predicted: None,
            graph,
            device,
            launch,
        }
    }

    /// The launches of chain kernels that run one stage each, as separate candidates.
    pub fn alone(&self) -> impl Iterator<Item = (StageId, Candidate)> + '_ {
        self.launch.kernels().iter().filter_map(|kernel| {
            let (graph, launch) =
                (self.graph.only(kernel.stage), Launch::Lists(kernel.kernel.lists()?.clone()));
            Some((kernel.stage, Candidate::launched(graph, self.device.clone(), launch)))
        })
    }

    /// The policies as numbers, one map per dependence. Slots are numbered consecutively across dependences; in a decode
    /// kernel, dependences with the same producer and policy share their slots.
    pub fn slot_maps(&self) -> Vec<SlotMap> {
        let (mut next, shared) = (0, self.launch.shares().is_some());
        let mut maps: Vec<SlotMap> = Vec::new();
        for (edge, (choice, d)) in self.edges.iter().zip(&self.graph.dependences).enumerate() {
            let same = |other: &usize| {
                self.graph.dependences[*other].producer == d.producer
                    && self.edges[*other].policy == choice.policy
            };
            let earlier = if shared { (0..edge).find(same) } else { None };
            let map = choice.policy.on(self.graph.stages[d.producer.0].grid);
            let slot_base = earlier.map_or(next, |other| maps[other].slot_base);
            next += if earlier.is_none() { map.slot_count } else { 0 };
            maps.push(SlotMap { slot_base, ..map });
        }
        maps
    }

    /// The edges as numbers, one for each dependence: they are judged, and kept in the plan.
    pub fn edge_numbers(&self) -> Vec<EdgeNumbers> {
        let slots = self.slot_maps().into_iter().zip(&self.edges).enumerate();
        slots.map(|(id, (map, choice))| EdgeNumbers::new(&self.graph, id, map, choice.wait_at)).collect()
    }

    /// Slots per dependence.
    pub fn slot_counts(&self) -> Vec<u32> {
        self.slot_maps().iter().map(|map| map.slot_count).collect()
    }

    /// `producer -> consumer (tensor)`.
    pub fn edge_name(&self, edge: usize) -> String {
        let d = &self.graph.dependences[edge];
        let consumer = &self.graph.stages[d.consumer.0];
        let tensor = &self.graph.tensors[consumer.operands[d.operand].tensor.0].name;
        format!("{} -> {} ({tensor})", self.graph.stages[d.producer.0].name, consumer.name)
    }
}
