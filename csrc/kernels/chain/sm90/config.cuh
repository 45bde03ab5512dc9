// SPDX-License-Identifier: MIT OR Apache-2.0
// The types of one Hopper chain kernel: many GEMM stages in one persistent kernel, in which each worker (a cluster of
// CTAs) follows a list of items. Rings between the warps, shared memory, parameters.
//
//   warpgroup 0:  warp 0 loads A and B; warp 1 hands out items and waits for their operands; warps 2 and 3 each store
//                 and post for one consumer warpgroup; with three of those, warp 3 serves the second and then the third
//   warpgroup 1 (to 3): multiply, add partial sums of split tiles, then run the epilogue in registers
//
// Consumer warpgroups share only the operand ring, so one can run ahead of the others by up to the ring's depth, and
// its epilogue overlaps with their math.
#pragma once
#include "cute/tensor.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/pipeline/pipeline.hpp"

#include "kernels/common/sm90/operation.cuh"
#include "kernels/common/sm90/ring.cuh"
#include "kernels/common/sm90/wait.cuh"
#include "kernels/common/sm90/window.cuh"
#include "kernels/common/stage.cuh"

#ifndef CUTLASS_ENABLE_GDC_FOR_SM90
#error "define CUTLASS_ENABLE_GDC_FOR_SM90=1: without it CUTLASS compiles programmatic launch to nothing"
#endif

namespace cusync::kernels::sm90 {

/// An item as warp 1 passes it to the other warps: this CTA's own tile.
struct alignas(16) Work {
  TileRange range;
  uint32_t stage;
  uint32_t slab;
  uint8_t role, slabs, part;
  uint8_t valid;   ///< 0: end of work
  uint8_t inside;  ///< whether the tile is inside the stage's grid; clusters at the edge may extend beyond it
  uint8_t share_begin, share_end;  ///< shares that the item finishes, if a unit has several
  uint32_t index;  ///< list index, for the trace
  uint32_t done;   ///< k-blocks of earlier items, for those who read SharedStorage::ready beside the load warp
};

template <class Element_, int TileM_, int TileN_, int Ring_, int ClusterM_, int ClusterN_, cusync_operation... Operations_>
struct ChainConfig {
  using Operations = OperationSet<Operations_...>;
  static constexpr bool kConvolves = ((Operations_ == CUSYNC_CONV2D) || ...);
  /// Whether store warps load the residual of a unit into its staging buffer. Residuals of pixel tiles are not in
  /// contiguous rows.
  static constexpr bool kBringsResiduals = !kConvolves;
  using Products = typename OperationsThat<true, OperationSet<>, Operations_...>::type;
  static_assert(!kConvolves || std::is_same_v<Products, OperationSet<CUSYNC_CONV2D>>,
                "windows lie where the ring has operand A of other products");
  using RowOperations = typename OperationsThat<false, OperationSet<>, Operations_...>::type;
  static constexpr bool kRows = !std::is_same_v<RowOperations, OperationSet<>>;  ///< whether there are row operations
  static constexpr bool kMailed = false;  ///< whether items arrive by mail, each with its epoch
  using Element = Element_;
  static constexpr int kTileM = TileM_, kTileN = TileN_, kTileK = 64;
  static constexpr int kClusterM = ClusterM_, kClusterN = ClusterN_, kClusterSize = kClusterM * kClusterN;

  /// Whether channels are on WGMMA's M side, and up to 128 slots per warpgroup on its N side: the WGMMAs of a k-block
  /// then take longer than the instructions around them, and one filter block serves twice as many pixels.
  static constexpr bool kTurned = kConvolves && kTileN == 64 && kTileM == 256;
  static constexpr int kConsumerGroups = kTurned ? kTileM / 128 : consumer_groups(kTileM);
  static constexpr int kConsumerThreads = 128 * kConsumerGroups;
  static constexpr int kThreads = 128 + kConsumerThreads;
  static constexpr bool kThreeGroups = kConsumerGroups == 3;
  static constexpr int kStoreWarps = kConsumerGroups > 1 ? 2 : 1;
  /// Register budgets with two or three consumer warpgroups. Windows need more registers to load, and pixel tiles have
  /// fewer accumulators. With three warpgroups each thread has 144 registers, for 96 accumulators.
  static constexpr bool kLean = kThreeGroups;  ///< whether registers are scarce
  static constexpr int kProducerRegisters = kConvolves ? 104 : 72;
  static constexpr int kConsumerRegisters = kConvolves ? 200 : kThreeGroups ? 144 : 216;
  static constexpr int kAccumulators = kTileM * kTileN / kConsumerThreads;  ///< per thread

  // A warpgroup finishes its part of a tile in units of one WGMMA row block by 64 accumulator columns. Each unit is one
  // TMA store: 64 output columns in 128-byte rows, or 32 columns if the stage is gated.
  static constexpr int kUnitRows = 64, kUnitCols = 64, kUnitAccumulators = kUnitRows * kUnitCols / 128;
  static constexpr int kRowUnits = kTileM / (kUnitRows * kConsumerGroups), kColUnits = kTileN / kUnitCols;
  static constexpr int kUnits = kRowUnits * kColUnits;
  static_assert(kRowUnits * kUnitRows * kConsumerGroups == kTileM && kColUnits * kUnitCols == kTileN);
  static_assert(kUnits <= 4, "CUSYNC_POST_WEIGHT is shared by up to 4 parts of a product of matrices");
  /// Granularity at which parts share a tile: whole units, or in the smallest pixel tile 16 shares of 8 columns by
  /// every other 8 rows.
  static constexpr uint32_t kUnitShares = kConvolves && kTileM == 64 && kTileN == 64 ? 16 : 1, kShares = kUnits * kUnitShares;
  static constexpr int kStagingDepth = 2;
  static constexpr int kUnitElements = kUnitRows * kUnitCols;

  // Use as many ring stages as fit next to the staging buffers.
  static constexpr int kSharedLimit = 227 * 1024, kBarrierReserve = 1024;
  static constexpr int kStagingBytes = kConsumerGroups * kStagingDepth * kUnitElements * int(sizeof(Element));
  // Each ring stage holds a filter block and 64 window pixels; with narrow blocks, the ring has whole groups of them.
  static constexpr int kRingRows = kConvolves ? 64 : kTileM, kRingGroup = kConvolves && kTileN == 64 ? int(kFilterGroup) : 1;
  static constexpr int kStageBytes = (kRingRows + kTileN) * kTileK * int(sizeof(Element));
  static constexpr int kStages = (kSharedLimit - kBarrierReserve - kStagingBytes) / kStageBytes / kRingGroup * kRingGroup;
  static constexpr int kWindowRows = kStages * kRingRows;  ///< rows of 128 bytes
  static_assert(kStages == Ring_, "abi/instances.txt states the depth of the ring");
  static_assert(!kConvolves || kClusterSize == 1, "windows are not shared by a cluster");

  using Multiplies = sm90::Multiplies<Element, kRingRows, kTileN, kClusterM, kClusterN, kStages>;
  using ClusterShape = typename Multiplies::ClusterShape;
  using Mainloop = typename Multiplies::Mainloop;
  /// The MMA configuration. A window can begin at any row, so its operand A has no fixed place in the ring, only the
  /// layout of one.
  using Shifted = sm90::Multiplies<Element, kTurned ? kRingRows : kTileM, kTileN, kClusterM, kClusterN, kStages>;
  using TileShape = typename Shifted::TileShape;
  using TiledMma = typename Shifted::Mainloop::TiledMma;
  using ShiftedLayout = typename Shifted::Mainloop::SmemLayoutA;

  /// A thread's accumulators for one tile.
  CUSYNC_DEVICE static auto accumulators(TiledMma const& mma) {
    if constexpr (kTurned)
      return cute::make_tensor<float>(cute::Int<kAccumulators>{});
    else
      return cute::partition_fragment_C(mma, cute::take<0, 2>(TileShape{}));  // (MMA, MMA_M, MMA_N)
  }

  using LoadPipeline = typename Mainloop::MainloopPipeline;
  using LoadState = typename Mainloop::PipelineState;
  static constexpr int kWorkDepth = 4;
  using WorkPipeline = cutlass::PipelineAsync<kWorkDepth>;
  using StagingPipeline = cutlass::PipelineAsync<kStagingDepth>;

  using OutputStride = cute::Stride<int64_t, cute::_1>;
  template <class Atom, int Cols>
  using UnitLayout =
      decltype(cute::tile_to_shape(Atom{}, cute::Shape<cute::Int<kUnitRows>, cute::Int<Cols>>{}));
  /// A finished unit in its staging buffer: 128-byte rows, or 64-byte rows if two accumulators make one output.
  template <cusync_operation O>
  using LayoutOf = std::conditional_t<Operation<O>::kColumnShift == 0,
                                      UnitLayout<cute::GMMA::Layout_K_SW128_Atom<Element>, kUnitCols>,
                                      UnitLayout<cute::GMMA::Layout_K_SW64_Atom<Element>, kUnitCols / 2>>;
  template <class Layout>
  using Store = decltype(cute::make_tma_copy(
      cute::SM90_TMA_STORE{},
      cute::make_tensor(static_cast<Element*>(nullptr), cute::Shape<int, int>{}, OutputStride{}), Layout{}));

  /// One barrier per warpgroup and staging buffer, with one phase per unit. A phase completes when the unit's residual
  /// has arrived, or when the unit is known to have none, at the latest when it is sent. The phase therefore equals
  /// that of the staging ring.
  struct Residuals {
    cutlass::arch::ClusterTransactionBarrier brought[kConsumerGroups][kStagingDepth];
  };

  struct SharedStorage : PartIf<kBringsResiduals, Residuals> {
    alignas(1024) typename Mainloop::TensorStorage operands;
    alignas(1024) Element staging[kConsumerGroups][kStagingDepth][kUnitElements];
    alignas(16) typename Mainloop::PipelineStorage load;
    alignas(16) typename WorkPipeline::SharedStorage work;
    alignas(16) typename StagingPipeline::SharedStorage staged[kConsumerGroups];
    alignas(16) cutlass::arch::ClusterBarrier more_work;  ///< the load warp requests the next item
    cutlass::arch::ClusterBarrier epoch_known;
    uint32_t epoch;  ///< by mail: number of words this worker had finished before the launch
    Work items[kWorkDepth];
    cusync_edge waits[CUSYNC_MAX_WAITS];  ///< waits of the stage of warp 1's current item; private to warp 1
    uint32_t ready;                   ///< k-blocks that may be loaded, counted over all items
    uint32_t stored[2 * kWorkDepth];  ///< by tile, modulo the array size: finished store warps, never reset
    PartIf<kConvolves, WindowRing<kStages>> windows;
    float row_sums[2 * kConsumerThreads / 32];  ///< scratch memory for row operations
  };
  static constexpr int kSharedBytes = int(sizeof(SharedStorage));
  static_assert(kSharedBytes <= kSharedLimit);

  /// The tensor maps of a stage's output, one per possible product.
  template <class>
  struct OutputMapsOf;
  template <cusync_operation O>
  struct OutputMap {
    Store<LayoutOf<O>> store;
  };
  template <cusync_operation... Os>
  struct OutputMapsOf<OperationSet<Os...>> : OutputMap<Os>... {
    /// Encodes the maps; false if the driver rejects one.
    template <class Map>
    bool encode(Map&& map) {
      return (map(static_cast<OutputMap<Os>&>(*this).store, LayoutOf<Os>{}) && ...);
    }
  };

  /// A stage's data for each possible row operation.
  template <class>
  struct RowTablesOf;
  template <cusync_operation O>
  struct RowTable {
    typename Operation<O>::Table table;
  };
  template <cusync_operation... Os>
  struct RowTablesOf<OperationSet<Os...>> : RowTable<Os>... {
    void fill(cusync_stage const& stage) {
      (void(Os == stage.operation && (static_cast<RowTable<Os>&>(*this).table = Operation<Os>::table(stage), true)), ...);
    }
  };

  /// The part of a stage in device memory: tensor maps, which the TMA reads from there, and edges, which are not on the
  /// critical path of the math.
  struct MatrixMaps {
    CUtensorMap residual;   ///< one unit at a time
    CUtensorMap last_rows;  ///< operand A of the last row of tiles, if shorter than a tile
  };
  struct alignas(CUSYNC_TABLE_ALIGNMENT) StageTable : PartIf<!kConvolves, MatrixMaps>,
                                                      RowTablesOf<RowOperations>,
                                                      PartIf<kConvolves, WindowTable> {
    typename Mainloop::Params mainloop;
    OutputMapsOf<Products> outputs;
    Edges edges;
  };

  /// Whether a stage is a row operation, which has no tensor maps.
  CUTLASS_HOST_DEVICE static bool is_rows(uint32_t operation) {
    return ((!Operation<Operations_>::kProduct && operation == Operations_) || ...);
  }

  struct Params : PartIf<kConvolves, WindowParams> {
    Stage stages[CUSYNC_MAX_STAGES];
    StageTable const* table;  ///< device: one entry per stage
    uint32_t stage_count;
    uint32_t drawn;           ///< one list drawn by ticket, instead of a list per worker
    cusync_item const* items;
    uint32_t list_length;
    uint32_t workers;
    float4* slabs;
    uint32_t* slab_flags;
    uint32_t* epochs;
    unsigned long long* tickets;
    Coupling coupling;
    cusync_trace* trace;
  };
  static_assert(sizeof(Params) <= 4096, "kernel parameters, as the driver has always taken them");
};

/// The same kernel with mailboxes instead of lists: a separate instance, so other kernels are unchanged.
template <class C>
struct Mailed : C {
  static constexpr bool kMailed = true;
  struct Params : C::Params {
    cusync_mail mail;
  };
  static_assert(sizeof(Params) <= 4096 && C::kClusterSize == 1 && !C::kRows && !C::kConvolves);
};

/// Run number of an item; `of_launch` is the run number if the whole launch is one run.
template <class C>
CUSYNC_DEVICE uint32_t epoch_of(Work const& item, uint32_t of_launch) {
  if constexpr (C::kMailed) return item.range.epoch;
  return of_launch;
}

/// The owner of an item's events.
template <class Params>
CUSYNC_DEVICE NoteOf note_of(Params const& params, Work const& item) {
  return {params.stages[item.stage].index, item.range.m, item.range.n, item.range.k_begin};
}

/// Position of this CTA in its cluster.
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
