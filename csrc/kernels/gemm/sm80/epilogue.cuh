// SPDX-License-Identifier: MIT OR Apache-2.0
// From accumulators to global memory: finished in registers, transposed through shared memory, stored 16 bytes at a
// time.
#pragma once
#include "kernels/common/activation.cuh"
#include "cutlass/numeric_conversion.h"
#include "kernels/gemm/sm80/config.cuh"
#include "kernels/gemm/sm80/wait.cuh"

namespace cusync::kernels::sm80 {

/// The output rows of a tile.
struct Rows {
  uint32_t first, count;
};

/// Packs two neighboring elements into one 32-bit word.
template <class Element>
CUSYNC_DEVICE uint32_t pack(float2 v) {
  cutlass::Array<float, 2> values;
  values[0] = v.x, values[1] = v.y;
  auto const rounded = cutlass::NumericArrayConverter<Element, float, 2>::convert(values);
  return reinterpret_cast<uint32_t const&>(rounded);
}

template <class Element>
CUSYNC_DEVICE float2 load_pair(void const* base, uint64_t element) {
  uint32_t const word = *reinterpret_cast<uint32_t const*>(static_cast<Element const*>(base) + element);
  cutlass::Array<Element, 2> const pair = reinterpret_cast<cutlass::Array<Element, 2> const&>(word);
  return {float(pair[0]), float(pair[1])};
}

/// Finishes a plain GEMM's accumulators and writes them to the staging buffer.
template <class C, class Accumulators>
CUSYNC_DEVICE void stage_plain(Stage const& stage, WorkItem const& item, Rows rows, Accumulators const& acc,
                               uint16_t* staged, int thread) {
  using namespace cute;
  using Element = typename C::Element;
  auto const coordinates = typename C::TiledMma{}.get_slice(thread).partition_C(
      make_identity_tensor(take<0, 2>(typename C::TileShape{})));  // ((2, 2), MMA_M, MMA_N) -> (row, column)
  uint32_t const col0 = item.n * C::kTileN;
#pragma unroll
  for (int j = 0; j < size<2>(acc); ++j) {
    uint32_t const col = get<1>(coordinates(0, 0, j));
    bool const inside = col0 + col < stage.columns;  // n is a multiple of 8, so both columns of a pair are inside
    float2 bias{0.f, 0.f};
    if (stage.bias && inside) bias = load_pair<Element>(stage.bias, col0 + col);
#pragma unroll
    for (int i = 0; i < size<1>(acc); ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t const row = get<0>(coordinates(2 * half, i, j));
        float2 v{acc(2 * half, i, j) + bias.x, acc(2 * half + 1, i, j) + bias.y};
        float2 r{0.f, 0.f};
        if (stage.residual && inside && row < rows.count)
          r = load_pair<Element>(stage.residual, uint64_t(rows.first + row) * stage.columns + col0 + col);
        if (stage.residual_first) v.x += r.x, v.y += r.y;
        v.x = activate(stage.activation, v.x), v.y = activate(stage.activation, v.y);
        if (!stage.residual_first) v.x += r.x, v.y += r.y;
        *reinterpret_cast<uint32_t*>(staged + row * C::kStagedRow + col) = pack<Element>(v);
      }
  }
}

/// The same for a gated GEMM: atoms 2j and 2j + 1 of a warp hold 8 gate columns and the corresponding 8 up columns.
template <class C, class Accumulators>
CUSYNC_DEVICE void stage_gated(Stage const& stage, Accumulators const& acc, uint16_t* staged, int thread) {
  using namespace cute;
  auto const coordinates = typename C::TiledMma{}.get_slice(thread).partition_C(
      make_identity_tensor(take<0, 2>(typename C::TileShape{})));  // ((2, 2), MMA_M, MMA_N) -> (row, column)
#pragma unroll
  for (int j = 0; j < size<2>(acc); j += 2) {
    uint32_t const packed = get<1>(coordinates(0, 0, j)), col = packed / 16 * 8 + packed % 8;
#pragma unroll
    for (int i = 0; i < size<1>(acc); ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t const row = get<0>(coordinates(2 * half, i, j));
        float2 const v{activate_gate(stage.activation, acc(2 * half, i, j)) * acc(2 * half, i, j + 1),
                       activate_gate(stage.activation, acc(2 * half + 1, i, j)) * acc(2 * half + 1, i, j + 1)};
        *reinterpret_cast<uint32_t*>(staged + row * C::kStagedRow + col) = pack<typename C::Element>(v);
      }
  }
}

/// Copies the staging buffer to the output, skipping rows and columns outside it.
template <class C>
CUSYNC_DEVICE void store_staged(Stage const& stage, WorkItem const& item, Rows rows, uint16_t const* staged, void* d,
                                int thread) {
  constexpr uint32_t vectors = C::kOutN / 8;  // per row
  uint32_t const col0 = item.n * C::kOutN;
#pragma unroll 4
  for (uint32_t i = thread; i < C::kTileM * vectors; i += C::kThreads) {
    uint32_t const row = i / vectors, col = i % vectors * 8;
    if (row < rows.count && col0 + col < stage.columns)
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(d) + uint64_t(rows.first + row) * stage.columns + col0 + col) =
          *reinterpret_cast<uint4 const*>(staged + row * C::kStagedRow + col);
  }
}

}  // namespace cusync::kernels::sm80
