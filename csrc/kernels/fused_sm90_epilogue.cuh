// SPDX-License-Identifier: MIT OR Apache-2.0
// From accumulators to global memory in a chain kernel. Each consumer warpgroup stages its own chunks in swizzled shared
// memory and has a store warp of its own, so that the two never wait for each other; the store warp that is last posts
// the tile. Consumers never wait for a store, only for a free staging buffer.
#pragma once
#include "cusync/edge.cuh"
#include "fused_sm90_config.cuh"
#include "gemm_sm90_fragment.cuh"

namespace cusync::kernels::sm90 {

/// Where chunk (row, col) of a warpgroup's part of a tile begins in the output.
template <class C>
struct Chunk {
  uint32_t row, col;

  CUSYNC_DEVICE Chunk(FusedWork const& item, bool gated, uint32_t group, int r, int c)
      : row(item.range.m * C::kTileM + (r * C::kConsumerGroups + group) * C::kChunkRows),
        col(item.range.n * (gated ? C::kTileN / 2 : C::kTileN) + c * C::kChunkCols) {}

  /// Whether any of it lies inside. Both ends of the staging ring skip the others.
  CUSYNC_DEVICE bool exists(Stage const& stage) const { return row < stage.m && col < stage.columns; }
};

template <class C>
CUSYNC_DEVICE int column_chunks(bool gated) {
  return (gated ? C::kTileN / 2 : C::kTileN) / C::kChunkCols;
}

/// Puts a chunk's words into a staging buffer as TMA's swizzle of its row length expects them: 16-byte unit j of row r
/// lies at unit j ^ (r % 8) of 8 where rows have 128 bytes, at j ^ (r / 2 % 4) of 4 where they have 64. The words of a
/// warp then fall into different banks.
template <class C>
CUSYNC_DEVICE void write_chunk(typename C::Element* buffer, Fragment const& at,
                               uint32_t const (&words)[C::kChunkCols / 8][2]) {
  uint32_t* const to = reinterpret_cast<uint32_t*>(buffer);
#pragma unroll
  for (int j = 0; j < C::kChunkCols / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const row = at.row + 8 * half;
      int const unit = C::kChunkCols == 64 ? j ^ (row % 8) : j ^ (row / 2 % 4);
      to[row * (C::kChunkCols / 2) + unit * 4 + at.col / 2] = words[j][half];
    }
}

/// One tile's epilogue, by the threads of one consumer warpgroup. `thread` is within it.
template <class C, class Accumulators>
CUSYNC_DEVICE void stage_item(typename C::Params const& params, FusedWork const& item, uint32_t epoch,
                              Accumulators& acc, typename C::SharedStorage& shared,
                              typename C::StagingPipeline& staged, cutlass::PipelineState<C::kStagingDepth>& state,
                              uint32_t group, int thread) {
  using Element = typename C::Element;
  typename C::StageParams const& stage_params = params.stages[item.stage];
  Stage const& stage = stage_params.stage;
  constexpr int per_row_chunk = C::kTileN / 2;  // accumulators of a thread: TileN columns x 64 rows / 128 threads
  static_assert(decltype(cute::size(acc))::value == per_row_chunk * C::kRowChunks);
  constexpr int groups = C::kChunkCols / 8;
  Fragment const at(thread);
  bool const gated = stage_params.gated;

  if (stage.wait_count > stage.load_waits) {
    // Bias or residual come from a stage. One thread of the warpgroup acquires for all of it.
    if (thread == 0) {
      WaitContext const context = wait_context(stage, epoch);
      for (uint32_t i = stage.load_waits; i < stage.wait_count; ++i)
        wait_for_tile<ReadBy::kLoads>(stage.edges[i], item.range.m, item.range.n, context);
    }
    ptx::bar_sync(8 + group, 128);
  }

  auto const send = [&](uint32_t const (&words)[groups][2]) {
    staged.producer_acquire(state);
    write_chunk<C>(shared.staging[group][state.index()], at, words);
    ptx::fence_proxy_async_shared_cta();
    __syncwarp();
    if (thread % 32 == 0) staged.producer_commit(state);
    ++state;
  };

#pragma unroll
  for (int row = 0; row < C::kRowChunks; ++row) {
    if (gated) {
#pragma unroll
      for (int col = 0; col < C::kTileN / 2 / C::kChunkCols; ++col) {
        if (!Chunk<C>(item, true, group, row, col).exists(stage)) continue;
        float const* const v = &acc(row * per_row_chunk + col * C::kChunkCols);
        uint32_t words[groups][2];
        // Groups of 8 columns alternate between gate and up, so a thread holds both of its outputs' factors.
#pragma unroll
        for (int j = 0; j < groups; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float const* const gate = v + 8 * j + 2 * half;
            float const* const up = gate + 4;
            words[j][half] = pack<Element>(silu(gate[0]) * up[0], silu(gate[1]) * up[1]);
          }
        send(words);
      }
    } else {
#pragma unroll
      for (int col = 0; col < C::kTileN / C::kChunkCols; ++col) {
        Chunk<C> const chunk(item, false, group, row, col);
        if (!chunk.exists(stage)) continue;
        float* const v = &acc(row * per_row_chunk + col * (C::kChunkCols / 2));
        finish_chunk<C>(stage, v, chunk.row, chunk.col, at);
        uint32_t words[groups][2];
#pragma unroll
        for (int j = 0; j < groups; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            words[j][half] = pack<Element>(v[4 * j + 2 * half], v[4 * j + 2 * half + 1]);
        send(words);
      }
    }
  }
}

/// Sends one warpgroup's chunks of a tile to global memory; by one thread. `tile` counts the tiles of this CTA that
/// were stored before. Posts when the other warpgroup's store warp is done as well.
template <class C>
CUSYNC_DEVICE void store_item(typename C::Params const& params, FusedWork const& item,
                              typename C::SharedStorage& shared, typename C::StagingPipeline& staged,
                              cutlass::PipelineState<C::kStagingDepth>& state, uint32_t group, uint32_t tile) {
  using namespace cute;
  typename C::StageParams const& at = params.stages[item.stage];
  Stage const& stage = at.stage;
  auto const slice = at.store.get_slice(0);
  Tensor const output = at.store.get_tma_tensor(make_shape(int(stage.m), int(stage.columns)));
  Tensor const chunks = local_tile(output, Shape<Int<C::kChunkRows>, Int<C::kChunkCols>>{}, make_coord(_, _));
  Tensor const to = slice.partition_D(chunks);  // (TMA, TMA_M, TMA_N, row chunk, column chunk)
  int const columns = column_chunks<C>(at.gated);

#pragma unroll 1
  for (int row = 0; row < C::kRowChunks; ++row)
#pragma unroll 1
    for (int col = 0; col < columns; ++col) {
      Chunk<C> const chunk(item, at.gated, group, row, col);
      if (!chunk.exists(stage)) continue;
      staged.consumer_wait(state);
      Tensor const buffer =
          make_tensor(make_smem_ptr(shared.staging[group][state.index()]), typename C::ChunkLayout{});
      copy(at.store, slice.partition_S(buffer),
           to(_, _, _, int(chunk.row) / C::kChunkRows, int(chunk.col) / C::kChunkCols));
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read<0>();
      staged.consumer_release(state);
      ++state;
    }

  if (!stage.post_count) return;
  // The full wait, by the thread that issued the stores: only then are they in global memory. The store warps add to one
  // counter of the tile; whoever is last has seen the other's stores complete, and its release covers them. A counter is
  // used again eight tiles later, further than the ring of items lets one warp lead the other.
  ptx::cp_async_bulk_wait_group<0>();
  if constexpr (C::kConsumerGroups == 2) {
    uint32_t* const counter = shared.stored + tile % (2 * C::kWorkDepth);
    if (ptx::atom_acq_rel_cta_shared_add(counter, 1) % 2 == 0) return;
  }
  for (uint32_t i = 0; i < stage.post_count; ++i)
    post_tile(stage.posts[i], stage.semaphores, item.range.m, item.range.n, stage.post_value);
}

}  // namespace cusync::kernels::sm90
