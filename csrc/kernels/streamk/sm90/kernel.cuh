// SPDX-License-Identifier: MIT OR Apache-2.0
// CUTLASS's Stream-K GEMM for Hopper as its users build it: 128 x 256 x 64 tiles, clusters of 2 x 1, cooperative
// consumers, fused activation. It contains no cusync code: it is the baseline for tile synchronization.
#pragma once
// CUTLASS 4.2's Stream-K scheduler does not compile with its programmatic-launch calls, and the baseline has no
// programmatic edges.
#undef CUTLASS_ENABLE_GDC_FOR_SM90
#include <new>

#include "cute/tensor.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/thread/activation.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"
#include "abi/kernel.h"
#include "kernels/streamk/streamk.h"

namespace cusync::kernels::streamk {

template <class Element, template <class> class Activation>
struct Kernel {
  using TileShape = cute::Shape<cute::_128, cute::_256, cute::_64>;
  using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using Layout = cutlass::layout::RowMajor;
  using Fusion = cutlass::epilogue::fusion::LinCombEltAct<Activation, Element, float, void, float>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Layout, 8, Element, Layout, 8,
      cutlass::epilogue::TmaWarpSpecializedCooperative, Fusion>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Layout, 8, Element, Layout, 8, float, TileShape,
      ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
  using Device = cutlass::gemm::device::GemmUniversalAdapter<
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                           cutlass::gemm::StreamKScheduler>>;
};

inline int32_t status_of(cutlass::Status status) {
  if (status == cutlass::Status::kSuccess) return CUSYNC_OK;
  if (status == cutlass::Status::kErrorInternal) {
    cudaError_t const error = cudaGetLastError();
    return kernels::status_of(error == cudaSuccess ? cudaErrorUnknown : error);
  }
  return CUSYNC_ERROR_BAD_ARGUMENT;
}

template <class Element, template <class> class Activation>
struct Peer final : cusync_streamk {
  using Device = typename Kernel<Element, Activation>::Device;
  Device device;
  typename Device::Arguments arguments;
  void* workspace = nullptr;

  /// Stream-K counts its partial tiles in the workspace and does not reset the counts, so each run resets them.
  int32_t launch(cudaStream_t stream) override {
    cutlass::Status status = device.initialize(arguments, workspace, stream);
    if (status == cutlass::Status::kSuccess) status = device.run(stream);
    return status_of(status);
  }
};

template <class Element, template <class> class Activation>
int32_t create(cusync_stage const& stage, void* workspace, unsigned long long* bytes, cusync_streamk** out) {
  using Device = typename Kernel<Element, Activation>::Device;
  using GemmKernel = typename Device::GemmKernel;
  int gpu = 0, major = 0, sms = 0;
  cudaError_t error = cudaGetDevice(&gpu);
  if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
  if (!error) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, gpu);
  if (error) return kernels::status_of(error);
  if (major != 9) return CUSYNC_ERROR_NOT_BUILT;

  int const m = int(stage.m), n = int(stage.n), k = int(stage.k);
  typename Device::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {m, n, k, 1};
  arguments.mainloop = {static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_A)),
                        cutlass::make_cute_packed_stride(typename GemmKernel::StrideA{}, {m, k, 1}),
                        static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_B)),
                        cutlass::make_cute_packed_stride(typename GemmKernel::StrideB{}, {n, k, 1})};
  arguments.epilogue.thread.alpha = 1.f;
  arguments.epilogue.thread.beta = 0.f;
  arguments.epilogue.dC = cutlass::make_cute_packed_stride(typename GemmKernel::StrideC{}, {m, n, 1});
  arguments.epilogue.ptr_D = static_cast<Element*>(stage.out);
  arguments.epilogue.dD = cutlass::make_cute_packed_stride(typename GemmKernel::StrideD{}, {m, n, 1});
  arguments.hw_info.device_id = gpu;
  arguments.hw_info.sm_count = sms;

  if (!workspace) {
    *bytes = Device::get_workspace_size(arguments);
    return CUSYNC_OK;
  }
  if (*bytes < Device::get_workspace_size(arguments)) return CUSYNC_ERROR_BAD_ARGUMENT;
  cutlass::Status const can = Device::can_implement(arguments);
  if (can != cutlass::Status::kSuccess) return status_of(can);
  auto* peer = new (std::nothrow) Peer<Element, Activation>;
  if (!peer) return CUSYNC_ERROR_NO_MEMORY;
  peer->arguments = arguments;
  peer->workspace = workspace;
  *out = peer;
  return CUSYNC_OK;
}

template <class Element>
int32_t create_any(cusync_stage const& stage, void* workspace, unsigned long long* bytes, cusync_streamk** out) {
  return stage.activation == CUSYNC_GELU_TANH
             ? create<Element, cutlass::epilogue::thread::GELU_taylor>(stage, workspace, bytes, out)
             : create<Element, cutlass::epilogue::thread::Identity>(stage, workspace, bytes, out);
}

}  // namespace cusync::kernels::streamk
