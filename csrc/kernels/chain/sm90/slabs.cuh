// SPDX-License-Identifier: MIT OR Apache-2.0
// Partial sums of tiles that are split along k. Each part leaves the accumulators that another part will finish in a
// slab of float, laid out as its threads hold them, and sets the slab's flag to the run's number; whoever finishes
// columns adds the other parts' sums in the order of the parts, so a sum does not depend on which worker was first.
// Flags are never cleared: each run sets a higher number. A slab has one writer a run, and the next run writes only
// after this one has ended.
#pragma once
#include "kernels/chain/sm90/config.cuh"

namespace cusync::kernels::sm90 {

/// What a report names in place of an edge when a partial sum did not arrive.
inline constexpr uint32_t kSlabEdge = ~0u;

/// The parts of a split tile as one of them sees them.
template <class C>
struct Parts {
  uint32_t first, count;  ///< slabs of the other parts, and perhaps its own
  uint32_t own;           ///< its slab, counted from `first`; `count` when it writes none
  bool shares, finishes;

  CUSYNC_DEVICE explicit Parts(Work const& item)
      : first(item.slab), count(item.role == CUSYNC_WHOLE_TILE || item.role == CUSYNC_CONTRIBUTE ? 0 : item.slabs),
        own(item.role == CUSYNC_SHARE ? item.part : item.role == CUSYNC_CONTRIBUTE ? 0 : count),
        shares(item.role == CUSYNC_SHARE), finishes(item.role != CUSYNC_CONTRIBUTE) {}

  /// Whether this part finishes unit u. Parts that share a tile take units in turn.
  CUSYNC_DEVICE bool owns(uint32_t unit) const { return shares ? unit * count / C::kUnits == own : finishes; }
  /// Whether it finishes any; others only contribute.
  CUSYNC_DEVICE bool owns_any() const {
    if (!shares) return finishes;
    bool any = false;
    for (uint32_t u = 0; u < C::kUnits; ++u) any |= owns(u);
    return any;
  }
  /// Whether some of its sums are for another part to finish.
  CUSYNC_DEVICE bool gives() const { return shares || !finishes; }
  /// What it adds to the tile's slot.
  CUSYNC_DEVICE uint32_t weight() const {
    return shares ? CUSYNC_POST_WEIGHT / min_u32(count, C::kUnits) : CUSYNC_POST_WEIGHT;
  }
};

/// Each warpgroup of each CTA of a cluster has a flag of its own for each slab.
template <class C>
CUSYNC_DEVICE uint32_t slab_flag(uint32_t slab, uint32_t rank, uint32_t group) {
  return (slab * C::kClusterSize + rank) * (C::kConsumerGroups == 3 ? 3 : 2) + group;
}

/// The thread's first four values of a unit; the next four lie C::kConsumerThreads float4 further, so that a warp's
/// accesses are contiguous.
template <class C>
CUSYNC_DEVICE float4* slab_unit(float4* slabs, uint32_t slab, uint32_t rank, uint32_t unit, int thread) {
  constexpr size_t per_unit = size_t(C::kUnitAccumulators / 4) * C::kConsumerThreads;
  return slabs + (size_t(slab * C::kClusterSize + rank) * C::kUnits + unit) * per_unit + thread;
}

/// The accumulators of a thread, unit after unit, with one unit at a time in reach. An epilogue unrolled over all units
/// is 100 KB of code that runs once a tile, and fetching it took 4 to 10 us; a loop over one unit's code needs the
/// registers to move instead, because they cannot be indexed.
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

  /// Brings the next unit into reach, and after the last the first.
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

/// Leaves the sums that others finish; by all consumer threads, `thread` counted over both warpgroups.
template <class C>
CUSYNC_DEVICE void give_sums(typename C::Params const& params, Work const& item, Parts<C> const& parts, uint32_t epoch, uint32_t rank,
                             Units<C>& units, int thread) {
  uint32_t const slab = parts.first + parts.own, group = uint32_t(thread) / 128;
#pragma unroll 1
  for (uint32_t u = 0; u < C::kUnits; ++u, units.rotate()) {
    if (parts.owns(u)) continue;
    float4* const to = slab_unit<C>(params.slabs, slab, rank, u, thread);
    float const* const v = units.current();
#pragma unroll
    for (int i = 0; i < C::kUnitAccumulators / 4; ++i)
      __stcg(to + i * C::kConsumerThreads, make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]));
  }
  ptx::bar_sync(8 + group, 128);
  if (thread % 128) return;
  note(params.coupling.notes, CUSYNC_EVENT_GIVE, note_of(params, item), slab, group);
  ptx::st_release_gpu(params.slab_flags + slab_flag<C>(slab, rank, group), epoch + 1);
}

/// Waits until every other part has left its sums; by all consumer threads.
template <class C>
CUSYNC_DEVICE void await_sums(typename C::Params const& params, Work const& item, Parts<C> const& parts,
                              uint32_t epoch, uint32_t rank, int thread) {
  uint32_t const group = uint32_t(thread) / 128;
  // A lane for each slab.
  for (uint32_t s = thread % 128; s < parts.count; s += 128)
    if (s != parts.own) {
      wait_reached(params.slab_flags, slab_flag<C>(parts.first + s, rank, group), epoch + 1,
                   {kSlabEdge, item.range.m, item.range.n, item.range.k_begin},
                   {params.coupling.report, params.coupling.timeout_ns, item.stage});
      note(params.coupling.notes, CUSYNC_EVENT_TAKE, note_of(params, item), parts.first + s, group);
    }
  ptx::bar_sync(8 + group, 128);
}

/// Adds the other parts' sums of one unit to `v`, its accumulators.
template <class C>
CUSYNC_DEVICE void add_sums(typename C::Params const& params, Parts<C> const& parts, uint32_t rank, uint32_t unit,
                            float* v, int thread) {
#pragma unroll 1
  for (uint32_t s = 0; s < parts.count; ++s) {
    if (s == parts.own) continue;
    float4 const* const from = slab_unit<C>(params.slabs, parts.first + s, rank, unit, thread);
    // In two batches: loads in flight cost registers, which a thread with 128 accumulators has few of.
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

}  // namespace cusync::kernels::sm90
