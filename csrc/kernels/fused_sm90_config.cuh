// SPDX-License-Identifier: MIT OR Apache-2.0
// The types of one Hopper chain kernel: many GEMM stages in one persistent kernel, each worker (a cluster of CTAs)
// following a list of items. The rings between the warps, shared memory, parameters.
//
//   warpgroup 0:  warp 0 loads A and B, warp 1 hands out items and waits for their operands, warps 2 and 3 each post
//                 for one consumer warpgroup
//   warpgroup 1 (and 2): multiply, add partial sums of split tiles, finish and store the output from registers
//
// Cooperative: both consumer warpgroups work on one item, half of its rows each. Ping-pong: each works on every other
// item alone, so that one's epilogue, its exchange of partial sums and its stores hide under the other's arithmetic.
#pragma once
#include "cute/tensor.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/bfloat16.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/half.h"
#include "cutlass/pipeline/pipeline.hpp"

#include "gemm_sm90_wait.cuh"
#include "stage.cuh"

#ifndef CUTLASS_ENABLE_GDC_FOR_SM90
#error "define CUTLASS_ENABLE_GDC_FOR_SM90=1: without it CUTLASS compiles programmatic launch to nothing"
#endif

namespace cusync::kernels::sm90 {

/// An item as warp 1 hands it to the other warps: this CTA's own tile.
struct alignas(16) FusedWork {
  TileRange range;
  uint32_t stage;
  uint32_t slab;
  uint8_t role, slabs, part;
  uint8_t valid;   ///< 0: the end
  uint8_t inside;  ///< whether the tile lies in the stage's grid; a cluster's edge may stick out
  uint32_t index;  ///< in the list, for the trace
};

template <class Element_, int TileM_, int TileN_, int ClusterM_, int ClusterN_, bool PingPong_>
struct FusedConfig {
  using Element = Element_;
  static constexpr int kTileM = TileM_, kTileN = TileN_, kTileK = 64;
  static constexpr int kClusterM = ClusterM_, kClusterN = ClusterN_, kClusterSize = kClusterM * kClusterN;

  static constexpr bool kPingPong = PingPong_;
  static constexpr int kConsumerGroups = kTileM >= 128 || kPingPong ? 2 : 1;
  static constexpr int kTeamGroups = kPingPong ? 1 : kConsumerGroups;  ///< warpgroups that work on one item
  static constexpr int kTeams = kConsumerGroups / kTeamGroups;         ///< item i is for team i % kTeams
  static constexpr int kTeamThreads = 128 * kTeamGroups;
  static constexpr int kThreads = 128 + 128 * kConsumerGroups;
  static constexpr int kProducerRegisters = 88, kConsumerRegisters = 208;  ///< with two consumer warpgroups
  static constexpr int kAccumulators = kTileM * kTileN / kTeamThreads;  ///< of a thread

  // A warpgroup's part of a tile is finished in units of one WGMMA row block by 64 accumulator columns, and stored in
  // chunks of 32 output columns: two chunks a unit, or one where the stage is gated.
  static constexpr int kUnitRows = 64, kUnitCols = 64, kUnitAccumulators = kUnitRows * kUnitCols / 128;
  static constexpr int kRowUnits = kTileM / (kUnitRows * kTeamGroups), kColUnits = kTileN / kUnitCols;
  static constexpr int kUnits = kRowUnits * kColUnits;
  static_assert(kRowUnits * kUnitRows * kTeamGroups == kTileM && kColUnits * kUnitCols == kTileN);
  static_assert(kUnits <= 4, "CUSYNC_POST_WEIGHT is shared by up to 4 parts");
  static constexpr int kChunkCols = 32;

  // As many ring stages as fit.
  static constexpr int kSharedLimit = 227 * 1024, kBarrierReserve = 2048;
  static constexpr int kStageBytes = (kTileM + kTileN) * kTileK * int(sizeof(Element));
  static constexpr int kStages = (kSharedLimit - kBarrierReserve) / kStageBytes;

  using TileShape = cute::Shape<cute::Int<kTileM>, cute::Int<kTileN>, cute::Int<kTileK>>;
  using ClusterShape = cute::Shape<cute::Int<kClusterM>, cute::Int<kClusterN>, cute::_1>;
  using KernelSchedule = cute::conditional_t<kTeamGroups == 2, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                             cutlass::gemm::KernelTmaWarpSpecialized>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,            //
      Element, cutlass::layout::RowMajor, 8,                          // A: M x K
      Element, cutlass::layout::RowMajor, 8,                          // B: K x N
      float, TileShape, ClusterShape, cutlass::gemm::collective::StageCount<kStages>,
      KernelSchedule>::CollectiveOp;
  using TiledMma = typename Mainloop::TiledMma;
  static_assert(cute::size(TiledMma{}) == kTeamThreads);

  using LoadPipeline = typename Mainloop::MainloopPipeline;
  using LoadState = typename Mainloop::PipelineState;
  static constexpr int kWorkDepth = 4;
  using WorkPipeline = cutlass::PipelineAsync<kWorkDepth>;
  static constexpr int kStoredDepth = 2;
  using StoredPipeline = cutlass::PipelineAsync<kStoredDepth>;

  struct SharedStorage {
    alignas(1024) typename Mainloop::TensorStorage operands;
    alignas(16) typename Mainloop::PipelineStorage load;
    alignas(16) typename WorkPipeline::SharedStorage work;
    alignas(16) typename StoredPipeline::SharedStorage stored[kConsumerGroups];
    alignas(16) cutlass::arch::ClusterBarrier more_work;  ///< the load warp asks for the next item
    cutlass::arch::ClusterBarrier epoch_known;
    cutlass::arch::ClusterBarrier turn[kTeams];  ///< the team may begin to multiply its next item
    uint32_t epoch;
    FusedWork items[kWorkDepth];
    uint32_t ready;                     ///< k-blocks, counted over all items, whose operands may be loaded
    uint32_t complete[2 * kWorkDepth];  ///< by tile, modulo: warpgroups that have stored it, counted for ever
  };
  static constexpr int kSharedBytes = int(sizeof(SharedStorage));
  static_assert(kSharedBytes <= kSharedLimit);

  /// What differs between stages. A gated stage differs at run time only.
  struct StageParams {
    typename Mainloop::Params mainloop;
    Element* output;
    Stage stage;
    uint32_t gated;
    uint32_t grid_m, grid_n;  ///< tiles
  };

  struct Params {
    StageParams stages[CUSYNC_MAX_FUSED_STAGES];
    uint32_t stage_count;
    uint32_t schedule;  ///< enum cusync_schedule
    cusync_item const* items;
    uint32_t list_length;
    uint32_t workers;
    float4* slabs;
    uint32_t* slab_flags;
    uint32_t* epochs;
    unsigned long long* tickets;
    cusync_report* report;
    unsigned long long timeout_ns;
    cusync_trace* trace;
  };
  static_assert(sizeof(Params) <= 32764, "kernel parameters");
};

/// This CTA's place in its cluster.
template <class C>
struct ClusterPlace {
  uint32_t i, j, rank;

  CUSYNC_DEVICE ClusterPlace() {
    if constexpr (C::kClusterSize == 1) {
      i = j = rank = 0;
    } else {
      dim3 const id = cute::block_id_in_cluster();
      i = id.x, j = id.y, rank = id.x + id.y * C::kClusterM;
    }
  }
};

template <class C>
CUSYNC_DEVICE uint32_t worker_index() {
  return blockIdx.x / C::kClusterM;
}

}  // namespace cusync::kernels::sm90
