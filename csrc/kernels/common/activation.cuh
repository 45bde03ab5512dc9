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

/// x Phi(x) by formula 7.1.26 of Abramowitz and Stegun: erfc(a) = t poly(t) exp(-a^2) with t = 1 / (1 + p a), off by
/// at most 1.5e-7. The constants are theirs, halved, and for a = |x| / sqrt(2).
CUSYNC_DEVICE float gelu_erf(float x) {
  float const a = fabsf(x), t = ptx::rcp_approx_ftz(1.f + 0.2316418875f * a);
  float const poly = ((((0.5307027145f * t - 0.7265760135f) * t + 0.7107068705f) * t - 0.142248368f) * t + 0.127414796f) * t;
  float const beyond = poly * ptx::ex2_approx_ftz(-0.7213475204f * a * a);
  return x > 0.f ? x - x * beyond : x * beyond;
}

CUSYNC_DEVICE float relu6(float x) { return x > 6.f ? 6.f : relu(x); }

/// 2 sigmoid(2 x) - 1, or the first terms of the series where that would cancel.
CUSYNC_DEVICE float tanh_of(float x) {
  float const square = x * x;
  float const near = x + x * square * (-0.3333333333f + square * (0.1333333333f + square * -0.0539682540f));
  return square < 0.04f ? near : 2.f * sigmoid(2.f * x) - 1.f;
}

/// Applies an enum cusync_activation, for code where a branch per value is free.
CUSYNC_DEVICE float activate(uint32_t activation, float x) {
  switch (activation) {
    case CUSYNC_GELU_TANH: return gelu_tanh(x);
    case CUSYNC_RELU: return relu(x);
    case CUSYNC_SILU: return silu(x);
    case CUSYNC_GELU_ERF: return gelu_erf(x);
    case CUSYNC_QUICK_GELU: return x * sigmoid(1.702f * x);
    case CUSYNC_SQUARED_RELU: return relu(x) * relu(x);
    case CUSYNC_RELU6: return relu6(x);
    case CUSYNC_HARD_SWISH: return x * (relu6(x + 3.f) * (1.f / 6.f));
    case CUSYNC_SIGMOID: return sigmoid(x);
    case CUSYNC_TANH: return tanh_of(x);
    default: return x;
  }
}

/// Applies one of `Count` values in each `Stride`, from the first on, with `Together` of them in a row. Those of the
/// models that are measured have code for all values. The others share one copy, through which values pass in turn: a
/// copy each would take many times the space of the rest of an epilogue.
template <int Count, int Together = Count, int Stride = Together>
CUSYNC_DEVICE void activate_all(uint32_t activation, float* v) {
  static_assert(Count % Stride == 0 && Together <= Stride);
  auto const each = [&](auto const& function) {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      if (i % Stride < Together) v[i] = function(v[i]);
  };
  if (activation == CUSYNC_IDENTITY) return;
  if (activation == CUSYNC_GELU_TANH) return each([](float x) { return gelu_tanh(x); });
  if (activation == CUSYNC_RELU) return each([](float x) { return relu(x); });
  if (activation == CUSYNC_SILU) return each([](float x) { return silu(x); });
  constexpr int kPiece = Together < 4 ? Together : 4;
  static_assert(Together % kPiece == 0 && Stride % kPiece == 0);
#pragma unroll 1
  for (int turn = 0; turn < Count / kPiece; ++turn) {
    float first[kPiece];
#pragma unroll
    for (int i = 0; i < kPiece; ++i) first[i] = turn * kPiece % Stride < Together ? activate(activation, v[i]) : v[i];
#pragma unroll
    for (int i = 0; i < Count - kPiece; ++i) v[i] = v[i + kPiece];
#pragma unroll
    for (int i = 0; i < kPiece; ++i) v[Count - kPiece + i] = first[i];
  }
}

}  // namespace cusync::kernels
