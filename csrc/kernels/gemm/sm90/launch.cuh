// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code of the Hopper GEMM kernels: tensor maps and parameters.
#pragma once
#include "kernels/common/number.h"
#include "kernels/common/sm90/host.h"
#include "kernels/gemm/sm90/kernel.cuh"

namespace cusync::kernels::sm90 {

template <class C>
struct GemmHost {
  static Code code() {
    return {reinterpret_cast<void const*>(gemm<C>), CUSYNC_SM90A, uint32_t(C::kThreads), uint32_t(C::kSharedBytes)};
  }

  static uint32_t registers() { return registers_of(code().kernel, CUSYNC_SM90A); }
  static int32_t resident(uint32_t* workers) { return kernels::resident(code(), C::kSharedBytes, workers); }

  static int32_t create(Request const& request, cusync_kernel** out) {
    uint32_t slots = 0;
    if (int32_t const status = resident(&slots); status != CUSYNC_OK) return status;
    typename C::Params params;
    cusync_stage const& stage = request.stages[0];
    params.stage = make_stage(stage, request.sync.test, params.edges);
    params.coupling = make_coupling(request.sync, 1);
    params.tiles = make_tiles(request);
    params.store = map_output<C>(stage, typename C::ChunkLayout{});
    if (!map_operands<C>(stage, params.mainloop) || !encoded(params.store.get_tma_descriptor()))
      return status_of(cudaErrorInvalidValue);
    return ready(code(), request.work.workers ? request.work.workers : min_u32(params.tiles.tiles, slots), params, out);
  }

  static Kernel kernel() {
    cusync_kernel_info info{};
    info.id = {CUSYNC_FAMILY_GEMM, CUSYNC_SM90A, 1u << C::kOperation,
               kElementOf<typename C::Element>, C::kTileM, C::kTileN, 1, 1, 0};
    info.tile_k = C::kTileK, info.ring = C::kStages, info.stages = 1;
    info.threads = C::kThreads, info.shared_bytes = C::kSharedBytes;
    return {info, registers, resident, create};
  }
};

}  // namespace cusync::kernels::sm90

namespace cusync::kernels {

/// One kernel per operation.
template <cusync_element Element, int TileM, int TileN, int Ring, int ClusterM, int ClusterN, cusync_operation... Operations>
KernelTable gemm_sm90() {
  static_assert(ClusterM == 1 && ClusterN == 1);
  static Kernel const table[] = {
      sm90::GemmHost<sm90::Config<Number<Element>, TileM, TileN, Ring, Operations>>::kernel()...};
  return {table, sizeof...(Operations)};
}

}  // namespace cusync::kernels
