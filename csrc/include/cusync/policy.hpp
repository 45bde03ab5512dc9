// SPDX-License-Identifier: MIT OR Apache-2.0
// Index arithmetic of policies: the slot that a producer tile posts to, and the slots that a consumer's k-block waits
// for. Host and device, constexpr; the only memory it reads is a user policy's table. Mirrors codegen/src/sync; the
// tests compare the two at every tile.
#pragma once
#include "cusync/desc.h"

#if defined(__CUDACC__)
#define CUSYNC_HD __host__ __device__
#else
#define CUSYNC_HD
#endif

namespace cusync {

/// A half-open range.
struct Range {
  uint32_t begin = 0, end = 0;
  CUSYNC_HD constexpr bool empty() const { return begin >= end; }
  CUSYNC_HD constexpr bool operator==(Range o) const { return begin == o.begin && end == o.end; }
};

CUSYNC_HD constexpr uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
CUSYNC_HD constexpr uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

/// Columns [first_column(i), first_column(i + 1)) belong to part i of an output in even parts. columns * parts stays
/// below 2^32.
CUSYNC_HD constexpr uint32_t first_column(uint32_t part, uint32_t columns, uint32_t parts) { return part * columns / parts; }

/// The part that contains a column: the last one that starts at or before it.
CUSYNC_HD constexpr uint32_t part_of_column(uint32_t column, uint32_t columns, uint32_t parts) {
  return ((column + 1) * parts - 1) / columns;
}

/// Number of parts with columns of [begin, end), which is not empty.
CUSYNC_HD constexpr uint32_t parts_of_columns(Range at, uint32_t columns, uint32_t parts) {
  uint32_t const spread = part_of_column(at.end - 1, columns, parts) - part_of_column(at.begin, columns, parts) + 1;
  return min_u32(spread, at.end - at.begin);  // with fewer columns than parts, some parts in between have none
}

/// The slot that producer tile (m, n) posts to, unless slots are column tiles.
CUSYNC_HD constexpr uint32_t slot_of(cusync_policy const& p, uint32_t m, uint32_t n) {
  if (p.table) return p.slot_base + p.table[m * p.grid_n + n];
  uint32_t const column = p.stride_n ? n % p.stride_n : n / p.block_n;
  return p.slot_base + (m / p.block_m) * p.slots_n + column;
}

/// The slots that producer tile (m, n) posts to.
CUSYNC_HD constexpr Range posted_by(cusync_policy const& p, uint32_t m, uint32_t n) {
  if (!p.width) return {slot_of(p, m, n), slot_of(p, m, n) + 1};
  uint32_t const begin = first_column(n, p.columns, p.grid_n), end = first_column(n + 1, p.columns, p.grid_n);
  if (begin == end) return {};
  return {p.slot_base + begin / p.width, p.slot_base + ceil_div(end, p.width)};
}

/// Number of posts to `slot` per epoch: the tiles that map to it. `slot` includes slot_base.
CUSYNC_HD constexpr uint32_t posts_of(cusync_policy const& p, uint32_t slot) {
  uint32_t const local = slot - p.slot_base;
  if (p.width) {
    uint32_t const begin = local * p.width;
    return parts_of_columns({begin, min_u32(begin + p.width, p.columns)}, p.columns, p.grid_n);
  }
  if (p.table) return p.table_posts[local];
  uint32_t const group = local / p.slots_n, column = local % p.slots_n;
  uint32_t const rows = min_u32(p.block_m, p.grid_m - group * p.block_m);
  uint32_t const cols = p.stride_n ? (p.grid_n - column + p.stride_n - 1) / p.stride_n
                                   : min_u32(p.block_n, p.grid_n - column * p.block_n);
  return rows * cols;
}

/// Elements [begin, end) of a tensor axis of length `length` that consumer tile (m, n) reads at k-blocks k to last_k,
/// or the smallest interval that contains them.
CUSYNC_HD constexpr Range footprint_over(cusync_axis const& a, uint32_t length, uint32_t m, uint32_t n, uint32_t k,
                                         uint32_t last_k) {
  int64_t const at = int64_t(a.m) * m + int64_t(a.n) * n + a.offset;
  int64_t const first = at + int64_t(a.k) * (a.k < 0 ? last_k : k);
  int64_t const last = at + int64_t(a.k) * (a.k < 0 ? k : last_k) + a.extent;  // exclusive
  uint32_t const begin = first < 0 ? 0 : first > int64_t(length) ? length : uint32_t(first);
  uint32_t const end = last < 0 ? 0 : last > int64_t(length) ? length : uint32_t(last);
  return {begin, end < begin ? begin : end};
}

/// footprint_over for one k-block.
CUSYNC_HD constexpr Range footprint(cusync_axis const& a, uint32_t length, uint32_t m, uint32_t n, uint32_t k) {
  return footprint_over(a, length, m, n, k, k);
}

/// A box of producer tiles.
struct TileBox {
  Range m, n;
  CUSYNC_HD constexpr bool empty() const { return m.empty() || n.empty(); }
};

/// The producer tiles that consumer tile (m, n) reads at k-blocks k to last_k.
CUSYNC_HD constexpr TileBox producers_over(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, uint32_t last_k) {
  Range const r = footprint_over(e.rows, e.tensor_rows, m, n, k, last_k);
  Range const c = footprint_over(e.cols, e.tensor_cols, m, n, k, last_k);
  if (r.empty() || c.empty()) return {};
  return {{r.begin / e.tile_rows, ceil_div(r.end, e.tile_rows)}, {c.begin / e.tile_cols, ceil_div(c.end, e.tile_cols)}};
}

/// producers_over for one k-block.
CUSYNC_HD constexpr TileBox producers_of(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k) {
  return producers_over(e, m, n, k, k);
}

/// The slots that a wait visits, as a box of slot rows and slot columns. Not used for table policies.
struct SlotBox {
  Range rows, cols;
  CUSYNC_HD constexpr bool empty() const { return rows.empty() || cols.empty(); }
  CUSYNC_HD constexpr bool operator==(SlotBox const& o) const { return rows == o.rows && cols == o.cols; }
};

/// The slots of all tiles in `t`. Columns of a strided policy wrap around: indices may exceed slots_n, take them modulo
/// slots_n.
CUSYNC_HD constexpr SlotBox slots_of(cusync_policy const& p, TileBox const& t) {
  if (t.empty()) return {};
  Range const rows{t.m.begin / p.block_m, ceil_div(t.m.end, p.block_m)};
  if (p.stride_n) {
    if (t.n.end - t.n.begin >= p.slots_n) return {rows, {0, p.slots_n}};
    uint32_t const first = t.n.begin % p.slots_n;
    return {rows, {first, first + (t.n.end - t.n.begin)}};
  }
  return {rows, {t.n.begin / p.block_n, ceil_div(t.n.end, p.block_n)}};
}

/// Calls f(slot, posts) for each slot that covers the producer tiles of `t`. A table policy visits a slot once per tile
/// that maps to it, which is harmless: a satisfied wait stays satisfied.
template <class F>
CUSYNC_HD constexpr void for_each_slot(cusync_policy const& p, TileBox const& t, F&& f) {
  if (p.table) {
    for (uint32_t m = t.m.begin; m < t.m.end; ++m)
      for (uint32_t n = t.n.begin; n < t.n.end; ++n) f(slot_of(p, m, n), posts_of(p, slot_of(p, m, n)));
    return;
  }
  SlotBox const box = slots_of(p, t);
  for (uint32_t r = box.rows.begin; r < box.rows.end; ++r)
    for (uint32_t c = box.cols.begin; c < box.cols.end; ++c) {
      uint32_t const slot = p.slot_base + r * p.slots_n + (c >= p.slots_n ? c - p.slots_n : c);
      f(slot, posts_of(p, slot));
    }
}

/// The producer tiles to wait for just before the dependent load of k-block k. `first` marks the first k-block that
/// this work item loads (not 0 in a split-K slice). Empty if k-block k needs no new slots.
CUSYNC_HD constexpr TileBox wait_box(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, bool first,
                                     uint32_t k_end) {
  if (e.wait_at == CUSYNC_WAIT_AT_START) return first ? producers_over(e, m, n, k, k_end - 1) : TileBox{};
  TileBox const now = producers_of(e, m, n, k);
  if (first || now.empty()) return now;
  TileBox const before = producers_of(e, m, n, k - 1);
  if (e.policy.table) {
    bool const same = now.m == before.m && now.n == before.n;
    return same ? TileBox{} : now;
  }
  return slots_of(e.policy, now) == slots_of(e.policy, before) ? TileBox{} : now;
}

/// Number of steps of size `step` from `first` to `target` or beyond. `step` > 0, `target` > `first`.
CUSYNC_HD constexpr uint32_t steps_to(int64_t first, int64_t target, int32_t step) {
  return uint32_t((target - first + step - 1) / step);
}

/// Number of k-blocks after `k` for which the slots along one axis stay the same; `unit` elements share a slot index.
CUSYNC_HD constexpr uint32_t steps_within(cusync_axis const& a, uint32_t length, uint64_t unit, uint32_t m, uint32_t n,
                                          uint32_t k) {
  if (a.k == 0) return UINT32_MAX;
  int64_t const first = int64_t(a.m) * m + int64_t(a.n) * n + int64_t(a.k) * k + a.offset, last = first + a.extent;
  if (a.k < 0 || last <= 0) return 1;
  // The range leaves its first unit when `first` reaches the next unit, and enters a new last unit when `last` passes
  // the end of the current one; beyond the end of the tensor there are no units to enter.
  int64_t const u = int64_t(unit), begin = first < 0 ? 0 : first;
  uint32_t steps = steps_to(first, (begin / u + 1) * u, a.k);
  int64_t const end = (last + u - 1) / u * u;
  if (end < int64_t(length)) {
    uint32_t const enters = steps_to(last, end + 1, a.k);
    if (enters < steps) steps = enters;
  }
  return steps;
}

/// A lower bound, up to k_end, of the next k-block after `k` with a non-empty wait_box: k-blocks in between need no
/// check. The wait for `k` must be done.
CUSYNC_HD constexpr uint32_t next_wait(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, uint32_t k_end) {
  if (e.wait_at == CUSYNC_WAIT_AT_START) return k_end;
  bool const by_tile = e.policy.table || e.policy.stride_n;
  uint64_t const unit_rows = uint64_t(e.tile_rows) * (e.policy.table ? 1 : e.policy.block_m);
  uint64_t const unit_cols = uint64_t(e.tile_cols) * (by_tile ? 1 : e.policy.block_n);
  uint32_t const by_rows = steps_within(e.rows, e.tensor_rows, unit_rows, m, n, k);
  uint32_t const by_cols = steps_within(e.cols, e.tensor_cols, unit_cols, m, n, k);
  uint32_t const steps = min_u32(by_rows, by_cols);
  return steps < k_end - k ? k + steps : k_end;
}

/// Whether a monotonic 32-bit counter has reached `want`. Correct across wrap-around while the two differ by less than
/// 2^31, which the `count` obligation of `check` guarantees.
CUSYNC_HD constexpr bool reached(uint32_t have, uint32_t want) { return int32_t(have - want) >= 0; }

/// The slot value at which all posts of run number `epoch` (from 0) are complete.
CUSYNC_HD constexpr uint32_t wait_value(uint32_t epoch, uint32_t posts) { return (epoch + 1u) * posts; }

}  // namespace cusync
