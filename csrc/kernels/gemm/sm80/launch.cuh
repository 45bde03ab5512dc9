// SPDX-License-Identifier: MIT OR Apache-2.0
// The host half of the Ampere kernels: attributes, launch.
#pragma once
#include <new>

#include "kernels/gemm/sm80/kernel.cuh"
#include "kernels/gemm/sm80/family.h"

namespace cusync::kernels::sm80 {

template <class C>
cusync_kernel_info info() {
  constexpr bool half = std::is_same_v<typename C::Element, cutlass::half_t>;
  return {CUSYNC_SM80, C::kGated ? CUSYNC_GATED_GEMM : CUSYNC_GEMM, half ? CUSYNC_F16 : CUSYNC_BF16,
          C::kTileM,   C::kTileN,                                   C::kTileK,
          C::kStages,  C::kThreads,                                 C::kSharedBytes,
          0};
}

/// Asked only of GPUs that run the machine code as it is: on a newer one the question would compile the kernel from
/// PTX, for seconds, and be answered for other code.
template <class C>
uint32_t registers() {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaFuncAttributes attributes{};
  if (!error && major == 8) error = cudaFuncGetAttributes(&attributes, gemm<C>);
  if (error) cudaGetLastError();  // no device to ask is not an error of this call
  return uint32_t(attributes.numRegs);
}

template <class C>
struct Gemm final : cusync_gemm {
  typename C::Params params;

  /// `programmatic` permits an early start that these kernels do not offer: the launch is then an ordinary one.
  int32_t launch(cusync_launch const& launch) const override {
    cudaLaunchAttribute completion;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(C::kThreads);
    config.dynamicSmemBytes = C::kSharedBytes;
    config.stream = static_cast<cudaStream_t>(launch.stream);
    config.attrs = &completion;
    if (launch.completion_event) {
      completion.id = cudaLaunchAttributeLaunchCompletionEvent;
      completion.val.launchCompletionEvent.event = static_cast<cudaEvent_t>(launch.completion_event);
      completion.val.launchCompletionEvent.flags = 0;
      config.numAttrs = 1;
    }
    void* arguments[] = {const_cast<typename C::Params*>(&params)};
    return status_of(cudaLaunchKernelExC(&config, reinterpret_cast<void const*>(gemm<C>), arguments));
  }
};

template <class C>
int32_t create(cusync_gemm_args const& args, cusync_gemm** out) {
  int device = 0, major = 0, sms = 0, per_sm = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (!error) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error) return status_of(error);
  if (major < 8) return CUSYNC_ERROR_NOT_BUILT;

  // Asking for the attributes loads the module now (and, on a newer GPU, compiles it): loading it lazily, at a launch
  // beside a kernel that spins, could wait for that kernel.
  cudaFuncAttributes attributes{};
  error = cudaFuncGetAttributes(&attributes, gemm<C>);
  if (!error) error = cudaFuncSetAttribute(gemm<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (!error)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, gemm<C>, C::kThreads, C::kSharedBytes);
  if (error) return status_of(error);
  if (per_sm == 0) return CUSYNC_ERROR_NOT_BUILT;

  auto* gemm = new (std::nothrow) Gemm<C>;
  if (!gemm) return CUSYNC_ERROR_NO_MEMORY;
  auto& params = gemm->params;
  using Element = typename C::Element;
  params.stage = make_stage(args, C::kTileK);
  params.operands.ptr_A = static_cast<Element const*>(args.a);
  params.operands.ptr_B = static_cast<Element const*>(args.b);
  params.operands.dA = typename C::StrideA{int64_t(args.k), {}, 0};
  params.operands.dB = typename C::StrideB{{}, int64_t(args.n), 0};
  params.d = args.d;
  gemm->ctas = args.grid ? args.grid : min_u32(params.stage.tiles, uint32_t(sms) * uint32_t(per_sm));
  gemm->ctas_per_sm = uint32_t(per_sm);
  *out = gemm;
  return CUSYNC_OK;
}

}  // namespace cusync::kernels::sm80

namespace cusync::kernels {

template <cusync_element Element, int TileM, int TileN, bool Gated>
KernelFamily sm80_family() {
  using Number = std::conditional_t<Element == CUSYNC_F16, cutlass::half_t, cutlass::bfloat16_t>;
  using C = sm80::Config<Number, TileM, TileN, Gated>;
  return {sm80::info<C>(), sm80::registers<C>, sm80::create<C>};
}

}  // namespace cusync::kernels
