// SPDX-License-Identifier: MIT OR Apache-2.0
// Waiting for an edge and posting a tile. The edge is a value from kernel parameters, or from a rendered header
// (edge.hpp), in which case its numbers fold into the code.
#pragma once
#include "cusync/semaphore.cuh"

namespace cusync {

/// State shared by all waits of one work item.
struct WaitContext {
  uint32_t const* semaphores;  ///< the pipeline's slots
  uint32_t epoch;              ///< run number, from 0 (see epoch.cuh)
  Watch watch;
  uint32_t post_weight = 1;    ///< value that one tile adds to its slot
};

/// Waits for the slots of one tile box in sequence, in the calling thread.
template <ReadBy By>
CUSYNC_DEVICE void wait_for_box(cusync_edge const& e, TileBox const& box, WaitSite const& site,
                                WaitContext const& ctx) {
  if (box.empty()) return;
  for_each_slot(e.policy, box, [&](uint32_t slot, uint32_t posts) {
    wait_reached(ctx.semaphores, slot, wait_value(ctx.epoch, posts * ctx.post_weight), site, ctx.watch);
  });
  order_reads<By>();
}

/// Call just before the dependent load of k-block `k` of tile (m, n), in the thread that issues the load; other lanes
/// may load after a __syncwarp. Load operands without a producer before it. `first`: this is the first k-block of the
/// work item; `k_end`: one past its last.
template <ReadBy By>
CUSYNC_DEVICE void wait_for_k_block(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, bool first,
                                    uint32_t k_end, WaitContext const& ctx) {
  wait_for_box<By>(e, wait_box(e, m, n, k, first, k_end), {e.id, m, n, k}, ctx);
}

/// Like wait_for_k_block, for an operand read once for the whole tile: bias, residual.
template <ReadBy By>
CUSYNC_DEVICE void wait_for_tile(cusync_edge const& e, uint32_t m, uint32_t n, WaitContext const& ctx) {
  wait_for_box<By>(e, producers_of(e, m, n, 0), {e.id, m, n, 0}, ctx);
}

/// wait_for_k_block by a converged warp: its lanes poll different slots in parallel, so waiting for many slots costs
/// one round trip. All lanes may load after it.
template <ReadBy By>
CUSYNC_DEVICE void warp_wait_for_k_block(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, bool first,
                                         uint32_t k_end, WaitContext const& ctx) {
  TileBox const box = wait_box(e, m, n, k, first, k_end);
  if (box.empty()) return;  // warp-uniform
  uint32_t i = 0, lane = threadIdx.x % 32;
  for_each_slot(e.policy, box, [&](uint32_t slot, uint32_t posts) {
    if (i++ % 32 == lane) wait_reached(ctx.semaphores, slot, wait_value(ctx.epoch, posts * ctx.post_weight), {e.id, m, n, k}, ctx.watch);
  });
  order_reads<By>();
  __syncwarp();
}

/// Like warp_wait_for_k_block, for boxes that mostly have at most 32 slots: each lane first finds its slot, then all
/// lanes poll at once. In warp_wait_for_k_block the polling loop is inside the walk over the slots, and the lanes
/// reconverge after each slot.
template <ReadBy By>
CUSYNC_DEVICE void warp_wait_side_by_side(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, bool first,
                                          uint32_t k_end, WaitContext const& ctx) {
  TileBox const box = wait_box(e, m, n, k, first, k_end);
  if (box.empty()) return;  // warp-uniform
  uint32_t i = 0, lane = threadIdx.x % 32, own = 0, want = 0;
  bool waits = false;
  for_each_slot(e.policy, box, [&](uint32_t slot, uint32_t posts) {
    if (i++ % 32 != lane) return;
    if (waits) wait_reached(ctx.semaphores, own, want, {e.id, m, n, k}, ctx.watch);
    own = slot, want = wait_value(ctx.epoch, posts * ctx.post_weight), waits = true;
  });
  if (waits) wait_reached(ctx.semaphores, own, want, {e.id, m, n, k}, ctx.watch);
  order_reads<By>();
  __syncwarp();
}

/// The waits for one edge along the k-loop of one work item, in one thread. A k-block without a new wait costs one
/// comparison instead of the index arithmetic.
struct KWaits {
  uint32_t next = 0;
  bool first = true;

  /// Call before the dependent load of k-block `k`, for each k-block of the item in order.
  template <ReadBy By>
  CUSYNC_DEVICE void before(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, uint32_t k_end,
                            WaitContext const& ctx) {
    if (k < next) return;
    wait_for_k_block<By>(e, m, n, k, first, k_end, ctx);
    first = false;
    next = next_wait(e, m, n, k, k_end);
  }
};

/// Posts tile (m, n). Called by one thread, when the tile's stores are complete and visible to it: after a barrier over
/// the storing threads, or, for bulk stores, after the full cp_async_bulk_wait_group (not its .read form) in the thread
/// that issued them. `value` other than 1 exists for tests that starve an edge.
CUSYNC_DEVICE void post_tile(cusync_policy const& p, uint32_t* semaphores, uint32_t m, uint32_t n,
                             uint32_t value = 1) {
  post(semaphores, slot_of(p, m, n), value);
}

/// Posts tile (m, n) after ordinary stores by any threads of the CTA. Called by all threads.
CUSYNC_DEVICE void cta_post_tile(cusync_policy const& p, uint32_t* semaphores, uint32_t m, uint32_t n) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) post_tile(p, semaphores, m, n);
}

#if CUSYNC_HAS_SM90
/// Posts tile (m, n) after bulk (TMA) stores. Called by the thread that issued and committed them.
CUSYNC_DEVICE void post_tile_after_bulk_stores(cusync_policy const& p, uint32_t* semaphores, uint32_t m, uint32_t n,
                                               uint32_t value = 1) {
  ptx::cp_async_bulk_wait_group<0>();
  post_tile(p, semaphores, m, n, value);
}
#endif

}  // namespace cusync
