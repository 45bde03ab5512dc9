// SPDX-License-Identifier: MIT OR Apache-2.0
// The types of one Ampere GEMM kernel: CUTLASS's predicated cp.async main-loop collective and shared memory. All warps
// load, multiply and store; each computes 32 x 64 or 64 x 64 of the tile.
#pragma once
#include "cute/tensor.hpp"
#include "cutlass/gemm/collective/collective_mma.hpp"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "kernels/common/number.h"

#include "kernels/gemm/sm80/work.cuh"

namespace cusync::kernels::sm80 {

/// Parameters of a kernel with the types `C`.
template <class C>
struct Params {
  typename C::Operands operands;
  void* d;
  uint32_t tile_rows;  ///< output rows per tile: the first rows of the MMA tile
  Stage stage;
  Edges edges;
  Coupling coupling;
  OrderedTiles tiles;
};

template <class C>
struct SharedStorage {
  union {
    alignas(128) typename C::SharedOperands operands;
    alignas(128) uint16_t staged[C::kTileM * C::kStagedRow];  ///< the finished tile, after the main loop
  };
  // In shared memory because the main loop needs all registers.
  WorkSource source;    ///< thread 0 only
  WorkItem item;        ///< the current tile
  uint32_t next_wait;   ///< the next k-block with a wait
};

/// The types of an operation's kernel; this template is for matrix products, other operations specialize it.
template <cusync_operation Operation, class Element_, int TileM_, int TileN_, int Ring_>
struct Config {
  static_assert(Operation == CUSYNC_GEMM || Operation == CUSYNC_GATED_GEMM);
  using Element = Element_;
  static constexpr cusync_operation kOperation = Operation;
  static constexpr int kTileM = TileM_, kTileN = TileN_, kTileK = 32;
  static constexpr bool kGated = Operation == CUSYNC_GATED_GEMM;
  static constexpr int kOutN = kGated ? kTileN / 2 : kTileN;  ///< columns of an output tile
  static constexpr int kWarpsM = 2, kWarpsN = kTileN / 64;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kStages = Ring_;
  static_assert(kTileM % (16 * kWarpsM) == 0 && kTileN % (16 * kWarpsN) == 0);

  using TileShape = cute::Shape<cute::Int<kTileM>, cute::Int<kTileN>, cute::Int<kTileK>>;
  using Atom = cute::conditional_t<cute::is_same_v<Element, cutlass::half_t>, cute::SM80_16x8x16_F32F16F16F32_TN,
                                   cute::SM80_16x8x16_F32BF16BF16F32_TN>;
  // The permutation gives each warp 16 adjacent columns: one transposed ldmatrix for two atoms, and, if gated, a group
  // of 8 gate columns and its 8 up columns in registers of the same threads.
  using Columns = cute::Layout<cute::Shape<cute::_8, cute::Int<kWarpsN>, cute::_2>,
                               cute::Stride<cute::_1, cute::_16, cute::_8>>;
  using TiledMma = cute::TiledMMA<cute::MMA_Atom<Atom>,
                                  cute::Layout<cute::Shape<cute::Int<kWarpsM>, cute::Int<kWarpsN>, cute::_1>>,
                                  cute::Tile<cute::Int<16 * kWarpsM>, Columns, cute::_16>>;
  static_assert(cute::size(TiledMma{}) == kThreads);

  using StrideA = cute::Stride<int64_t, cute::_1, int64_t>;  ///< (m, k, batch): row-major M x K
  using StrideB = cute::Stride<cute::_1, int64_t, int64_t>;  ///< (n, k, batch): row-major K x N

  using CopyAtom = cute::Copy_Atom<cute::SM80_CP_ASYNC_CACHEGLOBAL<cute::uint128_t>, Element>;
  // A: 4 threads copy one row of 32 elements. B: TileN / 8 threads copy one row of TileN elements.
  using CopyA = decltype(cute::make_tiled_copy(
      CopyAtom{}, cute::Layout<cute::Shape<cute::Int<kThreads / 4>, cute::_4>, cute::Stride<cute::_4, cute::_1>>{},
      cute::Layout<cute::Shape<cute::_1, cute::_8>>{}));
  using CopyB = decltype(cute::make_tiled_copy(
      CopyAtom{}, cute::Layout<cute::Shape<cute::Int<kTileN / 8>, cute::Int<kThreads * 8 / kTileN>>>{},
      cute::Layout<cute::Shape<cute::_8, cute::_1>>{}));
  // Swizzled so that the 8 rows of an ldmatrix matrix are in different banks.
  using SharedAtomA = decltype(cute::composition(
      cute::Swizzle<2, 3, 3>{},
      cute::Layout<cute::Shape<cute::_8, cute::_32>, cute::Stride<cute::_32, cute::_1>>{}));
  using SharedAtomB = decltype(cute::composition(
      cute::Swizzle<3, 3, 3>{},
      cute::Layout<cute::Shape<cute::_64, cute::_8>, cute::Stride<cute::_1, cute::_64>>{}));

  using Mainloop = cutlass::gemm::collective::CollectiveMma<
      cutlass::gemm::MainloopSm80CpAsync<kStages>, TileShape,                                               //
      Element, StrideA, Element, StrideB, TiledMma,                                                         //
      CopyA, SharedAtomA, cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, Element>, cute::identity,                //
      CopyB, SharedAtomB, cute::Copy_Atom<cute::SM75_U16x8_LDSM_T, Element>, cute::identity>;

  // The padding shifts consecutive rows by 16 bytes: the words that a warp writes are in 32 different banks.
  static constexpr int kStagedRow = kOutN + 8;

  using SharedOperands = typename Mainloop::SharedStorage;

  struct Operands {
    typename Mainloop::Arguments of;
    uint32_t n, k;  ///< n: columns of B
  };

  static Operands operands_of(cusync_stage const& stage) {
    Operands operands;
    operands.n = packed_columns(stage), operands.k = stage.k;
    operands.of.ptr_A = static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_A));
    operands.of.ptr_B = static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_B));
    operands.of.dA = StrideA{int64_t(operands.k), {}, 0};
    operands.of.dB = StrideB{{}, int64_t(operands.n), 0};
    return operands;
  }
};

}  // namespace cusync::kernels::sm80
