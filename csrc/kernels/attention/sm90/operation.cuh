// SPDX-License-Identifier: MIT OR Apache-2.0
// out = softmax(Q K^T / sqrt(dim)) V of whole sequences, head by head.
#pragma once
#include "kernels/attention/sm90/arithmetic.cuh"
#include "kernels/attention/sm90/load.cuh"
#include "kernels/attention/sm90/store.cuh"

namespace cusync::kernels::sm90 {

template <>
struct Operation<CUSYNC_ATTENTION> {
  static constexpr cusync_operation kOperation = CUSYNC_ATTENTION;
  static constexpr bool kProduct = true;
  using Load = PromptLoad;
  using Arithmetic = PromptArithmetic;
  using Store = SequenceStore;
  static constexpr int kColumnShift = 0;

  template <class Element, int Groups, class Residual>
  CUSYNC_DEVICE static void finish(Stage const&, float* v, uint32_t, Fragment const&, Residual const&,
                                   uint32_t (&words)[Groups][2]) {
#pragma unroll
    for (int i = 0; i < 2 * Groups; ++i) words[i / 2][i % 2] = pack<Element>(v[2 * i], v[2 * i + 1]);
  }
};

}  // namespace cusync::kernels::sm90
