// SPDX-License-Identifier: MIT OR Apache-2.0
// The host half of the Hopper kernels: tensor maps, attributes, launch.
#pragma once
#include <new>

#include "cutlass/util/packed_stride.hpp"
#include "kernels/gemm/sm90/kernel.cuh"
#include "kernels/gemm/sm90/family.h"
#include "kernels/common/sm90/host.h"

namespace cusync::kernels::sm90 {

template <class C>
cusync_kernel_info info() {
  constexpr bool half = std::is_same_v<typename C::Element, cutlass::half_t>;
  return {CUSYNC_SM90A, C::kGated ? CUSYNC_GATED_GEMM : CUSYNC_GEMM, half ? CUSYNC_F16 : CUSYNC_BF16,
          C::kTileM,    C::kTileN,                                   C::kTileK,
          C::kStages,   C::kThreads,                                 C::kSharedBytes,
          0};
}

template <class C>
uint32_t registers() {
  return registers_of(reinterpret_cast<void const*>(gemm<C>));
}

template <class C>
struct Gemm final : cusync_gemm {
  typename C::Params params;

  int32_t launch(cusync_launch const& launch) const override {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(C::kThreads);
    config.dynamicSmemBytes = C::kSharedBytes;
    config.stream = static_cast<cudaStream_t>(launch.stream);
    config.attrs = attributes;
    if (launch.programmatic) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      a.val.programmaticStreamSerializationAllowed = 1;
    }
    if (launch.completion_event) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeLaunchCompletionEvent;
      a.val.launchCompletionEvent.event = static_cast<cudaEvent_t>(launch.completion_event);
      a.val.launchCompletionEvent.flags = 0;
    }
    void* arguments[] = {const_cast<typename C::Params*>(&params)};
    return status_of(cudaLaunchKernelExC(&config, reinterpret_cast<void const*>(gemm<C>), arguments));
  }
};

template <class C>
int32_t create(cusync_gemm_args const& args, cusync_gemm** out) {
  if (int32_t const status = require_hopper(); status != CUSYNC_OK) return status;
  int sms = 0, per_sm = 0;
  cudaError_t error = ask(&sms, cudaDevAttrMultiProcessorCount);
  if (error) return status_of(error);

  // Asking for the attributes loads the module now: loading it lazily, at a launch beside a kernel that spins, could
  // wait for that kernel.
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
  params.stage = make_stage(args, C::kTileK);

  using Element = typename C::Element;
  using Mainloop = typename C::Mainloop;
  int const m = int(args.m), n = int(args.n), k = int(args.k), columns = int(params.stage.columns);
  typename Mainloop::Arguments operands{
      static_cast<Element const*>(args.a), cutlass::make_cute_packed_stride(typename Mainloop::StrideA{}, {m, k, 1}),
      static_cast<Element const*>(args.b), cutlass::make_cute_packed_stride(typename Mainloop::StrideB{}, {n, k, 1})};
  params.mainloop = Mainloop::to_underlying_arguments(cute::make_shape(m, n, k, 1), operands, nullptr);
  params.store = cute::make_tma_copy(
      cute::SM90_TMA_STORE{},
      cute::make_tensor(static_cast<Element*>(args.d), cute::make_shape(m, columns),
                        typename C::OutputStride{int64_t(columns), {}}),
      typename C::ChunkLayout{});
  if (!encoded(params.mainloop.tma_load_a.get_tma_descriptor()) ||
      !encoded(params.mainloop.tma_load_b.get_tma_descriptor()) || !encoded(params.store.get_tma_descriptor())) {
    delete gemm;
    return status_of(cudaErrorInvalidValue);
  }
  uint32_t const slots = uint32_t(sms) * uint32_t(per_sm);
  gemm->ctas = args.grid ? args.grid : min_u32(params.stage.tiles, slots);
  gemm->ctas_per_sm = uint32_t(per_sm);
  *out = gemm;
  return CUSYNC_OK;
}

}  // namespace cusync::kernels::sm90

namespace cusync::kernels {

template <cusync_element Element, int TileM, int TileN, bool Gated>
KernelFamily sm90_family() {
  using Number = std::conditional_t<Element == CUSYNC_F16, cutlass::half_t, cutlass::bfloat16_t>;
  using C = sm90::Config<Number, TileM, TileN, Gated>;
  return {sm90::info<C>(), sm90::registers<C>, sm90::create<C>};
}

}  // namespace cusync::kernels
