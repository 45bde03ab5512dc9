//! A plan's numbers in the layout that kernels take (`csrc/include/cusync/desc.h`).

use std::sync::Arc;

use cusync_gen::check::Plan;
use cusync_gen::graph::StageId;

use crate::device::{Device, DeviceBuffer, Result, words};
use crate::ffi;

/// Descriptors of a plan with their tables in device memory.
#[derive(Debug)]
pub(super) struct Descriptors {
    /// One per stage.
    pub(super) orders: Vec<ffi::cusync_order>,
    /// One per edge.
    pub(super) edges: Vec<ffi::cusync_edge>,
    /// Tables that the descriptors point into.
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
        let mut orders = Vec::new();
        for (index, stage) in plan.graph().stages.iter().enumerate() {
            let order = plan.launch().order(StageId(index));
            let table = order.table(stage.grid).map(|tiles| upload(&tiles)).transpose()?;
            orders.push(words::order(order, stage.grid, table));
        }
        let mut edges = Vec::new();
        for edge in plan.edges() {
            let numbers = edge.numbers();
            let tables = match &numbers.policy.table {
                Some((slots, posts)) => Some((upload(slots)?, upload(posts)?)),
                None => None,
            };
            edges.push(words::edge(numbers, tables));
        }
        Ok(Descriptors { orders, edges, tables })
    }
}
