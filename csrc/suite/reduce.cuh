// SPDX-License-Identifier: MIT OR Apache-2.0
// Grid reductions in an order that does not depend on the arrival of CTAs.
#pragma once
#include "entry.cuh"

namespace suite {

struct Sum {
  static __device__ float identity() { return 0.f; }
  static __device__ float join(float a, float b) { return a + b; }
};
struct Max {
  static __device__ float identity() { return -__int_as_float(0x7f800000); }
  static __device__ float join(float a, float b) { return fmaxf(a, b); }
};
struct Min {
  static __device__ float identity() { return __int_as_float(0x7f800000); }
  static __device__ float join(float a, float b) { return fminf(a, b); }
};

/// Reduces over the CTA; every thread gets the result. blockDim.x is a multiple of 32, at most 1024.
template <class Op>
__device__ float reduce_block(float value) {
  __shared__ float of_warp[32];
  for (int lane = 16; lane > 0; lane /= 2) value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, lane));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : Op::identity();
  for (int lane = 16; lane > 0; lane /= 2) value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, lane));
  __syncthreads();
  return value;
}

/// Reduces over the grid: returns true in thread 0 of the last CTA to arrive, with `result`. `scratch` holds a ticket,
/// which is zero before and after, and one partial result per CTA: 1 + gridDim.x words.
template <class Op>
__device__ bool reduce_grid(float value, float* scratch, float& result) {
  __shared__ bool last;
  value = reduce_block<Op>(value);
  if (threadIdx.x == 0) {
    scratch[1 + blockIdx.x] = value;
    __threadfence();
    // Wraps to zero at the last CTA, ready for the next run.
    last = atomicInc(reinterpret_cast<unsigned*>(scratch), gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return false;
  float total = Op::identity();
  // Bypasses L1: partial results of other CTAs are not there.
  for (uint32_t i = threadIdx.x; i < gridDim.x; i += blockDim.x) total = Op::join(total, __ldcg(scratch + 1 + i));
  result = reduce_block<Op>(total);
  return threadIdx.x == 0;
}

}  // namespace suite
