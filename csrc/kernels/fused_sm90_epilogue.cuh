// SPDX-License-Identifier: MIT OR Apache-2.0
// From accumulators to global memory in a chain kernel. Each consumer warpgroup stages its own chunks in swizzled shared
// memory and has a store warp of its own, so that the two never wait for each other; the store warp that is last posts
// the tile. Consumers never wait for a store, only for a free staging buffer.
#pragma once
#include "cusync/edge.cuh"
#include "fused_sm90_config.cuh"
#include "fused_sm90_slabs.cuh"
#include "gemm_sm90_fragment.cuh"

namespace cusync::kernels::sm90 {

/// Where unit `u` of a warpgroup's part of a tile begins in the output.
template <class C>
struct Unit {
  uint32_t row, col;

  CUSYNC_DEVICE Unit(FusedWork const& item, bool gated, uint32_t group, int u)
      : row(item.range.m * C::kTileM + (u / C::kColUnits * C::kConsumerGroups + group) * C::kUnitRows),
        col((item.range.n * C::kTileN + u % C::kColUnits * C::kUnitCols) >> (gated ? 1 : 0)) {}
};

/// Whether a chunk that begins at (row, col) has anything inside. Both ends of the staging ring skip the others.
CUSYNC_DEVICE bool chunk_exists(Stage const& stage, uint32_t row, uint32_t col) {
  return row < stage.m && col < stage.columns;
}

/// Puts a chunk's words into a staging buffer as TMA's 64-byte swizzle expects them: 16-byte unit j of row r lies at
/// unit j ^ (r / 2 % 4). The 32 words of a warp fall into 32 different banks.
template <class C>
CUSYNC_DEVICE void write_chunk(typename C::Element* buffer, Fragment const& at,
                               uint32_t const (&words)[C::kChunkCols / 8][2]) {
  uint32_t* const to = reinterpret_cast<uint32_t*>(buffer);
#pragma unroll
  for (int j = 0; j < C::kChunkCols / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const row = at.row + 8 * half;
      to[row * (C::kChunkCols / 2) + (j ^ (row / 2 % 4)) * 4 + at.col / 2] = words[j][half];
    }
}

/// Finishes the units of a tile that this part owns, by the threads of one consumer warpgroup; `thread` counts over
/// both.
template <class C, class Accumulators>
CUSYNC_DEVICE void finish_item(typename C::Params const& params, FusedWork const& item, Parts<C> const& parts,
                               uint32_t epoch, uint32_t rank, Accumulators& acc, typename C::SharedStorage& shared,
                               typename C::StagingPipeline& staged,
                               cutlass::PipelineState<C::kStagingDepth>& state, uint32_t group, int thread) {
  using Element = typename C::Element;
  typename C::StageParams const& stage_params = params.stages[item.stage];
  Stage const& stage = stage_params.stage;
  static_assert(decltype(cute::size(acc))::value == C::kUnits * C::kUnitAccumulators);
  constexpr int groups = C::kChunkCols / 8;
  Fragment const at(thread % 128);
  bool const gated = stage_params.gated;

  if (stage.wait_count > stage.load_waits) {
    // Bias or residual come from a stage. One thread of the warpgroup acquires for all of it.
    if (thread % 128 == 0) {
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
  for (int u = 0; u < C::kUnits; ++u) {
    if (!parts.owns(u)) continue;
    Unit<C> const unit(item, gated, group, u);
    float* const v = &acc(u * C::kUnitAccumulators);
    add_sums<C>(params, parts, rank, u, v, thread);
    uint32_t words[groups][2];
    if (gated) {
      if (!chunk_exists(stage, unit.row, unit.col)) continue;
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
    } else {
#pragma unroll
      for (int c = 0; c < C::kUnitCols / C::kChunkCols; ++c) {
        uint32_t const col = unit.col + c * C::kChunkCols;
        if (!chunk_exists(stage, unit.row, col)) continue;
        float* const w = v + c * (C::kUnitAccumulators / 2);
        finish_chunk<Element, C::kChunkCols>(stage, w, unit.row, col, at);
#pragma unroll
        for (int j = 0; j < groups; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            words[j][half] = pack<Element>(w[4 * j + 2 * half], w[4 * j + 2 * half + 1]);
        send(words);
      }
    }
  }
}

/// A store warp's side of the staging ring. A buffer is given back when the store has read it, up to kLag stores
/// later: waiting for each store at once would leave one in flight.
template <class C>
class StoreRing {
 public:
  CUSYNC_DEVICE StoreRing(typename C::StagingPipeline& staged) : staged_(staged) {}

  /// The index of the next full buffer.
  CUSYNC_DEVICE uint32_t wait() {
    staged_.consumer_wait(full_);
    return full_.index();
  }

  /// After the store of that buffer was issued.
  CUSYNC_DEVICE void issued() {
    ptx::cp_async_bulk_commit_group();
    ++full_;
    if (++pending_ > kLag) {
      ptx::cp_async_bulk_wait_group_read<kLag>();
      release();
    }
  }

  CUSYNC_DEVICE void drain() {
    ptx::cp_async_bulk_wait_group_read<0>();
    while (pending_) release();
  }

 private:
  static constexpr int kLag = C::kStagingDepth - 2;
  CUSYNC_DEVICE void release() {
    staged_.consumer_release(free_);
    ++free_;
    --pending_;
  }
  typename C::StagingPipeline& staged_;
  cutlass::PipelineState<C::kStagingDepth> full_, free_;
  int pending_ = 0;
};

/// Sends one warpgroup's chunks of a tile to global memory; by one thread. `tile` counts the tiles of this CTA that
/// were stored before. Posts when the other warpgroup's store warp is done as well.
template <class C>
CUSYNC_DEVICE void store_item(typename C::Params const& params, FusedWork const& item,
                              typename C::SharedStorage& shared, StoreRing<C>& ring, uint32_t group, uint32_t tile) {
  using namespace cute;
  typename C::StageParams const& at = params.stages[item.stage];
  Stage const& stage = at.stage;
  Parts<C> const parts(item);
  auto const slice = at.store.get_slice(0);
  Tensor const output = at.store.get_tma_tensor(make_shape(int(stage.m), int(stage.columns)));
  Tensor const chunks = local_tile(output, Shape<Int<C::kChunkRows>, Int<C::kChunkCols>>{}, make_coord(_, _));
  Tensor const to = slice.partition_D(chunks);  // (TMA, TMA_M, TMA_N, row chunk, column chunk)
  uint32_t const chunks_per_unit = at.gated ? 1 : C::kUnitCols / C::kChunkCols;

#pragma unroll 1
  for (int u = 0; u < C::kUnits; ++u) {
    if (!parts.owns(u)) continue;
    Unit<C> const unit(item, at.gated, group, u);
#pragma unroll 1
    for (uint32_t c = 0; c < chunks_per_unit; ++c) {
      uint32_t const col = unit.col + c * C::kChunkCols;
      if (!chunk_exists(stage, unit.row, col)) continue;
      uint32_t const index = ring.wait();
      Tensor const buffer = make_tensor(make_smem_ptr(shared.staging[group][index]), typename C::ChunkLayout{});
      copy(at.store, slice.partition_S(buffer), to(_, _, _, int(unit.row) / C::kChunkRows, int(col) / C::kChunkCols));
      ring.issued();
    }
  }
  ring.drain();

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
    post_tile(stage.posts[i], stage.semaphores, item.range.m, item.range.n, stage.post_value * parts.weight());
}

}  // namespace cusync::kernels::sm90
