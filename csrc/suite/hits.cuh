// SPDX-License-Identifier: MIT OR Apache-2.0
// HITS: hubs and authorities of a graph in compressed sparse row (CSR) form.
#pragma once
#include "reduce.cuh"

/// y = A x. `begin` has rows + 1 entries; `column` and `value` have one entry per non-zero.
extern "C" __global__ void hits_spmv(uint32_t const* begin, uint32_t const* column, float const* value, float const* x,
                                     float* y, uint32_t rows) {
  suite::begin(begin, column, value, x, y, rows);
  for (uint32_t row = suite::thread_index(); row < rows; row += suite::thread_count()) {
    float sum = 0.f;
    for (uint32_t i = begin[row]; i < begin[row + 1]; ++i) sum += value[i] * x[column[i]];
    y[row] = sum;
  }
}

/// norm[0] += sum of x.
extern "C" __global__ void hits_sum(float const* x, float* norm, float* scratch, uint32_t n) {
  suite::begin(x, norm, scratch, n);
  float part = 0.f, total;
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) part += x[i];
  if (suite::reduce_grid<suite::Sum>(part, scratch, total)) norm[0] += total;
}

/// y = x / norm[0].
extern "C" __global__ void hits_divide(float const* x, float const* norm, float* y, uint32_t n) {
  suite::begin(x, norm, y, n);
  float const by = norm[0];
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) y[i] = x[i] / by;
}

/// Zeroes both vectors and both norms.
extern "C" __global__ void hits_reset(float* x, float* y, float* x_norm, float* y_norm, uint32_t n) {
  suite::begin(x, y, x_norm, y_norm, n);
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) x[i] = y[i] = 0.f;
  if (suite::thread_index() == 0) x_norm[0] = y_norm[0] = 0.f;
}
