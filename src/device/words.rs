//! Policies, edges and orders in the C ABI's form; the only place that builds them. Tables are where the
//! caller put them, in host or device memory.

use std::ptr::null;

use cusync_gen::check::EdgeNumbers;
use cusync_gen::graph::{Axis, OperandKind};
use cusync_gen::sync::{Order, SlotMap, WaitAt};

use crate::ffi;

/// A policy; `tables` are the map's slots and posts, if it has tables.
pub(crate) fn policy(map: &SlotMap, tables: Option<(*const u32, *const u32)>) -> ffi::cusync_policy {
    // The sliding window is part of the edge's footprint.
    let SlotMap { grid, block, stride_n, slots_n, slot_base, slot_count, sliding: _, table: _ } = *map;
    let (table, table_posts) = tables.unwrap_or((null(), null()));
    ffi::cusync_policy {
        grid_m: grid.0,
        grid_n: grid.1,
        block_m: block.0,
        block_n: block.1,
        stride_n,
        slots_n,
        slot_base,
        slot_count,
        table,
        table_posts,
    }
}

/// An edge; `tables` are those of its policy.
pub(crate) fn edge(edge: &EdgeNumbers, tables: Option<(*const u32, *const u32)>) -> ffi::cusync_edge {
    let axis = |a: &Axis| ffi::cusync_axis { m: a.m, n: a.n, k: a.k, offset: a.offset, extent: a.extent };
    ffi::cusync_edge {
        policy: policy(&edge.policy, tables),
        id: edge.id,
        operand: match edge.operand {
            // Queries, keys and values are columns of one matrix.
            OperandKind::A | OperandKind::Query | OperandKind::Key | OperandKind::Value => {
                ffi::CUSYNC_OPERAND_A
            }
            OperandKind::B | OperandKind::Up => ffi::CUSYNC_OPERAND_B,
            OperandKind::Bias => ffi::CUSYNC_OPERAND_BIAS,
            OperandKind::Residual => ffi::CUSYNC_OPERAND_RESIDUAL,
            OperandKind::CachedKeys
            | OperandKind::CachedValues
            | OperandKind::Lengths
            | OperandKind::Pages
            | OperandKind::Rotary
            | OperandKind::Custom(_) => ffi::CUSYNC_OPERAND_CUSTOM,
            OperandKind::Gain => ffi::CUSYNC_OPERAND_GAIN,
        },
        wait_at: match edge.wait_at {
            WaitAt::PerKBlock => ffi::CUSYNC_WAIT_PER_K_BLOCK,
            WaitAt::Start => ffi::CUSYNC_WAIT_AT_START,
        },
        tile_rows: edge.tile.0,
        tile_cols: edge.tile.1,
        tensor_rows: edge.tensor.0,
        tensor_cols: edge.tensor.1,
        k_blocks: edge.k_blocks,
        rows: axis(&edge.rows),
        cols: axis(&edge.cols),
    }
}

/// Slots of a stage's output in a decode kernel: one per [`ffi::CUSYNC_COLUMN_TILE`] columns, or one per
/// key/value head that it attends to.
pub(crate) fn column_policy(count: u32, slot_base: u32) -> ffi::cusync_policy {
    ffi::cusync_policy {
        grid_m: 1,
        grid_n: count,
        block_m: 1,
        block_n: 1,
        slots_n: count,
        slot_base,
        slot_count: count,
        ..Default::default()
    }
}

/// Edge `id` of a decode kernel, from an m x n output with `slots` slots to operand A: one k-block after
/// another.
pub(crate) fn column_edge(id: u32, (m, n): (u32, u32), slots: u32, slot_base: u32) -> ffi::cusync_edge {
    let (rows, columns) = (m as i32, ffi::CUSYNC_COLUMN_TILE as i32);
    ffi::cusync_edge {
        policy: column_policy(slots, slot_base),
        id,
        operand: ffi::CUSYNC_OPERAND_A,
        wait_at: ffi::CUSYNC_WAIT_PER_K_BLOCK,
        tile_rows: m,
        tile_cols: n.div_ceil(slots.max(1)).max(ffi::CUSYNC_COLUMN_TILE),
        tensor_rows: m,
        tensor_cols: n,
        k_blocks: n.div_ceil(ffi::CUSYNC_COLUMN_TILE),
        rows: ffi::cusync_axis { extent: rows, ..Default::default() },
        cols: ffi::cusync_axis { k: columns, extent: columns, ..Default::default() },
    }
}

/// An order on a grid; `table` holds [`Order::table`], if it has one.
pub(crate) fn order(order: &Order, grid: (u32, u32), table: Option<*const u32>) -> ffi::cusync_order {
    ffi::cusync_order {
        kind: match order {
            Order::RowMajor => ffi::CUSYNC_ORDER_ROW_MAJOR,
            Order::ColumnMajor => ffi::CUSYNC_ORDER_COLUMN_MAJOR,
            Order::GroupedRows(_) => ffi::CUSYNC_ORDER_GROUPED_ROWS,
            Order::GroupedColumns(_) => ffi::CUSYNC_ORDER_GROUPED_COLUMNS,
            Order::Table(_) => ffi::CUSYNC_ORDER_TABLE,
        },
        grid_m: grid.0,
        grid_n: grid.1,
        group: order.group_on(grid),
        table: table.unwrap_or(null()),
    }
}
