//! How a pipeline is launched: what the proof speaks of, and what is run.
//!
//! A launch holds all that an executor follows and nothing else, so that what makes no sense together cannot be written:
//! kernels of their own have tile orders, occupancies and a way to start, one kernel for all stages has the work of its
//! CTAs. Whoever has to know which of them it is asks the methods; to match on [`Launch`] is for the places that judge,
//! choose, predict or run one.

use super::KernelContract;
use crate::executor::Executor;
use crate::graph::{Graph, StageId};
use crate::schedule::decode::Decode;
use crate::schedule::{Hand, Schedule};
use crate::sync::Order;

impl Executor {
    /// How it starts the stages; `None` for `fused` and `copilot`, which have one kernel for all of them.
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

/// What keeps consumers from taking the SMs that producers still need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartGuarantee {
    /// A consumer's CTAs start only after every CTA of all its producers has started.
    AllProducersStarted,
    /// None: kernels are launched side by side.
    None,
}

/// How stages that have a kernel each are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// On host threads, which draw tiles in launch order; tile semaphores carry the dependences.
    Host,
    /// Kernel after kernel on one stream: kernel boundaries carry the dependences.
    Serial,
    /// The same, with products by cuBLASLt where those are faster.
    Library,
    /// A stream a stage; tile semaphores carry the dependences.
    Streams(StartGuarantee),
    /// One stream; a kernel may begin when every CTA of the one before has issued its trigger. Tile semaphores carry the
    /// dependences.
    Programmatic,
}

impl How {
    /// A stream a stage, with the start guarantee.
    pub const STREAMS: How = How::Streams(StartGuarantee::AllProducersStarted);

    /// The executor that starts stages so.
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

/// What a CTA takes of an SM, beside one of the CTAs that an SM holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtaResources {
    /// Shared memory, what the driver reserves for itself included, bytes.
    pub shared: u32,
    /// Registers of all its threads.
    pub registers: u32,
    /// Threads.
    pub threads: u32,
}

/// A stage with a kernel of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct StageLaunch {
    /// The stage.
    pub stage: StageId,
    /// The order in which its tiles are started.
    pub order: Order,
    /// CTAs that fit an SM at once when no other kernel has any there.
    pub ctas_per_sm: u32,
    /// What one of them takes; `None` where only their number is known, and which kernels fit an SM together is not.
    pub takes: Option<CtaResources>,
    /// The work of a chain kernel that runs the stage as the only one of its graph ([`Graph::only`]); `None`: a kernel of the
    /// stage's own runs it, in its order.
    pub lists: Option<Schedule>,
}

impl StageLaunch {
    /// A launch with neutral choices: a row-major order and one CTA an SM.
    pub fn neutral(stage: StageId) -> StageLaunch {
        StageLaunch { stage, order: Order::RowMajor, ctas_per_sm: 1, takes: None, lists: None }
    }
}

/// How a pipeline is launched.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// A kernel a stage, or of a serial chain a chain kernel that runs it alone.
    Stages {
        /// How they are started.
        how: How,
        /// The stages in the order of their launches.
        stages: Vec<StageLaunch>,
    },
    /// One chain kernel for all stages, whose workers follow lists of tiles and parts of tiles.
    Lists(Schedule),
    /// One decode kernel for all stages: every worker has an equal share of the columns of each stage in turn.
    Shares(Decode),
}

impl Launch {
    /// A kernel a stage, in the order of the graph, with the choices of [`StageLaunch::neutral`].
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

    /// Whether `executor` may run it: the one that it is for; where stages have a kernel each `serial`, which needs only their
    /// order; and where the launch is a serial chain of our kernels every other that launches stages on a GPU, because that is
    /// what those fall back to.
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

    /// Who runs it and with which kernels, as tables of predictions tell kinds apart.
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

    /// How stages with a kernel each are started; `None` where one kernel runs all of them.
    pub fn how(&self) -> Option<How> {
        match self {
            Launch::Stages { how, .. } => Some(*how),
            Launch::Lists(_) | Launch::Shares(_) => None,
        }
    }

    /// [`Launch::how`], to be changed.
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

    /// Whether chain kernels run a stage each, one after the other.
    pub fn is_in_turn(&self) -> bool {
        self.kernels().iter().any(|kernel| kernel.lists.is_some())
    }

    /// What the kernels that run it promise.
    pub fn contract(&self, arch: u32) -> KernelContract {
        match self {
            Launch::Stages { .. } if self.is_in_turn() => KernelContract::of_chain_kernels(arch),
            Launch::Stages { .. } => KernelContract::of_kernels(arch),
            Launch::Lists(_) => KernelContract::of_chain_kernels(arch),
            Launch::Shares(_) => KernelContract::of_decode_kernels(arch),
        }
    }

    /// Whether it runs on a GPU.
    pub fn on_gpu(&self) -> bool {
        self.how() != Some(How::Host)
    }

    /// Whether semaphores carry the dependences; a serial chain relies on kernel boundaries instead.
    pub fn has_semaphores(&self) -> bool {
        self.how().is_none_or(How::overlaps)
    }

    /// Whether a consumer's CTAs start only after every CTA of all its producers has started.
    pub fn guarantees_starts(&self) -> bool {
        matches!(self.how(), Some(How::Programmatic | How::Streams(StartGuarantee::AllProducersStarted)))
    }

    /// Whether the start guarantee is made by gates: one before each consumer's kernel, a thread on an SM that waits until all tiles of
    /// a producer have been drawn. Kernels for sm_90 have triggers instead.
    pub fn has_gates(&self, arch: u32) -> bool {
        self.how() == Some(How::STREAMS) && arch < 90
    }

    /// What keeps consumers from taking the SMs that producers still need, in words.
    pub fn start(&self) -> &'static str {
        match self {
            Launch::Stages { .. } if self.guarantees_starts() => {
                "a consumer starts after every CTA of its producers"
            }
            Launch::Stages { .. } => "none",
            Launch::Lists(_) | Launch::Shares(_) => "every worker is resident from the start",
        }
    }

    /// The stages that have a kernel of their own, in launch order; none where one kernel runs all of them.
    pub fn kernels(&self) -> &[StageLaunch] {
        match self {
            Launch::Stages { stages, .. } => stages,
            Launch::Lists(_) | Launch::Shares(_) => &[],
        }
    }

    /// [`Launch::kernels`], to be changed.
    pub fn kernels_mut(&mut self) -> &mut [StageLaunch] {
        match self {
            Launch::Stages { stages, .. } => stages,
            Launch::Lists(_) | Launch::Shares(_) => &mut [],
        }
    }

    /// The kernel of a stage; `None` where it has none of its own.
    pub fn kernel(&self, stage: StageId) -> Option<&StageLaunch> {
        self.kernels().iter().find(|kernel| kernel.stage == stage)
    }

    /// [`Launch::kernel`], to be changed.
    pub fn kernel_mut(&mut self, stage: StageId) -> Option<&mut StageLaunch> {
        self.kernels_mut().iter_mut().find(|kernel| kernel.stage == stage)
    }

    /// The order in which a stage's tiles are started: row-major where one kernel runs all stages, whose work says more.
    pub fn order(&self, stage: StageId) -> &Order {
        self.kernel(stage).map_or(&Order::RowMajor, |kernel| &kernel.order)
    }

    /// CTAs of a stage that fit an SM at once.
    pub fn ctas_per_sm(&self, stage: StageId) -> u32 {
        self.kernel(stage).map_or(1, |kernel| kernel.ctas_per_sm)
    }

    /// The place of a stage in the launch order, which is the graph's where one kernel runs all of them; past the end when
    /// the stage is never launched.
    pub fn position(&self, stage: StageId) -> usize {
        match self {
            Launch::Stages { stages, .. } => {
                stages.iter().position(|kernel| kernel.stage == stage).unwrap_or(usize::MAX)
            }
            Launch::Lists(_) | Launch::Shares(_) => stage.0,
        }
    }

    /// The work of a chain kernel.
    pub fn lists(&self) -> Option<&Schedule> {
        match self {
            Launch::Lists(schedule) => Some(schedule),
            Launch::Stages { .. } | Launch::Shares(_) => None,
        }
    }

    /// [`Launch::lists`], to be changed.
    pub fn lists_mut(&mut self) -> Option<&mut Schedule> {
        match self {
            Launch::Lists(schedule) => Some(schedule),
            Launch::Stages { .. } | Launch::Shares(_) => None,
        }
    }

    /// The lists that the workers of one kernel follow, whichever kernel that is.
    pub fn work(&self) -> Option<&Schedule> {
        match self {
            Launch::Lists(schedule) | Launch::Shares(Decode { work: schedule, .. }) => Some(schedule),
            Launch::Stages { .. } => None,
        }
    }

    /// The work of a decode kernel.
    pub fn shares(&self) -> Option<&Decode> {
        match self {
            Launch::Shares(decode) => Some(decode),
            Launch::Stages { .. } | Launch::Lists(_) => None,
        }
    }

    /// [`Launch::shares`], to be changed.
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

    /// The time that its own work was predicted to take, microseconds; `None` for kernels that are launched one by one.
    pub fn predicted_us(&self) -> Option<f64> {
        self.work().map(|work| work.predicted_us)
    }
}
