// SPDX-License-Identifier: MIT OR Apache-2.0
// The Hopper GEMM kernel: a persistent, warp-specialized kernel layer around CUTLASS's TMA/WGMMA collective.
#pragma once
#include "cutlass/arch/reg_reconfig.h"
#include "kernels/gemm/sm90/config.cuh"
#include "kernels/gemm/sm90/epilogue.cuh"
#include "kernels/gemm/sm90/load.cuh"
#include "kernels/common/sm90/wait.cuh"
#include "kernels/gemm/sm90/work.cuh"

namespace cusync::kernels::sm90 {

template <class C>
CUSYNC_DEVICE void consume(typename C::Params const& params, typename C::SharedStorage& shared,
                           typename C::LoadPipeline& loaded, typename C::WorkPipeline& work,
                           typename C::StagingPipeline& staged) {
  int const thread = int(threadIdx.x) - 128;
  int const k_blocks = int(params.tiles.k_blocks);
  WorkReader<C> items(shared, work);
  typename C::Mainloop mainloop;
  typename C::LoadState loaded_state;
  auto staged_state = cutlass::make_producer_start_state<typename C::StagingPipeline>();
  typename C::TiledMma mma;
  for (WorkItem item = items.next(); item.valid; item = items.next()) {
    auto acc = cute::partition_fragment_C(mma, cute::take<0, 2>(typename C::TileShape{}));  // (MMA, MMA_M, MMA_N)
    mainloop.mma(loaded, loaded_state, acc, k_blocks, thread, shared.operands, params.mainloop);
    mainloop.mma_tail(loaded, loaded_state, k_blocks);
    loaded_state.advance(k_blocks);
    stage_tile<C>(params, item, acc, shared, staged, staged_state, thread);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) gemm(CUTE_GRID_CONSTANT typename C::Params const params) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename C::SharedStorage*>(memory);
  int const warp = cutlass::canonical_warp_idx_sync();
  bool const leader = ptx::elect_one();

  // Tile waits enforce the data dependences, so the next kernel may start as soon as all of this one has started.
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();

  if (warp == 0 && leader) {
    C::Mainloop::prefetch_tma_descriptors(params.mainloop);
    cute::prefetch_tma_descriptor(params.store.get_tma_descriptor());
    shared.more_work.init(1);
    shared.ready = 0;
  }
  using LoadPipeline = typename C::LoadPipeline;
  typename LoadPipeline::Params load_params;
  load_params.role = warp < 4 ? LoadPipeline::ThreadCategory::Producer : LoadPipeline::ThreadCategory::Consumer;
  load_params.is_leader = warp == 0 && leader;
  load_params.num_consumers = C::kConsumerThreads;
  load_params.transaction_bytes = params.mainloop.tma_transaction_bytes;
  LoadPipeline loaded(shared.load, load_params, typename C::ClusterShape{});

  using WorkPipeline = typename C::WorkPipeline;
  typename WorkPipeline::Params work_params;
  work_params.role =
      warp == 1 ? WorkPipeline::ThreadCategory::Producer : WorkPipeline::ThreadCategory::Consumer;
  work_params.consumer_arv_count = 3 * 32 + C::kConsumerThreads;  // load, store, wait and consumer warps
  WorkPipeline work(shared.work, work_params);

  using StagingPipeline = typename C::StagingPipeline;
  typename StagingPipeline::Params staged_params;
  staged_params.role =
      warp >= 4 ? StagingPipeline::ThreadCategory::Producer : StagingPipeline::ThreadCategory::Consumer;
  staged_params.producer_arv_count = C::kConsumerThreads;
  StagingPipeline staged(shared.staged, staged_params);
  cutlass::arch::fence_barrier_init();
  __syncthreads();

  if (warp >= 4) {
    if constexpr (C::kConsumerGroups == 2) cutlass::arch::warpgroup_reg_alloc<C::kConsumerRegisters>();
    consume<C>(params, shared, loaded, work, staged);
    return;
  }
  if constexpr (C::kConsumerGroups == 2) cutlass::arch::warpgroup_reg_dealloc<C::kProducerRegisters>();
  if (warp == 0) {
    WorkReader<C> items(shared, work);
    auto state = cutlass::make_producer_start_state<LoadPipeline>();
    ReadyReader ready(&shared.ready);
    for (WorkItem item = items.next(); item.valid; item = items.next()) {
      if (leader) load_tile<C>(params, shared, loaded, state, item, ready);
      __syncwarp();
    }
  } else if (warp == 1) {
    if (leader) distribute_work<C>(params, shared, work);
  } else if (warp == 2) {
    WorkReader<C> items(shared, work);
    cutlass::PipelineState<C::kStagingDepth> state;
    for (WorkItem item = items.next(); item.valid; item = items.next()) {
      if (leader) store_tile<C>(params, item, shared, staged, state);
      __syncwarp();
    }
  } else {
    WorkReader<C> items(shared, work);
    uint32_t done = 0;
    for (WorkItem item = items.next(); item.valid; item = items.next(), done += params.tiles.k_blocks)
      if (params.stage.load_waits)
        wait_for_tile_operands(params.coupling, {params.edges.waits, params.stage.load_waits, params.stage.index, params.stage.load_waits},
                               {item.m, item.n, item.epoch, 0, params.tiles.k_blocks}, &shared.ready, done);
    // A programmatic launch could complete before the kernels that it overlaps, while later work in the stream waits
    // only for it. Waiting here until they have completed makes the end of a run's last kernel the end of the run.
    ptx::griddepcontrol_wait();
  }
}

}  // namespace cusync::kernels::sm90
