// SPDX-License-Identifier: MIT OR Apache-2.0
// Epilogue operations of the Hopper kernels on accumulators in registers: bias, activation, residual, rounding.
#pragma once
#include "kernels/common/activation.cuh"
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// Packs two neighboring elements into one 32-bit word.
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

/// A thread's position in a chunk: the WGMMA accumulator gives it columns `col` and `col` + 1 of every group of 8
/// columns, in rows `row` and `row` + 8.
struct Fragment {
  int row, col;

  CUSYNC_DEVICE explicit Fragment(int thread)  // index among the consumer threads that share a chunk
      : row(thread / 32 * 16 + thread % 32 / 4), col(thread % 4 * 2) {}
};

/// The rows of a chunk of a matrix: row i of the chunk is row first + i of the output.
struct MatrixRows {
  uint32_t first;
  CUSYNC_DEVICE uint32_t operator()(uint32_t row) const { return first + row; }
  CUSYNC_DEVICE bool any(Stage const& stage) const { return first < stage.m; }
};

/// The 32-bit word of two columns of row `at.row` (or of the row 8 below, for half 1) in group j of 8 columns. Chunks
/// in shared memory have the TMA swizzle of their row length: 16-byte piece j of row r is at piece j ^ (r % 8) of 8 in
/// 128-byte rows, and at j ^ (r / 2 % 4) of 4 in 64-byte rows. The 32 words of a warp are in 32 different banks.
template <int Pieces>
CUSYNC_DEVICE int chunk_word(Fragment const& at, int j, int half) {
  int const row = at.row + 8 * half;
  int const piece = Pieces == 8 ? j ^ (row % 8) : j ^ (row / 2 % 4);
  return row * (4 * Pieces) + piece * 4 + at.col / 2;
}

/// The residual of a chunk in global memory, one element pair at a time. `rows` maps rows of the chunk to rows of the
/// output; results >= stage.m are outside the output.
template <class Element, class Rows>
struct GlobalResidual {
  Stage const& stage;
  Rows const& rows;
  uint32_t col0;
  Fragment const& at;

  template <int Groups>
  CUSYNC_DEVICE void add(float* v) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t const row = rows(at.row + 8 * half);
      if (row < stage.m)
#pragma unroll
        for (int j = 0; j < Groups; ++j)
          if (col0 + 8 * j < stage.columns) {
            float2 const r =
                load_pair<Element>(stage.residual, uint64_t(row) * stage.columns + col0 + 8 * j + at.col);
            v[4 * j + 2 * half] += r.x, v[4 * j + 2 * half + 1] += r.y;
          }
    }
  }
};

/// The residual of a chunk, in the shared-memory buffer that the chunk itself will overwrite.
template <class Element>
struct StagedResidual {
  Element const* buffer;
  Fragment const& at;

  template <int Groups>
  CUSYNC_DEVICE void add(float* v) const {
#pragma unroll
    for (int j = 0; j < Groups; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 const r = load_pair<Element>(buffer, 2 * chunk_word<Groups>(at, j, half));
        v[4 * j + 2 * half] += r.x, v[4 * j + 2 * half + 1] += r.y;
      }
  }
};

/// Applies bias, activation and residual to `Cols` accumulator columns, in place. `v` holds 4 values per group of 8
/// columns: two columns of row `fragment.row`, and two of the row 8 below.
template <class Element, int Cols, class Residual>
CUSYNC_DEVICE void finish_chunk(Stage const& stage, float* v, uint32_t col0, Fragment const& at, Residual const& residual) {
  constexpr int groups = Cols / 8;
  if (stage.bias) {
#pragma unroll
    for (int j = 0; j < groups; ++j)
      if (col0 + 8 * j < stage.columns) {
        float2 const b = load_pair<Element>(stage.bias, col0 + 8 * j + at.col);
        v[4 * j] += b.x, v[4 * j + 1] += b.y, v[4 * j + 2] += b.x, v[4 * j + 3] += b.y;
      }
  }
  // A loop over both steps, which run in either order: the code has only one copy of each.
#pragma unroll 1
  for (uint32_t step = 0; step < 2; ++step) {
    if (step == stage.residual_first) {
      activate_all<4 * groups, 4>(stage.activation, v);
    } else if (stage.residual) {
      residual.template add<groups>(v);
    }
  }
}

}  // namespace cusync::kernels::sm90
