// SPDX-License-Identifier: MIT OR Apache-2.0
// Warp 1 of a chain kernel: hands the items of the worker's list to the other warps, and tells the load warp through
// one word in shared memory how far the operands of each item may be loaded.
#pragma once
#include "cusync/epoch.cuh"
#include "kernels/chain/sm90/config.cuh"

namespace cusync::kernels::sm90 {

/// The worker's items: its own list, or the next of the common list by ticket. One warp; all lanes see the same.
template <class C>
class ItemSource {
 public:
  CUSYNC_DEVICE explicit ItemSource(typename C::Params const& params)
      : params_(params), list_(params.items), tickets_(params.tickets, params.list_length, params.workers) {
    if (!params.drawn) list_ += size_t(worker_index<C>()) * params.list_length;
  }

  /// `index` is the item's place in its list.
  CUSYNC_DEVICE cusync_item next(uint32_t& index) {
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

/// The same for warps that have few registers: what can be read again is not kept, and the run's first ticket is reckoned once, before
/// the first item.
template <class C>
class LeanItemSource {
 public:
  CUSYNC_DEVICE explicit LeanItemSource(typename C::Params const& params) : params_(params) {
    if (!params.drawn) return;
    // Tickets order runs against each other, so the first is drawn behind the kernel before.
    ptx::griddepcontrol_wait();
    if (threadIdx.x % 32 == 0) {
      unsigned long long const ticket = ptx::atom_relaxed_gpu_add(params.tickets, 1), run = uint64_t(params.list_length) + params.workers;
      drawn_ = uint32_t(ticket % run), first_ = uint32_t(ticket) - drawn_;
    }
  }

  /// `index` is the item's place in its list.
  CUSYNC_DEVICE cusync_item next(uint32_t& index) {
    if (!params_.drawn) {
      index = drawn_++;
    } else {
      index = __shfl_sync(~0u, drawn_, 0);
      if (index >= params_.list_length) return cusync_item{};
    }
    size_t const list = params_.drawn ? 0 : size_t(worker_index<C>()) * params_.list_length;
    uint4 const words = __ldg(reinterpret_cast<uint4 const*>(params_.items + list + index));
    return reinterpret_cast<cusync_item const&>(words);
  }

  /// Draws the ticket of the next item, where items are drawn.
  CUSYNC_DEVICE void draw() {
    if (threadIdx.x % 32 == 0) drawn_ = uint32_t(ptx::atom_relaxed_gpu_add(params_.tickets, 1)) - first_;
  }

 private:
  typename C::Params const& params_;
  uint32_t drawn_ = 0, first_ = 0;
};

/// Brings a stage's waits to where an acquire does not throw them out of a cache. A whole warp, the only reader.
CUSYNC_DEVICE void copy_waits(Edges const& from, cusync_edge* to) {
  constexpr uint32_t kPieces = sizeof(from.waits) / sizeof(uint2);
  static_assert(sizeof(from.waits) % sizeof(uint2) == 0 && alignof(cusync_edge) >= alignof(uint2));
  __syncwarp();
  for (uint32_t i = threadIdx.x % 32; i < kPieces; i += 32)
    reinterpret_cast<uint2*>(to)[i] = __ldg(reinterpret_cast<uint2 const*>(from.waits) + i);
  __syncwarp();
}

/// Runs until the list is spent; a whole warp. Everything that a run reads or writes beside weights is behind the one
/// griddepcontrol_wait here: operands are loaded only after `ready` says so, and every store follows from a load.
template <class C>
CUSYNC_DEVICE void dispatch(typename C::Params const& params, typename C::SharedStorage& shared,
                            typename C::WorkPipeline& work) {
  ClusterPlace<C> const place;
  uint32_t const lane = threadIdx.x % 32;
  uint32_t const cta = worker_index<C>() * C::kClusterSize + place.rank;
  auto state = cutlass::make_producer_start_state<typename C::WorkPipeline>();
  std::conditional_t<C::kLean, LeanItemSource<C>, ItemSource<C>> source(params);
  uint32_t done = 0, asked = 0, epoch = 0;
  uint32_t held = CUSYNC_MAX_STAGES;  // the stage whose edges are in shared memory
  bool first = true;
  while (true) {
    uint32_t index = 0;
    // Tickets order runs against each other, so the first is drawn behind the kernel before. Lists are constant.
    if (!C::kLean && first && params.drawn) ptx::griddepcontrol_wait();
    cusync_item const item = source.next(index);
    Stage const& stage = params.stages[item.stage];
    Work next{};
    next.range = {item.m * C::kClusterM + place.i, item.n * C::kClusterN + place.j, 0, item.k_begin, item.k_end};
    next.stage = item.stage, next.role = item.role, next.slab = item.slab, next.slabs = item.slabs, next.part = item.part;
    next.valid = item.role != CUSYNC_END_OF_LIST, next.index = index, next.done = done;
    next.inside = next.range.m < stage.grid_m && next.range.n < stage.grid_n;

    // Before the wait for the kernel before: the load warp may begin with the weights of the first item meanwhile.
    work.producer_acquire(state);
    if (lane == 0) shared.items[state.index()] = next;
    __syncwarp();
    if (lane == 0) work.producer_commit(state);
    ++state;
    uint32_t const count = next.range.k_end - next.range.k_begin;
    bool const waits = next.valid && stage.load_waits;
    if (waits && item.stage != held) {
      copy_waits(params.table[item.stage].edges, shared.waits);
      held = item.stage;
    }
    if (first) ptx::griddepcontrol_wait();
    if (CUSYNC_DELAYS && params.coupling.delays.limit_ns)
      delay(params.coupling.delays, DelayAt::kItem, first ? __ldcg(params.epochs + cta) : epoch, next.stage, cta, index);
    if (next.valid && !waits && lane == 0) ptx::atom_release_cta_shared_exch(&shared.ready, done + count);
    if (first) {
      // After the first operands are on their way: reading the epoch takes as long as loading them.
      epoch = __ldcg(params.epochs + cta);  // past the L1 cache, which may be older than the kernel before
      if (lane == 0) {
        shared.epoch = epoch;
        shared.epoch_known.arrive();
      }
      first = false;
    }
    if (!next.valid) break;
    next.range.epoch = epoch;
    // Tiles of images and of rows are many to a wait.
    if (waits)
      wait_for_tile_operands<C::kConvolves || C::kRows>(params.coupling, {shared.waits, stage.load_waits, stage.index},
                                                        next.range, &shared.ready, done);
    __syncwarp();
    if (params.trace && lane == 0)
      params.trace[size_t(cta) * params.list_length + index].ready = ptx::globaltimer();
    done += count;
    if (params.drawn) {
      // A ticket drawn before this tile is nearly done would be missing where a worker is idle.
      shared.more_work.wait(asked);
      asked ^= 1;
      if constexpr (C::kLean) source.draw();
    }
  }
  // Every CTA has its own word, and only the next run reads it again.
  if (lane == 0) params.epochs[cta] = epoch + 1;
}

}  // namespace cusync::kernels::sm90
