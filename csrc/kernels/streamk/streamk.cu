// SPDX-License-Identifier: MIT OR Apache-2.0
// The Stream-K peer in the C ABI: picks the element type, checks the request.
#include "kernels/streamk/streamk.h"

namespace {

int32_t create(cusync_gemm_args const& args, void* workspace, unsigned long long* bytes, cusync_streamk** out) {
#if CUSYNC_BUILD_SM90A
  return args.element == CUSYNC_F16 ? cusync::kernels::streamk_f16(args, workspace, bytes, out)
                                    : cusync::kernels::streamk_bf16(args, workspace, bytes, out);
#else
  (void)args, (void)workspace, (void)bytes, (void)out;
  return CUSYNC_ERROR_NOT_BUILT;
#endif
}

}  // namespace

extern "C" int32_t cusync_streamk_create(cusync_gemm_args const* args, void* workspace,
                                         unsigned long long* workspace_bytes, cusync_streamk** out) {
  if (!args || !workspace_bytes || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  *out = nullptr;
  if (!args->a || !args->b || !args->d || !args->m || !args->n || !args->k || args->k % 8 || args->n % 8)
    return CUSYNC_ERROR_BAD_ARGUMENT;
  if (args->element > CUSYNC_BF16) return CUSYNC_ERROR_BAD_ARGUMENT;
  // A baseline of MLPs: other stages have no peer.
  if (args->operation != CUSYNC_GEMM || args->bias || args->residual || args->activation > CUSYNC_GELU_TANH)
    return CUSYNC_ERROR_NOT_BUILT;
  return create(*args, workspace, workspace_bytes, out);
}

extern "C" int32_t cusync_streamk_launch(cusync_streamk* gemm, void* stream) {
  return gemm ? gemm->launch(static_cast<cudaStream_t>(stream)) : CUSYNC_ERROR_BAD_ARGUMENT;
}

extern "C" void cusync_streamk_destroy(cusync_streamk* gemm) { delete gemm; }
