// SPDX-License-Identifier: MIT OR Apache-2.0
// Partial sums of tiles that are split along k. A contributor leaves its accumulators in a slab of float, laid out as
// its threads hold them, and sets the slab's flag to the run's number; the item that finishes the tile adds the slabs
// in their order, so the sum does not depend on which worker was first. Flags are never cleared: each run sets a
// higher number. A slab has one writer and one reader a run, and the next run writes only after this one has ended.
#pragma once
#include "fused_sm90_config.cuh"

namespace cusync::kernels::sm90 {

/// What a report names in place of an edge when a partial sum did not arrive.
inline constexpr uint32_t kSlabEdge = ~0u;

/// Each warpgroup of each CTA of a cluster has a flag of its own for each slab.
template <class C>
CUSYNC_DEVICE uint32_t slab_flag(uint32_t slab, uint32_t rank, uint32_t group) {
  return (slab * C::kClusterSize + rank) * 2 + group;
}

/// The thread's first value; the next four lie C::kConsumerThreads float4 further, so that a warp's accesses are
/// contiguous.
template <class C>
CUSYNC_DEVICE float4* slab_values(float4* slabs, uint32_t slab, uint32_t rank, int thread) {
  return slabs + size_t(slab * C::kClusterSize + rank) * (C::kAccumulators / 4 * C::kConsumerThreads) + thread;
}

/// By all consumer threads; `thread` counts over both warpgroups.
template <class C, class Accumulators>
CUSYNC_DEVICE void write_slab(typename C::Params const& params, FusedWork const& item, uint32_t epoch, uint32_t rank,
                              Accumulators const& acc, int thread) {
  float4* const to = slab_values<C>(params.slabs, item.slab, rank, thread);
#pragma unroll
  for (int i = 0; i < C::kAccumulators / 4; ++i)
    __stcg(to + i * C::kConsumerThreads, make_float4(acc(4 * i), acc(4 * i + 1), acc(4 * i + 2), acc(4 * i + 3)));
  uint32_t const group = uint32_t(thread) / 128;
  ptx::bar_sync(8 + group, 128);
  if (thread % 128 == 0) ptx::st_release_gpu(params.slab_flags + slab_flag<C>(item.slab, rank, group), epoch + 1);
}

/// By all consumer threads: adds the item's slabs to `acc`.
template <class C, class Accumulators>
CUSYNC_DEVICE void add_slabs(typename C::Params const& params, FusedWork const& item, uint32_t epoch, uint32_t rank,
                             Accumulators& acc, int thread) {
  uint32_t const group = uint32_t(thread) / 128;
#pragma unroll 1
  for (uint32_t slab = item.slab; slab < item.slab + item.slabs; ++slab) {
    if (thread % 128 == 0)
      wait_reached(params.slab_flags, slab_flag<C>(slab, rank, group), epoch + 1,
                   {kSlabEdge, item.range.m, item.range.n, item.range.k_begin},
                   {params.report, params.timeout_ns, item.stage});
    ptx::bar_sync(8 + group, 128);
    float4 const* const from = slab_values<C>(params.slabs, slab, rank, thread);
#pragma unroll
    for (int i = 0; i < C::kAccumulators / 4; ++i) {
      float4 const v = __ldcg(from + i * C::kConsumerThreads);
      acc(4 * i) += v.x, acc(4 * i + 1) += v.y, acc(4 * i + 2) += v.z, acc(4 * i + 3) += v.w;
    }
  }
}

}  // namespace cusync::kernels::sm90
