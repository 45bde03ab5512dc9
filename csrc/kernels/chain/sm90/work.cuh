// SPDX-License-Identifier: MIT OR Apache-2.0
// Warp 1 of a chain kernel: passes the items of the worker's list or mailbox to the other warps, and publishes in a
// word of shared memory how far the operands of each item may be loaded.
#pragma once
#include "cusync/epoch.cuh"
#include "kernels/chain/sm90/mail.cuh"
#include "kernels/chain/sm90/slabs.cuh"

namespace cusync::kernels::sm90 {

/// The worker's items: from its own list, from a common list by ticket, or by mail. One warp; results are warp-uniform.
template <class C, bool Mailed = C::kMailed>
class ItemSource {
 public:
  CUSYNC_DEVICE explicit ItemSource(typename C::Params const& params)
      : params_(params), list_(params.items), tickets_(params.tickets, params.list_length, params.workers) {
    if (!params.drawn) list_ += size_t(worker_index<C>()) * params.list_length;
  }

  /// `index` is the item's list index. All items have the epoch of the launch, except by mail.
  CUSYNC_DEVICE cusync_item next(uint32_t& index, uint32_t&) {
    if (!params_.drawn) {
      index = next_++;
    } else {
      if (threadIdx.x % 32 == 0) index = tickets_.next().index;
      index = __shfl_sync(~0u, index, 0);
      if (index >= params_.list_length) return cusync_item{};
    }
    uint4 const words = __ldg(reinterpret_cast<uint4 const*>(list_ + index));
    return reinterpret_cast<cusync_item const&>(words);
  }

 private:
  static_assert(sizeof(cusync_item) == 16);
  typename C::Params const& params_;
  cusync_item const* list_;
  TicketSchedule tickets_;
  uint32_t next_ = 0;
};

template <class C>
class ItemSource<C, true> : public Mailbox<C> {
 public:
  using Mailbox<C>::Mailbox;
};

/// Copies a stage's waits to shared memory, where an acquire does not invalidate them. One full warp, the only reader.
CUSYNC_DEVICE void copy_waits(Edges const& from, cusync_edge* to) {
  constexpr uint32_t kPieces = sizeof(from.waits) / sizeof(uint2);
  static_assert(sizeof(from.waits) % sizeof(uint2) == 0 && alignof(cusync_edge) >= alignof(uint2));
  __syncwarp();
  for (uint32_t i = threadIdx.x % 32; i < kPieces; i += 32)
    reinterpret_cast<uint2*>(to)[i] = __ldg(reinterpret_cast<uint2 const*>(from.waits) + i);
  __syncwarp();
}

/// Computes the shares of its tile that an item finishes. Share s belongs to part s * parts / kShares.
template <class C>
CUSYNC_DEVICE void deal_shares(Work& item) {
  if (item.role == CUSYNC_SHARE) {
    auto const first_of = [&](uint32_t part) { return uint8_t((part * C::kShares + item.slabs - 1) / item.slabs); };
    item.share_begin = first_of(item.part), item.share_end = first_of(item.part + 1u);
  } else if (item.role != CUSYNC_CONTRIBUTE) {
    item.share_end = C::kShares;
  }
}

/// Runs until the list is exhausted; one full warp. All accesses of a run except weights are ordered after the single
/// griddepcontrol_wait here: operands are loaded only after `ready` permits it, and every store depends on a load.
template <class C>
CUSYNC_DEVICE void dispatch(typename C::Params const& params, typename C::SharedStorage& shared,
                            typename C::WorkPipeline& work) {
  ClusterPlace<C> const place;
  uint32_t const lane = threadIdx.x % 32;
  uint32_t const cta = worker_index<C>() * C::kClusterSize + place.rank;
  auto state = cutlass::make_producer_start_state<typename C::WorkPipeline>();
  ItemSource<C> source(params);
  uint32_t done = 0, asked = 0, epoch = 0;
  uint32_t held = CUSYNC_MAX_STAGES;  // the stage with edges in shared memory
  bool first = !C::kMailed;
  // Items carry their own epochs; publish the number of earlier words instead.
  if constexpr (C::kMailed)
    if (lane == 0) shared.epoch = source.before(), shared.epoch_known.arrive();
  while (true) {
    uint32_t index = 0;
    // Tickets order runs against each other, so draw the first one after the preceding kernel has completed. Lists are
    // constant.
    if (first && params.drawn) ptx::griddepcontrol_wait();
    cusync_item const item = source.next(index, epoch);
    Stage const& stage = params.stages[item.stage];
    Work next{};
    uint32_t const mailed = C::kMailed ? epoch : 0;
    next.range = {item.m * C::kClusterM + place.i, item.n * C::kClusterN + place.j, mailed, item.k_begin, item.k_end};
    next.stage = item.stage, next.role = item.role, next.slab = item.slab, next.slabs = item.slabs, next.part = item.part;
    next.valid = item.role != CUSYNC_END_OF_LIST, next.index = index, next.done = done;
    next.inside = next.range.m < stage.grid_m && next.range.n < stage.grid_n;
    if constexpr (C::kUnitShares > 1) deal_shares<C>(next);

    // Publish before waiting for the preceding kernel, so the load warp can start with the weights of the first item.
    work.producer_acquire(state);
    if (lane == 0) shared.items[state.index()] = next;
    __syncwarp();
    if (lane == 0) work.producer_commit(state);
    ++state;
    uint32_t const count = next.range.k_end - next.range.k_begin;
    // The residual of pixel tiles is copied while they are multiplied, so it is waited for with the loads.
    bool const residual = C::kConvolves && stage.produced & kProducedResidual && next.inside && Parts<C>(next).owns_any();
    bool const waits = next.valid && (stage.load_waits || residual);
    if (waits && item.stage != held) {
      copy_waits(params.table[item.stage].edges, shared.waits);
      held = item.stage;
    }
    if (first) ptx::griddepcontrol_wait();
    if (CUSYNC_DELAYS && params.coupling.delays.limit_ns)
      delay(params.coupling.delays, DelayAt::kItem, first ? __ldcg(params.epochs + cta) : epoch, next.stage, cta, index);
    if (next.valid && !waits && lane == 0) ptx::atom_release_cta_shared_exch(&shared.ready, done + count);
    if (first) {
      // Only now that the first operands are in flight: reading the epoch takes as long as loading them.
      epoch = __ldcg(params.epochs + cta);  // bypass L1, which may hold data older than the preceding kernel
      if (lane == 0) {
        shared.epoch = epoch;
        shared.epoch_known.arrive();
      }
      first = false;
    }
    if (!next.valid) break;
    next.range.epoch = epoch;
    // Tiles of images and of rows often share a wait.
    if (waits)
      wait_for_tile_operands<C::kConvolves || C::kRows>(
          params.coupling, {shared.waits, stage.load_waits, stage.index, residual ? stage.wait_count : stage.load_waits},
          next.range, &shared.ready, done);
    __syncwarp();
    if (params.trace && lane == 0)
      params.trace[size_t(cta) * params.list_length + index].ready = ptx::globaltimer();
    done += count;
    if (C::kMailed || params.drawn) {
      // A ticket drawn long before this tile is finished would be missing on an idle worker. If all workers polled for
      // their next word all the time, they would delay each other's polls.
      shared.more_work.wait(asked);
      asked ^= 1;
    }
  }
  if constexpr (C::kMailed)
    if (lane == 0) source.leave();
  // Every CTA has its own word, read next by the following run.
  if (!C::kMailed && lane == 0) params.epochs[cta] = epoch + 1;
}

}  // namespace cusync::kernels::sm90
