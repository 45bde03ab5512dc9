//! A proved plan.

use super::{Candidate, Choice, EdgeChoice, Executor, How, Launch, Prediction, StageKernel, StageLaunch};
use crate::device::Profile;
use crate::graph::{Dependence, EdgeNumbers, Graph, Operand, OperandKind, Stage, StageId};
use crate::sync::{Policy, SlotMap, WaitAt};

/// An edge of a plan.
#[derive(Clone, Debug)]
pub struct EdgePlan {
    pub(crate) dependence: Dependence,
    pub(crate) policy: Policy,
    pub(crate) numbers: EdgeNumbers,
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
    /// Where the consumer waits.
    pub fn wait_at(&self) -> WaitAt {
        self.numbers.wait_at
    }
    /// The policy as numbers.
    pub fn slots(&self) -> &SlotMap {
        &self.numbers.policy
    }
    /// The numbers that were judged and that devices read.
    pub fn numbers(&self) -> &EdgeNumbers {
        &self.numbers
    }
}

/// A proved plan. Fields are private: [`super::check`] is the only constructor, and code generation and kernel
/// launches require a plan.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) graph: Graph,
    pub(crate) device: Profile,
    pub(crate) launch: Launch,
    pub(crate) edges: Vec<EdgePlan>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) predicted: Option<Prediction>,
}

impl Plan {
    /// The pipeline.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
    /// The device it was proved for.
    pub fn device(&self) -> &Profile {
        &self.device
    }
    /// The launch that was proved and is run.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }
    /// The executor that it was proved for.
    pub fn executor(&self) -> Executor {
        self.launch.executor()
    }
    /// Whether `executor` may run it: as [`Launch::runs_as`] says and, for serial execution, with producers before
    /// consumers.
    pub fn runs_as(&self, executor: Executor) -> bool {
        let serial = executor == Executor::Serial;
        let launched = |stage| self.launch.position(stage);
        let in_order = |d: &Dependence| launched(d.producer) < launched(d.consumer);
        self.launch.runs_as(executor) && (!serial || self.graph.dependences.iter().all(in_order))
    }
    /// Whether the launch of a stage may begin before the previous one ends. A chain kernel that runs only this stage
    /// loads nothing but its weights before all earlier work has ended, and these weights must not be the output of a
    /// stage; a kernel that runs alone loads nothing.
    pub fn may_begin_early(&self, stage: StageId) -> bool {
        let weight = |o: &&Operand| matches!(o.kind, OperandKind::B | OperandKind::Up);
        let mut weights = self.graph.stages[stage.0].operands.iter().filter(weight);
        let ordered = |launched: &StageLaunch| launched.kernel == StageKernel::Ordered;
        self.launch.kernel(stage).is_some_and(|launched| !ordered(launched))
            && weights.all(|o| self.graph.tensors[o.tensor.0].producer.is_none())
    }
    /// Whether no worker of a stage's launch waits for another. Then it may begin early regardless of other work on
    /// the GPU; otherwise all its workers must be on SMs at once, which a launch that begins early does not guarantee.
    pub fn works_apart(&self, stage: StageId) -> bool {
        self.launch.kernel(stage).is_some_and(|launched| match &launched.kernel {
            StageKernel::Ordered => false,
            StageKernel::Alone => true,
            StageKernel::Lists(schedule) => schedule.is_whole(),
        })
    }
    /// Edges; the index is the edge id in reports.
    pub fn edges(&self) -> &[EdgePlan] {
        &self.edges
    }
    /// Semaphore slots of the whole pipeline.
    pub fn slot_count(&self) -> u32 {
        self.edges.iter().map(|e| e.slots().slot_base + e.slots().slot_count).max().unwrap_or(0)
    }
    /// The plan itself or, for a decode plan, the same pipeline in tiles, as user kernels run it: one after another in
    /// graph order, so nothing is left to prove.
    pub fn on_tiles(&self) -> Plan {
        if self.launch.shares().is_none() {
            return self.clone();
        }
        let (graph, device) = (self.graph.clone().in_tiles(), self.device.clone());
        let edge = EdgeChoice { policy: Policy::Tile, wait_at: WaitAt::PerKBlock };
        let edges = vec![edge; graph.dependences.len()];
        let (choices, predicted) = (self.choices.clone(), self.predicted);
        super::assemble(Candidate { edges, choices, predicted, ..Candidate::new(graph, device, How::Serial) })
    }
    /// Decisions and their reasons.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }
    /// Predicted times, if a model made the choices.
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
