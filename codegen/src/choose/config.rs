//! A stated configuration: every automatic choice written out in readable form.
//!
//! It consists only of statements. Its plan goes through the same search and proof as a spec with the same statements,
//! so a wrong configuration is rejected and a stale one may be slow, but neither produces an unproved plan.

use serde::{Deserialize, Serialize};

use super::{ChainOverride, candidate, chain, decode, in_turn, obstacles};
use crate::check::{Candidate, Executor, How, Launch, Plan, StageLaunch};
use crate::device::Profile;
use crate::diagnostic::{Diagnostic, Spanned};
use crate::graph::{Dependence, Graph, OperandKind, Resolved, Stage, StageId, StatedEdge, StatedTile};
use crate::schedule::{Hand, Schedule};
use crate::sync::{Order, Policy, WaitAt};

/// A configuration of a pipeline on a GPU: the choices of a [`Launch`], with stages by name. Host threads have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Config {
    /// One kernel per stage.
    Stages {
        /// The executor. A chain that does not overlap is `serial`, whichever executor falls back to it.
        executor: StageExecutor,
        /// Stages, producers before consumers.
        stages: Vec<StageConfig>,
        /// Dependences.
        edges: Vec<EdgeConfig>,
    },
    /// One kernel per stage, launched one after another: chain kernels, and those that run alone.
    InTurn {
        /// Whether cuBLASLt computes products where it is faster: executor `library` rather than `serial`.
        library: bool,
        /// Stages, producers before consumers.
        stages: Vec<ChainConfig>,
    },
    /// One chain kernel for all stages, and its scheduling strategy.
    Chain {
        /// Rows and columns of the MMA tile.
        tile: (u32, u32),
        /// CTAs per worker along M and N.
        cluster: (u32, u32),
        /// How items are handed out.
        mode: Hand,
        /// Whether tiles may be split along k.
        splits: bool,
    },
    /// One decode kernel for all stages.
    Decode,
}

/// An executor that launches the stages' own kernels on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageExecutor {
    /// [`Executor::Serial`].
    Serial,
    /// [`Executor::Library`].
    Library,
    /// [`Executor::Streams`].
    Streams,
    /// [`Executor::Programmatic`].
    Programmatic,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Its name.
    pub stage: String,
    /// Its MMA tile, (M, N, K); `None` for a Custom stage, which has its own.
    pub tile: Option<(u32, u32, u32)>,
    /// Its tile order.
    pub order: Order,
}

/// A stage with its own chain kernel, or with a kernel that runs alone, for which only the tile counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainConfig {
    /// Its name.
    pub stage: String,
    /// Rows and columns of the MMA tile; for a stage that defines its own tiles, rows and columns of those.
    pub tile: (u32, u32),
    /// CTAs per worker along M and N.
    pub cluster: (u32, u32),
    /// How items are handed out.
    pub mode: Hand,
    /// Whether tiles may be split along k.
    pub splits: bool,
}

/// One dependence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeConfig {
    /// Producer.
    pub from: String,
    /// Consumer.
    pub to: String,
    /// The consumer's operand.
    pub operand: OperandKind,
    /// How tiles share slots.
    pub policy: Policy,
    /// Where the consumer waits.
    pub wait_at: WaitAt,
}

impl StageExecutor {
    /// The executor that starts kernels on a GPU this way; `None` for host threads.
    fn new(how: How) -> Option<StageExecutor> {
        match how {
            How::Host => None,
            How::Serial => Some(StageExecutor::Serial),
            How::Library => Some(StageExecutor::Library),
            How::Streams(_) => Some(StageExecutor::Streams),
            How::Programmatic => Some(StageExecutor::Programmatic),
        }
    }

    /// The executor.
    pub fn executor(self) -> Executor {
        match self {
            StageExecutor::Serial => Executor::Serial,
            StageExecutor::Library => Executor::Library,
            StageExecutor::Streams => Executor::Streams,
            StageExecutor::Programmatic => Executor::Programmatic,
        }
    }
}

impl Config {
    /// The configuration of a candidate; `None` for host threads. A schedule without splits does not show whether
    /// splits were allowed; they are assumed to be.
    pub fn from_candidate(c: &Candidate) -> Option<Config> {
        let edges = c.edges.iter().map(|e| (&e.policy, e.wait_at));
        Config::from_launch(&c.graph, &c.launch, c.launch.how(), edges)
    }

    /// The configuration of a plan run by an executor: `serial` also runs plans that were made to overlap.
    pub fn from_plan(plan: &Plan, executor: Executor) -> Option<Config> {
        let edges = plan.edges().iter().map(|e| (e.policy(), e.wait_at()));
        let how = if executor == Executor::Serial { Some(How::Serial) } else { plan.launch().how() };
        Config::from_launch(plan.graph(), plan.launch(), how, edges)
    }

    /// The configuration of a launch that starts separate kernels by `how`; `edges` holds the policy and wait place of
    /// each dependence.
    fn from_launch<'a>(
        graph: &Graph,
        launch: &Launch,
        how: Option<How>,
        edges: impl Iterator<Item = (&'a Policy, WaitAt)>,
    ) -> Option<Config> {
        Some(match launch {
            Launch::Lists(schedule) => {
                let (m, n, _) = graph.kernel_tile();
                Config::chain(((m, n), schedule.cluster), schedule.mode, true)
            }
            Launch::Shares(_) => Config::Decode,
            Launch::Stages { stages, .. } if launch.is_in_turn() => {
                let chain_config = |kernel: &StageLaunch| {
                    ChainConfig::new(&graph.stages[kernel.stage.0], kernel.kernel.lists())
                };
                let stages = stages.iter().map(chain_config).collect();
                Config::InTurn { library: how == Some(How::Library), stages }
            }
            Launch::Stages { .. } => Config::Stages {
                executor: StageExecutor::new(how?)?,
                stages: (0..graph.stages.len())
                    .map(|s| StageConfig::new(&graph.stages[s], launch.order(StageId(s))))
                    .collect(),
                edges: (graph.dependences.iter().zip(edges))
                    .map(|(d, (policy, wait_at))| EdgeConfig {
                        from: graph.stages[d.producer.0].name.clone(),
                        to: graph.stages[d.consumer.0].name.clone(),
                        operand: graph.stages[d.consumer.0].operands[d.operand].kind,
                        policy: policy.clone(),
                        wait_at,
                    })
                    .collect(),
            },
        })
    }

    /// A configuration of a chain kernel.
    pub fn chain(kernel: ((u32, u32), (u32, u32)), mode: Hand, splits: bool) -> Config {
        Config::Chain { tile: kernel.0, cluster: kernel.1, mode, splits }
    }

    /// The executor it is for.
    pub fn executor(&self) -> Executor {
        match self {
            Config::Stages { executor, .. } => executor.executor(),
            Config::InTurn { library: false, .. } => Executor::Serial,
            Config::InTurn { library: true, .. } => Executor::Library,
            Config::Chain { .. } | Config::Decode => Executor::Fused,
        }
    }

    /// Whether it answers a request for `executor`: its own, or one that may fall back to a serial chain.
    pub fn answers(&self, executor: Executor) -> bool {
        let is_serial = matches!(self, Config::Stages { executor: StageExecutor::Serial, .. });
        let may_fall_back = matches!(executor, Executor::Streams | Executor::Programmatic);
        executor == self.executor() || is_serial && may_fall_back
    }

    /// The candidate of the spec with this configuration stated.
    ///
    /// # Errors
    /// The configuration belongs to another spec, is inconsistent, or has no kernel.
    pub fn candidate(&self, resolved: &Resolved, device: &Profile) -> Result<Candidate, Diagnostic> {
        match self {
            Config::Decode => decode(resolved, device),
            Config::Chain { tile, cluster, mode, splits } => {
                let asked = ChainOverride { kernel: Some((*tile, *cluster)), mode: *mode, splits: *splits };
                chain(resolved, device, asked)
            }
            Config::InTurn { library, stages } => {
                if let Some(why) = obstacles::unplanned(resolved, device, self.executor()) {
                    return Err(unfit(why.to_string()));
                }
                same_stages(resolved, stages.iter().map(|s| s.stage.as_str()))?;
                let mut stated = resolved.clone();
                for (config, stage) in stages.iter().zip(&mut stated.stages) {
                    let tile = StatedTile { tile: config.tile, k: None };
                    stage.stated_tile = Some(Spanned::new(tile, stage.name.span));
                }
                let how = if *library { How::Library } else { How::Serial };
                in_turn(&stated, device, how, |stage| {
                    let ChainConfig { tile, cluster, mode, splits, .. } = stages[stage.0];
                    let kernel = resolved.stages[stage.0].op.has_kernel_tiles().then_some((tile, cluster));
                    ChainOverride { kernel, mode, splits }
                })
            }
            Config::Stages { executor, stages, edges } => {
                // Chain kernels are stated as such, including those that run one stage each.
                if !resolved.own_kernels(device) {
                    let name = &device.name;
                    return Err(unfit(format!("a stage has no kernel of its own on {name}: {self}")));
                }
                candidate(&state(resolved, stages, edges)?, device, executor.executor())
            }
        }
    }
}

/// Checks that a configuration names the stages of the spec.
fn same_stages<'a>(resolved: &Resolved, have: impl Iterator<Item = &'a str>) -> Result<(), Diagnostic> {
    let have: Vec<&str> = have.collect();
    let want: Vec<&str> = resolved.stages.iter().map(|s| s.name.value.as_str()).collect();
    if have == want {
        return Ok(());
    }
    Err(unfit(format!("it is of stages {}, the spec has {}", have.join(", "), want.join(", "))))
}

/// The spec with tiles, orders, policies and waits stated.
fn state(resolved: &Resolved, stages: &[StageConfig], edges: &[EdgeConfig]) -> Result<Resolved, Diagnostic> {
    same_stages(resolved, stages.iter().map(|s| s.stage.as_str()))?;
    let mut stated = resolved.clone();
    let names = || resolved.stages.iter().map(|s| s.name.value.as_str());
    for (config, stage) in stages.iter().zip(&mut stated.stages) {
        let span = stage.name.span;
        if let (Some((m, n, k)), None) = (config.tile, stage.custom) {
            stage.stated_tile = Some(Spanned::new(StatedTile { tile: (m, n), k: Some(k) }, span));
        }
        config.order.validate(span)?;
        stage.stated_order = Some(Spanned::new(config.order.clone(), span));
    }
    let mut first = Vec::new();
    for config in edges {
        let stage = |name: &str| names().position(|n| n == name).map(StageId);
        let unknown = || {
            let EdgeConfig { from, to, operand, .. } = config;
            unfit(format!("the spec has no dependence {from} -> {to} ({operand:?})"))
        };
        let (Some(producer), Some(consumer)) = (stage(&config.from), stage(&config.to)) else {
            return Err(unknown());
        };
        let reader = &resolved.stages[consumer.0];
        let read = reader.reads.iter().position(|r| {
            r.kind == config.operand && resolved.tensors[r.tensor.0].producer == Some(producer)
        });
        let operand = read.ok_or_else(unknown)?;
        let dependence = Dependence { producer, consumer, operand };
        let said = resolved.stated_edge(&dependence);
        let span = said.map_or(reader.name.span, |s| s.span);
        config.policy.validate(span)?;
        first.push(StatedEdge {
            span,
            producer,
            consumer,
            operand: Some(reader.reads[operand].kind),
            policy: Some(Spanned::new(config.policy.clone(), span)),
            wait_at: Some(Spanned::new(config.wait_at, span)),
        });
    }
    // The first statement about a dependence takes precedence.
    first.append(&mut stated.edges);
    stated.edges = first;
    Ok(stated)
}

impl StageConfig {
    fn new(stage: &Stage, order: &Order) -> StageConfig {
        let tile = (!stage.op.is_custom()).then_some(stage.mma_tile);
        StageConfig { stage: stage.name.clone(), tile, order: order.clone() }
    }
}

impl ChainConfig {
    fn new(stage: &Stage, schedule: Option<&Schedule>) -> ChainConfig {
        let (m, n, _) = stage.mma_tile;
        let (cluster, mode) = schedule.map_or(((1, 1), Hand::Fixed), |s| (s.cluster, s.mode));
        ChainConfig { stage: stage.name.clone(), tile: (m, n), cluster, mode, splits: true }
    }
}

/// A rejection of a configuration.
fn unfit(message: String) -> Diagnostic {
    Diagnostic::new("unfit", message)
}

impl std::fmt::Display for Config {
    /// `programmatic: up 128 x 256, down 128 x 128; Row`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.executor().name())?;
        match self {
            Config::Decode => write!(f, "decode kernel"),
            Config::Chain { tile, cluster, mode, splits } => {
                write!(f, "{} x {} tiles", tile.0, tile.1)?;
                if *cluster != (1, 1) {
                    write!(f, ", clusters of {} x {}", cluster.0, cluster.1)?;
                }
                let mode = mode.name();
                write!(f, ", {mode}, {}", if *splits { "cut along k" } else { "whole tiles" })
            }
            Config::InTurn { stages, .. } => {
                let stage = |s: &ChainConfig| {
                    let ((m, n), (rows, cols), mode) = (s.tile, s.cluster, s.mode.name());
                    let cluster =
                        if s.cluster == (1, 1) { String::new() } else { format!(" by {rows} x {cols}") };
                    let cut = if s.splits { "" } else { ", whole" };
                    format!("{} {m} x {n}{cluster} {mode}{cut}", s.stage)
                };
                let stages = stages.iter().map(stage).collect::<Vec<_>>();
                write!(f, "{}; a kernel a stage", stages.join(", "))
            }
            Config::Stages { executor, stages, edges } => {
                let stage = |s: &StageConfig| {
                    let tile = s.tile.map_or("own tile".into(), |t| format!("{} x {}", t.0, t.1));
                    format!("{} {tile} {}", s.stage, s.order)
                };
                write!(f, "{}", stages.iter().map(stage).collect::<Vec<_>>().join(", "))?;
                if matches!(executor, StageExecutor::Serial | StageExecutor::Library) {
                    return write!(f, "; kernel boundaries");
                }
                let once =
                    |e: &EdgeConfig| if e.wait_at == WaitAt::Start { ", waits at the start" } else { "" };
                let mut policies: Vec<String> =
                    edges.iter().map(|e| format!("{}{}", e.policy, once(e))).collect();
                policies.dedup();
                write!(f, "; {}", policies.join(", "))
            }
        }
    }
}
