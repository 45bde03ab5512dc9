// SPDX-License-Identifier: MIT OR Apache-2.0
// Convolutions on Ampere: CUTLASS's implicit-GEMM main loop in the kernel layer of products. Its k-blocks are 64
// channels of one tap, channels outermost, the same number as in the plan. A tile waits for all of them at once;
// cp.async fills padding pixels and channels beyond the last with zeros.
#pragma once
#include "cutlass/conv/threadblock/conv2d_dgrad_filter_tile_access_iterator_analytic.h"
#include "cutlass/conv/threadblock/conv2d_fprop_activation_tile_access_iterator_analytic.h"
#include "cutlass/gemm/threadblock/default_mma_core_sm80.h"
// After the core: this header uses headers of the core without including them.
#include "cutlass/conv/threadblock/implicit_gemm_multistage.h"

#include "kernels/gemm/sm80/config.cuh"
#include "kernels/gemm/sm80/wait.cuh"

namespace cusync::kernels::sm80 {

template <class Element_, int TileM_, int TileN_, int Ring_>
struct Config<CUSYNC_CONV2D, Element_, TileM_, TileN_, Ring_> {
  using Element = Element_;
  static constexpr cusync_operation kOperation = CUSYNC_CONV2D;
  static constexpr int kTileM = TileM_, kTileN = TileN_, kTileK = 64, kOutN = TileN_;
  static constexpr bool kGated = false;
  static constexpr int kWarpM = kTileM / 2, kWarpN = kTileN / 2, kThreads = 128;  ///< 2 x 2 warps
  static constexpr int kStages = Ring_;
  static constexpr int kStagedRow = kOutN + 8;

  using TileShape = cute::Shape<cute::Int<kTileM>, cute::Int<kTileN>, cute::Int<kTileK>>;
  using Layout = cutlass::layout::TensorNHWC;
  using Core = cutlass::gemm::threadblock::DefaultMmaCore<
      cutlass::gemm::GemmShape<kTileM, kTileN, kTileK>, cutlass::gemm::GemmShape<kWarpM, kWarpN, kTileK>,
      cutlass::gemm::GemmShape<16, 8, 16>, Element, cutlass::layout::RowMajor, Element, cutlass::layout::RowMajor, float,
      cutlass::layout::RowMajor, cutlass::arch::OpClassTensorOp, kStages, cutlass::arch::OpMultiplyAdd>;
  using Pixels = cutlass::conv::threadblock::Conv2dFpropActivationTileAccessIteratorAnalytic<
      cutlass::MatrixShape<kTileM, kTileK>, Element, Layout, typename Core::IteratorThreadMapA>;
  // Filters are R S C x K here, so output channels are contiguous: the layout in which CUTLASS reads a filter in the
  // backward pass.
  using Filter = cutlass::conv::threadblock::Conv2dDgradFilterTileAccessIteratorAnalytic<
      cutlass::MatrixShape<kTileK, kTileN>, Element, typename Core::IteratorThreadMapB, cutlass::conv::StrideSupport::kUnity>;
  using Mainloop = cutlass::conv::threadblock::ImplicitGemmMultistage<
      typename Core::Shape, Pixels, typename Core::SmemIteratorA, cutlass::arch::CacheOperation::Global, Filter,
      typename Core::SmemIteratorB, cutlass::arch::CacheOperation::Global, typename Core::MmaPolicy, kStages>;
  using SharedOperands = typename Mainloop::SharedStorage;

  // Maps accumulators to threads, for the epilogue: warps have adjacent rows and columns.
  using Atom = cute::SM80_16x8x16_F32F16F16F32_TN;
  using TiledMma = cute::TiledMMA<
      cute::MMA_Atom<Atom>, cute::Layout<cute::Shape<cute::_2, cute::_2, cute::_1>>,
      cute::Tile<cute::Layout<cute::Shape<cute::_16, cute::_2, cute::Int<kWarpM / 16>>, cute::Stride<cute::_1, cute::Int<kWarpM>, cute::_16>>,
                 cute::Layout<cute::Shape<cute::_8, cute::_2, cute::Int<kWarpN / 8>>, cute::Stride<cute::_1, cute::Int<kWarpN>, cute::_8>>,
                 cute::_16>>;

  struct Operands {
    Element const* images;
    Element const* filter;
    cutlass::conv::Conv2dProblemSize of_images, of_filter;
    typename Pixels::Params pixels;
    typename Filter::Params taps;
  };

  static Operands operands_of(cusync_stage const& stage) {
    cusync_images const& i = stage.shape.images;
    int const count = int(stage.m / (i.out_height * i.out_width)), height = int(i.height), width = int(i.width);
    int const channels = int(i.channels), columns = int(stage.n), rows = int(i.filter_rows), cols = int(i.filter_cols);
    auto const problem = [&](int c, int k) {
      return cutlass::conv::Conv2dProblemSize(count, height, width, c, k, rows, cols, int(i.out_height), int(i.out_width),
                                              int(i.padding_rows), int(i.padding_cols), int(i.stride_rows), int(i.stride_cols), 1, 1,
                                              cutlass::conv::Mode::kCrossCorrelation);
    };
    Operands operands;
    operands.images = static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_A));
    operands.filter = static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_B));
    operands.of_images = problem(channels, columns), operands.of_filter = problem(columns, channels);
    operands.pixels = {operands.of_images, Layout::packed({count, height, width, channels})};
    // Strides of a tap column, a tap row and an input channel.
    operands.taps = {operands.of_filter, Layout({channels * columns, cols * channels * columns, columns})};
    return operands;
  }
};

/// The main loop of one tile of a convolution, after all of its waits.
template <class Element, int TileM, int TileN, int Ring, class Accumulators>
CUSYNC_DEVICE void multiply(Params<Config<CUSYNC_CONV2D, Element, TileM, TileN, Ring>> const& params,
                            SharedStorage<Config<CUSYNC_CONV2D, Element, TileM, TileN, Ring>>& shared, WorkItem const& item,
                            int thread, Accumulators& acc) {
  using C = Config<CUSYNC_CONV2D, Element, TileM, TileN, Ring>;
  if (params.stage.load_waits) {
    WaitingKBlocks<Params<C>> blocks(params, item, &shared.next_wait);
    for (uint32_t k = 1; k < params.tiles.k_blocks; ++k) ++blocks;
  }
  typename C::Operands const& from = params.operands;
  // Start at the tile's first image, because CUTLASS counts elements in 32 bits.
  auto images = from.of_images;
  uint32_t const row = item.m * params.tile_rows, pixels = uint32_t(images.P) * uint32_t(images.Q), first = row / pixels;
  images.N -= int(first);
  Element const* const begin = from.images + int64_t(first) * images.H * images.W * images.C;
  typename C::Pixels const a(from.pixels, images, begin, thread, {int(row - first * pixels), 0});
  typename C::Filter const b(from.taps, from.of_filter, from.filter, thread, {0, int(item.n) * TileN});
  typename C::Mainloop::FragmentC sums;
  sums.clear();
  typename C::Mainloop mainloop(shared.operands, thread, cutlass::canonical_warp_idx_sync(), thread % 32);
  mainloop(int(params.tiles.k_blocks), sums, a, b, sums);
  static_assert(C::Mainloop::FragmentC::kElements == decltype(cute::size(acc))::value);
#pragma unroll
  for (int i = 0; i < C::Mainloop::FragmentC::kElements; ++i) acc(i) = sums[i];
}

}  // namespace cusync::kernels::sm80
