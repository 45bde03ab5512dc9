// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code of convolutions: tensor maps.
#pragma once
#include "kernels/common/sm90/host.h"
#include "kernels/common/sm90/window.cuh"

namespace cusync::kernels::sm90 {

/// Whether one copy may load the blocks of several taps: these must be consecutive, and blocks of 64 features must not
/// extend beyond a row of the filter.
inline bool groups_filters(cusync_stage const& stage, Window const& window) {
  return window.classes() == 1 && window.taps % kFilterGroup == 0 && stage.n % 64 == 0;
}

/// The tensor maps of a stage's windows and filter groups; false if the driver rejects one.
template <class C>
bool map_windows(cusync_stage const& stage, Window const& window, WindowTable& to) {
  using Element = typename C::Element;
  cusync_images const& i = stage.shape.images;
  auto const type = std::is_same_v<Element, cutlass::half_t> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  uint64_t const images = stage.m / (uint64_t(i.out_height) * i.out_width), row = uint64_t(i.width) * i.channels * sizeof(Element);
  cuuint64_t const sizes[] = {i.channels, i.width, i.height, images};
  cuuint64_t const strides[] = {i.channels * sizeof(Element), row, row * i.height};
  auto const encode = [&](CUtensorMap& map, cuuint32_t const (&box)[4], cuuint32_t const (&steps)[4], CUtensorMapSwizzle swizzle) {
    return CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
               &map, type, 4, const_cast<void*>(data_of(stage, CUSYNC_OPERAND_A)), sizes, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  };
  if (window.filter_group > 1) {
    // The order within ring stages: 64 features, channels, blocks of features, taps.
    cuuint64_t const row_bytes = uint64_t(stage.n) * sizeof(Element);
    cuuint64_t const filter_sizes[] = {64, i.channels, stage.n / 64, window.taps};
    cuuint64_t const filter_strides[] = {row_bytes, 64 * sizeof(Element), row_bytes * i.channels};
    cuuint32_t const box[] = {64, C::kTileK, C::kTileN / 64, kFilterGroup}, steps[] = {1, 1, 1, 1};
    if (CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
            &to.filters, type, 4, const_cast<void*>(data_of(stage, CUSYNC_OPERAND_B)), filter_sizes, filter_strides, box, steps,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
      return false;
  }
  cuuint32_t const rows = window.image_slots / window.pitch;
  to.out = stage.out;
  // The strides reduce the box to every stride-th element.
  return encode(to.pixels, {64, window.pitch * cuuint32_t(i.stride_cols), rows * i.stride_rows, window.images},
                {1, i.stride_cols, i.stride_rows, 1}, CU_TENSOR_MAP_SWIZZLE_128B) &&
         encode(to.zeros, {64, window.tail ? window.tail : cuuint32_t(1), 1, 1}, {1, 1, 1, 1}, CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace cusync::kernels::sm90
