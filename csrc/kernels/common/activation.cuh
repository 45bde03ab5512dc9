// SPDX-License-Identifier: MIT OR Apache-2.0
// Activations in float, shared by all kernels.
#pragma once
#include "abi/cusync.h"
#include "cusync/ptx.cuh"

namespace cusync::kernels {

/// 1 / (1 + exp(-x)); exact limits at both ends. Two special-function instructions and two others: an epilogue's code
/// runs once per tile, so instruction fetch costs as much as execution.
CUSYNC_DEVICE float sigmoid(float x) {
  return ptx::rcp_approx_ftz(1.f + ptx::ex2_approx_ftz(-1.4426950409f * x));
}

CUSYNC_DEVICE float silu(float x) { return x * sigmoid(x); }

/// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), computed as x sigmoid(2 u) to avoid cancellation where
/// tanh is near -1. The constants are the coefficients of -2 u / log(2).
CUSYNC_DEVICE float gelu_tanh(float x) {
  float const t = x * (-2.3022081980f - 0.1029432397f * x * x);
  return x * ptx::rcp_approx_ftz(1.f + ptx::ex2_approx_ftz(t));
}

CUSYNC_DEVICE float relu(float x) { return x < 0.f ? 0.f : x; }

/// Applies an enum cusync_activation, for code where a branch per value is free.
CUSYNC_DEVICE float activate(uint32_t activation, float x) {
  return activation == CUSYNC_GELU_TANH ? gelu_tanh(x) : activation == CUSYNC_RELU ? relu(x) : x;
}

}  // namespace cusync::kernels
