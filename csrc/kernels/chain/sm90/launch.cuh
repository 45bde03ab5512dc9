// SPDX-License-Identifier: MIT OR Apache-2.0
// The host half of the chain kernels: tensor maps, attributes, launch.
#pragma once
#include <new>

#include "cutlass/util/packed_stride.hpp"
#include "abi/chain.h"
#include "kernels/chain/sm90/kernel.cuh"
#include "kernels/common/sm90/host.h"

namespace cusync::kernels::sm90 {

template <class C>
cusync_fused_info fused_info() {
  constexpr bool half = std::is_same_v<typename C::Element, cutlass::half_t>;
  return {half ? CUSYNC_F16 : CUSYNC_BF16, C::kTileM,    C::kTileN,   C::kTileK,       C::kClusterM,
          C::kClusterN,                    C::kStages,   C::kThreads, C::kSharedBytes, 0};
}

template <class C>
uint32_t fused_registers() {
  return registers_of(reinterpret_cast<void const*>(fused<C>));
}

/// A launch of `workers` clusters; `attributes` has room for two.
template <class C>
cudaLaunchConfig_t fused_config(uint32_t workers, cudaLaunchAttribute* attributes) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(workers * C::kClusterM, C::kClusterN);
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = C::kSharedBytes;
  config.attrs = attributes;
  if constexpr (C::kClusterSize > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = C::kClusterM, a.val.clusterDim.y = C::kClusterN, a.val.clusterDim.z = 1;
  }
  return config;
}

/// Loads the module now (lazily, beside a kernel that spins, it could wait for that kernel) and tells how many
/// clusters are resident at once.
template <class C>
int32_t fused_workers(uint32_t* workers) {
  *workers = 0;
  if (int32_t const status = require_hopper(); status != CUSYNC_OK) return status;
  int sms = 0, per_sm = 0, clusters = 0;
  cudaError_t error = ask(&sms, cudaDevAttrMultiProcessorCount);
  if (!error) error = cudaFuncSetAttribute(fused<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (!error)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, fused<C>, C::kThreads, C::kSharedBytes);
  if (error) return status_of(error);
  if constexpr (C::kClusterSize == 1) {
    *workers = uint32_t(sms * per_sm);
  } else {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t const config = fused_config<C>(uint32_t(sms) / C::kClusterSize, attributes);
    error = cudaOccupancyMaxActiveClusters(&clusters, fused<C>, &config);
    if (error) return status_of(error);
    *workers = uint32_t(clusters);
  }
  return *workers ? CUSYNC_OK : CUSYNC_ERROR_NOT_BUILT;
}

template <class C>
struct Fused final : cusync_fused {
  typename C::Params params;

  int32_t launch(cusync_launch const& launch) const override {
    if (launch.completion_event) return CUSYNC_ERROR_BAD_ARGUMENT;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = fused_config<C>(params.workers, attributes);
    config.stream = static_cast<cudaStream_t>(launch.stream);
    if (launch.programmatic) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      a.val.programmaticStreamSerializationAllowed = 1;
    }
    void* arguments[] = {const_cast<typename C::Params*>(&params)};
    return status_of(cudaLaunchKernelExC(&config, reinterpret_cast<void const*>(fused<C>), arguments));
  }
};

/// Tensor maps and run-time numbers of one stage.
template <class C>
int32_t fill_stage(cusync_gemm_args const& args, typename C::StageParams& to) {
  using Element = typename C::Element;
  using Mainloop = typename C::Mainloop;
  to.stage = make_stage(args, C::kTileK);
  to.stage.post_weight = CUSYNC_POST_WEIGHT;
  to.gated = args.operation == CUSYNC_GATED_GEMM;
  to.grid_m = ceil_div(args.m, C::kTileM), to.grid_n = ceil_div(args.n, C::kTileN);
  int const m = int(args.m), n = int(args.n), k = int(args.k), columns = int(to.stage.columns);
  typename Mainloop::Arguments operands{
      static_cast<Element const*>(args.a), cutlass::make_cute_packed_stride(typename Mainloop::StrideA{}, {m, k, 1}),
      static_cast<Element const*>(args.b), cutlass::make_cute_packed_stride(typename Mainloop::StrideB{}, {n, k, 1})};
  to.mainloop = Mainloop::to_underlying_arguments(cute::make_shape(m, n, k, 1), operands, nullptr);
  auto const output = cute::make_tensor(static_cast<Element*>(args.d), cute::make_shape(m, columns),
                                        typename C::OutputStride{int64_t(columns), {}});
  to.store = cute::make_tma_copy(cute::SM90_TMA_STORE{}, output, typename C::PlainLayout{});
  to.store_gated = cute::make_tma_copy(cute::SM90_TMA_STORE{}, output, typename C::GatedLayout{});
  bool const encoded_all = encoded(to.mainloop.tma_load_a.get_tma_descriptor()) &&
                           encoded(to.mainloop.tma_load_b.get_tma_descriptor()) &&
                           encoded(to.store.get_tma_descriptor()) &&
                           encoded(to.store_gated.get_tma_descriptor());
  return encoded_all ? CUSYNC_OK : status_of(cudaErrorInvalidValue);
}

/// `args` has passed `validate_fused`; `stages` are its stages, completed.
template <class C>
int32_t create_fused(cusync_fused_args const& args, cusync_gemm_args const* stages, cusync_fused** out) {
  uint32_t resident = 0;
  if (int32_t const status = fused_workers<C>(&resident); status != CUSYNC_OK) return status;
  // A worker that is not resident could be waited for for ever.
  if (args.workers > resident) return CUSYNC_ERROR_BAD_ARGUMENT;
  auto* fused = new (std::nothrow) Fused<C>;
  if (!fused) return CUSYNC_ERROR_NO_MEMORY;
  typename C::Params& p = fused->params;
  for (uint32_t s = 0; s < args.stage_count; ++s)
    if (int32_t const status = fill_stage<C>(stages[s], p.stages[s]); status != CUSYNC_OK) {
      delete fused;
      return status;
    }
  p.stage_count = args.stage_count;
  p.schedule = args.schedule;
  p.items = args.items, p.list_length = args.list_length, p.workers = args.workers;
  p.slabs = reinterpret_cast<float4*>(args.slabs), p.slab_flags = args.slab_flags;
  p.epochs = args.epochs, p.tickets = args.tickets;
  p.report = args.report, p.timeout_ns = args.timeout_ns;
  p.trace = args.trace;
  *out = fused;
  return CUSYNC_OK;
}

}  // namespace cusync::kernels::sm90

namespace cusync::kernels {

template <cusync_element Element, int TileM, int TileN, int ClusterM, int ClusterN>
FusedFamily fused_sm90_family() {
  using Number = std::conditional_t<Element == CUSYNC_F16, cutlass::half_t, cutlass::bfloat16_t>;
  using C = sm90::FusedConfig<Number, TileM, TileN, ClusterM, ClusterN>;
  return {sm90::fused_info<C>(), sm90::fused_registers<C>, sm90::fused_workers<C>, sm90::create_fused<C>};
}

}  // namespace cusync::kernels
