//! Launches of a pipeline: the subject of a proof, and the input of an executor.
//!
//! A launch holds exactly what an executor follows, so inconsistent combinations cannot be written: separate kernels
//! have tile orders, occupancies and a start guarantee; one kernel for all stages has a work assignment for its CTAs.
//! Use the methods to distinguish them; only code that checks, chooses, predicts or runs a launch should match on
//! [`Launch`].

use crate::executor::Executor;
use crate::graph::{Graph, StageId};
use crate::schedule::decode::Decode;
use crate::schedule::{Hand, Schedule};
use crate::sync::Order;

impl Executor {
    /// How it starts the stages; `None` for `fused` and `copilot`, which run all stages in one kernel.
    pub fn how(self) -> Option<How> {
        match self {
            Executor::Cpu => Some(How::Host),
            Executor::Serial => Some(How::Serial),
            Executor::Library => Some(How::Library),
            Executor::Streams => Some(How::STREAMS),
            Executor::Programmatic => Some(How::Programmatic),
            Executor::Fused | Executor::Copilot => None,
        }
    }
}

/// Guarantee that keeps consumers from occupying SMs that producers still need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartGuarantee {
    /// A consumer's CTAs start only after every CTA of all its producers has started.
    AllProducersStarted,
    /// No guarantee: kernels are launched side by side.
    None,
}

/// How separate stage kernels are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// On host threads that draw tiles in launch order; tile semaphores carry the dependences.
    Host,
    /// One kernel after another on one stream; kernel boundaries carry the dependences.
    Serial,
    /// The same, with cuBLASLt for products where it is faster.
    Library,
    /// One stream per stage; tile semaphores carry the dependences.
    Streams(StartGuarantee),
    /// One stream; a kernel may begin once every CTA of the previous one has issued its trigger. Tile semaphores carry
    /// the dependences.
    Programmatic,
}

impl How {
    /// One stream per stage, with the start guarantee.
    pub const STREAMS: How = How::Streams(StartGuarantee::AllProducersStarted);

    /// The executor that starts stages this way.
    pub fn executor(self) -> Executor {
        match self {
            How::Host => Executor::Cpu,
            How::Serial => Executor::Serial,
            How::Library => Executor::Library,
            How::Streams(_) => Executor::Streams,
            How::Programmatic => Executor::Programmatic,
        }
    }

    /// Whether tile semaphores carry the dependences, so that dependent stages may overlap.
    pub fn overlaps(self) -> bool {
        !matches!(self, How::Serial | How::Library)
    }
}

/// SM resources of one CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtaResources {
    /// Shared memory including the driver's reservation, bytes.
    pub shared: u32,
    /// Registers of all its threads.
    pub registers: u32,
    /// Threads.
    pub threads: u32,
}

/// A stage with its own kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct StageLaunch {
    /// The stage.
    pub stage: StageId,
    /// The order in which its tiles start.
    pub order: Order,
    /// CTAs that fit an SM when no other kernel occupies it.
    pub ctas_per_sm: u32,
    /// Resources of one CTA; `None` if only the occupancy is known, so co-residency with other kernels is unknown.
    pub takes: Option<CtaResources>,
    /// Its kernel.
    pub kernel: StageKernel,
}

/// The kernel of a stage that has a launch to itself.
#[derive(Clone, Debug, PartialEq)]
pub enum StageKernel {
    /// One that follows [`StageLaunch::order`].
    Ordered,
    /// One that neither waits nor posts, and divides the stage itself.
    Alone,
    /// A chain kernel that runs this stage as the only one of its graph ([`Graph::only`]).
    Lists(Schedule),
}

impl StageKernel {
    /// The schedule of a chain kernel.
    pub fn lists(&self) -> Option<&Schedule> {
        match self {
            StageKernel::Lists(schedule) => Some(schedule),
            StageKernel::Ordered | StageKernel::Alone => None,
        }
    }
}

impl StageLaunch {
    /// A launch with neutral choices: row-major order and one CTA per SM.
    pub fn neutral(stage: StageId) -> StageLaunch {
        StageLaunch {
            stage,
            order: Order::RowMajor,
            ctas_per_sm: 1,
            takes: None,
            kernel: StageKernel::Ordered,
        }
    }
}

/// How a pipeline is launched.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// One kernel per stage; in a serial chain this may be one that only runs between kernel boundaries.
    Stages {
        /// How the kernels are started.
        how: How,
        /// The stages in launch order.
        stages: Vec<StageLaunch>,
    },
    /// One chain kernel for all stages; its workers follow lists of tiles and parts of tiles.
    Lists(Schedule),
    /// One decode kernel for all stages: every worker takes an equal share of the columns of each stage in turn.
    Shares(Decode),
}

impl Launch {
    /// One kernel per stage, in graph order, with the choices of [`StageLaunch::neutral`].
    pub fn stages(graph: &Graph, how: How) -> Launch {
        let stages = (0..graph.stages.len()).map(|s| StageLaunch::neutral(StageId(s)));
        Launch::Stages { how, stages: stages.collect() }
    }

    /// The executor that runs it.
    pub fn executor(&self) -> Executor {
        match self {
            Launch::Stages { how, .. } => how.executor(),
            Launch::Lists(_) | Launch::Shares(_) => Executor::Fused,
        }
    }

    /// Whether `executor` may run it. Accepted: the executor it was built for; `serial` for separate stage kernels,
    /// since it needs only their order; and for a serial chain of our kernels, every executor that launches stages on
    /// a GPU, because those fall back to it.
    pub fn runs_as(&self, executor: Executor) -> bool {
        match self {
            Launch::Stages { how, .. } => match executor.how() {
                Some(How::Host) => *how == How::Host,
                Some(How::Serial) => true,
                Some(How::Library) => *how == How::Library,
                Some(How::Streams(_) | How::Programmatic) => {
                    *how == How::Serial || how.executor() == executor
                }
                None => false,
            },
            Launch::Lists(_) => executor == Executor::Fused,
            Launch::Shares(_) => matches!(executor, Executor::Fused | Executor::Copilot),
        }
    }

    /// The kind used in prediction tables: executor and kernels.
    pub fn kind(&self) -> &'static str {
        match self {
            Launch::Stages { .. } if self.is_in_turn() => "chain kernels, one a stage",
            Launch::Stages { how, .. } => how.executor().name(),
            Launch::Shares(_) => "decode kernel",
            Launch::Lists(schedule) => match (schedule.mode, schedule.slabs) {
                (Hand::Fixed, 0) => "chain kernel, static, whole tiles",
                (Hand::Fixed, 1..) => "chain kernel, static, cut tiles",
                (Hand::Drawn, 0) => "chain kernel, dynamic, whole tiles",
                (Hand::Drawn, 1..) => "chain kernel, dynamic, cut tiles",
            },
        }
    }

    /// How separate stage kernels are started; `None` if one kernel runs all stages.
    pub fn how(&self) -> Option<How> {
        match self {
            Launch::Stages { how, .. } => Some(*how),
            Launch::Lists(_) | Launch::Shares(_) => None,
        }
    }

    /// Mutable [`Launch::how`].
    pub fn how_mut(&mut self) -> Option<&mut How> {
        match self {
            Launch::Stages { how, .. } => Some(how),
            Launch::Lists(_) | Launch::Shares(_) => None,
        }
    }

    /// Whether one kernel runs all stages.
    pub fn is_one_kernel(&self) -> bool {
        self.how().is_none()
    }

    /// Whether some kernels only run between kernel boundaries: chain kernels of one stage each, and those that run
    /// alone.
    pub fn is_in_turn(&self) -> bool {
        self.kernels().iter().any(|launched| launched.kernel != StageKernel::Ordered)
    }

    /// Whether it runs on a GPU.
    pub fn on_gpu(&self) -> bool {
        self.how() != Some(How::Host)
    }

    /// Whether semaphores carry the dependences; a serial chain relies on kernel boundaries.
    pub fn has_semaphores(&self) -> bool {
        self.how().is_none_or(How::overlaps)
    }

    /// Whether a consumer's CTAs start only after every CTA of all its producers has started.
    pub fn guarantees_starts(&self) -> bool {
        matches!(self.how(), Some(How::Programmatic | How::Streams(StartGuarantee::AllProducersStarted)))
    }

    /// Whether gates provide the start guarantee: one before each consumer's kernel, a thread on an SM that waits
    /// until all tiles of a producer have been drawn. Kernels for sm_90 use triggers instead.
    pub fn has_gates(&self, arch: u32) -> bool {
        self.how() == Some(How::STREAMS) && arch < 90
    }

    /// The start guarantee in words.
    pub fn start(&self) -> &'static str {
        match self {
            Launch::Stages { .. } if self.guarantees_starts() => {
                "a consumer starts after every CTA of its producers"
            }
            Launch::Stages { .. } => "none",
            Launch::Lists(_) | Launch::Shares(_) => "every worker is resident from the start",
        }
    }

    /// The stages with their own kernel, in launch order; empty if one kernel runs all stages.
    pub fn kernels(&self) -> &[StageLaunch] {
        match self {
            Launch::Stages { stages, .. } => stages,
            Launch::Lists(_) | Launch::Shares(_) => &[],
        }
    }

    /// Mutable [`Launch::kernels`].
    pub fn kernels_mut(&mut self) -> &mut [StageLaunch] {
        match self {
            Launch::Stages { stages, .. } => stages,
            Launch::Lists(_) | Launch::Shares(_) => &mut [],
        }
    }

    /// The kernel of a stage; `None` if it has none of its own.
    pub fn kernel(&self, stage: StageId) -> Option<&StageLaunch> {
        self.kernels().iter().find(|kernel| kernel.stage == stage)
    }

    /// Mutable [`Launch::kernel`].
    pub fn kernel_mut(&mut self, stage: StageId) -> Option<&mut StageLaunch> {
        self.kernels_mut().iter_mut().find(|kernel| kernel.stage == stage)
    }

    /// The order in which a stage's tiles start. Row-major if one kernel runs all stages; its work assignment has the
    /// details.
    pub fn order(&self, stage: StageId) -> &Order {
        self.kernel(stage).map_or(&Order::RowMajor, |kernel| &kernel.order)
    }

    /// CTAs of a stage that fit an SM at once.
    pub fn ctas_per_sm(&self, stage: StageId) -> u32 {
        self.kernel(stage).map_or(1, |kernel| kernel.ctas_per_sm)
    }

    /// The position of a stage in launch order, or in graph order if one kernel runs all stages; `usize::MAX` if the
    /// stage is never launched.
    pub fn position(&self, stage: StageId) -> usize {
        match self {
            Launch::Stages { stages, .. } => {
                stages.iter().position(|kernel| kernel.stage == stage).unwrap_or(usize::MAX)
            }
            Launch::Lists(_) | Launch::Shares(_) => stage.0,
        }
    }

    /// The schedule of a chain kernel.
    pub fn lists(&self) -> Option<&Schedule> {
        match self {
            Launch::Lists(schedule) => Some(schedule),
            Launch::Stages { .. } | Launch::Shares(_) => None,
        }
    }

    /// Mutable [`Launch::lists`].
    pub fn lists_mut(&mut self) -> Option<&mut Schedule> {
        match self {
            Launch::Lists(schedule) => Some(schedule),
            Launch::Stages { .. } | Launch::Shares(_) => None,
        }
    }

    /// The lists that the workers of a single kernel follow, for a chain or decode kernel.
    pub fn work(&self) -> Option<&Schedule> {
        match self {
            Launch::Lists(schedule) | Launch::Shares(Decode { work: schedule, .. }) => Some(schedule),
            Launch::Stages { .. } => None,
        }
    }

    /// The work assignment of a decode kernel.
    pub fn shares(&self) -> Option<&Decode> {
        match self {
            Launch::Shares(decode) => Some(decode),
            Launch::Stages { .. } | Launch::Lists(_) => None,
        }
    }

    /// Mutable [`Launch::shares`].
    pub fn shares_mut(&mut self) -> Option<&mut Decode> {
        match self {
            Launch::Shares(decode) => Some(decode),
            Launch::Stages { .. } | Launch::Lists(_) => None,
        }
    }

    /// CTAs of a worker along M and N.
    pub fn cluster(&self) -> (u32, u32) {
        self.lists().map_or((1, 1), |schedule| schedule.cluster)
    }

    /// The predicted time of the work assignment, microseconds; `None` for kernels that are launched one by one.
    pub fn predicted_us(&self) -> Option<f64> {
        self.work().map(|work| work.predicted_us)
    }
}
