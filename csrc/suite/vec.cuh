// SPDX-License-Identifier: MIT OR Apache-2.0
// VEC: two squares and the sum of their differences.
#pragma once
#include "reduce.cuh"

/// y = x * x.
extern "C" __global__ void vec_square(float const* x, float* y, uint32_t n) {
  suite::begin(x, y, n);
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) y[i] = x[i] * x[i];
}

/// result[0] = sum of x - y.
extern "C" __global__ void vec_reduce(float const* x, float const* y, float* result, float* scratch, uint32_t n) {
  suite::begin(x, y, result, scratch, n);
  float part = 0.f, total;
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) part += x[i] - y[i];
  if (suite::reduce_grid<suite::Sum>(part, scratch, total)) result[0] = total;
}
