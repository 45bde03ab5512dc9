// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code of the Ampere GEMM kernels: parameters.
#pragma once
#include "kernels/common/host.h"
#include "kernels/gemm/sm80/kernel.cuh"

namespace cusync::kernels::sm80 {

template <class C>
struct GemmHost {
  static constexpr int kSharedBytes = int(sizeof(SharedStorage<C>));
  static_assert(kSharedBytes <= 99 * 1024, "the limit of compute capability 8.6 and 8.9");

  static Code code() {
    return {reinterpret_cast<void const*>(gemm<C>), CUSYNC_SM80, uint32_t(C::kThreads), uint32_t(kSharedBytes)};
  }

  static uint32_t registers() { return registers_of(code().kernel, CUSYNC_SM80); }
  /// On a newer GPU this compiles the kernel.
  static int32_t resident(uint32_t* workers) { return kernels::resident(code(), kSharedBytes, workers); }

  static int32_t create(Request const& request, cusync_kernel** out) {
    uint32_t slots = 0;
    if (int32_t const status = resident(&slots); status != CUSYNC_OK) return status;
    cusync_stage const& stage = request.stages[0];
    Params<C> params;
    params.operands = C::operands_of(stage);
    params.stage = make_stage(stage, request.sync.test, params.edges);
    params.coupling = make_coupling(request.sync, 1);
    params.tiles = make_tiles(request);
    params.tile_rows = stage.tiles.rows;
    params.d = stage.out;
    return ready(code(), request.work.workers ? request.work.workers : min_u32(params.tiles.tiles, slots), params, out);
  }

  static Kernel kernel() {
    cusync_kernel_info info{};
    info.id = {CUSYNC_FAMILY_GEMM, CUSYNC_SM80, 1u << C::kOperation,
               kElementOf<typename C::Element>, C::kTileM, C::kTileN, 1, 1, 0};
    info.tile_k = C::kTileK, info.ring = C::kStages, info.stages = 1;
    info.threads = C::kThreads, info.shared_bytes = kSharedBytes;
    return {info, registers, resident, create};
  }
};

}  // namespace cusync::kernels::sm80

namespace cusync::kernels {

/// One kernel per operation.
template <cusync_element Element, int TileM, int TileN, int Ring, int ClusterM, int ClusterN, cusync_operation... Operations>
KernelTable gemm_sm80() {
  static_assert(ClusterM == 1 && ClusterN == 1);
  static Kernel const table[] = {
      sm80::GemmHost<sm80::Config<Operations, Number<Element>, TileM, TileN, Ring>>::kernel()...};
  return {table, sizeof...(Operations)};
}

}  // namespace cusync::kernels
