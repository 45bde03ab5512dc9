// SPDX-License-Identifier: MIT OR Apache-2.0
// out = act(A B + bias) + residual, or with the residual before the activation.
#pragma once
#include "kernels/common/sm90/operation.cuh"
#include "kernels/common/sm90/product.cuh"

namespace cusync::kernels::sm90 {

template <>
struct Operation<CUSYNC_GEMM> {
  static constexpr cusync_operation kOperation = CUSYNC_GEMM;
  static constexpr bool kProduct = true;
  using Load = ProductLoad;
  using Arithmetic = ProductArithmetic;
  using Store = MatrixStore;
  static constexpr int kColumnShift = 0;

  template <class Element, int Groups, class Residual>
  CUSYNC_DEVICE static void finish(Stage const& stage, float* v, uint32_t col, Fragment const& at, Residual const& residual,
                                   uint32_t (&words)[Groups][2]) {
    finish_chunk<Element, 8 * Groups>(stage, v, col, at, residual);
#pragma unroll
    for (int j = 0; j < Groups; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        words[j][half] = pack<Element>(v[4 * j + 2 * half], v[4 * j + 2 * half + 1]);
  }
};

}  // namespace cusync::kernels::sm90
