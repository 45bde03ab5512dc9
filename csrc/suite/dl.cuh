// SPDX-License-Identifier: MIT OR Apache-2.0
// DL: two towers of convolutions joined by a dot product. Images are (channel, y, x), n x n.
#pragma once
#include "reduce.cuh"

/// 3 x 3, stride 2, zero padding of 1, ReLU: (in, n, n) -> (out, n / 2, n / 2), n even. gridDim.y is `out`; weights are
/// (out, in, 3, 3).
extern "C" __global__ void dl_conv(float const* x, float const* weights, float* y, uint32_t n, uint32_t in) {
  suite::begin(x, weights, y, n, in);
  uint32_t const half = n / 2, channel = blockIdx.y;
  for (uint32_t i = suite::thread_index(); i < half * half; i += suite::thread_count()) {
    int const top = int(i / half) * 2 - 1, left = int(i % half) * 2 - 1;
    float sum = 0.f;
    for (uint32_t c = 0; c < in; ++c) {
      float const* weight = weights + (channel * in + c) * 9;
      float const* plane = x + c * n * n;
      for (int dy = 0; dy < 3; ++dy) {
        for (int dx = 0; dx < 3; ++dx) {
          int const row = top + dy, column = left + dx;
          // No check of the far border is needed: top + 2 <= n - 1.
          if (row >= 0 && column >= 0) sum += weight[dy * 3 + dx] * plane[row * int(n) + column];
        }
      }
    }
    y[channel * half * half + i] = fmaxf(sum, 0.f);
  }
}

/// 2 x 2 mean pooling: (channels, n, n) -> (channels, n / 2, n / 2); `outputs` = channels * (n / 2)^2.
extern "C" __global__ void dl_mean_pool(float const* x, float* y, uint32_t n, uint32_t outputs) {
  suite::begin(x, y, n, outputs);
  uint32_t const half = n / 2;
  for (uint32_t i = suite::thread_index(); i < outputs; i += suite::thread_count()) {
    float const* corner = x + i / (half * half) * n * n + i / half % half * 2 * n + i % half * 2;
    y[i] = 0.25f * (corner[0] + corner[1] + corner[n] + corner[n + 1]);
  }
}

/// z = x followed by y; n values each.
extern "C" __global__ void dl_concat(float const* x, float const* y, float* z, uint32_t n) {
  suite::begin(x, y, z, n);
  for (uint32_t i = suite::thread_index(); i < 2 * n; i += suite::thread_count()) z[i] = i < n ? x[i] : y[i - n];
}

/// result[0] = x . weights.
extern "C" __global__ void dl_dot(float const* x, float const* weights, float* result, float* scratch, uint32_t n) {
  suite::begin(x, weights, result, scratch, n);
  float part = 0.f, total;
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) part += x[i] * weights[i];
  if (suite::reduce_grid<suite::Sum>(part, scratch, total)) result[0] = total;
}
