// SPDX-License-Identifier: MIT OR Apache-2.0
// Pairs of 16-bit elements in registers, and the warp-level MMA that uses them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cute/arch/mma_sm80.hpp"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

#include "cusync/ptx.cuh"

namespace cusync::kernels::decode {

/// Two 16-bit elements in one register, and their MMA: 16 x 16 by 16 x 8.
template <class Element>
struct Packed;

template <>
struct Packed<cutlass::half_t> {
  using Mma = cute::SM80_16x8x16_F32F16F16F32_TN;
  CUSYNC_DEVICE static uint32_t of(float x, float y) {
    __half2 const v = __floats2half2_rn(x, y);
    return reinterpret_cast<uint32_t const&>(v);
  }
  CUSYNC_DEVICE static float2 values(uint32_t v) { return __half22float2(reinterpret_cast<__half2 const&>(v)); }
};

template <>
struct Packed<cutlass::bfloat16_t> {
  using Mma = cute::SM80_16x8x16_F32BF16BF16F32_TN;
  CUSYNC_DEVICE static uint32_t of(float x, float y) {
    __nv_bfloat162 const v = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<uint32_t const&>(v);
  }
  CUSYNC_DEVICE static float2 values(uint32_t v) {
    return __bfloat1622float2(reinterpret_cast<__nv_bfloat162 const&>(v));
  }
};

}  // namespace cusync::kernels::decode
