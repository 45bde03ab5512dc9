// SPDX-License-Identifier: MIT OR Apache-2.0
// Tile orders: the i-th tile to start. Host and device, constexpr. Mirrors codegen/src/sync/order.rs.
#pragma once
#include "cusync/policy.hpp"

namespace cusync {

struct TileCoord {
  uint32_t m = 0, n = 0;
  CUSYNC_HD constexpr bool operator==(TileCoord o) const { return m == o.m && n == o.n; }
};

/// Tile number i of the order, 0 <= i < grid_m * grid_n. The last group may be narrower than the others.
CUSYNC_HD constexpr TileCoord tile_at(cusync_order const& o, uint32_t i) {
  switch (o.kind) {
    case CUSYNC_ORDER_COLUMN_MAJOR: return {i % o.grid_m, i / o.grid_m};
    case CUSYNC_ORDER_GROUPED_ROWS: {
      uint32_t const per_group = o.group * o.grid_n, g = i / per_group, j = i % per_group;
      uint32_t const rows = min_u32(o.group, o.grid_m - g * o.group);
      return {g * o.group + j % rows, j / rows};
    }
    case CUSYNC_ORDER_GROUPED_COLUMNS: {
      uint32_t const per_group = o.group * o.grid_m, g = i / per_group, j = i % per_group;
      uint32_t const cols = min_u32(o.group, o.grid_n - g * o.group);
      return {j / cols, g * o.group + j % cols};
    }
    case CUSYNC_ORDER_TABLE: return {o.table[i] / o.grid_n, o.table[i] % o.grid_n};
    default: return {i / o.grid_n, i % o.grid_n};
  }
}

}  // namespace cusync
