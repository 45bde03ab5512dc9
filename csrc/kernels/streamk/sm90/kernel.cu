// SPDX-License-Identifier: MIT OR Apache-2.0
// One source for both element types, because they share most of the compilation.
#include "kernels/streamk/sm90/kernel.cuh"

int32_t cusync::kernels::streamk_f16(cusync_stage const& stage, void* workspace, unsigned long long* bytes,
                                     cusync_streamk** out) {
  return streamk::create_any<cutlass::half_t>(stage, workspace, bytes, out);
}

int32_t cusync::kernels::streamk_bf16(cusync_stage const& stage, void* workspace, unsigned long long* bytes,
                                     cusync_streamk** out) {
  return streamk::create_any<cutlass::bfloat16_t>(stage, workspace, bytes, out);
}
