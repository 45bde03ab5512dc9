//! The words of a stated configuration: orders, policies and ways as they are written into files and shown to people.

use serde::{Deserialize, Serialize};

use super::config::{Config, EdgeConfig, Kernels, StageConfig, unfit};
use crate::diagnostic::Diagnostic;
use crate::schedule::Mode;
use crate::sync::{Order, Policy, WaitAt};

/// Serde's form of an executor of a GPU: its name on the command line.
pub(super) mod gpu_executor {
    use crate::check::Executor;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(executor: &Executor, out: S) -> Result<S::Ok, S::Error> {
        executor.serialize(out)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Executor, D::Error> {
        match Executor::deserialize(from)? {
            Executor::Cpu => Err(D::Error::custom("no executor `cpu` on a GPU")),
            executor => Ok(executor),
        }
    }
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

fn positive(what: &str, numbers: &[u32]) -> Result<(), Diagnostic> {
    if numbers.iter().all(|n| *n > 0) { Ok(()) } else { Err(unfit(format!("{what} of 0 tiles"))) }
}

impl OrderText {
    pub(super) fn order(self) -> Result<Option<Order>, Diagnostic> {
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
    pub(super) fn policy(self) -> Result<Option<Policy>, Diagnostic> {
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

impl From<WaitAt> for WaitText {
    fn from(wait_at: WaitAt) -> WaitText {
        match wait_at {
            WaitAt::PerKBlock => WaitText::KBlock,
            WaitAt::Start => WaitText::Start,
        }
    }
}

impl From<WaitText> for WaitAt {
    fn from(wait_at: WaitText) -> WaitAt {
        match wait_at {
            WaitText::KBlock => WaitAt::PerKBlock,
            WaitText::Start => WaitAt::Start,
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
        write!(f, "{}: ", self.executor.name())?;
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
                let once =
                    |e: &EdgeConfig| if e.wait_at == WaitText::Start { ", waits at the start" } else { "" };
                let mut policies: Vec<String> =
                    edges.iter().map(|e| format!("{}{}", e.policy, once(e))).collect();
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
