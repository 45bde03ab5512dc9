// SPDX-License-Identifier: MIT OR Apache-2.0
// What a family of GEMM kernels owes the C ABI: a table of its compiled kernels, each with a function that makes a
// stage ready. Host code only. The tables are named here, one function per architecture, because entries that
// register themselves from static constructors are dropped when the linker takes members out of an archive.
#pragma once
#include <cuda_runtime_api.h>

#include "abi/cusync.h"

/// A stage made ready: tensor maps encoded, attributes set, module loaded. Each architecture derives its own.
struct cusync_gemm {
  virtual ~cusync_gemm() = default;
  /// Enqueues one run. Neither synchronises nor allocates.
  virtual int32_t launch(cusync_launch const& launch) const = 0;

  uint32_t ctas = 0;         ///< CTAs of a launch
  uint32_t ctas_per_sm = 0;  ///< CTAs of it that fit an SM at once
};

namespace cusync::kernels {

/// One compiled kernel: what it is, and how a stage of it is made.
struct KernelFamily {
  cusync_kernel_info info;  ///< `registers` is left 0 here
  /// Registers of the compiled code; 0 when there is no GPU to ask.
  uint32_t (*registers)();
  /// `args` has passed `validate` and names this kernel. On success `*out` owns the stage.
  int32_t (*create)(cusync_gemm_args const& args, cusync_gemm** out);
};

/// A table with static storage.
struct KernelTable {
  KernelFamily const* entries;
  uint32_t count;
};

/// The tables of the architectures. The build defines CUSYNC_BUILD_SM80 and CUSYNC_BUILD_SM90A for those it compiles;
/// the registry asks only these.
KernelTable sm80_kernels();
KernelTable sm90_kernels();

/// A CUDA error as the C ABI reports it.
inline int32_t status_of(cudaError_t error) {
  return error == cudaSuccess ? CUSYNC_OK : CUSYNC_ERROR_CUDA + int32_t(error);
}

/// Everything about the arguments that does not depend on the kernel: pointers, alignments, sizes, enumerators,
/// policies, edges and the order against the grid that `info` gives.
int32_t validate(cusync_gemm_args const& args, cusync_kernel_info const& info);

/// Columns of the output: half of the packed columns when gated.
inline uint32_t output_columns(cusync_gemm_args const& args) {
  return args.operation == CUSYNC_GATED_GEMM ? args.n / 2 : args.n;
}

}  // namespace cusync::kernels
