// SPDX-License-Identifier: MIT OR Apache-2.0
// Windows in a chain kernel (defined in kernels/conv2d/window.h): shapes in the kernel parameters, tensor maps, and the
// shared memory that windows pass through.
#pragma once
#include <cuda.h>

#include "kernels/common/stage.cuh"
#include "kernels/conv2d/window.h"

namespace cusync::kernels::sm90 {

/// Windows in the kernel parameters.
struct WindowParams {
  Window windows[CUSYNC_MAX_STAGES];
};

/// Taps per filter copy, in windows that allow it: their ring stages are consecutive.
inline constexpr uint32_t kFilterGroup = 3;

/// Windows in a stage's table in device memory.
struct WindowTable {
  CUtensorMap pixels, zeros, filters;
  void* out;
};

/// Slots of the largest tile; the mark of a slot without a pixel.
inline constexpr uint32_t kMostSlots = 256, kNoPixel = 0xffff;

/// Windows in shared memory. They occupy the ring space of operand A of matrix products.
template <int Stages>
struct WindowRing {
  uint32_t first_row[Stages];  ///< by ring stage, at a window's first k-block: the row at which the window begins
  /// Private to the load warp: per buffer, the k-block that must be multiplied before the buffer is free, counted over
  /// all items.
  uint32_t free_at[Stages];
  uint32_t stage;  ///< the stage of the current window
  Window window;
  uint32_t next;   ///< next buffer
  /// Private to the consumers, for storing rows, one entry per warp: the stage that the entries belong to, its output,
  /// and for each row of a tile the pixel relative to the tile's first one, or kNoPixel.
  uint8_t pixels_of[kMostSlots / 32];
  void* out[kMostSlots / 32];
  uint16_t pixels[kMostSlots];
};

/// The first row, within the tile, of unit `u` of a warpgroup's part.
template <class C>
CUSYNC_DEVICE uint32_t row_of_unit(uint32_t group, int u) {
  return (C::kTurned ? group * C::kUnits + u : u / C::kColUnits * C::kConsumerGroups + group) * C::kUnitRows;
}

/// Waits until k-block `free_at` - 1, counted over all items, has been multiplied. `now` is the k-block being loaded;
/// no later one is complete.
template <class C>
CUSYNC_DEVICE void wait_multiplied(typename C::SharedStorage& shared, uint32_t free_at, uint32_t now) {
  if (free_at == 0 || free_at - 1 + C::kStages < now) return;
  uint32_t const block = free_at - 1;
  shared.load.empty_barrier_[block % C::kStages].wait(block / C::kStages & 1);
}

}  // namespace cusync::kernels::sm90
