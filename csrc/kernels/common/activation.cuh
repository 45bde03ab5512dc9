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

/// What an activation without code of its own is made of: f (w x + v f + u) + r, where f is a sigmoid or a clamp.
struct Curve {
  float c[8];        ///< of a sigmoid: its exponent of two for negative x, a polynomial of |x|; else see `m`
  float m;           ///< f is e / (1 + m e) for negative x, and 1 minus that for others; -1: c[0] + c[1] x from 0 to c[2]
  float w, v, u, r;
};

/// By enum cusync_activation. Phi of GELU is fitted up to |x| = 6.5, where its relative error is at most 4e-6.
__constant__ Curve const kCurves[] = {
    {{0.f, 1.f, INFINITY}, -1.f, 0.f, 0.f, 1.f, 0.f},  // identity, whose callers return before
    {{0.f, -2.3022081980f, 0.f, -0.1029432397f}, 1.f, 1.f, 0.f, 0.f, 0.f},
    {{0.f, 1.f, INFINITY}, -1.f, 0.f, 0.f, 1.f, 0.f},
    {{0.f, -1.4426950409f}, 1.f, 1.f, 0.f, 0.f, 0.f},
    {{-1.f, -1.1512114902f, -0.4585548188f, -0.0538715109f, 0.0084641604f, -0.0009191070f, 0.0000600950f, -0.0000017563f},
     0.f, 1.f, 0.f, 0.f, 0.f},
    {{0.f, -2.4554669596f}, 1.f, 1.f, 0.f, 0.f, 0.f},
    {{0.f, 1.f, INFINITY}, -1.f, 0.f, 1.f, 0.f, 0.f},
    {{0.f, 1.f, 6.f}, -1.f, 0.f, 0.f, 1.f, 0.f},
    {{0.5f, 0.1666666667f, 1.f}, -1.f, 1.f, 0.f, 0.f, 0.f},
    {{0.f, -1.4426950409f}, 1.f, 0.f, 0.f, 1.f, 0.f},
    {{0.f, -2.8853900818f}, 1.f, 0.f, 0.f, 2.f, -1.f},
};
static_assert(sizeof kCurves / sizeof kCurves[0] == CUSYNC_TANH + 1);

CUSYNC_DEVICE float on_curve(Curve const& curve, float x) {
  float f;
  if (curve.m < 0.f) {
    f = curve.c[0] + curve.c[1] * x;
    f = f < 0.f ? 0.f : f > curve.c[2] ? curve.c[2] : f;
  } else {
    float const a = fabsf(x);
    float exponent = curve.c[7];
#pragma unroll
    for (int i = 6; i >= 0; --i) exponent = exponent * a + curve.c[i];
    float const e = ptx::ex2_approx_ftz(exponent), tail = e * ptx::rcp_approx_ftz(1.f + curve.m * e);
    f = x > 0.f ? 1.f - tail : tail;
  }
  return f * (curve.w * x + curve.v * f + curve.u) + curve.r;
}

/// Applies an enum cusync_activation to `Count` values in each `Stride`, from the first on, with `Together` of them in a
/// row. Activations of the models that are measured have code of their own. The others are numbers: code for each would
/// take many times the space of the rest of an epilogue.
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
  each([&](float x) { return on_curve(kCurves[activation], x); });
}

CUSYNC_DEVICE float activate(uint32_t activation, float x) {
  activate_all<1>(activation, &x);
  return x;
}

}  // namespace cusync::kernels
