// SPDX-License-Identifier: MIT OR Apache-2.0
// The Stream-K baseline in the C ABI: selects the element type and checks the request.
#include "abi/kernel.h"
#include "kernels/streamk/streamk.h"

using namespace cusync::kernels;

namespace {

int32_t create(cusync_stage const& stage, uint32_t element, void* workspace, unsigned long long* bytes,
               cusync_streamk** out) {
#if CUSYNC_BUILD_SM90A
  return element == CUSYNC_F16 ? streamk_f16(stage, workspace, bytes, out) : streamk_bf16(stage, workspace, bytes, out);
#else
  (void)stage, (void)element, (void)workspace, (void)bytes, (void)out;
  return CUSYNC_ERROR_NOT_BUILT;
#endif
}

}  // namespace

extern "C" int32_t cusync_streamk_create(cusync_stage const* stage, uint32_t element, void* workspace,
                                         unsigned long long* workspace_bytes, cusync_streamk** out) {
  if (!stage || !workspace_bytes || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  *out = nullptr;
  if (!data_of(*stage, CUSYNC_OPERAND_A) || !data_of(*stage, CUSYNC_OPERAND_B) || !stage->out)
    return CUSYNC_ERROR_BAD_ARGUMENT;
  uint32_t const k = stage->k;
  if (!stage->m || !stage->n || !k || k % 8 || stage->n % 8 || element > CUSYNC_BF16) return CUSYNC_ERROR_BAD_ARGUMENT;
  // The baseline covers MLPs only.
  bool const adds = data_of(*stage, CUSYNC_OPERAND_BIAS) || data_of(*stage, CUSYNC_OPERAND_RESIDUAL);
  if (stage->operation != CUSYNC_GEMM || adds || stage->activation > CUSYNC_GELU_TANH) return CUSYNC_ERROR_NOT_BUILT;
  return create(*stage, element, workspace, workspace_bytes, out);
}

extern "C" int32_t cusync_streamk_launch(cusync_streamk* gemm, void* stream) {
  return gemm ? gemm->launch(static_cast<cudaStream_t>(stream)) : CUSYNC_ERROR_BAD_ARGUMENT;
}

extern "C" void cusync_streamk_destroy(cusync_streamk* gemm) { delete gemm; }
