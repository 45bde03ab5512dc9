//! The edges of a pipeline as plain numbers: those that `check` judges and that device code reads
//! (`csrc/include/cusync/desc.h`).

use super::{Axis, Graph, OperandKind};
use crate::sync::{SlotMap, WaitAt};

/// An edge under a policy (`cusync_edge`).
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
    /// Dependence number `id` of a graph under a policy.
    ///
    /// # Panics
    /// If `id` is not an index into [`Graph::dependences`].
    pub fn new(graph: &Graph, id: usize, policy: SlotMap, wait_at: WaitAt) -> Self {
        let dependence = &graph.dependences[id];
        let (producer, consumer) =
            (&graph.stages[dependence.producer.0], &graph.stages[dependence.consumer.0]);
        let operand = &consumer.operands[dependence.operand];
        let (tensor, window) = (&graph.tensors[operand.tensor.0], operand.window(&policy));
        let tile = if policy.width > 0 { (tensor.rows, policy.width) } else { producer.out_tile() };
        EdgeNumbers {
            id: id as u32,
            operand: operand.kind,
            wait_at,
            tile,
            tensor: (tensor.rows, tensor.cols),
            k_blocks: consumer.k_blocks,
            rows: window.rows,
            cols: window.cols,
            policy,
        }
    }
}
