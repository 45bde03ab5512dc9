//! The value that only a proof makes.

use serde::{Deserialize, Serialize};

use super::Prediction;
use crate::device::Device;
use crate::graph::{Dependence, Graph, Stage};
use crate::schedule::Schedule;
use crate::schedule::decode::{Decode, slots_of};
use crate::sync::{Order, Policy, SlotMap, WaitAt};

/// How a plan is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// Host threads, real atomics.
    Cpu,
    /// One stream, kernel after kernel, no semaphores.
    Serial,
    /// One stream a stage, released when every producer CTA has started.
    Streams,
    /// One stream, programmatic dependent launch with an early trigger.
    Programmatic,
    /// One persistent kernel for the whole chain; its workers follow a [`Schedule`].
    Fused,
}

impl Executor {
    /// The name, as the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            Executor::Cpu => "cpu",
            Executor::Serial => "serial",
            Executor::Streams => "streams",
            Executor::Programmatic => "programmatic",
            Executor::Fused => "fused",
        }
    }
}

/// What keeps consumers from taking the SMs that producers still need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartGuarantee {
    /// A consumer's CTAs start only after every CTA of all its producers has started.
    AllProducersStarted,
    /// None: kernels are launched side by side.
    None,
}

/// How dependent stages of a run are held together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coupling {
    /// By tile semaphores.
    Tiles,
    /// By kernel boundaries, as a serial chain: chosen where the model expects no gain from overlap, so that choosing
    /// automatically is never a loss.
    KernelBoundary,
}

/// What a candidate states of one edge; see [`super::Candidate`].
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeChoice {
    /// Slots.
    pub policy: Policy,
    /// Place of the wait.
    pub wait_at: WaitAt,
}

/// A named decision and why it was taken, for `cusync explain`.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What was decided, such as `order of up` or `policy of up -> down`.
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

/// An edge of a plan.
#[derive(Clone, Debug)]
pub struct EdgePlan {
    pub(crate) dependence: Dependence,
    pub(crate) policy: Policy,
    pub(crate) wait_at: WaitAt,
    pub(crate) slots: SlotMap,
    pub(crate) slot_base: u32,
}

impl EdgePlan {
    /// Producer, consumer and operand.
    pub fn dependence(&self) -> &Dependence {
        &self.dependence
    }
    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
    /// Place of the wait.
    pub fn wait_at(&self) -> WaitAt {
        self.wait_at
    }
    /// The policy as numbers.
    pub fn slots(&self) -> &SlotMap {
        &self.slots
    }
    /// First slot in the pipeline's semaphore array.
    pub fn slot_base(&self) -> u32 {
        self.slot_base
    }
}

/// A proved plan. Fields are private: [`super::check`] is the only constructor, and code is generated and kernels
/// are launched from nothing else.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) graph: Graph,
    pub(crate) device: Device,
    pub(crate) executor: Executor,
    pub(crate) start: StartGuarantee,
    pub(crate) coupling: Coupling,
    pub(crate) orders: Vec<Order>,
    pub(crate) edges: Vec<EdgePlan>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) decode: Option<Decode>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) predicted: Option<Prediction>,
}

impl Plan {
    /// The pipeline.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
    /// The device it was proved for.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// The executor it was proved for.
    pub fn executor(&self) -> Executor {
        self.executor
    }
    /// The start guarantee that progress rests on.
    pub fn start(&self) -> StartGuarantee {
        self.start
    }
    /// What holds dependent stages together.
    pub fn coupling(&self) -> Coupling {
        self.coupling
    }
    /// Tile orders, one a stage.
    pub fn orders(&self) -> &[Order] {
        &self.orders
    }
    /// Edges; the index is the edge's id in reports.
    pub fn edges(&self) -> &[EdgePlan] {
        &self.edges
    }
    /// The work lists of a chain kernel; `None` for every executor but `fused`, and where that runs a decode kernel.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.schedule.as_ref()
    }
    /// The plan of a decode kernel; `None` for every executor but `fused`, and where that runs a chain kernel. A decode
    /// kernel has slots of its own ([`slots_of`] a stage); the plan's edges are then only those of the graph.
    pub fn decode(&self) -> Option<&Decode> {
        self.decode.as_ref()
    }
    /// Semaphore slots of the whole pipeline.
    pub fn slot_count(&self) -> u32 {
        match &self.decode {
            Some(_) => self.graph.stages.iter().map(slots_of).sum(),
            None => self.edges.iter().map(|e| e.slots.slot_count).sum(),
        }
    }
    /// What was decided and why.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }
    /// Predicted times, where a model made the choices.
    pub fn predicted(&self) -> Option<Prediction> {
        self.predicted
    }
    /// `producer -> consumer (operand)`, the name of an edge in messages.
    pub fn edge_name(&self, edge: usize) -> String {
        let d = &self.edges[edge].dependence;
        let stage = |s: crate::graph::StageId| -> &Stage { &self.graph.stages[s.0] };
        let consumer = stage(d.consumer);
        let tensor = &self.graph.tensors[consumer.operands[d.operand].tensor.0].name;
        format!("{} -> {} ({tensor})", stage(d.producer).name, consumer.name)
    }
}
