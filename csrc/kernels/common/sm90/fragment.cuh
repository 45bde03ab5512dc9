// SPDX-License-Identifier: MIT OR Apache-2.0
// What the epilogues of the Hopper kernels do to accumulators in registers: bias, activation, residual, rounding.
#pragma once
#include "kernels/common/activation.cuh"
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

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

  CUSYNC_DEVICE explicit Fragment(int thread)  // of the consumers that share a chunk
      : row(thread / 32 * 16 + thread % 32 / 4), col(thread % 4 * 2) {}
};

/// The rows of a chunk of a matrix: row i of the chunk is row first + i of the output.
struct MatrixRows {
  uint32_t first;
  CUSYNC_DEVICE uint32_t operator()(uint32_t row) const { return first + row; }
  CUSYNC_DEVICE bool any(Stage const& stage) const { return first < stage.m; }
};

/// The word of two columns of row `at.row`, or of the row 8 below for half 1, in group j of 8 columns, where a chunk lies in
/// shared memory as TMA's swizzle of its row length has it: 16-byte piece j of row r is at piece j ^ (r % 8) of 8 where rows have
/// 128 bytes, at j ^ (r / 2 % 4) of 4 where they have 64. The 32 words of a warp are in 32 different banks.
template <int Pieces>
CUSYNC_DEVICE int chunk_word(Fragment const& at, int j, int half) {
  int const row = at.row + 8 * half;
  int const piece = Pieces == 8 ? j ^ (row % 8) : j ^ (row / 2 % 4);
  return row * (4 * Pieces) + piece * 4 + at.col / 2;
}

/// The residual of a chunk in global memory, an element pair at a time. `rows` says which row of the output a row of the chunk
/// is; from stage.m on it is none.
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

/// The residual of a chunk in the buffer of shared memory where the chunk itself will be.
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

/// Bias, activation and residual of `Cols` accumulator columns, in place. `v` holds a group of 4 values for each 8 of
/// them: two columns of row `fragment.row`, two of the row 8 below.
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
  // Two steps, either of which may be the first: so there is one copy of each in the code.
#pragma unroll 1
  for (uint32_t step = 0; step < 2; ++step) {
    if (step == stage.residual_first) {
      if (stage.activation == CUSYNC_GELU_TANH) {
#pragma unroll
        for (int i = 0; i < 4 * groups; ++i) v[i] = gelu_tanh(v[i]);
      } else if (stage.activation == CUSYNC_RELU) {
#pragma unroll
        for (int i = 0; i < 4 * groups; ++i) v[i] = relu(v[i]);
      }
    } else if (stage.residual) {
      residual.template add<groups>(v);
    }
  }
}

}  // namespace cusync::kernels::sm90
