// SPDX-License-Identifier: MIT OR Apache-2.0
// The Hopper chain kernel: a persistent, warp-specialized kernel layer around CUTLASS's TMA/WGMMA collective that runs
// items of many GEMM stages in the order of its worker's list.
#pragma once
#include "cutlass/arch/reg_reconfig.h"
#include "kernels/chain/sm90/config.cuh"
#include "kernels/chain/sm90/epilogue.cuh"
#include "kernels/chain/sm90/mail.cuh"
#include "kernels/chain/sm90/slabs.cuh"
#include "kernels/chain/sm90/work.cuh"

namespace cusync::kernels::sm90 {

/// Timestamps of one item, taken by the first consumer thread if a trace is requested.
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
CUSYNC_DEVICE Marks marks_of(typename C::Params const& params, Work const& item, uint32_t cta, bool mine) {
  if (!params.trace || !mine) return Marks(nullptr);
  cusync_trace* const record = params.trace + (size_t(cta) * params.list_length + item.index);
  record->sm = ptx::smid();
  record->item = item.index;
  return Marks(record);
}

/// Packs an item's byte fields into one register until they are used.
CUSYNC_DEVICE void hold_together(Work& item) {
  uint32_t word = item.role | item.slabs << 8 | item.part << 16 | uint32_t(item.inside) << 24;
  word = ptx::opaque(word);
  item.role = uint8_t(word), item.slabs = uint8_t(word >> 8), item.part = uint8_t(word >> 16), item.inside = uint8_t(word >> 24);
}

/// Zeroes the rows of operand A that no item of this CTA loads. Their sums are never stored, but multiplying stale data
/// draws power and lowers the clock: 2 % of the time of wide tiles. Done by the consumer threads while the first loads
/// are in flight.
template <class C>
CUSYNC_DEVICE void clear_unread_rows(typename C::Params const& params, typename C::SharedStorage& shared, ClusterPlace<C> const& place) {
  uint32_t rows = 0;
  for (uint32_t s = 0; s < params.stage_count; ++s) {
    Stage const& stage = params.stages[s];
    if (stage.grid_m > C::kClusterM || C::is_rows(stage.operation)) return;
    uint32_t const first = place.i * C::kTileM, read = first < stage.m ? min_u32(stage.m - first, C::kTileM) : 0;
    if (read > rows) rows = read;
  }
  constexpr uint32_t kRow = C::kTileK * sizeof(typename C::Element) / sizeof(uint4);
  uint4* const ring = reinterpret_cast<uint4*>(shared.operands.smem_A.data());
  for (uint32_t slot = 0; slot < C::kStages; ++slot)
    for (uint32_t i = rows * kRow + threadIdx.x - 128; i < C::kTileM * kRow; i += C::kConsumerThreads)
      ring[slot * C::kTileM * kRow + i] = uint4{};
  cutlass::arch::fence_view_async_shared();
}

template <class C>
CUSYNC_DEVICE void consume_items(typename C::Params const& params, typename C::SharedStorage& shared,
                                 typename C::LoadPipeline& loaded, typename C::WorkPipeline& work,
                                 typename C::StagingPipeline& staged, ClusterPlace<C> const& place) {
  int thread = int(threadIdx.x) - 128;
  uint32_t const group = uint32_t(cutlass::canonical_warp_group_idx()) - 1;
  uint32_t const cta = worker_index<C>() * C::kClusterSize + place.rank;
  WorkReader<C> items(shared, work);
  typename C::LoadState loaded_state;
  auto staged_state = cutlass::make_producer_start_state<typename C::StagingPipeline>();
  uint32_t staged_count = 0;
  typename C::TiledMma mma;
  if constexpr (!C::kConvolves) clear_unread_rows<C>(params, shared, place);
  shared.epoch_known.wait(0);
  uint32_t const of_launch = shared.epoch;
  for (Work item = items.next(); item.valid; item = items.next()) {
    // Keep byte fields packed, and re-read values that are used once per item.
    if constexpr (C::kLean) {
      hold_together(item);
      staged_state = of_count<C::kStagingDepth>(staged_count, 1);
    }
    auto const leave = [&] {
      if constexpr (C::kLean) staged_count = staged_state.count();
    };
    // Otherwise addresses derived from it would stay in registers across items, for both kinds of work.
    if constexpr (C::kRows) thread = int(ptx::opaque(uint32_t(thread)));
    Marks const kept = marks_of<C>(params, item, cta, thread == 0);
    auto const marks = [&] { return C::kLean ? marks_of<C>(params, item, cta, ptx::opaque(threadIdx.x) == 128) : kept; };
    marks().set(&cusync_trace::begin);
    if constexpr (C::kRows) {
      if (C::is_rows(params.stages[item.stage].operation)) {
        if (item.inside)
          run_rows<C>(params, item, shared, loaded, loaded_state, staged, staged_state, group, thread,
                      [&] { marks().set(&cusync_trace::loaded); });
        marks().set(&cusync_trace::math_end);
        marks().set(&cusync_trace::end);
        leave();
        continue;
      }
    }
    if constexpr (C::kConvolves) {
      using To = typename Operation<C::kConvolves ? CUSYNC_CONV2D : CUSYNC_GEMM>::Store;
      Parts<C> const parts(item);
      // Here, and not in the epilogue, they take no time: the first k-block is not there yet.
      if (item.inside && parts.owns_any()) {
        To::template find<C>(params, item, shared, group, thread % 128);
        if (params.stages[item.stage].residual)
          To::template bring<C>(params, item, parts, shared, staged, staged_state, group, thread % 128);
      }
    }
    if (marks().wanted()) {
      loaded.consumer_wait(loaded_state);
      marks().set(&cusync_trace::loaded);
    }
    __syncwarp();
    auto acc = C::accumulators(mma);
    C::Products::template visit_part<ArithmeticOf>(params.stages[item.stage].operation, [&](auto arithmetic) __attribute__((always_inline)) {
      arithmetic.template accumulate<C>(params, item, shared, loaded, loaded_state, acc, thread);
    });
    marks().set(&cusync_trace::math_end);
    if constexpr (C::kLean) staged_state = of_count<C::kStagingDepth>(ptx::opaque(staged_count), 1);
    if (item.inside) {
      Parts<C> const parts(item);
      Units<C> units(acc);
      uint32_t const epoch = C::kLean ? shared.epoch : epoch_of<C>(item, of_launch);
      if (parts.gives()) give_sums<C>(params, item, parts, epoch, place.rank, units, thread);
      if (parts.owns_any()) {
        if (parts.count) {
          await_sums<C>(params, item, parts, epoch, place.rank, thread);
          add_together<C>(params, parts, units, thread);
        }
        finish_item<C>(params, item, parts, epoch, place.rank, units, shared, staged, staged_state, group,
                       thread);
      }
    }
    marks().set(&cusync_trace::end);
    leave();
  }
}

/// Starts prefetching this worker's inputs to the SM, or at least to L2: tensor maps of loads and stores, the worker's
/// list, and the table's edges. Weights have passed through L2 since these were last read.
template <class C>
CUSYNC_DEVICE void prefetch(typename C::Params const& params, int warp, bool leader) {
  if (warp == 1) {
    if (leader && !params.drawn) ptx::prefetch_global_l2(params.items + (C::kMailed ? 0 : size_t(worker_index<C>()) * params.list_length));
    constexpr uint32_t kLine = 128, kLines = sizeof(typename C::StageTable) / kLine;
    for (uint32_t i = threadIdx.x % 32; i < params.stage_count * kLines; i += 32)
      ptx::prefetch_global_l2(reinterpret_cast<char const*>(params.table) + i * kLine);
  }
  if ((warp != 0 && warp != 2) || !leader) return;
  for (uint32_t s = 0; s < params.stage_count; ++s) {
    uint32_t const operation = params.stages[s].operation;
    if (C::is_rows(operation)) continue;
    if (warp == 0) {
      C::Mainloop::prefetch_tma_descriptors(params.table[s].mainloop);
      if constexpr (!C::kConvolves)
        if (params.stages[s].m % C::kTileM)
          cute::prefetch_tma_descriptor(reinterpret_cast<cute::TmaDescriptor const*>(&params.table[s].last_rows));
    } else {
      C::Products::visit(operation, [&](auto found) {
        using Map = typename C::template OutputMap<decltype(found)::kOperation>;
        cute::prefetch_tma_descriptor(static_cast<Map const&>(params.table[s].outputs).store.get_tma_descriptor());
      });
      if constexpr (C::kBringsResiduals)
        if (params.stages[s].residual)
          cute::prefetch_tma_descriptor(reinterpret_cast<cute::TmaDescriptor const*>(&params.table[s].residual));
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) chain(CUTE_GRID_CONSTANT typename C::Params const params) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename C::SharedStorage*>(memory);
  int const warp = cutlass::canonical_warp_idx_sync();
  bool const leader = ptx::elect_one();
  ClusterPlace<C> const place;

  // The next kernel waits for this whole kernel anyway, so it may start as soon as there is room for it.
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  if constexpr (C::kMailed)
    if (blockIdx.x == 0 && !params.mail.idle_ns) {
      if (warp == 0) send_all<C>(params);
      return;
    }

  // Fetch the data of the first items while the barriers are initialized: no other CTA has read it in this run.
  prefetch<C>(params, warp, leader);
  if (warp == 0 && leader) {
    shared.more_work.init(1);
    shared.epoch_known.init(1);
    shared.ready = 0;
    for (uint32_t& counter : shared.stored) counter = 0;
    if constexpr (C::kConvolves) {
      shared.windows.stage = CUSYNC_MAX_STAGES;
      for (uint8_t& stage : shared.windows.pixels_of) stage = CUSYNC_MAX_STAGES;
    }
  }
  using LoadPipeline = typename C::LoadPipeline;
  typename LoadPipeline::Params load_params;
  load_params.role = warp < 4 ? LoadPipeline::ThreadCategory::Producer : LoadPipeline::ThreadCategory::Consumer;
  load_params.is_leader = warp == 0 && leader;
  load_params.num_consumers = C::kConsumerThreads;
  load_params.transaction_bytes = C::Mainloop::TmaTransactionBytes;
  LoadPipeline loaded(shared.load, load_params, typename C::ClusterShape{}, cute::true_type{}, cute::bool_constant<!C::kThreeGroups>{});

  using WorkPipeline = typename C::WorkPipeline;
  typename WorkPipeline::Params work_params;
  work_params.role = warp == 1 ? WorkPipeline::ThreadCategory::Producer : WorkPipeline::ThreadCategory::Consumer;
  work_params.producer_arv_count = 1;
  work_params.consumer_arv_count = 32 * (1 + C::kStoreWarps) + C::kConsumerThreads;  // load, store, consumer warps
  WorkPipeline work(shared.work, work_params);

  using StagingPipeline = typename C::StagingPipeline;
  typename StagingPipeline::Params staged_params;
  staged_params.role =
      warp >= 4 ? StagingPipeline::ThreadCategory::Producer : StagingPipeline::ThreadCategory::Consumer;
  staged_params.producer_arv_count = 128;
  // One object per thread, for its warpgroup's ring: selecting between two objects would place both in local memory.
  if (warp == 0 && leader)
    for (auto& storage : shared.staged)
      for (int i = 0; i < C::kStagingDepth; ++i) {
        storage.full_barrier_[i].init(staged_params.producer_arv_count);
        storage.empty_barrier_[i].init(1);
      }
  if constexpr (C::kBringsResiduals)
    if (warp == 0 && leader)
      for (auto& of_group : shared.brought)
        for (auto& barrier : of_group) barrier.init(1);
  uint32_t const group = warp >= 4 ? uint32_t(warp) / 4 - 1 : uint32_t(warp) % C::kStoreWarps;
  StagingPipeline staged(shared.staged[group], staged_params, cute::false_type{});
  cutlass::arch::fence_barrier_init();
  if constexpr (C::kClusterSize > 1) {
    // A CTA's barriers must be initialized before another CTA's copies arrive at them.
    cute::cluster_arrive_relaxed();
    cute::cluster_wait();
  }
  __syncthreads();

  if (warp >= 4) {
    if constexpr (C::kConsumerGroups > 1) cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegisters>();
    if constexpr (C::kThreeGroups) {
      // Compute the release target of ring stages here: earlier, it would count against the producers' registers.
      LoadPipeline ours(shared.load, load_params, typename C::ClusterShape{}, cute::false_type{}, cute::true_type{});
      consume_items<C>(params, shared, ours, work, staged, place);
    } else {
      consume_items<C>(params, shared, loaded, work, staged, place);
    }
  } else {
    if constexpr (C::kConsumerGroups > 1) cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegisters>();
    if (warp == 1) {
      dispatch<C>(params, shared, work);
    } else if (warp == 0) {
      WorkReader<C> items(shared, work);
      auto state = cutlass::make_producer_start_state<LoadPipeline>();
      ReadyReader ready(&shared.ready);
      for (Work item = items.next(); item.valid; item = items.next()) {
        if (leader)
          C::Operations::template visit_part<LoadOf>(params.stages[item.stage].operation, [&](auto load) {
            load.template load<C>(params, shared, loaded, state, item, ready, place);
          });
        __syncwarp();
      }
      // Consumers of other CTAs may still have to release ring stages of this CTA.
      if constexpr (C::kClusterSize > 1)
        if (leader) loaded.producer_tail(state);
    } else if (warp - 2 < C::kStoreWarps) {
      WorkReader<C> items(shared, work);
      StoreRing<C> ring(staged);
      StagingPipeline staged_last(shared.staged[C::kConsumerGroups - 1], staged_params, cute::false_type{});
      StoreRing<C> last(staged_last);
      uint32_t tiles = words_before<C>(shared);
      for (Work item = items.next(); item.valid; item = items.next()) {
        Parts<C> const parts(item);
        if (!item.inside || !parts.owns_any()) continue;
        auto const send = [&](StoreRing<C>& of_group, uint32_t index) {
          C::Operations::template visit_part<StoreOf>(params.stages[item.stage].operation, [&](auto store) {
            store.template send<C>(params, item, parts, shared, of_group, index, leader);
          });
          if (leader) post_item<C>(params, item, parts, shared, index, tiles);
        };
        send(ring, group);
        if constexpr (C::kThreeGroups)
          if (warp == 3) send(last, 2);
        ++tiles;
        __syncwarp();
      }
      // Bulk stores read shared memory until they complete, including those of tiles without consumers.
      if (leader) ptx::cp_async_bulk_wait_group<0>();
    }
  }
  if constexpr (C::kClusterSize > 1) {
    __syncwarp();
    cute::cluster_arrive();
    cute::cluster_wait();
  }
}

}  // namespace cusync::kernels::sm90
