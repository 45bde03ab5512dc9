// SPDX-License-Identifier: MIT OR Apache-2.0
// Windows in a chain kernel: their shapes in its parameters, their tensor maps, and the part of shared memory that they pass through
// (kernels/conv2d/window.h says what a window is).
#pragma once
#include <cuda.h>

#include "kernels/common/stage.cuh"
#include "kernels/conv2d/window.h"

namespace cusync::kernels::sm90 {

/// The part of a kernel's parameters.
struct WindowParams {
  Window windows[CUSYNC_MAX_STAGES];
};

/// Taps whose filter blocks one copy brings, where the window says so: their ring stages follow each other.
inline constexpr uint32_t kFilterGroup = 3;

/// The part of a stage's table in device memory.
struct WindowTable {
  CUtensorMap pixels, zeros, filters;
  void* out;
};

/// Slots of the largest tile; what says that a slot has no pixel.
inline constexpr uint32_t kMostSlots = 256, kNoPixel = 0xffff;

/// The part of shared memory. Windows lie where the ring has operand A of matrix products.
template <int Stages>
struct WindowRing {
  uint32_t first_row[Stages];  ///< by ring stage, where a window's first k-block has it: the row that the window begins at
  /// The load warp's own: by buffer, the k-block that must be multiplied before the buffer is free, counted over all items.
  uint32_t free_at[Stages];
  uint32_t stage;  ///< whose windows they are
  Window window;
  uint32_t next;   ///< buffer
  /// The consumers' own, each warp's what it needs to send its rows: the stage that the rest is of, its output, and by row of a tile the pixel,
  /// counted from the tile's first one, kNoPixel where it has none.
  uint8_t pixels_of[kMostSlots / 32];
  void* out[kMostSlots / 32];
  uint16_t pixels[kMostSlots];
};

/// The row in its tile that unit `u` of a warpgroup's part begins at.
template <class C>
CUSYNC_DEVICE uint32_t row_of_unit(uint32_t group, int u) {
  return (C::kTurned ? group * C::kUnits + u : u / C::kColUnits * C::kConsumerGroups + group) * C::kUnitRows;
}

/// Waits until k-block `free_at` - 1, counted over all items, is multiplied. `now` is the k-block that is loaded, and none after
/// it is complete.
template <class C>
CUSYNC_DEVICE void wait_multiplied(typename C::SharedStorage& shared, uint32_t free_at, uint32_t now) {
  if (free_at == 0 || free_at - 1 + C::kStages < now) return;
  uint32_t const block = free_at - 1;
  shared.load.empty_barrier_[block % C::kStages].wait(block / C::kStages & 1);
}

}  // namespace cusync::kernels::sm90
