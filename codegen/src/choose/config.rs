//! A stated configuration: every automatic choice written out in readable form.
//!
//! It consists only of statements. Its plan goes through the same search and proof as a spec with the same statements,
//! so a wrong configuration is rejected and a stale one may be slow, but neither produces an unproved plan.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::{ChainOverride, candidate, chain, decode, in_turn, obstacles};
use crate::check::{Candidate, Executor, How, Launch, Plan, StageLaunch};
use crate::device::Profile;
use crate::diagnostic::{Diagnostic, Spanned};
use crate::graph::{Dependence, Graph, OperandKind, Resolved, Stage, StageId, StatedEdge, StatedTile};
use crate::schedule::{Hand, Schedule};
use crate::sync::{Order, Policy, WaitAt};

/// A configuration of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The executor.
    #[serde(deserialize_with = "of_a_gpu")]
    pub executor: Executor,
    /// The kernels.
    pub kernels: Kernels,
}

/// The kernels of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kernels {
    /// One kernel per stage.
    Stages {
        /// Stages, producers before consumers.
        stages: Vec<StageConfig>,
        /// Dependences.
        edges: Vec<EdgeConfig>,
        /// Whether dependent stages overlap tile by tile; otherwise kernel boundaries separate them.
        overlap: bool,
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
    /// One chain kernel per stage, launched one after another.
    InTurn {
        /// Stages, producers before consumers.
        stages: Vec<ChainConfig>,
    },
    /// One decode kernel for all stages.
    Decode,
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

/// A stage with its own chain kernel.
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

impl Config {
    /// The configuration of a candidate. A schedule without splits does not show whether splits were allowed; they are
    /// assumed to be.
    pub fn from_candidate(c: &Candidate) -> Config {
        let edges = c.edges.iter().map(|e| (&e.policy, e.wait_at)).collect();
        Config { executor: c.launch.executor(), kernels: Kernels::from_launch(&c.graph, &c.launch, edges) }
    }

    /// The configuration of a plan run by an executor, which may differ from the one it was made for.
    pub fn of_plan(plan: &Plan, executor: Executor) -> Config {
        let edges = plan.edges().iter().map(|e| (e.policy(), e.wait_at())).collect();
        Config { executor, kernels: Kernels::from_launch(plan.graph(), plan.launch(), edges) }
    }

    /// A configuration of a chain kernel.
    pub fn chain(kernel: ((u32, u32), (u32, u32)), mode: Hand, splits: bool) -> Config {
        let kernels = Kernels::Chain { tile: kernel.0, cluster: kernel.1, mode, splits };
        Config { executor: Executor::Fused, kernels }
    }

    /// The candidate of the spec with this configuration stated.
    ///
    /// # Errors
    /// The configuration belongs to another spec, is inconsistent, or has no kernel.
    pub fn candidate(&self, resolved: &Resolved, device: &Profile) -> Result<Candidate, Diagnostic> {
        let fused = self.executor.how().is_none();
        match &self.kernels {
            Kernels::Decode if fused => decode(resolved, device),
            Kernels::Chain { tile, cluster, mode, splits } if fused => {
                let asked = ChainOverride { kernel: Some((*tile, *cluster)), mode: *mode, splits: *splits };
                chain(resolved, device, asked)
            }
            Kernels::InTurn { stages } if matches!(self.executor, Executor::Serial | Executor::Library) => {
                let how = if self.executor == Executor::Library { How::Library } else { How::Serial };
                if let Some(why) = obstacles::unplanned(resolved, device, self.executor) {
                    return Err(unfit(why.to_string()));
                }
                same_stages(resolved, stages.iter().map(|s| s.stage.as_str()))?;
                let mut stated = resolved.clone();
                for (config, stage) in stages.iter().zip(&mut stated.stages) {
                    let tile = StatedTile { tile: config.tile, k: None };
                    stage.stated_tile = Some(Spanned::new(tile, stage.name.span));
                }
                in_turn(&stated, device, how, |stage| {
                    let ChainConfig { tile, cluster, mode, splits, .. } = stages[stage.0];
                    let kernel = resolved.stages[stage.0].op.has_kernel_tiles().then_some((tile, cluster));
                    ChainOverride { kernel, mode, splits }
                })
            }
            Kernels::Stages { stages, edges, overlap } if !fused && self.executor != Executor::Cpu => {
                // Chain kernels are stated as such, including those that run one stage each.
                if !resolved.own_kernels(device) {
                    let name = &device.name;
                    return Err(unfit(format!("a stage has no kernel of its own on {name}: {self}")));
                }
                // Without overlap a chain is serial, whichever executor falls back to it.
                let kept = *overlap || self.executor == Executor::Library;
                let executor = if kept { self.executor } else { Executor::Serial };
                candidate(&state(resolved, stages, edges)?, device, executor)
            }
            Kernels::Decode | Kernels::Chain { .. } | Kernels::InTurn { .. } | Kernels::Stages { .. } => {
                Err(unfit(format!("the {} executor does not run such kernels: {self}", self.executor.name())))
            }
        }
    }
}

impl Kernels {
    /// The kernels of a launch; `edges` holds the policy and wait place of each dependence.
    fn from_launch(graph: &Graph, launch: &Launch, edges: Vec<(&Policy, WaitAt)>) -> Kernels {
        match launch {
            Launch::Lists(schedule) => Kernels::Chain {
                tile: (graph.kernel_tile().0, graph.kernel_tile().1),
                cluster: schedule.cluster,
                mode: schedule.mode,
                splits: true,
            },
            Launch::Shares(_) => Kernels::Decode,
            Launch::Stages { stages, .. } if launch.is_in_turn() => {
                let chain_config = |kernel: &StageLaunch| {
                    Some(ChainConfig::new(&graph.stages[kernel.stage.0], kernel.lists.as_ref()?))
                };
                Kernels::InTurn { stages: stages.iter().filter_map(chain_config).collect() }
            }
            Launch::Stages { how, .. } => Kernels::Stages {
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
                overlap: how.overlaps(),
            },
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
    fn new(stage: &Stage, schedule: &Schedule) -> ChainConfig {
        let ((m, n, _), cluster, mode) = (stage.mma_tile, schedule.cluster, schedule.mode);
        ChainConfig { stage: stage.name.clone(), tile: (m, n), cluster, mode, splits: true }
    }
}

fn of_a_gpu<'d, D: Deserializer<'d>>(from: D) -> Result<Executor, D::Error> {
    match Executor::deserialize(from)? {
        Executor::Cpu => Err(D::Error::custom("no executor `cpu` on a GPU")),
        executor => Ok(executor),
    }
}

/// A rejection of a configuration.
fn unfit(message: String) -> Diagnostic {
    Diagnostic::new("unfit", message)
}

impl std::fmt::Display for Config {
    /// `programmatic: up 128 x 256, down 128 x 128; Row`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.executor.name())?;
        match &self.kernels {
            Kernels::Decode => write!(f, "decode kernel"),
            Kernels::Chain { tile, cluster, mode, splits } => {
                write!(f, "{} x {} tiles", tile.0, tile.1)?;
                if *cluster != (1, 1) {
                    write!(f, ", clusters of {} x {}", cluster.0, cluster.1)?;
                }
                let mode = mode.name();
                write!(f, ", {mode}, {}", if *splits { "cut along k" } else { "whole tiles" })
            }
            Kernels::InTurn { stages } => {
                let stage = |s: &ChainConfig| {
                    let ((m, n), (rows, cols), mode) = (s.tile, s.cluster, s.mode.name());
                    let cluster =
                        if s.cluster == (1, 1) { String::new() } else { format!(" by {rows} x {cols}") };
                    let cut = if s.splits { "" } else { ", whole" };
                    format!("{} {m} x {n}{cluster} {mode}{cut}", s.stage)
                };
                let stages = stages.iter().map(stage).collect::<Vec<_>>();
                write!(f, "{}; a chain kernel a stage", stages.join(", "))
            }
            Kernels::Stages { stages, edges, overlap } => {
                let stage = |s: &StageConfig| {
                    let tile = s.tile.map_or("own tile".into(), |t| format!("{} x {}", t.0, t.1));
                    format!("{} {tile} {}", s.stage, s.order)
                };
                write!(f, "{}", stages.iter().map(stage).collect::<Vec<_>>().join(", "))?;
                if !overlap {
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
