// SPDX-License-Identifier: MIT OR Apache-2.0
// The window of a convolution: the input pixels under the output pixels of a tile, 64 channels at a time, as they lie in
// shared memory. A row of 128 bytes is a pixel; rows of pixels follow each other `pitch` apart, zeros of the padding among
// them. The tile's own rows, its slots, have the same pitch, so that output slot m reads under tap (r, s) the window's row
// m + r * pitch + s: a tap is a shift of the whole operand. Columns of slots beyond the image's width have no pixel.
//
// With a stride there is a window for each remainder of the taps by the stride, a class, which holds each stride-th pixel.
#pragma once
#include <cuda.h>

#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// What every tile of a convolution asks of its window. Small: it lies in constant memory for all stages.
struct Window {
  uint8_t width, rows, images;  ///< of a tile's output: pixels of a row, rows of an image, images
  uint8_t pitch;                ///< slots, and rows of 128 bytes, from one row of pixels to the next
  uint8_t filter_cols, taps;
  uint8_t stride_rows, stride_cols;
  uint8_t padding_rows, padding_cols;
  uint8_t class_rows, class_cols;  ///< windows of a channel block
  uint8_t tail;                    ///< zero pixels behind a window: the last row's padding
  uint8_t buffers;                 ///< windows that fit into shared memory
  uint16_t row_tiles;              ///< tiles of one image, 1 where a tile has whole images
  uint16_t image_slots;            ///< from one image of a tile to the next
  uint16_t class_slots;            ///< 128-byte rows from one class to the next

  CUSYNC_HD uint32_t buffer_rows() const { return class_rows * class_cols * uint32_t(class_slots); }
  /// What the copies of one window bring.
  CUSYNC_HD uint32_t bytes() const { return class_rows * class_cols * (images * uint32_t(image_slots) + tail) * 128; }
  CUSYNC_HD uint32_t tile_pixels() const { return uint32_t(images) * rows * width; }
};

/// The part of a kernel's parameters.
struct WindowParams {
  Window windows[CUSYNC_MAX_STAGES];
};

/// The part of a stage's table in device memory.
struct WindowTable {
  CUtensorMap pixels, zeros;
  void* out;
};

/// The part of shared memory. Windows lie where the ring has operand A of matrix products.
template <int Stages>
struct WindowRing {
  uint32_t first_row[Stages];  ///< by ring stage: the window's row that slot 0 of the tile reads
  /// The load warp's own: by buffer, the k-block that must be multiplied before the buffer is free, counted over all items.
  uint32_t free_at[Stages];
  uint32_t stage;  ///< whose windows they are
  Window window;
  uint32_t next;   ///< buffer
};

/// Waits until k-block `free_at` - 1, counted over all items, is multiplied. `now` is the k-block that is loaded, and none after
/// it is complete.
template <class C>
CUSYNC_DEVICE void wait_multiplied(typename C::SharedStorage& shared, uint32_t free_at, uint32_t now) {
  if (free_at == 0 || free_at - 1 + C::kStages < now) return;
  uint32_t const block = free_at - 1;
  shared.load.empty_barrier_[block % C::kStages].wait(block / C::kStages & 1);
}

}  // namespace cusync::kernels::sm90
