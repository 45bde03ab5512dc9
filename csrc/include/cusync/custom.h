// SPDX-License-Identifier: MIT OR Apache-2.0
// The parameter of a Custom stage's kernel, which the user writes. Plain data, filled in by the runtime; custom.cuh has
// the functions that use it. Compiles as C and C++.
#pragma once
#include "cusync/desc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  CUSYNC_CUSTOM_READS = 8,  ///< maximum number of `reads`
  CUSYNC_CUSTOM_POSTS = 4,  ///< maximum number of consumers
};

/// A stage with its memory. Matrices are row-major and have 16-bit floats. Without waits, posts and tickets the kernel
/// runs between kernel boundaries. No padding.
typedef struct cusync_custom {
  const void* data[CUSYNC_CUSTOM_READS];
  cusync_edge reads[CUSYNC_CUSTOM_READS];  ///< sizes of each matrix, the box that a tile reads, and the tiles to wait for
  cusync_policy posts[CUSYNC_CUSTOM_POSTS];
  uint32_t read_count, post_count;
  uint32_t waits;                 ///< bit 1 << i: read i waits
  uint32_t index;                 ///< index of the stage in the plan, for reports
  uint32_t bf16;                  ///< 1: matrices have bfloat16, 0: float16
  uint32_t rows, cols;            ///< of `out`
  uint32_t tile_rows, tile_cols;  ///< of a tile of `out`; the last ones may be smaller
  uint32_t k_blocks;
  cusync_order order;             ///< of the tiles
  void* out;
  uint32_t* semaphores;
  unsigned long long* tickets;  ///< counter of this stage, or NULL: the tiles are distributed statically
  cusync_report* report;
  unsigned long long timeout_ns;
} cusync_custom;

#ifdef __cplusplus
}
#endif
