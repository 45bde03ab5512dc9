// SPDX-License-Identifier: MIT OR Apache-2.0
// Pairs of 16-bit elements in registers: the warp-level MMA that uses them, their rotation and their rounding.
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

/// Two (low, high) pairs.
struct Pairs {
  float2 low, high;
};

/// Rotates pairs by cosines and sines.
template <class Element>
CUSYNC_DEVICE Pairs rotated(Pairs const& pairs, uint32_t cosines, uint32_t sines) {
  using P = Packed<Element>;
  float2 const a = pairs.low, b = pairs.high, c = P::values(cosines), s = P::values(sines);
  return {make_float2(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y),
          make_float2(b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y)};
}

/// The elements of two words.
template <class Element>
CUSYNC_DEVICE Pairs pairs_of(uint32_t low, uint32_t high) {
  return {Packed<Element>::values(low), Packed<Element>::values(high)};
}

CUSYNC_DEVICE float sum_of_squares(Pairs const& pairs) {
  float2 const a = pairs.low, b = pairs.high;
  return a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
}

/// Multiplies pairs by the norm of their head and by their gains.
template <class Element>
CUSYNC_DEVICE void scale_by(Pairs& pairs, float norm, uint32_t low, uint32_t high) {
  Pairs const gains = pairs_of<Element>(low, high);
  pairs.low.x *= norm * gains.low.x, pairs.low.y *= norm * gains.low.y;
  pairs.high.x *= norm * gains.high.x, pairs.high.y *= norm * gains.high.y;
}

/// Extracts two rounded values and leaves the rounding errors.
template <class Element>
CUSYNC_DEVICE uint32_t take_rounded(float2& values) {
  uint32_t const two = Packed<Element>::of(values.x, values.y);
  float2 const rounded = Packed<Element>::values(two);
  values.x -= rounded.x, values.y -= rounded.y;
  return two;
}

}  // namespace cusync::kernels::decode
