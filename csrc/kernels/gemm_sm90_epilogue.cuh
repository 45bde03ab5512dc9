// SPDX-License-Identifier: MIT OR Apache-2.0
// From accumulators to global memory: consumers finish a chunk in registers and stage it in swizzled shared memory,
// the store warp sends it off by TMA and posts the tile once every chunk is in global memory. Consumers never wait
// for a store, only for a free staging buffer.
#pragma once
#include "activation.cuh"
#include "cusync/edge.cuh"
#include "cutlass/numeric_conversion.h"
#include "gemm_sm90_config.cuh"
#include "gemm_sm90_wait.cuh"

namespace cusync::kernels::sm90 {

/// Whether chunk (row, column) of a tile lies inside the output at all. Both ends of the staging ring skip the others.
template <class C>
CUSYNC_DEVICE bool chunk_exists(Stage const& stage, WorkItem const& item, int row, int col) {
  return item.m * C::kTileM + row * C::kChunkRows < stage.m && item.n * C::kOutN + col * C::kChunkCols < stage.columns;
}

/// Two neighbouring elements as one 32-bit word.
template <class Element>
CUSYNC_DEVICE uint32_t pack(float x, float y) {
  cutlass::Array<float, 2> values;
  values[0] = x, values[1] = y;
  auto const rounded = cutlass::NumericArrayConverter<Element, float, 2>::convert(values);
  return reinterpret_cast<uint32_t const&>(rounded);
}

template <class Element>
CUSYNC_DEVICE float2 load_pair(void const* base, uint64_t element) {
  uint32_t const word = *reinterpret_cast<uint32_t const*>(static_cast<Element const*>(base) + element);
  cutlass::Array<Element, 2> const pair = reinterpret_cast<cutlass::Array<Element, 2> const&>(word);
  return {float(pair[0]), float(pair[1])};
}

/// Where a thread's values of a chunk lie: the WGMMA accumulator gives it columns `col`, `col` + 1 of every group of
/// 8 columns, in rows `row` and `row` + 8.
struct Fragment {
  int row, col;

  CUSYNC_DEVICE explicit Fragment(int thread)  // of the consumers
      : row(thread / 32 * 16 + thread % 32 / 4), col(thread % 4 * 2) {}
};

/// Bias, activation and residual of 64 accumulator columns, in place. `v` holds 8 groups of 4 values: two columns of
/// row `fragment.row`, two of the row 8 below.
template <class C>
CUSYNC_DEVICE void finish_chunk(Stage const& stage, float* v, uint32_t row0, uint32_t col0, Fragment const& at) {
  using Element = typename C::Element;
  constexpr int groups = C::kChunkCols / 8;
  if (stage.bias) {
#pragma unroll
    for (int j = 0; j < groups; ++j)
      if (col0 + 8 * j < stage.columns) {
        float2 const b = load_pair<Element>(stage.bias, col0 + 8 * j + at.col);
        v[4 * j] += b.x, v[4 * j + 1] += b.y, v[4 * j + 2] += b.x, v[4 * j + 3] += b.y;
      }
  }
  if (stage.activation == CUSYNC_GELU_TANH) {
#pragma unroll
    for (int i = 0; i < 4 * groups; ++i) v[i] = gelu_tanh(v[i]);
  } else if (stage.activation == CUSYNC_RELU) {
#pragma unroll
    for (int i = 0; i < 4 * groups; ++i) v[i] = relu(v[i]);
  }
  if (stage.residual) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t const row = row0 + at.row + 8 * half;
      if (row < stage.m)
#pragma unroll
        for (int j = 0; j < groups; ++j)
          if (col0 + 8 * j < stage.columns) {
            float2 const r =
                load_pair<Element>(stage.residual, uint64_t(row) * stage.columns + col0 + 8 * j + at.col);
            v[4 * j + 2 * half] += r.x, v[4 * j + 2 * half + 1] += r.y;
          }
    }
  }
}

/// One tile's epilogue, by all consumer threads.
template <class C, class Accumulators>
CUSYNC_DEVICE void stage_tile(Stage const& stage, WorkItem const& item, Accumulators& acc,
                              typename C::SharedStorage& shared, typename C::StagingPipeline& staged,
                              cutlass::PipelineState<C::kStagingDepth>& state, int thread) {
  using Element = typename C::Element;
  constexpr int per_row_chunk = C::kTileN / 2;  // accumulators of a thread: TileN columns x 64 rows / 128 threads
  static_assert(decltype(cute::size(acc))::value == per_row_chunk * C::kRowChunks);
  Fragment const at(thread);

  if (stage.wait_count > stage.load_waits) {
    // Bias or residual come from a stage. One thread of each warpgroup acquires for all of it.
    int const group = thread / 128;
    if (thread % 128 == 0) {
      WaitContext const context = wait_context(stage, item.epoch);
      for (uint32_t i = stage.load_waits; i < stage.wait_count; ++i)
        wait_for_tile<ReadBy::kLoads>(stage.edges[i], item.m, item.n, context);
    }
    ptx::bar_sync(8 + group, 128);
  }

#pragma unroll
  for (int row = 0; row < C::kRowChunks; ++row)
#pragma unroll
    for (int col = 0; col < C::kColChunks; ++col) {
      if (!chunk_exists<C>(stage, item, row, col)) continue;
      float* const v = &acc(row * per_row_chunk + col * (C::kGated ? 64 : 32));
      constexpr int groups = C::kChunkCols / 8;
      uint32_t words[groups][2];
      if constexpr (C::kGated) {
        // Groups of 8 columns alternate between gate and up, so a thread holds both of its outputs' factors.
#pragma unroll
        for (int j = 0; j < groups; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float const* const gate = v + 8 * j + 2 * half;
            float const* const up = gate + 4;
            words[j][half] = pack<Element>(silu(gate[0]) * up[0], silu(gate[1]) * up[1]);
          }
      } else {
        finish_chunk<C>(stage, v, item.m * C::kTileM + row * C::kChunkRows, item.n * C::kOutN + col * C::kChunkCols,
                        at);
#pragma unroll
        for (int j = 0; j < groups; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            words[j][half] = pack<Element>(v[4 * j + 2 * half], v[4 * j + 2 * half + 1]);
      }

      staged.producer_acquire(state);
      // The 128-byte swizzle moves 16-byte unit j of row r to unit j ^ (r % 8): the 32 words of a warp fall into 32
      // different banks.
      uint32_t* const buffer = reinterpret_cast<uint32_t*>(shared.staging[state.index()]);
#pragma unroll
      for (int j = 0; j < groups; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          buffer[(at.row + 8 * half) * 32 + ((j ^ (at.row % 8)) * 4) + at.col / 2] = words[j][half];
      ptx::fence_proxy_async_shared_cta();
      __syncwarp();
      if (thread % 32 == 0) staged.producer_commit(state);
      ++state;
    }
}

/// Sends one tile's chunks to global memory and posts it; by one thread.
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
    // The full wait, by the thread that issued the stores: only then are they in global memory.
    ptx::cp_async_bulk_wait_group<0>();
    for (uint32_t i = 0; i < stage.post_count; ++i)
      post_tile(stage.posts[i], stage.semaphores, item.m, item.n, stage.post_value);
  }
}

}  // namespace cusync::kernels::sm90
