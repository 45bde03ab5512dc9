//! The view of a plan for templates and JSON output: strings and numbers, ready to print.

use serde::Serialize;

use super::names::edge_names;
use crate::check::{EdgeNumbers, Launch, Plan};
use crate::device::Profile;
use crate::graph::{Axis, Element, Graph, OperandKind, Stage, StageId, Tensor, TensorId};
use crate::sync::{Order, SlotMap, WaitAt};

/// Largest slot or k-block count for which a `static_assert` unrolls a loop; compilers limit constant evaluation.
const MAX_ASSERTED: u32 = 4096;

#[derive(Serialize)]
pub(super) struct View {
    name: String,
    element: &'static str,
    device: String,
    executor: &'static str,
    start: &'static str,
    slot_count: u32,
    dims: Vec<(String, u32)>,
    tensors: Vec<TensorView>,
    stages: Vec<StageView>,
    /// The tile order of each stage.
    orders: Vec<OrderView>,
    edges: Vec<EdgeView>,
}

#[derive(Serialize)]
struct TensorView {
    name: String,
    rows: u32,
    cols: u32,
    producer: Option<String>,
    alias: Option<String>,
    transposed: bool,
}

/// A stage as its plan runs it.
#[derive(Serialize)]
pub struct StageView {
    /// Its name.
    pub name: String,
    /// The operation, such as `GeLU GEMM`.
    pub op: String,
    /// The tensor written.
    pub out: String,
    /// Operands and tensors read.
    pub reads: Vec<(String, String)>,
    /// Rows and columns of the output, and the length of the reduction.
    pub shape: (u32, u32, u32),
    /// The MMA tile.
    pub tile: (u32, u32, u32),
    /// Rows and columns of the output's largest tile.
    pub out_tile: (u32, u32),
    /// Tiles along M and N.
    pub grid: (u32, u32),
    /// Total number of tiles.
    pub tiles: u32,
    /// k-blocks of one tile.
    pub k_blocks: u32,
    /// CTAs that share one tile along k; 1: no split.
    pub split_k: u32,
    /// Tiles per SM.
    pub waves: f64,
    /// The order of its tiles; `by schedule` if one kernel runs all stages.
    pub order: String,
    /// When its first tile begins, microseconds, if predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_us: Option<f64>,
    /// When its last tile ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_us: Option<f64>,
}

/// A tile order as devices see it.
#[derive(Serialize)]
struct OrderView {
    text: String,
    kind: &'static str,
    group: u32,
    table: Option<Table>,
}

#[derive(Serialize)]
struct EdgeView {
    name: String,
    id: u32,
    from: String,
    to: String,
    tensor: String,
    operand: String,
    policy: String,
    slot_base: u32,
    slot_count: u32,
    table: Option<SlotTables>,
    /// The braced initializer of `cusync_edge`.
    value: String,
    /// Whether the sum of the posts is asserted.
    assert_posts: bool,
    /// Consumer tiles with asserted waits.
    assert_waits: Vec<(u32, u32)>,
}

#[derive(Serialize)]
struct Table {
    len: usize,
    values: String,
}

#[derive(Serialize)]
struct SlotTables {
    slots: Table,
    posts: Table,
}

impl View {
    /// Only decode kernels use even shares; user kernels run tiles.
    pub(super) fn new(proved: &Plan) -> Self {
        let plan = &proved.on_tiles();
        let graph = plan.graph();
        let stage_name = |id: StageId| graph.stages[id.0].name.clone();
        let tensor = |t: &Tensor| TensorView {
            name: t.name.clone(),
            rows: t.rows,
            cols: t.cols,
            producer: t.producer.map(stage_name),
            alias: t.alias.map(|id| graph.tensors[id.0].name.clone()),
            transposed: t.transposed,
        };
        let names = edge_names(plan);
        View {
            name: graph.name.clone(),
            element: match graph.element {
                Element::F16 => "fp16",
                Element::Bf16 => "bf16",
            },
            device: plan.device().name.clone(),
            executor: proved.executor().name(),
            start: if plan.launch().guarantees_starts() {
                "consumers start after all their producers' CTAs"
            } else {
                "none"
            },
            slot_count: plan.slot_count(),
            dims: graph.dims.clone(),
            tensors: graph.tensors.iter().map(tensor).collect(),
            stages: StageView::from_graph(graph, plan.launch(), plan.device()),
            orders: (graph.stages.iter().enumerate())
                .map(|(i, stage)| order_view(plan.launch().order(StageId(i)), stage.grid))
                .collect(),
            edges: names.into_iter().enumerate().map(|(i, name)| edge_view(plan, i, name)).collect(),
        }
    }
}

impl StageView {
    /// The stages of a graph with this launch on a device.
    pub fn from_graph(graph: &Graph, launch: &Launch, device: &Profile) -> Vec<StageView> {
        let tensor_name = |id: TensorId| graph.tensors[id.0].name.clone();
        let view = |(index, stage): (usize, &Stage)| StageView {
            name: stage.name.clone(),
            op: stage.op.rules().label(),
            out: tensor_name(stage.out),
            reads: stage.operands.iter().map(|o| (o.kind.word(), tensor_name(o.tensor))).collect(),
            shape: (stage.m, stage.n, stage.k),
            tile: stage.mma_tile,
            out_tile: stage.out_tile(),
            grid: stage.grid,
            tiles: stage.tiles(),
            k_blocks: stage.k_blocks,
            split_k: stage.split_k,
            waves: f64::from(stage.tiles()) / f64::from(device.sms),
            order: launch
                .kernel(StageId(index))
                .map_or("by schedule".into(), |kernel| kernel.order.to_string()),
            begin_us: None,
            end_us: None,
        };
        graph.stages.iter().enumerate().map(view).collect()
    }
}

fn order_view(order: &Order, grid: (u32, u32)) -> OrderView {
    OrderView {
        text: order.to_string(),
        kind: match order {
            Order::RowMajor => "CUSYNC_ORDER_ROW_MAJOR",
            Order::ColumnMajor => "CUSYNC_ORDER_COLUMN_MAJOR",
            Order::GroupedRows(_) => "CUSYNC_ORDER_GROUPED_ROWS",
            Order::GroupedColumns(_) => "CUSYNC_ORDER_GROUPED_COLUMNS",
            Order::Table(_) => "CUSYNC_ORDER_TABLE",
        },
        group: order.group_on(grid),
        table: order.table(grid).map(|tiles| table(&tiles)),
    }
}

fn edge_view(plan: &Plan, index: usize, name: String) -> EdgeView {
    let graph = plan.graph();
    let planned = &plan.edges()[index];
    let dependence = planned.dependence();
    let consumer = &graph.stages[dependence.consumer.0];
    let operand = &consumer.operands[dependence.operand];
    let numbers = planned.numbers();
    let reads = |m: u32, n: u32| {
        (0..consumer.k_blocks).any(|k| {
            !numbers.rows.range(numbers.tensor.0, m, n, k).is_empty()
                && !numbers.cols.range(numbers.tensor.1, m, n, k).is_empty()
        })
    };
    let mut corners = vec![(0, 0), (consumer.grid.0 - 1, consumer.grid.1 - 1)];
    corners.dedup();
    corners.retain(|&(m, n)| consumer.k_blocks <= MAX_ASSERTED && reads(m, n));
    let slots = &numbers.policy;
    EdgeView {
        name,
        id: numbers.id,
        from: graph.stages[dependence.producer.0].name.clone(),
        to: consumer.name.clone(),
        tensor: graph.tensors[operand.tensor.0].name.clone(),
        operand: operand.kind.word(),
        policy: planned.policy().to_string(),
        slot_base: slots.slot_base,
        slot_count: slots.slot_count,
        table: (slots.table.as_ref())
            .map(|(slots, posts)| SlotTables { slots: table(slots), posts: table(posts) }),
        value: edge_value(numbers),
        assert_posts: slots.slot_count <= MAX_ASSERTED,
        assert_waits: corners,
    }
}

/// Numbers separated by commas, in lines of at most 110 characters.
fn table(numbers: &[u32]) -> Table {
    let mut values = String::new();
    let mut width = 0;
    for (i, number) in numbers.iter().enumerate() {
        let item = number.to_string();
        if i > 0 {
            width += item.len() + 2;
            let wrap = width > 100;
            values.push_str(if wrap { ",\n      " } else { ", " });
            width = if wrap { item.len() } else { width };
        }
        values.push_str(&item);
    }
    Table { len: numbers.len(), values }
}

fn policy_value(p: &SlotMap) -> String {
    format!(
        "{{/*grid*/ {}, {}, /*block*/ {}, {}, /*stride*/ {}, /*slots_n*/ {}, /*base*/ {}, /*count*/ {},\n         \
         /*width, columns*/ {}, {}, nullptr, nullptr}}",
        p.grid.0,
        p.grid.1,
        p.block.0,
        p.block.1,
        p.stride_n,
        p.slots_n,
        p.slot_base,
        p.slot_count,
        p.width,
        p.columns
    )
}

fn axis_value(a: &Axis) -> String {
    format!("{{{}, {}, {}, {}, {}}}", a.m, a.n, a.k, a.offset, a.extent)
}

fn edge_value(e: &EdgeNumbers) -> String {
    let operand = match e.operand {
        OperandKind::A => "CUSYNC_OPERAND_A",
        OperandKind::B => "CUSYNC_OPERAND_B",
        OperandKind::Bias => "CUSYNC_OPERAND_BIAS",
        OperandKind::Residual => "CUSYNC_OPERAND_RESIDUAL",
        // Attention kernels, like custom ones, identify their reads by the edge name in the header.
        _ => "CUSYNC_OPERAND_CUSTOM",
    };
    let wait_at = match e.wait_at {
        WaitAt::PerKBlock => "CUSYNC_WAIT_PER_K_BLOCK",
        WaitAt::Start => "CUSYNC_WAIT_AT_START",
    };
    format!(
        "{{\n        {},\n        /*id*/ {}, {operand}, {wait_at},\n        \
         /*tile*/ {}, {}, /*tensor*/ {}, {}, /*k_blocks*/ {},\n        \
         /*rows: m, n, k, offset, extent*/ {}, /*cols*/ {}}}",
        policy_value(&e.policy),
        e.id,
        e.tile.0,
        e.tile.1,
        e.tensor.0,
        e.tensor.1,
        e.k_blocks,
        axis_value(&e.rows),
        axis_value(&e.cols)
    )
}
