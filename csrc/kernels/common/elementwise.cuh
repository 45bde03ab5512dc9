// SPDX-License-Identifier: MIT OR Apache-2.0
// The grid-stride loop of element-wise kernels, and its launch. Plain CUDA.
#pragma once
#include "kernels/common/element.cuh"

namespace cusync::kernels {

inline constexpr unsigned kElementwiseThreads = 256;

__device__ inline unsigned long long first_index() { return blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; }
__device__ inline unsigned long long index_stride() { return gridDim.x * (unsigned long long)blockDim.x; }

/// Blocks for a grid-stride loop over `count` items: enough for any GPU, at least one.
inline unsigned blocks_for(unsigned long long count) {
  unsigned long long const blocks = (count + kElementwiseThreads - 1) / kElementwiseThreads;
  return unsigned(blocks < 1 ? 1 : blocks > 4096 ? 4096 : blocks);
}

/// Whether a pointer can be read 16 bytes at a time.
inline bool aligned16(void const* pointer) { return (reinterpret_cast<uintptr_t>(pointer) & 15) == 0; }

}  // namespace cusync::kernels
