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
    let SlotMap { grid, block, stride_n, slots_n, slot_base, slot_count, width, columns, sliding: _, table: _ } =
        *map;
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
        width,
        columns,
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
