//! A plan as the plain numbers of `csrc/include/cusync/desc.h`: what the runtime and the cpu executor hand to C, and
//! what a rendered header holds as constants.

use crate::check::Plan;
use crate::graph::{Axis, OperandKind, StageId};
use crate::sync::{Order, WaitAt};

/// `cusync_policy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDesc {
    /// Producer grid: `grid_m`, `grid_n`.
    pub grid: (u32, u32),
    /// Tiles that share a slot: `block_m`, `block_n`.
    pub block: (u32, u32),
    /// 0, or the slot columns of a strided policy.
    pub stride_n: u32,
    /// Slot columns.
    pub slots_n: u32,
    /// First slot in the pipeline's array.
    pub slot_base: u32,
    /// Slots of the edge.
    pub slot_count: u32,
    /// A user policy's `table` and `table_posts`.
    pub table: Option<(Vec<u32>, Vec<u32>)>,
}

/// `enum cusync_operand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OperandCode {
    /// Left operand.
    A = 0,
    /// Right operand; both weights of a gated GEMM.
    B = 1,
    /// Row vector.
    Bias = 2,
    /// Matrix added last.
    Residual = 3,
    /// Read of a custom stage, or of an attention.
    Custom = 4,
}

impl OperandCode {
    /// The code of a part.
    pub fn of(kind: OperandKind) -> Self {
        match kind {
            OperandKind::A => OperandCode::A,
            OperandKind::B | OperandKind::Up => OperandCode::B,
            OperandKind::Bias => OperandCode::Bias,
            OperandKind::Residual => OperandCode::Residual,
            // Attention kernels know their reads as custom ones know theirs: by the edge's name in the header.
            OperandKind::Query | OperandKind::Key | OperandKind::Value | OperandKind::Custom(_) => {
                OperandCode::Custom
            }
        }
    }

    /// The enumerator's name in C.
    pub fn c_name(self) -> &'static str {
        match self {
            OperandCode::A => "CUSYNC_OPERAND_A",
            OperandCode::B => "CUSYNC_OPERAND_B",
            OperandCode::Bias => "CUSYNC_OPERAND_BIAS",
            OperandCode::Residual => "CUSYNC_OPERAND_RESIDUAL",
            OperandCode::Custom => "CUSYNC_OPERAND_CUSTOM",
        }
    }
}

/// `enum cusync_wait_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WaitCode {
    /// Before the first k-block whose footprint enters new slots.
    PerKBlock = 0,
    /// Everything before the first dependent load.
    AtStart = 1,
}

impl WaitCode {
    /// The enumerator's name in C.
    pub fn c_name(self) -> &'static str {
        match self {
            WaitCode::PerKBlock => "CUSYNC_WAIT_PER_K_BLOCK",
            WaitCode::AtStart => "CUSYNC_WAIT_AT_START",
        }
    }
}

/// `cusync_edge`.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeDesc {
    /// The producer's policy.
    pub policy: PolicyDesc,
    /// Index of the edge in the plan.
    pub id: u32,
    /// The consumer's operand.
    pub operand: OperandCode,
    /// Place of the wait.
    pub wait_at: WaitCode,
    /// Elements of the tensor that one producer tile writes: `tile_rows`, `tile_cols`.
    pub tile: (u32, u32),
    /// The tensor: `tensor_rows`, `tensor_cols`.
    pub tensor: (u32, u32),
    /// k-blocks of one consumer tile.
    pub k_blocks: u32,
    /// Rows read.
    pub rows: Axis,
    /// Columns read.
    pub cols: Axis,
}

impl EdgeDesc {
    /// Edge number `edge` of a plan.
    ///
    /// # Panics
    /// When `edge` is not an index into [`Plan::edges`].
    pub fn of(plan: &Plan, edge: usize) -> Self {
        let graph = plan.graph();
        let planned = &plan.edges()[edge];
        let dependence = planned.dependence();
        let (producer, consumer) =
            (&graph.stages[dependence.producer.0], &graph.stages[dependence.consumer.0]);
        let operand = &consumer.operands[dependence.operand];
        let tensor = &graph.tensors[operand.tensor.0];
        let slots = planned.slots();
        EdgeDesc {
            policy: PolicyDesc {
                grid: slots.grid,
                block: slots.block,
                stride_n: slots.stride_n,
                slots_n: slots.slots_n,
                slot_base: planned.slot_base(),
                slot_count: slots.slot_count,
                table: slots.table.clone(),
            },
            id: edge as u32,
            operand: OperandCode::of(operand.kind),
            wait_at: match planned.wait_at() {
                WaitAt::PerKBlock => WaitCode::PerKBlock,
                WaitAt::Start => WaitCode::AtStart,
            },
            tile: producer.out_tile(),
            tensor: (tensor.rows, tensor.cols),
            k_blocks: consumer.k_blocks,
            rows: operand.window(slots).rows,
            cols: operand.window(slots).cols,
        }
    }
}

/// `enum cusync_order_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OrderCode {
    /// Row by row.
    RowMajor = 0,
    /// Column by column.
    ColumnMajor = 1,
    /// Groups of rows.
    GroupedRows = 2,
    /// Groups of columns.
    GroupedColumns = 3,
    /// Stated tile by tile.
    Table = 4,
}

impl OrderCode {
    /// The enumerator's name in C.
    pub fn c_name(self) -> &'static str {
        match self {
            OrderCode::RowMajor => "CUSYNC_ORDER_ROW_MAJOR",
            OrderCode::ColumnMajor => "CUSYNC_ORDER_COLUMN_MAJOR",
            OrderCode::GroupedRows => "CUSYNC_ORDER_GROUPED_ROWS",
            OrderCode::GroupedColumns => "CUSYNC_ORDER_GROUPED_COLUMNS",
            OrderCode::Table => "CUSYNC_ORDER_TABLE",
        }
    }
}

/// `cusync_order`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderDesc {
    /// Kind.
    pub kind: OrderCode,
    /// Grid: `grid_m`, `grid_n`.
    pub grid: (u32, u32),
    /// Rows or columns of a group; 1 for other kinds.
    pub group: u32,
    /// Row-major tile numbers of [`OrderCode::Table`]; empty (NULL) for other kinds.
    pub table: Vec<u32>,
}

impl OrderDesc {
    /// An order on a grid.
    pub fn new(order: &Order, grid: (u32, u32)) -> Self {
        let (kind, group, table) = match order {
            Order::RowMajor => (OrderCode::RowMajor, 1, Vec::new()),
            Order::ColumnMajor => (OrderCode::ColumnMajor, 1, Vec::new()),
            Order::GroupedRows(rows) => (OrderCode::GroupedRows, *rows, Vec::new()),
            Order::GroupedColumns(cols) => (OrderCode::GroupedColumns, *cols, Vec::new()),
            Order::Table(tiles) => (OrderCode::Table, 1, tiles.iter().map(|t| t.m * grid.1 + t.n).collect()),
        };
        OrderDesc { kind, grid, group, table }
    }

    /// The order of a plan's stage.
    ///
    /// # Panics
    /// When the plan has no such stage.
    pub fn of(plan: &Plan, stage: StageId) -> Self {
        Self::new(plan.launch().order(stage), plan.graph().stages[stage.0].grid)
    }
}
