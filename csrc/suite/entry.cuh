// SPDX-License-Identifier: MIT OR Apache-2.0
// Common entry code of the suite's kernels, and the thread index that most of them loop over.
#pragma once
#include <stdint.h>

#include "cusync/ptx.cuh"

namespace suite {

/// Whether all bits of the kernel's arguments are 0. They never are, but the compiler does not know that.
__device__ __forceinline__ bool all_zero() { return true; }
template <class First, class... Rest>
__device__ __forceinline__ bool all_zero(First first, Rest... rest) {
  // No short circuit: all arguments must be loaded.
  return !first & all_zero(rest...);
}

/// Waits for the preceding kernels, then lets the next one launch. This order ensures that at most one level of kernels
/// holds SMs while it waits, and that completion is transitive along a chain of programmatic edges: a kernel cannot
/// complete before those it waited for. Does nothing without programmatic edges or below sm_90.
///
/// Takes all arguments of the kernel in order to touch them first: they are in constant memory that each launch
/// refills, and fetching it takes 0.08 us that would otherwise follow the wait.
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
