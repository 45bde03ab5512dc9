// SPDX-License-Identifier: MIT OR Apache-2.0
// out = act(A Bg) * (A Bu). Groups of 8 columns of B alternate between gate and up, so one thread holds both factors
// of each of its outputs.
#pragma once
#include "kernels/common/sm90/operation.cuh"
#include "kernels/common/sm90/product.cuh"

namespace cusync::kernels::sm90 {

template <>
struct Operation<CUSYNC_GATED_GEMM> {
  static constexpr cusync_operation kOperation = CUSYNC_GATED_GEMM;
  static constexpr bool kProduct = true;
  using Load = ProductLoad;
  using Arithmetic = ProductArithmetic;
  using Store = MatrixStore;
  static constexpr int kColumnShift = 1;

  template <class Element, int Groups, class Residual>
  CUSYNC_DEVICE static void finish(Stage const& stage, float* v, uint32_t, Fragment const&, Residual const&,
                                   uint32_t (&words)[Groups][2]) {
    activate_gates<8 * Groups, 4, 8>(stage.activation, v);
#pragma unroll
    for (int j = 0; j < Groups; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float const* const gate = v + 8 * j + 2 * half;
        float const* const up = gate + 4;
        words[j][half] = pack<Element>(gate[0] * up[0], gate[1] * up[1]);
      }
  }
};

}  // namespace cusync::kernels::sm90
