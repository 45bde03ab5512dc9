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

/// By enum cusync_activation; in global memory, since a launch of a kernel with constants of its own takes longer. Phi of
/// GELU is fitted up to |x| = 6.5, where its relative error is at most 4e-6.
__device__ Curve const kCurves[] = {
    {{1.f, 0.f, 1.f}, -1.f, 1.f, 0.f, 0.f, 0.f},
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

/// Whether something is true in few runs: the compiler then keeps its code out of the way of the rest. An epilogue's
/// code is fetched as often as it runs.
CUSYNC_DEVICE bool rarely(bool condition) { return __builtin_expect(condition, 0); }

/// Applies an activation without code of its own to the first `Together` values of each `Stride`. Values pass in turn
/// through one copy of the code.
template <int Count, int Together, int Stride>
CUSYNC_DEVICE void follow_curve(uint32_t activation, float* v) {
#pragma unroll 1
  for (int turn = 0; turn < Count; ++turn) {
    float const first = turn % Stride < Together ? on_curve(kCurves[activation], v[0]) : v[0];
#pragma unroll
    for (int i = 0; i + 1 < Count; ++i) v[i] = v[i + 1];
    v[Count - 1] = first;
  }
}

/// Applies an enum cusync_activation to sums.
template <int Count>
CUSYNC_DEVICE void activate_all(uint32_t activation, float* v) {
  if (activation == CUSYNC_GELU_TANH) {
#pragma unroll
    for (int i = 0; i < Count; ++i) v[i] = gelu_tanh(v[i]);
  } else if (activation == CUSYNC_RELU) {
#pragma unroll
    for (int i = 0; i < Count; ++i) v[i] = relu(v[i]);
  } else if (rarely(activation != CUSYNC_IDENTITY)) {
    follow_curve<Count, 1, 1>(activation, v);
  }
}

CUSYNC_DEVICE float activate(uint32_t activation, float x) {
  activate_all<1>(activation, &x);
  return x;
}

/// Applies it to gates: the first `Together` values of each `Stride`.
template <int Count, int Together = 1, int Stride = Together>
CUSYNC_DEVICE void activate_gates(uint32_t activation, float* v) {
  if (rarely(activation != CUSYNC_SILU)) return follow_curve<Count, Together, Stride>(activation, v);
#pragma unroll
  for (int i = 0; i < Count; ++i)
    if (i % Stride < Together) v[i] = silu(v[i]);
}

CUSYNC_DEVICE float activate_gate(uint32_t activation, float x) {
  activate_gates<1>(activation, &x);
  return x;
}

}  // namespace cusync::kernels
