// SPDX-License-Identifier: MIT OR Apache-2.0
// What a compiled kernel owes the C ABI. Host code only. The tables are named by build.rs, from instances.txt, because
// entries that register themselves from static constructors are dropped when the linker takes members out of an archive.
#pragma once
#include <cuda_runtime_api.h>

#include "abi/cusync.h"
#include "cusync/policy.hpp"

/// A kernel with its stages, ready to launch. Each family derives its own.
struct cusync_kernel {
  virtual ~cusync_kernel() = default;
  /// Enqueues one run. Neither synchronises nor allocates.
  virtual int32_t launch(cusync_how const& how) const = 0;
};

namespace cusync::kernels {

/// What cusync_create was given, `validate`d.
struct Request {
  cusync_kernel_info const& kernel;
  cusync_stage const* stages;
  uint32_t count;
  cusync_work const& work;
  cusync_sync const& sync;
  void* table;
};

/// One compiled kernel: what it is, and how it is made ready.
struct Kernel {
  cusync_kernel_info info;  ///< `registers` is left 0 here
  /// Registers of the compiled code; 0 when there is no GPU to ask.
  uint32_t (*registers)();
  /// Workers that are resident at once. Loads the module.
  int32_t (*resident)(uint32_t* workers);
  /// The request names this kernel. On success `*out` owns it.
  int32_t (*create)(Request const& request, cusync_kernel** out);
};

/// A table with static storage: the kernels of one instance.
struct KernelTable {
  Kernel const* entries;
  uint32_t count;
};

/// A CUDA error as the C ABI reports it.
inline int32_t status_of(cudaError_t error) {
  return error == cudaSuccess ? CUSYNC_OK : CUSYNC_ERROR_CUDA + int32_t(error);
}

inline bool aligned(void const* pointer, uintptr_t to) { return (reinterpret_cast<uintptr_t>(pointer) & (to - 1)) == 0; }

/// The operand of a role, or a null pointer.
inline cusync_operand const* operand(cusync_stage const& stage, uint32_t role) {
  for (uint32_t i = 0; i < stage.operand_count; ++i)
    if (stage.operands[i].role == role) return stage.operands + i;
  return nullptr;
}

/// Its data, or a null pointer.
inline void const* data_of(cusync_stage const& stage, uint32_t role) {
  cusync_operand const* const found = operand(stage, role);
  return found ? found->data : nullptr;
}

/// Columns of B as it lies in memory: gate and up side by side.
inline uint32_t packed_columns(cusync_stage const& stage) {
  return stage.operation == CUSYNC_GATED_GEMM ? 2 * stage.n : stage.n;
}

/// Rows of the output and columns of accumulators, or of an operation on rows, in one tile of a stage.
struct TileSize {
  uint32_t m, n;
};

inline TileSize tile_of(cusync_stage const& stage, cusync_kernel_id const& id) {
  switch (stage.operation) {
    case CUSYNC_CONV2D: return {stage.images.tile_pixels, id.tile_n};
    // Queries of one sequence.
    case CUSYNC_ATTENTION: return {id.tile_m < stage.k.most ? id.tile_m : stage.k.most, stage.heads.head_dim};
    case CUSYNC_NORM: return {stage.norm.tile_rows, stage.n};
    case CUSYNC_POOL: return {stage.images.tile_pixels, stage.n};
    default: return {id.tile_m, id.tile_n};
  }
}

/// k-blocks of its longest tile.
inline uint32_t k_blocks_of(cusync_stage const& stage, uint32_t tile_k) {
  switch (stage.operation) {
    case CUSYNC_CONV2D:
      return ceil_div(stage.images.channels, tile_k) * stage.images.filter_rows * stage.images.filter_cols;
    case CUSYNC_ATTENTION: return ceil_div(stage.k.most, CUSYNC_PROMPT_TOKENS);
    case CUSYNC_NORM:
    case CUSYNC_POOL: return 1;
    default: return ceil_div(stage.k.most, tile_k);
  }
}

/// Whether a request is for one stage that waits for no slot and posts to none, and of which nothing is recorded: all that a launch behind
/// the one before owes it is its output.
inline bool is_alone(Request const& request) {
  cusync_stage const& stage = request.stages[0];
  return request.count == 1 && !stage.wait_count && !stage.post_count && request.work.source != CUSYNC_SOURCE_MAIL &&
         !request.sync.trace && !request.sync.test.notes.capacity;
}

/// Everything about a request that does not depend on how the kernel works: pointers, alignments, sizes, enumerators,
/// policies, edges, and the order against the grid.
int32_t validate(Request const& request);

}  // namespace cusync::kernels
