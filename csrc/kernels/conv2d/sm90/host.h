// SPDX-License-Identifier: MIT OR Apache-2.0
// The host half of convolutions: the shape of their windows, and tensor maps.
#pragma once
#include "kernels/common/sm90/host.h"
#include "kernels/common/sm90/window.cuh"

namespace cusync::kernels::sm90 {

/// The windows of a valid stage for a kernel with tiles of `tile_m` slots and `area` rows of 128 bytes for windows; false where
/// they do not fit.
inline bool make_window(cusync_stage const& stage, uint32_t tile_m, uint32_t area, Window& to) {
  cusync_images const& i = stage.images;
  uint32_t const rows = i.tile_pixels / i.out_width < i.out_height ? i.tile_pixels / i.out_width : i.out_height;
  uint32_t const images = i.tile_pixels / (rows * i.out_width);
  uint32_t const class_rows = i.stride_rows < i.filter_rows ? i.stride_rows : i.filter_rows;
  uint32_t const class_cols = i.stride_cols < i.filter_cols ? i.stride_cols : i.filter_cols;
  // Without a stride the padding behind a row is the padding before the next one.
  bool const shares = i.stride_cols == 1 && i.padding_cols < i.filter_cols;
  uint32_t const pitch = shares ? i.width + i.padding_cols : i.out_width + (i.filter_cols - 1) / i.stride_cols;
  uint32_t const tail = shares ? i.padding_cols : 0;
  uint32_t const window_rows = rows + (i.filter_rows - 1) / i.stride_rows;
  // A copy brings at most 256 pixels along an axis, those that a stride leaves out counted too.
  for (uint64_t const size : {uint64_t(pitch) * i.stride_cols, uint64_t(window_rows) * i.stride_rows, uint64_t(images)})
    if (size > 255) return false;
  uint64_t const taps = uint64_t(i.filter_rows) * i.filter_cols, image_slots = uint64_t(window_rows) * pitch;
  uint64_t const class_slots = (images * image_slots + tail + 7) / 8 * 8, buffer = class_slots * class_rows * class_cols;
  uint64_t const slots = (images - 1) * image_slots + (rows - 1) * pitch + i.out_width;
  uint32_t const row_tiles = i.out_height / rows;
  if (slots > tile_m || buffer > area || taps > 255 || i.padding_rows > 255 || i.padding_cols > 255) return false;
  if (i.stride_rows > 8 || i.stride_cols > 8 || row_tiles > 0xffff) return false;
  uint32_t const buffers = area / uint32_t(buffer);
  // A k-block is freed when the next one is under way. So the first of a window would wait for ever for the last of the one
  // before it, if both lay in one buffer: of the windows of an item at least two have room.
  if (buffers < 2 && i.channels > 64) return false;
  to = {uint8_t(i.out_width),    uint8_t(rows),         uint8_t(images),      uint8_t(pitch),      uint8_t(i.filter_cols),
        uint8_t(taps),           uint8_t(i.stride_rows), uint8_t(i.stride_cols), uint8_t(i.padding_rows),
        uint8_t(i.padding_cols), uint8_t(class_rows),   uint8_t(class_cols),  uint8_t(tail),
        uint8_t(buffers < 4 ? buffers : 4), uint16_t(row_tiles), uint16_t(image_slots), uint16_t(class_slots)};
  return true;
}

/// The tensor maps of a stage's windows; false when the driver refuses one.
template <class Element>
bool map_windows(cusync_stage const& stage, Window const& window, WindowTable& to) {
  cusync_images const& i = stage.images;
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
  cuuint32_t const rows = window.image_slots / window.pitch;
  to.out = stage.out;
  // As many elements as the stride leaves of the box.
  return encode(to.pixels, {64, window.pitch * cuuint32_t(i.stride_cols), rows * i.stride_rows, window.images},
                {1, i.stride_cols, i.stride_rows, 1}, CU_TENSOR_MAP_SWIZZLE_128B) &&
         encode(to.zeros, {64, window.tail ? window.tail : cuuint32_t(1), 1, 1}, {1, 1, 1, 1}, CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace cusync::kernels::sm90
