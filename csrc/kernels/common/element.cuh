// SPDX-License-Identifier: MIT OR Apache-2.0
// 16-bit elements in plain CUDA: conversion, groups of 8, and a dispatch on enum cusync_element.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "abi/kernel.h"

namespace cusync::kernels {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class Element>
__device__ inline Element from_float(float x) {
  if constexpr (std::is_same_v<Element, __half>)
    return __float2half_rn(x);
  else
    return __float2bfloat16_rn(x);
}

/// Eight elements, accessed 16 bytes at a time.
template <class Element>
struct alignas(16) Group {
  Element values[8];
};

/// Calls f with a null pointer to the element's type; f's result is the status.
template <class F>
int32_t with_element(uint32_t element, F&& f) {
  switch (element) {
    case CUSYNC_F16: return f(static_cast<__half*>(nullptr));
    case CUSYNC_BF16: return f(static_cast<__nv_bfloat16*>(nullptr));
    default: return CUSYNC_ERROR_BAD_ARGUMENT;
  }
}

}  // namespace cusync::kernels
