// SPDX-License-Identifier: MIT OR Apache-2.0
// From accumulators to global memory: consumers finish a chunk in registers and stage it in swizzled shared memory; the
// store warp stores it by TMA and posts the tile once all chunks are in global memory. Consumers wait only for free
// staging buffers, never for stores.
#pragma once
#include "cusync/edge.cuh"
#include "kernels/gemm/sm90/config.cuh"
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/common/sm90/wait.cuh"

namespace cusync::kernels::sm90 {

/// Whether chunk (row, column) of a tile overlaps the output. Both ends of the staging ring skip other chunks.
template <class C>
CUSYNC_DEVICE bool chunk_exists(Stage const& stage, WorkItem const& item, int row, int col) {
  return item.m * C::kTileM + row * C::kChunkRows < stage.m && item.n * C::kOutN + col * C::kChunkCols < stage.columns;
}

/// One tile's epilogue, in all consumer threads.
template <class C, class Accumulators>
CUSYNC_DEVICE void stage_tile(typename C::Params const& params, WorkItem const& item, Accumulators& acc,
                              typename C::SharedStorage& shared, typename C::StagingPipeline& staged,
                              cutlass::PipelineState<C::kStagingDepth>& state, int thread) {
  using Element = typename C::Element;
  Stage const& stage = params.stage;
  constexpr int per_row_chunk = C::kTileN / 2;  // accumulators per thread: TileN columns x 64 rows / 128 threads
  static_assert(decltype(cute::size(acc))::value == per_row_chunk * C::kRowChunks);
  Fragment const at(thread);

  if (stage.wait_count > stage.load_waits) {
    // A stage produces the bias or residual. One thread of each warpgroup acquires for the whole warpgroup.
    int const group = thread / 128;
    if (thread % 128 == 0) {
      for (uint32_t i = stage.load_waits; i < stage.wait_count; ++i)
        wait_for_epilogue<ReadBy::kLoads>(params.coupling, params.edges.waits[i], {item.m, item.n, item.epoch, 0, 0}, stage.index, group);
    }
    ptx::bar_sync(8 + group, 128);
  }

#pragma unroll
  for (int row = 0; row < C::kRowChunks; ++row)
#pragma unroll
    for (int col = 0; col < C::kColChunks; ++col) {
      if (!chunk_exists<C>(stage, item, row, col)) continue;
      float* const v = &acc(row * per_row_chunk + col * (32 << C::kColumnShift));
      constexpr int groups = C::kChunkCols / 8;
      uint32_t words[groups][2];
      MatrixRows const rows{item.m * C::kTileM + row * C::kChunkRows};
      uint32_t const first = item.n * C::kOutN + col * C::kChunkCols;
      Operation<C::kOperation>::template finish<Element>(stage, v, first, at,
                                                         GlobalResidual<Element, MatrixRows>{stage, rows, first, at}, words);

      staged.producer_acquire(state);
      uint32_t* const buffer = reinterpret_cast<uint32_t*>(shared.staging[state.index()]);
#pragma unroll
      for (int j = 0; j < groups; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          buffer[chunk_word<groups>(at, j, half)] = words[j][half];
      ptx::fence_proxy_async_shared_cta();
      staged.producer_commit(state);
      ++state;
    }
}

/// Stores one tile's chunks to global memory and posts the tile; one thread.
template <class C>
CUSYNC_DEVICE void store_tile(typename C::Params const& params, WorkItem const& item,
                              typename C::SharedStorage& shared, typename C::StagingPipeline& staged,
                              cutlass::PipelineState<C::kStagingDepth>& state) {
  using namespace cute;
  Stage const& stage = params.stage;
  auto const slice = params.store.get_slice(0);
  Tensor const output = params.store.get_tma_tensor(make_shape(int(stage.m), int(stage.columns)));
  Tensor const chunks = local_tile(output, Shape<Int<C::kChunkRows>, Int<C::kChunkCols>>{}, make_coord(_, _));
  Tensor const to = slice.partition_D(chunks);  // (TMA, TMA_M, TMA_N, row chunk, column chunk)

#pragma unroll 1
  for (int row = 0; row < C::kRowChunks; ++row)
#pragma unroll 1
    for (int col = 0; col < C::kColChunks; ++col) {
      if (!chunk_exists<C>(stage, item, row, col)) continue;
      staged.consumer_wait(state);
      delay(params.coupling.delays, DelayAt::kStore, item.epoch, stage.index, item.m, item.n);
      note(params.coupling.notes, CUSYNC_EVENT_STORE, {stage.index, item.m, item.n, 0}, row * C::kColChunks + col, 0);
      Tensor const buffer =
          make_tensor(make_smem_ptr(shared.staging[state.index()]), typename C::ChunkLayout{});
      copy(params.store, slice.partition_S(buffer),
           to(_, _, _, int(item.m) * C::kRowChunks + row, int(item.n) * C::kColChunks + col));
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read<0>();
      staged.consumer_release(state);
      ++state;
    }

  if (stage.post_count) {
    // The full wait, in the thread that issued the stores: only then are they in global memory.
    ptx::cp_async_bulk_wait_group<0>();
    delay(params.coupling.delays, DelayAt::kPost, item.epoch, stage.index, item.m, item.n);
    for (uint32_t i = 0; i < stage.post_count; ++i) {
      if (CUSYNC_DELAYS)
        note(params.coupling.notes, CUSYNC_EVENT_POST, {stage.index, item.m, item.n, 0},
             slot_of(params.edges.posts[i], item.m, item.n), 1);
      post_tile(params.edges.posts[i], params.coupling.semaphores, item.m, item.n);
    }
  }
}

}  // namespace cusync::kernels::sm90
