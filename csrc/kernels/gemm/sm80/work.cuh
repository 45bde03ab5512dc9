// SPDX-License-Identifier: MIT OR Apache-2.0
// Selection of the next tile.
#pragma once
#include "cusync/epoch.cuh"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm80 {

/// A tile to compute, as thread 0 passes it to the CTA.
struct alignas(16) WorkItem {
  uint32_t m, n, epoch, valid;
};

/// The stage's schedule, static or by ticket, as one class with one `next`. Trivially constructible so that it can be
/// in shared memory; one thread calls `begin` and then `next`.
class WorkSource {
 public:
  CUSYNC_DEVICE void begin(OrderedTiles const& tiles) {
    next_ = blockIdx.x;
    epoch_ = 0;
    first_ = kUnknown;
    if (!tiles.drawn && tiles.counts)
      epoch_ = StaticSchedule(tiles.tickets, tiles.tiles, gridDim.x, blockIdx.x).next().epoch;
  }

  CUSYNC_DEVICE WorkItem next(OrderedTiles const& tiles) {
    uint32_t index = next_;
    if (tiles.drawn) {
      // Like TicketSchedule: a run draws tiles + CTAs tickets, so a ticket determines its run.
      unsigned long long const ticket = ptx::atom_relaxed_gpu_add(tiles.tickets, 1);
      if (first_ == kUnknown) {
        unsigned long long const per_run = uint64_t(tiles.tiles) + gridDim.x, run = ticket / per_run;
        first_ = run * per_run;
        epoch_ = uint32_t(run);
      }
      index = uint32_t(ticket - first_);
    } else {
      next_ += gridDim.x;
    }
    if (index >= tiles.tiles) return {0, 0, 0, 0};
    TileCoord const tile = tile_at(tiles.order, index);
    return {tile.m, tile.n, epoch_, 1};
  }

 private:
  static constexpr unsigned long long kUnknown = ~0ull;
  unsigned long long first_;  ///< ticket of the run's first tile
  uint32_t next_, epoch_;
};

}  // namespace cusync::kernels::sm80
