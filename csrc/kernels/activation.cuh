// SPDX-License-Identifier: MIT OR Apache-2.0
// Activations in float, the same wherever they are applied.
#pragma once
#include "cusync.h"
#include "cusync/ptx.cuh"

namespace cusync::kernels {

/// 1 / (1 + exp(-x)); exact limits at both ends.
CUSYNC_DEVICE float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

CUSYNC_DEVICE float silu(float x) { return x * sigmoid(x); }

/// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x sigmoid(2 u): no cancellation where
/// tanh is near -1.
CUSYNC_DEVICE float gelu_tanh(float x) {
  float const u2 = x * (1.5957691216f + 0.0713548163f * x * x);
  return x * sigmoid(u2);
}

CUSYNC_DEVICE float relu(float x) { return x < 0.f ? 0.f : x; }

/// By enum cusync_activation, for code where a branch on each value costs nothing.
CUSYNC_DEVICE float activate(uint32_t activation, float x) {
  return activation == CUSYNC_GELU_TANH ? gelu_tanh(x) : activation == CUSYNC_RELU ? relu(x) : x;
}

}  // namespace cusync::kernels
