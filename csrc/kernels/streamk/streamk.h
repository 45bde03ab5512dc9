// SPDX-License-Identifier: MIT OR Apache-2.0
// The interface between the compiled Stream-K kernels and the C ABI. Host code only.
#pragma once
#include <cuda_runtime_api.h>

#include "abi/cusync.h"

/// A Stream-K GEMM, ready to launch. Each instantiation derives its own class.
struct cusync_streamk {
  virtual ~cusync_streamk() = default;
  /// Enqueues the reset of the workspace and one run.
  virtual int32_t launch(cudaStream_t stream) = 0;
};

namespace cusync::kernels {

/// Prepares a GEMM; with a null `workspace`, only returns its size.
using StreamkCreate = int32_t(cusync_stage const& stage, void* workspace, unsigned long long* workspace_bytes,
                              cusync_streamk** out);

StreamkCreate streamk_f16, streamk_bf16;

}  // namespace cusync::kernels
