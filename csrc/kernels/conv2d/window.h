// SPDX-License-Identifier: MIT OR Apache-2.0
// The window of a convolution: the input pixels under the output pixels of a tile, 64 channels at a time, as laid out
// in shared memory. A 128-byte row is one pixel; pixel rows are `pitch` apart, with zeros for padding in between. The
// tile's own rows, its slots, have the same pitch, so under tap (r, s) output slot m reads the window's row m + r *
// pitch + s: a tap is a shift of the whole operand. Slots in columns beyond the image's width have no pixel.
//
// With a stride there is one window for each class, a remainder of the taps modulo the stride, which holds every
// stride-th pixel. It is loaded when its taps are next: k-blocks are ordered by channels, then by class, then by tap.
//
// Host and device. The compiler chooses tiles by the same arithmetic (codegen/src/graph/op/conv/pixels.rs); a test
// compares the two.
#pragma once
#include <initializer_list>

#include "abi/cusync.h"
#include "cusync/policy.hpp"

namespace cusync::kernels::sm90 {

/// Where the slots of a tile are cut into the products of a turned kernel.
enum Cut : uint8_t { kCutSlots, kCutRows, kCutImages };

/// The window parameters that every tile of a convolution needs. Small: all stages fit in constant memory.
struct Window {
  uint8_t width, rows, images;  ///< of a tile's output: pixels per row, rows per image, images
  uint8_t pitch;                ///< slots, and 128-byte rows, from one row of pixels to the next
  uint8_t filter_cols, taps;
  uint8_t stride_rows : 4, stride_cols : 4;
  uint8_t padding_rows, padding_cols;
  uint8_t class_rows, class_cols;  ///< classes: windows per channel block
  uint8_t tail;                    ///< zero pixels after a window: the last row's padding
  uint8_t buffers : 4;             ///< windows that fit in shared memory
  uint8_t filter_group : 3;        ///< maximum taps per filter copy
  uint8_t eighths : 6;             ///< in turned kernels (see below): slots per product / 8
  uint8_t cut : 2;                 ///< enum Cut
  uint16_t row_tiles;              ///< tiles per image; 1 if a tile has whole images
  uint16_t image_slots;            ///< slots from one image of a tile to the next
  uint16_t buffer_rows;            ///< 128-byte rows from one window to the next

  CUSYNC_HD uint32_t classes() const { return class_rows * class_cols; }
  /// Bytes that the copies of one window load.
  CUSYNC_HD uint32_t bytes() const { return (images * uint32_t(image_slots) + tail) * 128; }
  CUSYNC_HD uint32_t tile_pixels() const { return uint32_t(images) * rows * width; }
  /// Slots from the first to the last pixel of `of_images` images with `of_rows` rows.
  CUSYNC_HD uint32_t span(uint32_t of_images, uint32_t of_rows) const {
    return (of_images - 1) * image_slots + (of_rows - 1) * pitch + width;
  }
  /// Slots from the start of one warpgroup's product to the next, with `groups` warpgroups; and slots per product.
  CUSYNC_HD uint32_t step(uint32_t groups) const {
    return cut == kCutSlots ? multiplied() : cut == kCutRows ? rows / groups * pitch : images / groups * image_slots;
  }
  CUSYNC_HD uint32_t multiplied() const { return eighths * 8u; }
};

/// Supported slots per product of a turned kernel.
inline constexpr uint32_t kProductSlots[] = {56, 104, 120, 128};

/// In a turned kernel slots are on WGMMA's N side, and each of `groups` warpgroups has one product. Cuts the slots of a
/// tile so that the fewest are multiplied; false if a product would have too many.
inline bool cut_slots(Window& to, uint32_t groups) {
  uint32_t fewest = ~0u;
  auto const offer = [&](uint32_t slots, uint8_t cut) {
    for (uint32_t const product : kProductSlots)
      if (slots <= product && product < fewest) fewest = product, to.eighths = uint8_t(product / 8), to.cut = cut;
  };
  offer((to.span(to.images, to.rows) + groups - 1) / groups, kCutSlots);
  if (to.images == 1 && to.rows % groups == 0) offer(to.span(1, to.rows / groups), kCutRows);
  if (to.images % groups == 0) offer(to.span(to.images / groups, to.rows), kCutImages);
  return fewest != ~0u;
}

/// The windows of a valid convolution in a kernel with tiles of `tile_m` slots and `area` 128-byte rows for windows;
/// false if they do not fit. `turned`: number of warpgroups of a turned kernel, 0 for other kernels.
inline bool make_window(cusync_stage const& stage, uint32_t tile_m, uint32_t area, uint32_t turned, Window& to) {
  cusync_images const& i = stage.shape.images;
  uint32_t const pixels = stage.tiles.rows, rows = min_u32(pixels / i.out_width, i.out_height);
  uint32_t const images = pixels / (rows * i.out_width);
  uint32_t const class_rows = i.stride_rows < i.filter_rows ? i.stride_rows : i.filter_rows;
  uint32_t const class_cols = i.stride_cols < i.filter_cols ? i.stride_cols : i.filter_cols;
  // Without a stride the padding after a row is also the padding before the next one.
  bool const shares = i.stride_cols == 1 && i.padding_cols < i.filter_cols;
  uint32_t const pitch = shares ? i.width + i.padding_cols : i.out_width + (i.filter_cols - 1) / i.stride_cols;
  uint32_t const tail = shares ? i.padding_cols : 0;
  uint32_t const window_rows = rows + (i.filter_rows - 1) / i.stride_rows;
  // A copy loads at most 256 pixels along an axis, including those that a stride skips.
  for (uint64_t const size : {uint64_t(pitch) * i.stride_cols, uint64_t(window_rows) * i.stride_rows, uint64_t(images)})
    if (size > 255) return false;
  uint64_t const taps = uint64_t(i.filter_rows) * i.filter_cols, image_slots = uint64_t(window_rows) * pitch;
  uint64_t const buffer = (images * image_slots + tail + 7) / 8 * 8;
  uint64_t const slots = (images - 1) * image_slots + (rows - 1) * pitch + i.out_width;
  uint32_t const row_tiles = i.out_height / rows;
  if ((!turned && slots > tile_m) || buffer > area || taps > 255 || i.padding_rows > 255 || i.padding_cols > 255) return false;
  if (i.stride_rows > 8 || i.stride_cols > 8 || row_tiles > 0xffff) return false;
  uint32_t const buffers = area / uint32_t(buffer);
  // A k-block is released only when the next one is in progress. If two consecutive windows shared one buffer, the
  // first k-block of the second would wait forever for the last of the first: at least two windows of an item must fit.
  if (buffers < 2 && (i.channels > 64 || class_rows * class_cols > 1)) return false;
  to = {uint8_t(i.out_width),    uint8_t(rows),         uint8_t(images),      uint8_t(pitch),      uint8_t(i.filter_cols),
        uint8_t(taps),           uint8_t(i.stride_rows & 15), uint8_t(i.stride_cols & 15), uint8_t(i.padding_rows),
        uint8_t(i.padding_cols), uint8_t(class_rows),   uint8_t(class_cols),  uint8_t(tail),
        uint8_t(buffers < 4 ? buffers : 4), 1, 0, 0, uint16_t(row_tiles), uint16_t(image_slots), uint16_t(buffer)};
  return !turned || cut_slots(to, turned);
}

}  // namespace cusync::kernels::sm90
