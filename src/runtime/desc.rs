//! A plan's numbers in the form that kernels take (`csrc/include/cusync/desc.h`).

use std::sync::Arc;

use cusync_gen::check::{EdgePlan, Plan};
use cusync_gen::graph::{Activation, Element, OperandKind};
use cusync_gen::policy::{Order, WaitAt};

use crate::device::{Device, DeviceBuffer, Result};
use crate::ffi;

/// Descriptors of a plan with their tables in device memory.
#[derive(Debug)]
pub(super) struct Descriptors {
    /// One a stage.
    pub(super) orders: Vec<ffi::cusync_order>,
    /// One an edge.
    pub(super) edges: Vec<ffi::cusync_edge>,
    /// What the descriptors point into.
    pub(super) tables: Vec<Arc<DeviceBuffer<u32>>>,
}

impl Descriptors {
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Descriptors> {
        let mut tables = Vec::new();
        let mut upload = |table: &[u32]| -> Result<*const u32> {
            let buffer = Arc::new(DeviceBuffer::from_slice(device, table, "a policy or order table")?);
            let pointer = buffer.pointer().cast_const().cast();
            tables.push(buffer);
            Ok(pointer)
        };
        let stages = plan.graph().stages.iter().zip(plan.orders());
        let orders = stages.map(|(s, o)| order(o, s.grid, &mut upload)).collect::<Result<_>>()?;
        let ids = 0u32..;
        let edges = plan
            .edges()
            .iter()
            .zip(ids)
            .map(|(e, id)| edge(plan, e, id, &mut upload))
            .collect::<Result<_>>()?;
        Ok(Descriptors { orders, edges, tables })
    }
}

fn order(
    order: &Order,
    grid: (u32, u32),
    upload: &mut impl FnMut(&[u32]) -> Result<*const u32>,
) -> Result<ffi::cusync_order> {
    let mut raw = ffi::cusync_order { grid_m: grid.0, grid_n: grid.1, group: 1, ..Default::default() };
    raw.kind = match order {
        Order::RowMajor => ffi::CUSYNC_ORDER_ROW_MAJOR,
        Order::ColumnMajor => ffi::CUSYNC_ORDER_COLUMN_MAJOR,
        Order::GroupedRows(group) => {
            raw.group = *group;
            ffi::CUSYNC_ORDER_GROUPED_ROWS
        }
        Order::GroupedColumns(group) => {
            raw.group = *group;
            ffi::CUSYNC_ORDER_GROUPED_COLUMNS
        }
        Order::Table(tiles) => {
            let table: Vec<u32> = tiles.iter().map(|t| t.m * grid.1 + t.n).collect();
            raw.table = upload(&table)?;
            ffi::CUSYNC_ORDER_TABLE
        }
    };
    Ok(raw)
}

fn edge(
    plan: &Plan,
    edge: &EdgePlan,
    id: u32,
    upload: &mut impl FnMut(&[u32]) -> Result<*const u32>,
) -> Result<ffi::cusync_edge> {
    let (graph, dependence, slots) = (plan.graph(), edge.dependence(), edge.slots());
    let producer = &graph.stages[dependence.producer.0];
    let consumer = &graph.stages[dependence.consumer.0];
    let operand = &consumer.operands[dependence.operand];
    let tensor = &graph.tensors[operand.tensor.0];
    let axis = |a: cusync_gen::graph::Axis| ffi::cusync_axis {
        m: a.m,
        n: a.n,
        k: a.k,
        offset: a.offset,
        extent: a.extent,
    };
    let mut policy = ffi::cusync_policy {
        grid_m: slots.grid.0,
        grid_n: slots.grid.1,
        block_m: slots.block.0,
        block_n: slots.block.1,
        stride_n: slots.stride_n,
        slots_n: slots.slots_n,
        slot_base: edge.slot_base(),
        slot_count: slots.slot_count,
        ..Default::default()
    };
    if let Some((table, posts)) = &slots.table {
        policy.table = upload(table)?;
        policy.table_posts = upload(posts)?;
    }
    Ok(ffi::cusync_edge {
        policy,
        id,
        operand: match operand.kind {
            OperandKind::A => ffi::CUSYNC_OPERAND_A,
            OperandKind::B | OperandKind::Up => ffi::CUSYNC_OPERAND_B,
            OperandKind::Bias => ffi::CUSYNC_OPERAND_BIAS,
            OperandKind::Residual => ffi::CUSYNC_OPERAND_RESIDUAL,
            OperandKind::Custom(_) => ffi::CUSYNC_OPERAND_CUSTOM,
        },
        wait_at: match edge.wait_at() {
            WaitAt::PerKBlock => ffi::CUSYNC_WAIT_PER_K_BLOCK,
            WaitAt::Start => ffi::CUSYNC_WAIT_AT_START,
        },
        tile_rows: producer.out_tile.0,
        tile_cols: producer.out_tile.1,
        tensor_rows: tensor.rows,
        tensor_cols: tensor.cols,
        k_blocks: consumer.k_blocks,
        rows: axis(operand.footprint.rows),
        cols: axis(operand.footprint.cols),
    })
}

/// The C ABI's number of an element type.
pub fn element_code(element: Element) -> u32 {
    match element {
        Element::F16 => ffi::CUSYNC_F16,
        Element::Bf16 => ffi::CUSYNC_BF16,
    }
}

/// The C ABI's number of an activation.
pub(super) fn activation_code(activation: Activation) -> u32 {
    match activation {
        Activation::Identity => ffi::CUSYNC_IDENTITY,
        Activation::GeluTanh => ffi::CUSYNC_GELU_TANH,
        Activation::Relu => ffi::CUSYNC_RELU,
    }
}
