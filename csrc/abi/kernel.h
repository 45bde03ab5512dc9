// SPDX-License-Identifier: MIT OR Apache-2.0
// The interface between compiled kernels and the C ABI. Host code only. build.rs names the tables explicitly, from
// instances.txt, because linkers drop archive members that only register themselves from static constructors.
#pragma once
#include <cuda_runtime_api.h>

#include "abi/cusync.h"
#include "cusync/policy.hpp"

/// A kernel with its stages, ready to launch. Each family derives its own class.
struct cusync_kernel {
  virtual ~cusync_kernel() = default;
  /// Enqueues one run. Does not synchronize or allocate.
  virtual int32_t launch(cusync_how const& how) const = 0;
};

namespace cusync::kernels {

/// The validated arguments of cusync_create.
struct Request {
  cusync_kernel_info const& kernel;
  cusync_stage const* stages;
  uint32_t count;
  cusync_work const& work;
  cusync_sync const& sync;
  void* table;
};

/// One compiled kernel and its factory.
struct Kernel {
  cusync_kernel_info info;  ///< `registers` stays 0 here
  /// Registers of the compiled code; 0 without a GPU.
  uint32_t (*registers)();
  /// Number of workers resident at once. Loads the module.
  int32_t (*resident)(uint32_t* workers);
  /// The request must name this kernel. On success the caller owns `*out`.
  int32_t (*create)(Request const& request, cusync_kernel** out);
};

/// A table with static storage: the kernels of one instance.
struct KernelTable {
  Kernel const* entries;
  uint32_t count;
};

/// Maps a CUDA error to a status of the C ABI.
inline int32_t status_of(cudaError_t error) {
  return error == cudaSuccess ? CUSYNC_OK : CUSYNC_ERROR_CUDA + int32_t(error);
}

inline bool aligned(void const* pointer, uintptr_t to) { return (reinterpret_cast<uintptr_t>(pointer) & (to - 1)) == 0; }

/// The operand with this role, or NULL.
inline cusync_operand const* operand(cusync_stage const& stage, uint32_t role) {
  for (uint32_t i = 0; i < stage.operand_count; ++i)
    if (stage.operands[i].role == role) return stage.operands + i;
  return nullptr;
}

/// Data of the operand with this role, or NULL.
inline void const* data_of(cusync_stage const& stage, uint32_t role) {
  cusync_operand const* const found = operand(stage, role);
  return found ? found->data : nullptr;
}

/// Columns of B in memory: gate and up interleaved.
inline uint32_t packed_columns(cusync_stage const& stage) {
  return stage.operation == CUSYNC_GATED_GEMM ? 2 * stage.n : stage.n;
}

/// Validates everything about a request that does not depend on the kernel's implementation: pointers, alignments,
/// sizes, enumerators, policies, edges, and the order against the grid.
int32_t validate(Request const& request);

}  // namespace cusync::kernels
