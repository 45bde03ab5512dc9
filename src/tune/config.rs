//! A stated configuration: everything that the automatic choice would have decided, as words that people read.
//!
//! It is nothing but statements. A plan made of it goes through the same search and the same proof as one of a spec that
//! states the same, so a wrong one is refused and a stale one may be slow, but nothing unproved can come of it.

use cusync_gen::check::{Candidate, Coupling, EdgeChoice, Executor};
use cusync_gen::choose;
use cusync_gen::device::Device;
use cusync_gen::diagnostic::{Diagnostic, Spanned};
use cusync_gen::graph::{OperandKind, Resolved, StageId, StatedEdge, StatedOrder, StatedTile};
use cusync_gen::policy::{Order, Policy, WaitAt};
use cusync_gen::schedule::Mode;
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::key::executor_text;
use crate::runtime::ChainWish;

/// A configuration of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How it is run.
    #[serde(with = "executor_text")]
    pub executor: Executor,
    /// With which kernels.
    pub kernels: Kernels,
}

/// The kernels of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kernels {
    /// One a stage.
    Stages {
        /// Stages, producers before consumers.
        stages: Vec<StageConfig>,
        /// Dependences.
        edges: Vec<EdgeConfig>,
        /// Whether dependent stages overlap tile by tile, or are held together by kernel boundaries.
        overlap: bool,
    },
    /// One chain kernel for all of them, and the strategy of its schedule.
    Chain {
        /// Rows and columns of the MMA tile.
        tile: (u32, u32),
        /// CTAs of a worker along M and N.
        cluster: (u32, u32),
        /// How items are handed out.
        mode: ModeText,
        /// Whether tiles may be cut along k.
        splits: bool,
    },
    /// One decode kernel for all of them.
    Decode,
}

/// How items are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeText {
    /// By lists made beforehand.
    Static,
    /// By a device counter.
    Dynamic,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Its name.
    pub stage: String,
    /// Its MMA tile, (M, N, K); `None` for a Custom stage, which brings its own.
    pub tile: Option<(u32, u32, u32)>,
    /// Its tile order.
    pub order: OrderText,
}

/// One dependence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeConfig {
    /// Producer.
    pub from: String,
    /// Consumer.
    pub to: String,
    /// The consumer's operand, such as `A`.
    pub operand: String,
    /// How tiles share slots.
    pub policy: PolicyText,
    /// Where the consumer waits.
    pub wait_at: WaitText,
}

/// A tile order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderText {
    /// Row by row.
    RowMajor,
    /// Column by column.
    ColumnMajor,
    /// So many rows at a time.
    GroupedRows(u32),
    /// So many columns at a time.
    GroupedColumns(u32),
    /// As the spec states, such as a table; else as is chosen automatically for the tiles.
    Auto,
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyText {
    /// A slot a tile.
    Tile,
    /// A slot a row of tiles.
    Row,
    /// A slot for each block of tiles.
    Batched {
        /// Rows of tiles.
        rows: u32,
        /// Columns of tiles.
        cols: u32,
    },
    /// Tiles a stride apart share a slot.
    Strided {
        /// Slot columns.
        stride: u32,
    },
    /// As the spec states, such as a table; else as is chosen automatically for the tiles.
    Auto,
}

/// Where a consumer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitText {
    /// Before the first k-block of each new slot.
    KBlock,
    /// Once, before the first k-block.
    Start,
}

impl Config {
    /// What a candidate states. Of a chain kernel, whether tiles may be cut cannot be seen in a schedule that has no cuts:
    /// it is taken for allowed.
    pub fn of(candidate: &Candidate) -> Config {
        let (graph, executor) = (&candidate.graph, candidate.executor);
        let kernels = match (&candidate.schedule, &candidate.decode) {
            (Some(schedule), _) => Kernels::Chain {
                tile: graph.stages.first().map_or((0, 0), |s| (s.mma_tile.0, s.mma_tile.1)),
                cluster: schedule.cluster,
                mode: schedule.mode.into(),
                splits: true,
            },
            (None, Some(_)) => Kernels::Decode,
            (None, None) => Kernels::Stages {
                stages: graph
                    .stages
                    .iter()
                    .zip(&candidate.orders)
                    .map(|(stage, order)| StageConfig {
                        stage: stage.name.clone(),
                        tile: (stage.op != cusync_gen::graph::Op::Custom).then_some(stage.mma_tile),
                        order: order.into(),
                    })
                    .collect(),
                edges: graph
                    .dependences
                    .iter()
                    .zip(&candidate.edges)
                    .map(|(d, EdgeChoice { policy, wait_at })| {
                        let consumer = &graph.stages[d.consumer.0];
                        EdgeConfig {
                            from: graph.stages[d.producer.0].name.clone(),
                            to: consumer.name.clone(),
                            operand: operand_name(consumer.operands[d.operand].kind),
                            policy: policy.into(),
                            wait_at: match wait_at {
                                WaitAt::PerKBlock => WaitText::KBlock,
                                WaitAt::Start => WaitText::Start,
                            },
                        }
                    })
                    .collect(),
                overlap: candidate.coupling == Coupling::Tiles,
            },
        };
        Config { executor, kernels }
    }

    /// A way to run a chain.
    pub fn chain(kernel: ((u32, u32), (u32, u32)), mode: Mode, splits: bool) -> Config {
        let kernels = Kernels::Chain { tile: kernel.0, cluster: kernel.1, mode: mode.into(), splits };
        Config { executor: Executor::Fused, kernels }
    }

    /// What is to be proved: the spec with this configuration stated.
    ///
    /// # Errors
    /// [`Error::Unfit`]: the configuration is of another spec, makes no sense, or no kernel has it.
    pub fn candidate(&self, resolved: &Resolved, device: &Device) -> Result<Candidate> {
        let refused = |d: Diagnostic| Error::Unfit(d.message);
        match &self.kernels {
            Kernels::Decode if self.executor == Executor::Fused => {
                choose::decode(resolved, device).map_err(refused)
            }
            Kernels::Chain { tile, cluster, mode, splits } if self.executor == Executor::Fused => {
                let mode = (*mode).into();
                let wish = ChainWish { kernel: Some((*tile, *cluster)), mode, splits: *splits };
                choose::chain(resolved, device, wish).map_err(refused)
            }
            Kernels::Stages { stages, edges, overlap } if self.executor != Executor::Fused => {
                let stated = state(resolved, stages, edges)?;
                let mut c = choose::candidate(&stated, device, self.executor).map_err(refused)?;
                if self.executor != Executor::Serial {
                    c.coupling = if *overlap { Coupling::Tiles } else { Coupling::KernelBoundary };
                }
                Ok(c)
            }
            _ => Err(Error::Unfit(format!(
                "the {} executor does not run such kernels: {self}",
                crate::runtime::executor_name(self.executor)
            ))),
        }
    }
}

/// The spec with tiles, orders, policies and waits stated.
fn state(resolved: &Resolved, stages: &[StageConfig], edges: &[EdgeConfig]) -> Result<Resolved> {
    let mut stated = resolved.clone();
    let names = || resolved.stages.iter().map(|s| s.name.value.as_str());
    if !names().eq(stages.iter().map(|s| s.stage.as_str())) {
        let have: Vec<&str> = stages.iter().map(|s| s.stage.as_str()).collect();
        let want: Vec<&str> = names().collect();
        let message = format!("it is of stages {}, the spec has {}", have.join(", "), want.join(", "));
        return Err(Error::Unfit(message));
    }
    for (config, stage) in stages.iter().zip(&mut stated.stages) {
        let span = stage.name.span;
        if let (Some((m, n, k)), None) = (config.tile, stage.custom) {
            stage.stated_tile = Some(Spanned::new(StatedTile { tile: (m, n), k: Some(k) }, span));
        }
        if let Some(order) = config.order.order()? {
            stage.stated_order = Some(Spanned::new(StatedOrder::Is(order), span));
        }
    }
    let mut first = Vec::new();
    for config in edges {
        let stage = |name: &str| names().position(|n| n == name).map(StageId);
        let unknown = || {
            let EdgeConfig { from, to, operand, .. } = config;
            Error::Unfit(format!("the spec has no dependence {from} -> {to} ({operand})"))
        };
        let (Some(producer), Some(consumer)) = (stage(&config.from), stage(&config.to)) else {
            return Err(unknown());
        };
        let reader = &resolved.stages[consumer.0];
        let read = reader.reads.iter().position(|r| {
            operand_name(r.kind) == config.operand && resolved.tensors[r.tensor.0].producer == Some(producer)
        });
        let operand = read.ok_or_else(unknown)?;
        let dependence = cusync_gen::graph::Dependence { producer, consumer, operand };
        let said = resolved.stated_edge(&dependence);
        let span = said.map_or(reader.name.span, |s| s.span);
        let policy = match config.policy.policy()? {
            Some(policy) => Some(Spanned::new(policy, span)),
            None => said.and_then(|s| s.policy.clone()),
        };
        let wait_at = match config.wait_at {
            WaitText::KBlock => WaitAt::PerKBlock,
            WaitText::Start => WaitAt::Start,
        };
        first.push(StatedEdge {
            span,
            producer,
            consumer,
            operand: Some(reader.reads[operand].kind),
            policy,
            wait_at: Some(Spanned::new(wait_at, span)),
        });
    }
    // The first statement of a dependence counts.
    first.append(&mut stated.edges);
    stated.edges = first;
    Ok(stated)
}

fn operand_name(kind: OperandKind) -> String {
    format!("{kind:?}")
}

fn positive(what: &str, numbers: &[u32]) -> Result<()> {
    if numbers.iter().all(|n| *n > 0) { Ok(()) } else { Err(Error::Unfit(format!("{what} of 0 tiles"))) }
}

impl OrderText {
    fn order(self) -> Result<Option<Order>> {
        Ok(Some(match self {
            OrderText::RowMajor => Order::RowMajor,
            OrderText::ColumnMajor => Order::ColumnMajor,
            OrderText::GroupedRows(group) => {
                positive("an order by groups", &[group])?;
                Order::GroupedRows(group)
            }
            OrderText::GroupedColumns(group) => {
                positive("an order by groups", &[group])?;
                Order::GroupedColumns(group)
            }
            OrderText::Auto => return Ok(None),
        }))
    }
}

impl From<&Order> for OrderText {
    fn from(order: &Order) -> OrderText {
        match order {
            Order::RowMajor => OrderText::RowMajor,
            Order::ColumnMajor => OrderText::ColumnMajor,
            Order::GroupedRows(group) => OrderText::GroupedRows(*group),
            Order::GroupedColumns(group) => OrderText::GroupedColumns(*group),
            // Only a spec makes others: they come back the way they came.
            _ => OrderText::Auto,
        }
    }
}

impl PolicyText {
    fn policy(self) -> Result<Option<Policy>> {
        Ok(Some(match self {
            PolicyText::Tile => Policy::Tile,
            PolicyText::Row => Policy::Row,
            PolicyText::Batched { rows, cols } => {
                positive("a policy by blocks", &[rows, cols])?;
                Policy::Batched { rows, cols }
            }
            PolicyText::Strided { stride } => {
                positive("a policy by strides", &[stride])?;
                Policy::Strided { stride }
            }
            PolicyText::Auto => return Ok(None),
        }))
    }
}

impl From<&Policy> for PolicyText {
    fn from(policy: &Policy) -> PolicyText {
        match policy {
            Policy::Tile => PolicyText::Tile,
            Policy::Row => PolicyText::Row,
            Policy::Batched { rows, cols } => PolicyText::Batched { rows: *rows, cols: *cols },
            Policy::Strided { stride } => PolicyText::Strided { stride: *stride },
            // Only a spec, or a rule for a shape of footprint, makes others: they come back the way they came.
            _ => PolicyText::Auto,
        }
    }
}

impl From<Mode> for ModeText {
    fn from(mode: Mode) -> ModeText {
        match mode {
            Mode::Static => ModeText::Static,
            Mode::Dynamic => ModeText::Dynamic,
        }
    }
}

impl From<ModeText> for Mode {
    fn from(mode: ModeText) -> Mode {
        match mode {
            ModeText::Static => Mode::Static,
            ModeText::Dynamic => Mode::Dynamic,
        }
    }
}

impl std::fmt::Display for Config {
    /// `programmatic: up 128 x 256, down 128 x 128; Row`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", crate::runtime::executor_name(self.executor))?;
        match &self.kernels {
            Kernels::Decode => write!(f, "decode kernel"),
            Kernels::Chain { tile, cluster, mode, splits } => {
                write!(f, "{} x {} tiles", tile.0, tile.1)?;
                if *cluster != (1, 1) {
                    write!(f, ", clusters of {} x {}", cluster.0, cluster.1)?;
                }
                let mode = if *mode == ModeText::Static { "static" } else { "dynamic" };
                write!(f, ", {mode}, {}", if *splits { "cut along k" } else { "whole tiles" })
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
                let mut policies: Vec<String> = edges.iter().map(|e| e.policy.to_string()).collect();
                policies.dedup();
                write!(f, "; {}", policies.join(", "))
            }
        }
    }
}

impl std::fmt::Display for OrderText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::fmt::Display for PolicyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PolicyText::Batched { rows, cols } => write!(f, "Batched(rows: {rows}, cols: {cols})"),
            PolicyText::Strided { stride } => write!(f, "Strided({stride})"),
            plain => write!(f, "{plain:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::tests::resolved;
    use super::*;
    use cusync_gen::check::judge;
    use cusync_gen::spec;

    fn h200() -> &'static Device {
        Device::named("h200").expect("the profile ships")
    }

    /// States a configuration and has it proved.
    fn proved(config: &Config, resolved: &Resolved) -> Candidate {
        let c = config.candidate(resolved, h200()).unwrap_or_else(|e| panic!("{config}: {e}"));
        let report = judge(&c);
        assert!(report.proved(), "{config}: {:?}", report.refutations);
        c
    }

    #[test]
    fn what_was_chosen_comes_back_when_it_is_stated() {
        for (name, m) in [("gpt3_mlp", 512), ("diamond", 200), ("chain3", 37), ("llama65_mlp", 8)] {
            let resolved = resolved(name, m);
            for executor in super::super::key::EXECUTORS {
                let chosen = choose::candidate(&resolved, h200(), executor).expect("every spec has a choice");
                let config = Config::of(&chosen);
                let text = serde_json::to_string(&config).expect("plain values");
                let read: Config = serde_json::from_str(&text).expect("its own text");
                assert_eq!(read, config);
                let again = proved(&read, &resolved);
                assert_eq!(Config::of(&again), config, "{name} M = {m} {executor:?}");
                assert_eq!((again.orders, again.edges), (chosen.orders, chosen.edges), "{name} {executor:?}");
                assert_eq!(again.coupling, chosen.coupling);
                assert_eq!(again.schedule, chosen.schedule);
                assert_eq!(again.decode, chosen.decode);
            }
        }
    }

    #[test]
    fn convolutions_and_attentions_come_back_too() {
        for name in ["resnet_layer", "llama65_attention"] {
            let source = crate::runtime::shipped(name).expect("the spec ships");
            let resolved = spec::parse(source, name).and_then(|s| s.resolve(&[]));
            let resolved = resolved.unwrap_or_else(|e| panic!("{}", e.message));
            let chosen = choose::candidate(&resolved, h200(), Executor::Streams).expect("a choice");
            let config = Config::of(&chosen);
            let again = config.candidate(&resolved, h200()).unwrap_or_else(|e| panic!("{config}: {e}"));
            assert_eq!(Config::of(&again), config, "{name}");
            assert_eq!((again.orders, again.edges), (chosen.orders, chosen.edges), "{name}");
        }
    }

    #[test]
    fn a_stated_configuration_is_kept_to_the_letter() {
        let resolved = resolved("gpt3_mlp", 512);
        let stage = |stage: &str, tile, order| StageConfig { stage: stage.into(), tile: Some(tile), order };
        let edge = EdgeConfig {
            from: "up".into(),
            to: "down".into(),
            operand: "A".into(),
            policy: PolicyText::Batched { rows: 1, cols: 2 },
            wait_at: WaitText::Start,
        };
        let stages = vec![
            stage("up", (128, 128, 64), OrderText::ColumnMajor),
            stage("down", (64, 256, 64), OrderText::GroupedRows(2)),
        ];
        let kernels = Kernels::Stages { stages, edges: vec![edge], overlap: true };
        let config = Config { executor: Executor::Programmatic, kernels };
        let c = proved(&config, &resolved);
        assert_eq!(c.orders, [Order::ColumnMajor, Order::GroupedRows(2)]);
        assert_eq!(c.edges[0].policy, Policy::Batched { rows: 1, cols: 2 });
        assert_eq!(c.edges[0].wait_at, WaitAt::Start);
        assert_eq!(c.coupling, Coupling::Tiles);
        let text =
            "programmatic: up 128 x 128 ColumnMajor, down 64 x 256 GroupedRows(2); Batched(rows: 1, cols: 2)";
        assert_eq!(config.to_string(), text);
    }

    #[test]
    fn what_a_spec_states_as_a_table_comes_from_the_spec() {
        let source = r#"Pipeline(name: "tables", dims: { "M": 256 }, stages: [
            Gemm(name: "up", a: "X(M,512)", b: "W1(512,512)", out: "Y(M,512)"),
            Gemm(name: "down", a: "Y(M,512)", b: "W2(512,512)", out: "Z(M,512)"),
        ], tiles: { "up": (128, 256) }, orders: { "up": Table([(1, 1), (1, 0), (0, 1), (0, 0)]) },
        sync: [ Edge(from: "up", to: "down", policy: Table([0, 1, 0, 1])) ])"#;
        let resolved = spec::parse(source, "tables.ron").and_then(|s| s.resolve(&[]));
        let resolved = resolved.unwrap_or_else(|e| panic!("{}", e.message));
        let chosen = choose::candidate(&resolved, h200(), Executor::Programmatic).expect("tables fit");
        let config = Config::of(&chosen);
        let c = proved(&config, &resolved);
        assert_eq!(c.edges[0].policy, Policy::Table(vec![0, 1, 0, 1]));
        assert!(matches!(&c.orders[0], Order::Table(tiles) if tiles.len() == 4));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_never_panics() {
        let resolved = resolved("gpt3_mlp", 512);
        let chosen = choose::candidate(&resolved, h200(), Executor::Programmatic).expect("a choice");
        let good = serde_json::to_string(&Config::of(&chosen)).expect("plain values");
        let chain = |tile, cluster| Config::chain((tile, cluster), Mode::Static, true);
        let mut wrong: Vec<Config> = vec![
            chain((0, 0), (1, 1)),
            chain((128, 256), (7, 9)),
            Config::chain(((128, 256), (2, 1)), Mode::Dynamic, true),
            Config { executor: Executor::Fused, kernels: Kernels::Decode },
            Config { executor: Executor::Serial, kernels: Kernels::Decode },
        ];
        let replacements = [
            ("\"up\",\"tile\"", "\"other\",\"tile\""),
            ("\"programmatic\"", "\"fused\""),
            ("\"operand\":\"A\"", "\"operand\":\"Bias\""),
            ("\"to\":\"down\"", "\"to\":\"up\""),
            ("\"to\":\"down\"", "\"to\":\"nowhere\""),
        ];
        for (have, bad) in replacements {
            assert!(good.contains(have), "{good}");
            wrong.push(serde_json::from_str(&good.replace(have, bad)).expect("still a configuration"));
        }
        let mut config = Config::of(&chosen);
        let Kernels::Stages { stages, edges, .. } = &mut config.kernels else { panic!("{config}") };
        let (stages, edges) = (stages.clone(), edges.clone());
        let with = |change: &dyn Fn(&mut Vec<StageConfig>, &mut Vec<EdgeConfig>)| {
            let (mut stages, mut edges) = (stages.clone(), edges.clone());
            change(&mut stages, &mut edges);
            let kernels = Kernels::Stages { stages, edges, overlap: true };
            Config { executor: Executor::Programmatic, kernels }
        };
        wrong.push(with(&|stages, _| stages[0].order = OrderText::GroupedRows(0)));
        wrong.push(with(&|stages, _| stages[0].order = OrderText::GroupedColumns(0)));
        wrong.push(with(&|stages, _| stages[0].tile = Some((128, 256, 0))));
        wrong.push(with(&|stages, _| stages[0].tile = Some((96, 96, 64))));
        wrong.push(with(&|stages, _| stages.truncate(1)));
        wrong.push(with(&|_, edges| edges[0].policy = PolicyText::Batched { rows: 0, cols: 1 }));
        wrong.push(with(&|_, edges| edges[0].policy = PolicyText::Strided { stride: 0 }));
        for config in wrong {
            let refused = config.candidate(&resolved, h200());
            assert!(matches!(refused, Err(Error::Unfit(_))), "{config}: {:?}", refused.map(|c| c.orders));
        }
    }
}
