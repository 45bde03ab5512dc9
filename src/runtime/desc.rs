//! A plan's numbers in the form that kernels take (`csrc/include/cusync/desc.h`).

use std::sync::Arc;

use cusync_gen::check::Plan;
use cusync_gen::emit::desc::{EdgeDesc, OrderDesc};
use cusync_gen::graph::{Activation, Axis, Element, StageId};

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
        let stages = 0..plan.graph().stages.len();
        let orders =
            stages.map(|s| order(&OrderDesc::of(plan, StageId(s)), &mut upload)).collect::<Result<_>>()?;
        let edges = 0..plan.edges().len();
        let edges = edges.map(|e| edge(&EdgeDesc::of(plan, e), &mut upload)).collect::<Result<_>>()?;
        Ok(Descriptors { orders, edges, tables })
    }
}

type Upload<'a> = &'a mut dyn FnMut(&[u32]) -> Result<*const u32>;

fn order(desc: &OrderDesc, upload: Upload<'_>) -> Result<ffi::cusync_order> {
    let table = if desc.table.is_empty() { std::ptr::null() } else { upload(&desc.table)? };
    let (grid_m, grid_n) = desc.grid;
    Ok(ffi::cusync_order { kind: desc.kind as u32, grid_m, grid_n, group: desc.group, table })
}

fn edge(desc: &EdgeDesc, upload: Upload<'_>) -> Result<ffi::cusync_edge> {
    let axis = |a: Axis| ffi::cusync_axis { m: a.m, n: a.n, k: a.k, offset: a.offset, extent: a.extent };
    let slots = &desc.policy;
    let mut policy = ffi::cusync_policy {
        grid_m: slots.grid.0,
        grid_n: slots.grid.1,
        block_m: slots.block.0,
        block_n: slots.block.1,
        stride_n: slots.stride_n,
        slots_n: slots.slots_n,
        slot_base: slots.slot_base,
        slot_count: slots.slot_count,
        ..Default::default()
    };
    if let Some((table, posts)) = &slots.table {
        policy.table = upload(table)?;
        policy.table_posts = upload(posts)?;
    }
    Ok(ffi::cusync_edge {
        policy,
        id: desc.id,
        operand: desc.operand as u32,
        wait_at: desc.wait_at as u32,
        tile_rows: desc.tile.0,
        tile_cols: desc.tile.1,
        tensor_rows: desc.tensor.0,
        tensor_cols: desc.tensor.1,
        k_blocks: desc.k_blocks,
        rows: axis(desc.rows),
        cols: axis(desc.cols),
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
