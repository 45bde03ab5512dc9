// SPDX-License-Identifier: MIT OR Apache-2.0
// Edges, policies and orders fixed at compile time, instantiated by rendered headers. A descriptor `Desc` has
//   static constexpr cusync_edge value;   // or cusync_policy, cusync_order; its table pointers are NULL
//   static constexpr T table;             // NoTable, SlotTable or OrderTable
// Tables are values rather than pointers because host and device each need their own copy.
#pragma once
#include "cusync/order.hpp"

namespace cusync {

struct NoTable {};

/// A user policy: the slot of each tile, row-major, and the post count of each slot.
template <uint32_t Tiles, uint32_t Slots>
struct SlotTable {
  uint32_t slots[Tiles];
  uint32_t posts[Slots];
};

/// An explicit order: the row-major number of the i-th tile.
template <uint32_t Tiles>
struct OrderTable {
  uint32_t tiles[Tiles];
};

template <uint32_t Tiles, uint32_t Slots>
CUSYNC_HD constexpr void attach(cusync_policy& p, SlotTable<Tiles, Slots> const& t) {
  p.table = t.slots;
  p.table_posts = t.posts;
}
template <uint32_t Tiles, uint32_t Slots>
CUSYNC_HD constexpr void attach(cusync_edge& e, SlotTable<Tiles, Slots> const& t) {
  attach(e.policy, t);
}
template <uint32_t Tiles>
CUSYNC_HD constexpr void attach(cusync_order& o, OrderTable<Tiles> const& t) {
  o.table = t.tiles;
}
template <class Value>
CUSYNC_HD constexpr void attach(Value&, NoTable const&) {}

/// A descriptor's value, with its table in the memory of the calling side. Its numbers fold into the code.
template <class Desc>
CUSYNC_HD inline auto get() {
  auto value = Desc::value;
  static constexpr auto table = Desc::table;
  attach(value, table);
  return value;
}

/// get() for constant expressions.
template <class Desc>
CUSYNC_HD constexpr auto get_constant() {
  auto value = Desc::value;
  attach(value, Desc::table);
  return value;
}

// ---- static assertions of rendered headers --------------------------------------------------------------------------

/// The post counts of all slots add up to the number of tiles.
CUSYNC_HD constexpr bool posts_add_up(cusync_policy const& p) {
  uint64_t posts = 0;
  for (uint32_t s = 0; s < p.slot_count; ++s) posts += posts_of(p, p.slot_base + s);
  return posts == uint64_t(p.grid_m) * p.grid_n;
}

/// The tiles in the corners of the grid post to slots of this edge.
CUSYNC_HD constexpr bool corners_in_bounds(cusync_policy const& p) {
  uint32_t const ms[] = {0, p.grid_m - 1}, ns[] = {0, p.grid_n - 1};
  for (uint32_t m : ms)
    for (uint32_t n : ns) {
      uint32_t const slot = slot_of(p, m, n);
      if (slot < p.slot_base || slot - p.slot_base >= p.slot_count) return false;
    }
  return true;
}

/// The first and last tiles of the order are on the grid.
CUSYNC_HD constexpr bool ends_on_grid(cusync_order const& o) {
  TileCoord const a = tile_at(o, 0), b = tile_at(o, o.grid_m * o.grid_n - 1);
  return a.m < o.grid_m && a.n < o.grid_n && b.m < o.grid_m && b.n < o.grid_n;
}

/// Consumer tile (m, n) waits at least once, and only for tiles on the producer's grid.
CUSYNC_HD constexpr bool waits_on_grid(cusync_edge const& e, uint32_t m, uint32_t n) {
  bool waits = false;
  for (uint32_t k = 0; k < e.k_blocks; ++k) {
    TileBox const box = wait_box(e, m, n, k, k == 0, e.k_blocks);
    if (box.empty()) continue;
    if (box.m.end > e.policy.grid_m || box.n.end > e.policy.grid_n) return false;
    waits = true;
  }
  return waits;
}

}  // namespace cusync
