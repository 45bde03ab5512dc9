// SPDX-License-Identifier: MIT OR Apache-2.0
#include "kernels/streamk/sm90/kernel.cuh"

int32_t cusync::kernels::streamk_bf16(cusync_stage const& stage, void* workspace, unsigned long long* bytes,
                                     cusync_streamk** out) {
  return streamk::create_any<cutlass::bfloat16_t>(stage, workspace, bytes, out);
}
