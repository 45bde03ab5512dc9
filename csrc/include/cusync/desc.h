// SPDX-License-Identifier: MIT OR Apache-2.0
// Plain data compiled from a checked plan: the Rust side passes it to kernels, and rendered headers hold it as
// constants. Compiles as C and C++; the logic is in policy.hpp and order.hpp.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Maps the tiles of a producer's grid to semaphore slots.
///
/// slot(m, n) = slot_base + (m / block_m) * slots_n + column(n), where
/// column(n)  = stride_n == 0 ? n / block_n : n % stride_n.
///
/// Tile: block 1 x 1. Row: block 1 x grid_n. Batched: block r x c. Strided: stride_n > 0, block_n unused (1).
/// With `width` set, slots are tiles of `width` of the output's `columns` columns. The producer tiles are even shares of
/// the columns, (0, i) from column i * columns / grid_n on, and each posts to every slot that it has columns of. Waits
/// count column tiles: tile_cols of their edges is `width`, and block is 1 x 1. columns * grid_n stays below 2^32.
/// With `table` set (a user's own policy), slot(m, n) = slot_base + table[m * grid_n + n] and the number of
/// posts to slot i is table_posts[i - slot_base].
typedef struct cusync_policy {
  uint32_t grid_m, grid_n;    ///< producer grid, in tiles
  uint32_t block_m, block_n;  ///< tiles that share a slot
  uint32_t stride_n;          ///< 0, or the number of slot columns of a strided policy
  uint32_t slots_n;           ///< slot columns
  uint32_t slot_base;         ///< first slot of this edge in the pipeline's array
  uint32_t slot_count;        ///< slots of this edge
  uint32_t width, columns;    ///< 0, or columns per slot and columns of the output
  const uint32_t* table;        ///< NULL, or grid_m * grid_n slot numbers
  const uint32_t* table_posts;  ///< NULL, or slot_count post counts
} cusync_policy;

/// One axis of an affine footprint, in elements of the tensor that is read:
/// first = m * tile_m + n * tile_n + k * k_block + offset, last = first + extent - 1, clipped to the tensor.
typedef struct cusync_axis {
  int32_t m, n, k, offset, extent;
} cusync_axis;

/// The role of an operand in the stage that reads it.
enum cusync_role {
  CUSYNC_OPERAND_A = 0,
  CUSYNC_OPERAND_B = 1,
  CUSYNC_OPERAND_BIAS = 2,
  CUSYNC_OPERAND_RESIDUAL = 3,
  CUSYNC_OPERAND_CUSTOM = 4,
  CUSYNC_OPERAND_KEYS = 5,     ///< cached keys; the new ones are appended
  CUSYNC_OPERAND_VALUES = 6,   ///< cached values; the new ones are appended
  CUSYNC_OPERAND_LENGTHS = 7,  ///< int32: cached tokens of each sequence, before the run
  CUSYNC_OPERAND_PAGES = 8,    ///< int32: pages of each sequence
  CUSYNC_OPERAND_ROTARY = 9,   ///< cosines, then sines, of each position
  CUSYNC_OPERAND_GAIN = 10,
  CUSYNC_OPERAND_QUERY_GAIN = 11,  ///< of each normalized head of queries
  CUSYNC_OPERAND_KEY_GAIN = 12,    ///< of each normalized head of keys
  CUSYNC_OPERAND_UP = 13,      ///< up weights, if they are apart from those of the gate
  CUSYNC_OPERAND_DOWN = 14,    ///< weights of a second product
  CUSYNC_OPERAND_ROUTER = 15,  ///< scores by which rows choose experts
};

/// Where in the consumer's k-loop it waits for an edge.
enum cusync_wait_at {
  CUSYNC_WAIT_PER_K_BLOCK = 0,  ///< before the first k-block whose footprint enters new slots
  CUSYNC_WAIT_AT_START = 1,     ///< for everything the tile reads, before its first dependent load
};

/// One dependence as kernels see it: the producer's policy and tile size, and the consumer's footprint.
typedef struct cusync_edge {
  cusync_policy policy;
  uint32_t id;                        ///< index of the edge in the plan, for reports
  uint32_t operand;                   ///< enum cusync_role of the consumer operand that the edge feeds
  uint32_t wait_at;                   ///< enum cusync_wait_at
  uint32_t tile_rows, tile_cols;      ///< elements of the tensor in one of the tiles that waits count: the producer's
  uint32_t tensor_rows, tensor_cols;  ///< tensor size, for clipping
  uint32_t k_blocks;                  ///< k-blocks of one consumer tile
  cusync_axis rows, cols;             ///< elements read by consumer tile (m, n) at k-block k
} cusync_edge;

enum cusync_order_kind {
  CUSYNC_ORDER_ROW_MAJOR = 0,
  CUSYNC_ORDER_COLUMN_MAJOR = 1,
  CUSYNC_ORDER_GROUPED_ROWS = 2,     ///< `group` rows at a time, column by column inside a group
  CUSYNC_ORDER_GROUPED_COLUMNS = 3,  ///< `group` columns at a time, row by row inside a group
  CUSYNC_ORDER_TABLE = 4,            ///< table[i] = m * grid_n + n
};

/// The order in which a stage's tiles start: a bijection from 0 .. grid_m * grid_n - 1 onto the grid.
typedef struct cusync_order {
  uint32_t kind;  ///< enum cusync_order_kind
  uint32_t grid_m, grid_n;
  uint32_t group;  ///< rows (or columns) of a group, at least 1
  const uint32_t* table;
} cusync_order;

/// Kinds of kernel reports.
enum cusync_report_kind {
  CUSYNC_REPORT_LATE = 0,        ///< a wait timed out; the kernel traps
  CUSYNC_REPORT_BAD_LENGTH = 1,  ///< sequence `tile_m` has `have` cached tokens, room for `want`; the run skips it
  CUSYNC_REPORT_BAD_PAGE = 2,    ///< page `tile_n` of sequence `tile_m` is `have`, of `want` pages; the run skips it
  CUSYNC_REPORT_NO_SUMS = 3,     ///< GPU `slot` did not send row `tile_m`, column `tile_n` of a sum over GPUs in time: the
                                 ///< word has the number `have`, and run `want` waits for it; the kernel traps
};

/// The first fault of a run. In pinned host memory, so it survives a later trap.
typedef struct cusync_report {
  uint32_t claimed;  ///< 0 until the first reporter claims the record, 1 while it writes, 2 when complete
  uint32_t edge, stage, tile_m, tile_n, k_block, slot, have, want, sm;
  uint32_t kind;  ///< enum cusync_report_kind
} cusync_report;

#ifdef __cplusplus
}
#endif
