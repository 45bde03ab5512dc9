// SPDX-License-Identifier: MIT OR Apache-2.0
// The types of one Hopper GEMM kernel: CUTLASS's main-loop collective, the rings between the warps, shared memory.
//
//   warpgroup 0:  warp 0 loads A and B, warp 1 distributes work, warp 2 stores and posts, warp 3 waits
//   warpgroup 1 (and 2): multiply, then run the epilogue in registers
#pragma once
#include "cute/tensor.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/pipeline/pipeline.hpp"

#include "kernels/common/sm90/operation.cuh"
#include "kernels/common/sm90/ring.cuh"
#include "kernels/common/stage.cuh"

#ifndef CUTLASS_ENABLE_GDC_FOR_SM90
#error "define CUTLASS_ENABLE_GDC_FOR_SM90=1: without it CUTLASS compiles programmatic launch to nothing"
#endif

namespace cusync::kernels::sm90 {

/// A tile to compute, as warp 1 passes it to the other warps.
struct alignas(16) WorkItem {
  uint32_t m, n, epoch, valid;
};

template <class Element_, int TileM_, int TileN_, int Ring_, cusync_operation Operation_>
struct Config {
  using Element = Element_;
  static constexpr int kTileM = TileM_, kTileN = TileN_, kTileK = 64;
  static constexpr cusync_operation kOperation = Operation_;
  static constexpr int kColumnShift = Operation<kOperation>::kColumnShift;
  static constexpr int kOutN = kTileN >> kColumnShift;  ///< columns of an output tile

  static constexpr int kConsumerGroups = consumer_groups(kTileM);
  static constexpr int kConsumerThreads = 128 * kConsumerGroups;
  static constexpr bool kLean = false;  ///< whether registers are scarce
  static constexpr int kThreads = 128 + kConsumerThreads;
  static constexpr int kProducerRegisters = 72, kConsumerRegisters = 216;  ///< with two consumer warpgroups

  // The output is stored in chunks of one WGMMA row block by 128 bytes: one swizzle atom wide, one TMA store each.
  static constexpr int kChunkRows = 64 * kConsumerGroups, kChunkCols = 64;
  static constexpr int kRowChunks = kTileM / kChunkRows, kColChunks = kOutN / kChunkCols;
  static_assert(kRowChunks * kChunkRows == kTileM && kColChunks * kChunkCols == kOutN);
  static constexpr int kStagingDepth = 2;

  // Use as many ring stages as fit next to the staging buffers.
  static constexpr int kSharedLimit = 227 * 1024, kBarrierReserve = 1024;
  static constexpr int kStagingBytes = kStagingDepth * kChunkRows * kChunkCols * int(sizeof(Element));
  static constexpr int kStageBytes = (kTileM + kTileN) * kTileK * int(sizeof(Element));
  static constexpr int kStages = (kSharedLimit - kBarrierReserve - kStagingBytes) / kStageBytes;
  static_assert(kStages == Ring_, "abi/instances.txt states the depth of the ring");

  using Multiplies = sm90::Multiplies<Element, kTileM, kTileN, 1, 1, kStages>;
  using TileShape = typename Multiplies::TileShape;
  using ClusterShape = typename Multiplies::ClusterShape;
  using Mainloop = typename Multiplies::Mainloop;
  using TiledMma = typename Mainloop::TiledMma;

  using LoadPipeline = typename Mainloop::MainloopPipeline;
  using LoadState = typename Mainloop::PipelineState;
  static constexpr int kWorkDepth = 4;
  using WorkPipeline = cutlass::PipelineAsync<kWorkDepth>;
  using StagingPipeline = cutlass::PipelineAsync<kStagingDepth>;

  using ChunkLayout = decltype(cute::tile_to_shape(
      cute::GMMA::Layout_K_SW128_Atom<Element>{},
      cute::Shape<cute::Int<kChunkRows>, cute::Int<kChunkCols>>{}));
  using OutputStride = cute::Stride<int64_t, cute::_1>;
  using TmaStore = decltype(cute::make_tma_copy(
      cute::SM90_TMA_STORE{},
      cute::make_tensor(static_cast<Element*>(nullptr), cute::Shape<int, int>{}, OutputStride{}), ChunkLayout{}));

  struct SharedStorage {
    alignas(1024) typename Mainloop::TensorStorage operands;
    alignas(1024) Element staging[kStagingDepth][kChunkRows * kChunkCols];
    alignas(16) typename Mainloop::PipelineStorage load;
    alignas(16) typename WorkPipeline::SharedStorage work;
    alignas(16) typename StagingPipeline::SharedStorage staged;
    alignas(16) cutlass::arch::ClusterBarrier more_work;  ///< the load warp requests the next item
    WorkItem items[kWorkDepth];
    uint32_t ready;  ///< k-blocks that may be loaded, counted over all tiles
  };
  static constexpr int kSharedBytes = int(sizeof(SharedStorage));
  static_assert(kSharedBytes <= kSharedLimit);

  struct Params {
    typename Mainloop::Params mainloop;
    TmaStore store;
    Stage stage;
    Edges edges;
    Coupling coupling;
    OrderedTiles tiles;
  };
};

}  // namespace cusync::kernels::sm90
