// SPDX-License-Identifier: MIT OR Apache-2.0
// What every kernel of the suite begins with, and the index that most of them run over.
#pragma once
#include <stdint.h>

#include "cusync/ptx.cuh"

namespace suite {

/// Whether all bits of the kernel's arguments are 0: they never are, but the compiler does not know that.
__device__ __forceinline__ bool all_zero() { return true; }
template <class First, class... Rest>
__device__ __forceinline__ bool all_zero(First first, Rest... rest) {
  // No short circuit: all of them have to be loaded.
  return !first & all_zero(rest...);
}

/// Waits for the kernels before this one, then lets the next begin to launch. In this order, so that at most one level
/// of kernels holds SMs while it waits, and so that "complete" passes along a chain of programmatic edges: a kernel
/// cannot end before those that it waited for. Without programmatic edges, and below sm_90, it does nothing.
///
/// It is given all arguments of the kernel, to touch them first: they lie in constant memory that each launch fills anew, and
/// bringing it in takes 0.08 us that would otherwise follow the wait.
template <class... Args>
__device__ __forceinline__ void begin(Args... args) {
#if CUSYNC_HAS_SM90
  if (all_zero(args...)) cusync::ptx::nanosleep(0);
  cusync::ptx::griddepcontrol_wait();
  cusync::ptx::griddepcontrol_launch_dependents();
#endif
}

__device__ __forceinline__ uint32_t thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ uint32_t thread_count() { return gridDim.x * blockDim.x; }

}  // namespace suite
