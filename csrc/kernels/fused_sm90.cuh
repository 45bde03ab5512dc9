// SPDX-License-Identifier: MIT OR Apache-2.0
// The Hopper chain kernel: a persistent, warp-specialised kernel layer around CUTLASS's TMA/WGMMA collective that runs
// items of many GEMM stages, in the order of its worker's list.
#pragma once
#include "cutlass/arch/reg_reconfig.h"
#include "fused_sm90_config.cuh"
#include "fused_sm90_epilogue.cuh"
#include "fused_sm90_load.cuh"
#include "fused_sm90_slabs.cuh"
#include "fused_sm90_work.cuh"

namespace cusync::kernels::sm90 {

/// The other warps' end of the ring of items. A whole converged warp calls `next`.
template <class C>
class FusedReader {
 public:
  CUSYNC_DEVICE FusedReader(typename C::SharedStorage const& shared, typename C::WorkPipeline& work)
      : shared_(shared), work_(work) {}

  CUSYNC_DEVICE FusedWork next() {
    work_.consumer_wait(state_);
    FusedWork const item = shared_.items[state_.index()];
    __syncwarp();
    if (threadIdx.x % 32 == 0) work_.consumer_release(state_);
    ++state_;
    return item;
  }

 private:
  typename C::SharedStorage const& shared_;
  typename C::WorkPipeline& work_;
  cutlass::PipelineState<C::kWorkDepth> state_;
};

/// The marks of one item, by the first consumer thread, where a trace is asked for.
class Marks {
 public:
  CUSYNC_DEVICE Marks(cusync_trace* record) : record_(record) {}
  CUSYNC_DEVICE bool wanted() const { return record_ != nullptr; }
  CUSYNC_DEVICE void set(unsigned long long cusync_trace::*mark) const {
    if (record_) record_->*mark = ptx::globaltimer();
  }

 private:
  cusync_trace* record_;
};

template <class C>
CUSYNC_DEVICE Marks marks_of(typename C::Params const& params, FusedWork const& item, uint32_t cta, bool mine) {
  if (!params.trace || !mine) return Marks(nullptr);
  cusync_trace* const record = params.trace + (size_t(cta) * params.list_length + item.index);
  record->sm = ptx::smid();
  record->item = item.index;
  return Marks(record);
}

template <class C>
CUSYNC_DEVICE void consume_items(typename C::Params const& params, typename C::SharedStorage& shared,
                                 typename C::LoadPipeline& loaded, typename C::WorkPipeline& work,
                                 typename C::StoredPipeline& stored, ClusterPlace<C> const& place) {
  uint32_t const consumer = uint32_t(cutlass::canonical_warp_group_idx()) - 1;
  uint32_t const team = consumer / C::kTeamGroups, group = consumer % C::kTeamGroups;  // group: within the team
  int const thread = int(threadIdx.x) % 128 + int(group) * 128;
  uint32_t const cta = worker_index<C>() * C::kClusterSize + place.rank;
  FusedReader<C> items(shared, work);
  typename C::Mainloop mainloop;
  typename C::LoadState loaded_state;
  auto stored_state = cutlass::make_producer_start_state<typename C::StoredPipeline>();
  typename C::TiledMma mma;
  shared.epoch_known.wait(0);
  uint32_t const epoch = shared.epoch;
  uint32_t turn = 0, turn_parity = team ^ 1;  // nobody is before the first team's first item
  for (FusedWork item = items.next(); item.valid; item = items.next()) {
    int const k_blocks = int(item.range.k_end - item.range.k_begin);
    if (turn++ % C::kTeams != team) {
      loaded_state.advance(k_blocks);
      continue;
    }
    Marks const marks = marks_of<C>(params, item, cta, thread == 0);
    marks.set(&cusync_trace::begin);
    // Teams multiply in turn. Not for speed: a barrier's parity tells two phases apart, so a team that waited for
    // k-blocks many rounds of the ring ahead would take old ones for its own.
    if constexpr (C::kTeams == 2) shared.turn[team].wait(turn_parity);
    if (marks.wanted()) {
      loaded.consumer_wait(loaded_state);
      marks.set(&cusync_trace::loaded);
    }
    __syncwarp();
    auto acc = cute::partition_fragment_C(mma, cute::take<0, 2>(typename C::TileShape{}));  // (MMA, MMA_M, MMA_N)
    mainloop.mma(loaded, loaded_state, acc, k_blocks, thread, shared.operands, params.stages[0].mainloop);
    if constexpr (C::kTeams == 2) {
      if (thread % 32 == 0) shared.turn[team ^ 1].arrive();
      turn_parity ^= 1;
    }
    mainloop.mma_tail(loaded, loaded_state, k_blocks);
    loaded_state.advance(k_blocks);
    marks.set(&cusync_trace::math_end);
    if (item.inside) {
      Parts<C> const parts(item);
      Units<C> units(acc);
      if (parts.gives()) give_sums<C>(params, parts, epoch, place.rank, units, thread);
      if (parts.owns_any()) {
        if (parts.count) await_sums<C>(params, item, parts, epoch, place.rank, thread);
        finish_item<C>(params, item, parts, epoch, place.rank, units, group, thread);
        stored.producer_acquire(stored_state);
        __syncwarp();
        if (thread % 32 == 0) stored.producer_commit(stored_state);
        ++stored_state;
      }
    }
    marks.set(&cusync_trace::end);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) fused(CUTE_GRID_CONSTANT typename C::Params const params) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename C::SharedStorage*>(memory);
  int const warp = cutlass::canonical_warp_idx_sync();
  bool const leader = ptx::elect_one();
  ClusterPlace<C> const place;

  // The next kernel's own wait is for the whole of this one, so it may start as soon as there is room for it.
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();

  if (warp == 0 && leader) {
    for (uint32_t s = 0; s < params.stage_count; ++s)
      C::Mainloop::prefetch_tma_descriptors(params.stages[s].mainloop);
    shared.more_work.init(1);
    shared.epoch_known.init(1);
    for (auto& barrier : shared.turn) barrier.init(4);
    shared.ready = 0;
    for (uint32_t& counter : shared.complete) counter = 0;
  }
  using LoadPipeline = typename C::LoadPipeline;
  typename LoadPipeline::Params load_params;
  load_params.role = warp < 4 ? LoadPipeline::ThreadCategory::Producer : LoadPipeline::ThreadCategory::Consumer;
  load_params.is_leader = warp == 0 && leader;
  load_params.num_consumers = C::kTeamThreads;
  load_params.transaction_bytes = params.stages[0].mainloop.tma_transaction_bytes;
  LoadPipeline loaded(shared.load, load_params, typename C::ClusterShape{});

  using WorkPipeline = typename C::WorkPipeline;
  typename WorkPipeline::Params work_params;
  work_params.role = warp == 1 ? WorkPipeline::ThreadCategory::Producer : WorkPipeline::ThreadCategory::Consumer;
  work_params.producer_arv_count = 1;
  work_params.consumer_arv_count = 1 + C::kConsumerGroups * (1 + 4);  // load, store, consumer warps
  WorkPipeline work(shared.work, work_params);

  using StoredPipeline = typename C::StoredPipeline;
  typename StoredPipeline::Params stored_params;
  stored_params.role = warp >= 4 ? StoredPipeline::ThreadCategory::Producer : StoredPipeline::ThreadCategory::Consumer;
  stored_params.producer_arv_count = 4;
  StoredPipeline stored_0(shared.stored[0], stored_params);
  StoredPipeline stored_1(shared.stored[C::kConsumerGroups - 1], stored_params);
  cutlass::arch::fence_barrier_init();
  if constexpr (C::kClusterSize > 1) {
    // A CTA's barriers must exist before another's copies arrive at them.
    cute::cluster_arrive_relaxed();
    cute::cluster_wait();
  }
  __syncthreads();

  if (warp >= 4) {
    if constexpr (C::kConsumerGroups == 2) cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegisters>();
    consume_items<C>(params, shared, loaded, work, warp < 8 ? stored_0 : stored_1, place);
  } else {
    if constexpr (C::kConsumerGroups == 2) cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegisters>();
    if (warp == 1) {
      dispatch<C>(params, shared, work);
    } else if (warp == 0) {
      FusedReader<C> items(shared, work);
      auto state = cutlass::make_producer_start_state<LoadPipeline>();
      ReadyReader ready(&shared.ready);
      for (FusedWork item = items.next(); item.valid; item = items.next()) {
        if (leader) load_item<C>(params, shared, loaded, state, item, ready, place);
        __syncwarp();
      }
      // Other CTAs' consumers may still have to release ring stages of this one.
      if constexpr (C::kClusterSize > 1)
        if (leader) loaded.producer_tail(state);
    } else if (warp - 2 < C::kConsumerGroups) {
      StoredPipeline& stored = warp == 2 ? stored_0 : stored_1;
      FusedReader<C> items(shared, work);
      cutlass::PipelineState<C::kStoredDepth> state;
      uint32_t const team = uint32_t(warp - 2) / C::kTeamGroups;
      uint32_t tiles = 0, turn = 0;
      for (FusedWork item = items.next(); item.valid; item = items.next()) {
        if (turn++ % C::kTeams != team || !item.inside || !Parts<C>(item).owns_any()) continue;
        stored.consumer_wait(state);
        if (leader) {
          stored.consumer_release(state);
          post_item<C>(params, item, shared, tiles);
        }
        ++state, ++tiles;
        __syncwarp();
      }
    }
  }
  if constexpr (C::kClusterSize > 1) {
    __syncwarp();
    cute::cluster_arrive();
    cute::cluster_wait();
  }
}

}  // namespace cusync::kernels::sm90
