// SPDX-License-Identifier: MIT OR Apache-2.0
// out = A B + bias: queries, keys and values of all heads, with queries and keys rotated by the position of their row.
// A head is one unit of 64 columns or two consecutive ones, so a thread holds both elements of each of its pairs.
#pragma once
#include "kernels/attention/sm90/prompt.cuh"
#include "kernels/common/sm90/operation.cuh"
#include "kernels/common/sm90/product.cuh"

namespace cusync::kernels::sm90 {

template <>
struct Operation<CUSYNC_ROTATED_GEMM> {
  static constexpr cusync_operation kOperation = CUSYNC_ROTATED_GEMM;
  static constexpr bool kProduct = true;
  using Load = ProductLoad;
  using Arithmetic = ProductArithmetic;
  using Store = MatrixStore;
  static constexpr int kColumnShift = 0;

  /// Adds other parts' sums and the bias to unit `u`, which is current, and rotates it; if heads have 128 columns,
  /// handles both units of a head at the first. `add_sums(unit, sums)` adds other parts' sums.
  template <class C, class Item, class Units, class AddSums>
  CUSYNC_DEVICE static void turn(typename C::Params const& params, Item const& item, Fragment const& at, uint32_t u, uint32_t group,
                                 Units& units, AddSums&& add_sums) {
    using Element = typename C::Element;
    constexpr int kPairs = C::kUnitCols / 8;  // column groups per unit
    static_assert(C::kRowUnits == 1 && C::kColUnits % 2 == 0, "units of a head follow each other");
    Rotation const& rotation = params.rotations[item.stage];
    Stage const& stage = params.stages[item.stage];
    bool const wide = rotation.head_dim == 128;
    if (wide && u % 2) return;
    uint32_t const col = item.range.n * C::kTileN + u * C::kUnitCols;
    float *const v = units.values[0], *const w = units.values[1];
    add_sums(u, v);
    if (wide) add_sums(u + 1, w);
    if (stage.bias) {
      add_bias<Element, kPairs>(stage, v, col, at);
      if (wide) add_bias<Element, kPairs>(stage, w, col + C::kUnitCols, at);
    }
    if (col >= uint32_t(rotation.heads) * rotation.head_dim) return;
    uint32_t const row = item.range.m * C::kTileM + group * C::kUnitRows + at.row;
    if (wide)
      rotate<Element, 128>(rotation, row, at.col, v, w);
    else
      rotate<Element, 64>(rotation, row, at.col, v, v + 2 * kPairs);
  }

  template <class Element, int Groups, class Residual>
  CUSYNC_DEVICE static void finish(Stage const&, float* v, uint32_t, Fragment const&, Residual const&, uint32_t (&words)[Groups][2]) {
#pragma unroll
    for (int i = 0; i < 2 * Groups; ++i) words[i / 2][i % 2] = pack<Element>(v[2 * i], v[2 * i + 1]);
  }

 private:
  template <class Element, int Groups>
  CUSYNC_DEVICE static void add_bias(Stage const& stage, float* v, uint32_t col, Fragment const& at) {
#pragma unroll
    for (int j = 0; j < Groups; ++j)
      if (col + 8 * j < stage.columns) {
        float2 const b = load_pair<Element>(stage.bias, col + 8 * j + at.col);
        v[4 * j] += b.x, v[4 * j + 1] += b.y, v[4 * j + 2] += b.x, v[4 * j + 3] += b.y;
      }
  }

  /// Rotates the pairs (v[i], w[i]) of rows `row` and `row` + 8 of the output, from column `col` of a head's first
  /// half.
  template <class Element, int Dim>
  CUSYNC_DEVICE static void rotate(Rotation const& rotation, uint32_t row, int col, float* v, float* w) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint64_t const place = uint64_t((row + 8 * half) % rotation.tokens) * Dim + col;
#pragma unroll
      for (int j = 0; j < Dim / 16; ++j) {
        float2 const c = load_pair<Element>(rotation.angles, place + 8 * j), s = load_pair<Element>(rotation.angles, place + Dim / 2 + 8 * j);
        float *const x = v + 4 * j + 2 * half, *const y = w + 4 * j + 2 * half;
        float const first = x[0] * c.x - y[0] * s.x, second = x[1] * c.y - y[1] * s.y;
        y[0] = x[0] * s.x + y[0] * c.x, y[1] = x[1] * s.y + y[1] * c.y;
        x[0] = first, x[1] = second;
      }
    }
  }
};

}  // namespace cusync::kernels::sm90
