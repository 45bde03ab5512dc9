// SPDX-License-Identifier: MIT OR Apache-2.0
// Waiting for an edge and posting a tile. The edge is a value: from a kernel's parameters, or from a rendered header
// (edge.hpp), in which case its numbers fold into the code.
#pragma once
#include "cusync/semaphore.cuh"

namespace cusync {

/// What every wait of one work item has in common.
struct WaitContext {
  uint32_t const* semaphores;  ///< the pipeline's slots
  uint32_t epoch;              ///< number of this run, from 0 (see epoch.cuh)
  Watch watch;
  uint32_t post_weight = 1;    ///< what one tile adds to its slot
};

/// The slots of one tile box, one after the other, by the calling thread.
template <ReadBy By>
CUSYNC_DEVICE void wait_for_box(cusync_edge const& e, TileBox const& box, WaitSite const& site,
                                WaitContext const& ctx) {
  if (box.empty()) return;
  for_each_slot(e.policy, box, [&](uint32_t slot, uint32_t posts) {
    wait_reached(ctx.semaphores, slot, wait_value(ctx.epoch, posts * ctx.post_weight), site, ctx.watch);
  });
  order_reads<By>();
}

/// Call just before the dependent load of k-block `k` of tile (m, n), by the one thread that then issues the load;
/// other lanes may load after a __syncwarp. Operands that no stage produces should be loaded before it.
/// `first`: this is the first k-block of the work item; `k_end`: one past its last.
template <ReadBy By>
CUSYNC_DEVICE void wait_for_k_block(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, bool first,
                                    uint32_t k_end, WaitContext const& ctx) {
  wait_for_box<By>(e, wait_box(e, m, n, k, first, k_end), {e.id, m, n, k}, ctx);
}

/// The same for an operand that is read once for the whole tile: bias, residual.
template <ReadBy By>
CUSYNC_DEVICE void wait_for_tile(cusync_edge const& e, uint32_t m, uint32_t n, WaitContext const& ctx) {
  wait_for_box<By>(e, producers_of(e, m, n, 0), {e.id, m, n, 0}, ctx);
}

/// Like wait_for_k_block, by a whole converged warp: its lanes look at different slots at the same time, so that a
/// wait for many slots costs one round trip and not many. All lanes may load after it.
template <ReadBy By>
CUSYNC_DEVICE void warp_wait_for_k_block(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, bool first,
                                         uint32_t k_end, WaitContext const& ctx) {
  TileBox const box = wait_box(e, m, n, k, first, k_end);
  if (box.empty()) return;  // the same in every lane
  uint32_t i = 0, lane = threadIdx.x % 32;
  for_each_slot(e.policy, box, [&](uint32_t slot, uint32_t posts) {
    if (i++ % 32 == lane) wait_reached(ctx.semaphores, slot, wait_value(ctx.epoch, posts * ctx.post_weight), {e.id, m, n, k}, ctx.watch);
  });
  order_reads<By>();
  __syncwarp();
}

/// The same for boxes of up to 32 slots mostly: each lane first finds its slot and then all look at once. In the function above a
/// lane's loop is inside the walk over the slots, whose lanes come together again behind each.
template <ReadBy By>
CUSYNC_DEVICE void warp_wait_side_by_side(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, bool first,
                                          uint32_t k_end, WaitContext const& ctx) {
  TileBox const box = wait_box(e, m, n, k, first, k_end);
  if (box.empty()) return;  // the same in every lane
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

/// Waits of one edge along the k-loop of one work item, by one thread. Between two waits a k-block costs one
/// comparison instead of the index arithmetic.
struct KWaits {
  uint32_t next = 0;
  bool first = true;

  /// Before the dependent load of k-block `k`; call it for each k-block of the item in turn.
  template <ReadBy By>
  CUSYNC_DEVICE void before(cusync_edge const& e, uint32_t m, uint32_t n, uint32_t k, uint32_t k_end,
                            WaitContext const& ctx) {
    if (k < next) return;
    wait_for_k_block<By>(e, m, n, k, first, k_end, ctx);
    first = false;
    next = next_wait(e, m, n, k, k_end);
  }
};

/// Posts tile (m, n). One thread, when the tile's stores are complete and visible to it: after a barrier over the
/// storing threads, or after the full cp_async_bulk_wait_group (not its .read form) by the thread that issued the
/// bulk stores. `value` other than 1 exists for tests that starve an edge.
CUSYNC_DEVICE void post_tile(cusync_policy const& p, uint32_t* semaphores, uint32_t m, uint32_t n,
                             uint32_t value = 1) {
  post(semaphores, slot_of(p, m, n), value);
}

/// Posts tile (m, n) after ordinary stores by any threads of the CTA. All threads call it.
CUSYNC_DEVICE void cta_post_tile(cusync_policy const& p, uint32_t* semaphores, uint32_t m, uint32_t n) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) post_tile(p, semaphores, m, n);
}

#if CUSYNC_HAS_SM90
/// Posts tile (m, n) after bulk (TMA) stores, by the one thread that issued and committed them.
CUSYNC_DEVICE void post_tile_after_bulk_stores(cusync_policy const& p, uint32_t* semaphores, uint32_t m, uint32_t n,
                                               uint32_t value = 1) {
  ptx::cp_async_bulk_wait_group<0>();
  post_tile(p, semaphores, m, n, value);
}
#endif

}  // namespace cusync
