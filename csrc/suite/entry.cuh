// SPDX-License-Identifier: MIT OR Apache-2.0
// What every kernel of the suite begins with, and the index that most of them run over.
#pragma once
#include <stdint.h>

#include "cusync/ptx.cuh"

namespace suite {

/// Waits for the kernels before this one, then lets the next begin to launch. In this order, so that at most one level
/// of kernels holds SMs while it waits, and so that "complete" passes along a chain of programmatic edges: a kernel
/// cannot end before those that it waited for. Without programmatic edges, and below sm_90, it does nothing.
__device__ __forceinline__ void begin() {
#if CUSYNC_HAS_SM90
  cusync::ptx::griddepcontrol_wait();
  cusync::ptx::griddepcontrol_launch_dependents();
#endif
}

__device__ __forceinline__ uint32_t thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ uint32_t thread_count() { return gridDim.x * blockDim.x; }

}  // namespace suite
