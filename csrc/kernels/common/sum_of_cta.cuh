// SPDX-License-Identifier: MIT OR Apache-2.0
// Sums over the threads of a CTA, for normalizations that run alone.
#pragma once
#include <cstdint>

namespace cusync::kernels {

/// Sums one value per thread over the CTA, for each row; bitwise identical in all threads and runs: a butterfly over
/// lanes, then another over warps.
template <int kRows>
__device__ void sum_of_cta(float (&value)[kRows], float (&of_warps)[kRows][32]) {
  auto const butterfly = [](float sum) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
  };
  uint32_t const lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    value[r] = butterfly(value[r]);
    if (lane == 0) of_warps[r][threadIdx.x / 32] = value[r];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) value[r] = butterfly(lane < blockDim.x / 32 ? of_warps[r][lane] : 0.f);
}

}  // namespace cusync::kernels
