// SPDX-License-Identifier: MIT OR Apache-2.0
// Partial sums of tiles that are split along k. Each part writes accumulators that another part will finish to a slab
// of floats, in the order its threads hold them, and sets the slab's flag to the run number. The part that finishes
// columns adds the other parts' sums in part order, so a sum does not depend on arrival order. Flags are never cleared:
// each run sets a higher number. A slab has one writer per run, and the next run writes only after this one has ended.
#pragma once
#include "kernels/chain/sm90/config.cuh"

namespace cusync::kernels::sm90 {

/// Reported in place of an edge if a partial sum does not arrive.
inline constexpr uint32_t kSlabEdge = ~0u;

/// The parts of a split tile, from the point of view of one part.
template <class C>
struct Parts {
  uint32_t first, count;  ///< slabs of the other parts, possibly including its own
  uint32_t own;           ///< its slab, relative to `first`; `count` if it writes none
  bool shares, finishes;
  uint32_t begin, end;  ///< range of shares that it finishes, if a unit has several

  CUSYNC_DEVICE explicit Parts(Work const& item)
      : first(item.slab), count(item.role == CUSYNC_WHOLE_TILE || item.role == CUSYNC_CONTRIBUTE ? 0 : item.slabs),
        own(item.role == CUSYNC_SHARE ? item.part : item.role == CUSYNC_CONTRIBUTE ? 0 : count),
        shares(item.role == CUSYNC_SHARE), finishes(item.role != CUSYNC_CONTRIBUTE), begin(item.share_begin), end(item.share_end) {}

  /// Whether this part finishes unit u, or some of it. Parts that share a tile divide its units into consecutive
  /// ranges.
  CUSYNC_DEVICE bool owns(uint32_t unit) const {
    if constexpr (C::kUnitShares > 1) return finishes;
    return shares ? unit * count / C::kUnits == own : finishes;
  }
  /// Whether it finishes a share of the single unit that has several: 8 columns, `piece`, and the first or second 8 of
  /// each 16 rows.
  CUSYNC_DEVICE bool owns_share(uint32_t row, uint32_t piece) const {
    uint32_t const share = piece * 2 + row / 8 % 2;
    return begin <= share && share < end;
  }
  /// Whether it finishes all of the 8 columns `piece`.
  CUSYNC_DEVICE bool owns_columns(uint32_t piece) const { return begin <= 2 * piece && 2 * piece + 2 <= end; }
  /// Whether it finishes anything; other parts only contribute.
  CUSYNC_DEVICE bool owns_any() const {
    if (C::kUnitShares > 1 || !shares) return finishes;
    bool any = false;
    for (uint32_t u = 0; u < C::kUnits; ++u) any |= owns(u);
    return any;
  }
  /// Whether the sums of several parts are loaded together: one part at a time would take more round trips.
  CUSYNC_DEVICE bool adds_together() const { return C::kUnitShares > 1 && shares && count > 2; }
  /// Whether some of its sums are finished by another part.
  CUSYNC_DEVICE bool gives() const { return shares || !finishes; }
  /// Its contribution to the tile's slot.
  CUSYNC_DEVICE uint32_t weight() const {
    return shares ? CUSYNC_POST_WEIGHT / min_u32(count, C::kShares) : CUSYNC_POST_WEIGHT;
  }
};

/// One flag per slab, CTA of the cluster and warpgroup.
template <class C>
CUSYNC_DEVICE uint32_t slab_flag(uint32_t slab, uint32_t rank, uint32_t group) {
  return (slab * C::kClusterSize + rank) * (C::kConsumerGroups == 3 ? 3 : 2) + group;
}

/// The thread's first four values of a unit; the next four are C::kConsumerThreads float4 further, so a warp's accesses
/// are contiguous.
template <class C>
CUSYNC_DEVICE float4* slab_unit(float4* slabs, uint32_t slab, uint32_t rank, uint32_t unit, int thread) {
  constexpr size_t per_unit = size_t(C::kUnitAccumulators / 4) * C::kConsumerThreads;
  return slabs + (size_t(slab * C::kClusterSize + rank) * C::kUnits + unit) * per_unit + thread;
}

/// A thread's accumulators, unit by unit, with one unit accessible at a time. An epilogue unrolled over all units is
/// 100 KB of code that runs once per tile, and fetching it took 4 to 10 us. A loop over one unit's code has to rotate
/// the registers instead, because they cannot be indexed.
template <class C>
struct Units {
  float values[C::kUnits][C::kUnitAccumulators];

  template <class Accumulators>
  CUSYNC_DEVICE explicit Units(Accumulators const& acc) {
    static_assert(decltype(cute::size(acc))::value == C::kUnits * C::kUnitAccumulators);
#pragma unroll
    for (int u = 0; u < C::kUnits; ++u)
#pragma unroll
      for (int i = 0; i < C::kUnitAccumulators; ++i) values[u][i] = acc(u * C::kUnitAccumulators + i);
  }

  CUSYNC_DEVICE float* current() { return values[0]; }

  /// Makes the next unit current, cyclically.
  CUSYNC_DEVICE void rotate() {
#pragma unroll
    for (int i = 0; i < C::kUnitAccumulators; ++i) {
      float const first = values[0][i];
#pragma unroll
      for (int u = 0; u + 1 < C::kUnits; ++u) values[u][i] = values[u + 1][i];
      values[C::kUnits - 1][i] = first;
    }
  }
};

/// Writes the sums that other parts finish; all consumer threads, `thread` counts over all warpgroups.
template <class C>
CUSYNC_DEVICE void give_sums(typename C::Params const& params, Work const& item, Parts<C> const& parts, uint32_t epoch, uint32_t rank,
                             Units<C>& units, int thread) {
  uint32_t const slab = parts.first + parts.own, group = uint32_t(thread) / 128;
#pragma unroll 1
  for (uint32_t u = 0; u < C::kUnits; ++u, units.rotate()) {
    if (C::kUnitShares == 1 && parts.owns(u)) continue;
    float4* const to = slab_unit<C>(params.slabs, slab, rank, u, thread);
    float const* const v = units.current();
#pragma unroll
    for (int i = 0; i < C::kUnitAccumulators / 4; ++i)
      if (C::kUnitShares == 1 || !parts.owns_columns(i)) __stcg(to + i * C::kConsumerThreads, make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]));
  }
  ptx::bar_sync(8 + group, 128);
  if (thread % 128) return;
  note(params.coupling.notes, CUSYNC_EVENT_GIVE, note_of(params, item), slab, group);
  ptx::st_release_gpu(params.slab_flags + slab_flag<C>(slab, rank, group), epoch + 1);
}

/// Waits until all other parts have written their sums; all consumer threads.
template <class C>
CUSYNC_DEVICE void await_sums(typename C::Params const& params, Work const& item, Parts<C> const& parts,
                              uint32_t epoch, uint32_t rank, int thread) {
  uint32_t const group = uint32_t(thread) / 128;
  // One thread per slab.
  for (uint32_t s = thread % 128; s < parts.count; s += 128)
    if (s != parts.own) {
      wait_reached(params.slab_flags, slab_flag<C>(parts.first + s, rank, group), epoch + 1,
                   {kSlabEdge, item.range.m, item.range.n, item.range.k_begin},
                   {params.coupling.report, params.coupling.timeout_ns, item.stage});
      note(params.coupling.notes, CUSYNC_EVENT_TAKE, note_of(params, item), parts.first + s, group);
    }
  ptx::bar_sync(8 + group, 128);
}

/// Adds the other parts' sums to the shares of `v`, the accumulators of the single unit, that this part finishes; loads
/// `Pieces` times 8 columns from `Slabs` slabs at a time.
template <class C, int Pieces, int Slabs>
CUSYNC_DEVICE void add_pieces(typename C::Params const& params, Parts<C> const& parts, float* v, int thread) {
  uint32_t const last = (parts.end + 1) / 2;
#pragma unroll 1
  for (uint32_t piece = parts.begin / 2; piece < last; piece += Pieces) {
    float4 sums[Pieces] = {};
#pragma unroll
    for (uint32_t i = 0; i < C::kUnitAccumulators / 4; ++i)
#pragma unroll
      for (uint32_t j = 0; j < Pieces; ++j)
        if (i == piece + j) sums[j] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
#pragma unroll 1
    for (uint32_t s = 0; s < parts.count; s += Slabs) {
      float4 values[Slabs][Pieces];
#pragma unroll
      for (uint32_t i = 0; i < Slabs; ++i)
#pragma unroll
        for (uint32_t j = 0; j < Pieces; ++j) {
          bool const given = s + i < parts.count && s + i != parts.own && piece + j < last;
          float4 const* const from = slab_unit<C>(params.slabs, parts.first + s + i, 0, 0, thread);
          values[i][j] = given ? __ldcg(from + (piece + j) * C::kConsumerThreads) : float4{};
        }
#pragma unroll
      for (uint32_t i = 0; i < Slabs; ++i)
#pragma unroll
        for (uint32_t j = 0; j < Pieces; ++j)
          sums[j].x += values[i][j].x, sums[j].y += values[i][j].y, sums[j].z += values[i][j].z, sums[j].w += values[i][j].w;
    }
#pragma unroll
    for (uint32_t i = 0; i < C::kUnitAccumulators / 4; ++i)
#pragma unroll
      for (uint32_t j = 0; j < Pieces; ++j)
        if (i == piece + j) v[4 * i] = sums[j].x, v[4 * i + 1] = sums[j].y, v[4 * i + 2] = sums[j].z, v[4 * i + 3] = sums[j].w;
  }
}

/// Adds the other parts' sums of one unit to `v`, its accumulators.
template <class C>
CUSYNC_DEVICE void add_sums(typename C::Params const& params, Parts<C> const& parts, uint32_t rank, uint32_t unit,
                            float* v, int thread) {
  if (parts.adds_together()) return;
#pragma unroll 1
  for (uint32_t s = 0; s < parts.count; ++s) {
    if (s == parts.own) continue;
    float4 const* const from = slab_unit<C>(params.slabs, parts.first + s, rank, unit, thread);
    // In two batches: loads in flight need registers, which are scarce in a thread with 128 accumulators.
    constexpr int batch = C::kUnitAccumulators / 8;
#pragma unroll
    for (int b = 0; b < 2 * batch; b += batch) {
      float4 values[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) values[i] = __ldcg(from + (b + i) * C::kConsumerThreads);
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        float* const to = v + 4 * (b + i);
        to[0] += values[i].x, to[1] += values[i].y, to[2] += values[i].z, to[3] += values[i].w;
      }
    }
  }
}

/// Adds the other parts' sums with several parts in flight at a time.
template <class C>
CUSYNC_DEVICE void add_together(typename C::Params const& params, Parts<C> const& parts, Units<C>& units, int thread) {
  if constexpr (C::kUnitShares > 1) {
    if (!parts.adds_together()) return;
    if (parts.count > 4)
      add_pieces<C, 1, 8>(params, parts, units.current(), thread);
    else
      add_pieces<C, 2, 4>(params, parts, units.current(), thread);
  }
}

}  // namespace cusync::kernels::sm90
