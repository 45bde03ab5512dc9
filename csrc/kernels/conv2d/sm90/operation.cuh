// SPDX-License-Identifier: MIT OR Apache-2.0
// out = act(conv(A, B) + bias) + residual over NHWC images, or with the residual before the activation.
#pragma once
#include "kernels/conv2d/sm90/load.cuh"
#include "kernels/conv2d/sm90/store.cuh"
#include "kernels/gemm/sm90/operation.cuh"

namespace cusync::kernels::sm90 {

/// A matrix product, except for the inputs of its tiles and the placement of its rows.
template <>
struct Operation<CUSYNC_CONV2D> : Operation<CUSYNC_GEMM> {
  static constexpr cusync_operation kOperation = CUSYNC_CONV2D;
  using Load = WindowLoad;
  using Arithmetic = WindowArithmetic;
  using Store = PixelStore;
};

}  // namespace cusync::kernels::sm90
