// SPDX-License-Identifier: MIT OR Apache-2.0
// IMG: sharpens a portrait. Images are n x n, row-major, clamped at the borders.
#pragma once
#include "reduce.cuh"

namespace suite {
__device__ __forceinline__ uint32_t clamped(int at, uint32_t n) { return uint32_t(min(max(at, 0), int(n) - 1)); }
}  // namespace suite

/// out = image convolved with weights (diameter x diameter, diameter odd).
extern "C" __global__ void img_blur(float const* image, float const* weights, float* out, uint32_t n,
                                    uint32_t diameter) {
  suite::begin(image, weights, out, n, diameter);
  int const radius = int(diameter / 2);
  for (uint32_t i = suite::thread_index(); i < n * n; i += suite::thread_count()) {
    int const y = int(i / n), x = int(i % n);
    float sum = 0.f;
    for (int dy = -radius; dy <= radius; ++dy) {
      float const* row = image + suite::clamped(y + dy, n) * n;
      float const* weight = weights + (dy + radius) * int(diameter) + radius;
      for (int dx = -radius; dx <= radius; ++dx) sum += weight[dx] * row[suite::clamped(x + dx, n)];
    }
    out[i] = sum;
  }
}

/// out = magnitude of the Sobel gradient.
extern "C" __global__ void img_sobel(float const* image, float* out, uint32_t n) {
  suite::begin(image, out, n);
  for (uint32_t i = suite::thread_index(); i < n * n; i += suite::thread_count()) {
    int const y = int(i / n), x = int(i % n);
    float const* above = image + suite::clamped(y - 1, n) * n;
    float const* level = image + y * int(n);
    float const* below = image + suite::clamped(y + 1, n) * n;
    uint32_t const left = suite::clamped(x - 1, n), right = suite::clamped(x + 1, n);
    float const gx = above[right] + 2.f * level[right] + below[right] - above[left] - 2.f * level[left] - below[left];
    float const gy = below[left] + 2.f * below[x] + below[right] - above[left] - 2.f * above[x] - above[right];
    out[i] = sqrtf(gx * gx + gy * gy);
  }
}

/// largest[0] = maximum of the image.
extern "C" __global__ void img_max(float const* image, float* largest, float* scratch, uint32_t n) {
  suite::begin(image, largest, scratch, n);
  float part = suite::Max::identity(), total;
  for (uint32_t i = suite::thread_index(); i < n * n; i += suite::thread_count()) part = fmaxf(part, image[i]);
  if (suite::reduce_grid<suite::Max>(part, scratch, total)) largest[0] = total;
}

/// smallest[0] = minimum of the image.
extern "C" __global__ void img_min(float const* image, float* smallest, float* scratch, uint32_t n) {
  suite::begin(image, smallest, scratch, n);
  float part = suite::Min::identity(), total;
  for (uint32_t i = suite::thread_index(); i < n * n; i += suite::thread_count()) part = fminf(part, image[i]);
  if (suite::reduce_grid<suite::Min>(part, scratch, total)) smallest[0] = total;
}

/// Stretches the image from smallest..largest to 0..5 and clamps it at 1, in place.
extern "C" __global__ void img_extend(float* image, float const* smallest, float const* largest, uint32_t n) {
  suite::begin(image, smallest, largest, n);
  float const low = smallest[0], scale = 5.f / (largest[0] - low);
  for (uint32_t i = suite::thread_index(); i < n * n; i += suite::thread_count())
    image[i] = fminf((image[i] - low) * scale, 1.f);
}

/// out = image + amount * (image - blurred), clamped to 0..1.
extern "C" __global__ void img_unsharpen(float const* image, float const* blurred, float* out, float amount,
                                         uint32_t n) {
  suite::begin(image, blurred, out, amount, n);
  for (uint32_t i = suite::thread_index(); i < n * n; i += suite::thread_count())
    out[i] = fminf(fmaxf(image[i] + amount * (image[i] - blurred[i]), 0.f), 1.f);
}

/// out = blend of x and y: x where the mask is 1, y where it is 0.
extern "C" __global__ void img_combine(float const* x, float const* y, float const* mask, float* out, uint32_t n) {
  suite::begin(x, y, mask, out, n);
  for (uint32_t i = suite::thread_index(); i < n * n; i += suite::thread_count())
    out[i] = x[i] * mask[i] + y[i] * (1.f - mask[i]);
}
