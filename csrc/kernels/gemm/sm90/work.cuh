// SPDX-License-Identifier: MIT OR Apache-2.0
// Selection of the next tile: one warp asks the schedule and passes the result to the others through a ring.
#pragma once
#include "cusync/epoch.cuh"
#include "kernels/common/delays.cuh"
#include "kernels/gemm/sm90/config.cuh"

namespace cusync::kernels::sm90 {

/// The stage's schedule, static or by ticket, as one class with one `next`.
class WorkSource {
 public:
  CUSYNC_DEVICE explicit WorkSource(OrderedTiles const& tiles)
      : tiles_(tiles), tickets_(tiles.tickets, tiles.tiles, gridDim.x), next_(blockIdx.x) {
    if (!tiles.drawn && tiles.counts) {
      StaticSchedule schedule(tiles.tickets, tiles.tiles, gridDim.x, blockIdx.x);
      epoch_ = schedule.next().epoch;
    }
  }

  CUSYNC_DEVICE WorkItem next() {
    Ticket ticket{next_, epoch_, next_ < tiles_.tiles};
    if (tiles_.drawn)
      ticket = tickets_.next();
    else
      next_ += gridDim.x;
    if (!ticket.valid) return {0, 0, 0, 0};
    TileCoord const tile = tile_at(tiles_.order, ticket.index);
    return {tile.m, tile.n, ticket.epoch, 1};
  }

 private:
  OrderedTiles const& tiles_;
  TicketSchedule tickets_;
  uint32_t next_, epoch_ = 0;
};

/// Runs in one thread until the work is exhausted. The next item is drawn only when the load warp requests it, close to
/// the end of the current tile: a ticket taken earlier would be missing on an idle CTA.
template <class C>
CUSYNC_DEVICE void distribute_work(typename C::Params const& params, typename C::SharedStorage& shared,
                                   typename C::WorkPipeline& work) {
  auto state = cutlass::make_producer_start_state<typename C::WorkPipeline>();
  WorkSource source(params.tiles);
  for (uint32_t asked = 0;; asked ^= 1) {
    WorkItem const item = source.next();
    delay(params.coupling.delays, DelayAt::kItem, item.epoch, params.stage.index, item.m, item.n);
    work.producer_acquire(state);
    shared.items[state.index()] = item;
    work.producer_commit(state);
    ++state;
    if (!item.valid) return;
    shared.more_work.wait(asked);
  }
}

}  // namespace cusync::kernels::sm90
