//! The edges of a plan as the plain numbers that device code reads (`csrc/include/cusync/desc.h`).

use super::Plan;
use crate::graph::{Axis, OperandKind};
use crate::sync::{SlotMap, WaitAt};

/// An edge of a plan (`cusync_edge`).
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeNumbers {
    /// The producer's policy.
    pub policy: SlotMap,
    /// Index of the edge in the plan.
    pub id: u32,
    /// The consumer's operand.
    pub operand: OperandKind,
    /// Where the consumer waits.
    pub wait_at: WaitAt,
    /// Elements of the tensor in one of the tiles that waits count: `tile_rows`, `tile_cols`.
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

impl EdgeNumbers {
    /// Edge number `edge` of a plan.
    ///
    /// # Panics
    /// If `edge` is not an index into [`Plan::edges`].
    pub fn from_plan(plan: &Plan, edge: usize) -> Self {
        let graph = plan.graph();
        let planned = &plan.edges()[edge];
        let dependence = planned.dependence();
        let (producer, consumer) =
            (&graph.stages[dependence.producer.0], &graph.stages[dependence.consumer.0]);
        let operand = &consumer.operands[dependence.operand];
        let tensor = &graph.tensors[operand.tensor.0];
        let (slots, window) = (planned.slots(), operand.window(planned.slots()));
        let tile = if slots.width > 0 { (tensor.rows, slots.width) } else { producer.out_tile() };
        EdgeNumbers {
            policy: slots.clone(),
            id: edge as u32,
            operand: operand.kind,
            wait_at: planned.wait_at(),
            tile,
            tensor: (tensor.rows, tensor.cols),
            k_blocks: consumer.k_blocks,
            rows: window.rows,
            cols: window.cols,
        }
    }
}
