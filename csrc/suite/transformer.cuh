// SPDX-License-Identifier: MIT OR Apache-2.0
// M1 and M2: chains of element-wise transformer kernels. Matrices are row-major.
#pragma once
#include "reduce.cuh"

/// y = GELU (tanh form) of x + column bias.
extern "C" __global__ void tf_bias_gelu(float const* x, float const* bias, float* y, uint32_t rows, uint32_t columns) {
  suite::begin(x, bias, y, rows, columns);
  for (uint32_t i = suite::thread_index(); i < rows * columns; i += suite::thread_count()) {
    float const v = x[i] + bias[i % columns];
    y[i] = 0.5f * v * (1.f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
  }
}

/// y = each row of x normalized to mean 0 and standard deviation 1, times gain plus shift per column. One CTA per row.
extern "C" __global__ void tf_layer_norm(float const* x, float const* gain, float const* shift, float* y,
                                         uint32_t columns) {
  suite::begin(x, gain, shift, y, columns);
  float const* row = x + blockIdx.x * columns;
  float sum = 0.f, squares = 0.f;
  for (uint32_t i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
  float const mean = suite::reduce_block<suite::Sum>(sum) / float(columns);
  for (uint32_t i = threadIdx.x; i < columns; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
  float const scale = rsqrtf(suite::reduce_block<suite::Sum>(squares) / float(columns) + 1e-5f);
  for (uint32_t i = threadIdx.x; i < columns; i += blockDim.x)
    y[blockIdx.x * columns + i] = (row[i] - mean) * scale * gain[i] + shift[i];
}

/// z = x + y.
extern "C" __global__ void tf_residual(float const* x, float const* y, float* z, uint32_t n) {
  suite::begin(x, y, z, n);
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) z[i] = x[i] + y[i];
}

/// y = sum of the first `count` inputs, in order.
extern "C" __global__ void tf_join(float const* x0, float const* x1, float const* x2, float const* x3, float const* x4,
                                   float const* x5, float const* x6, float const* x7, float const* x8,
                                   float const* x9, float const* x10, float const* x11, float* y, uint32_t count,
                                   uint32_t n) {
  suite::begin(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, y, count, n);
  float const* const inputs[12] = {x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11};
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) {
    float sum = 0.f;
#pragma unroll
    for (uint32_t k = 0; k < 12; ++k)
      if (k < count) sum += inputs[k][i];
    y[i] = sum;
  }
}
