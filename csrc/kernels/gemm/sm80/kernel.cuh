// SPDX-License-Identifier: MIT OR Apache-2.0
// The Ampere GEMM kernel: a persistent kernel layer around CUTLASS's cp.async collective.
#pragma once
#include "kernels/gemm/sm80/config.cuh"
#include "kernels/gemm/sm80/epilogue.cuh"
#include "kernels/gemm/sm80/wait.cuh"
#include "kernels/gemm/sm80/work.cuh"

namespace cusync::kernels::sm80 {

/// The main loop of one tile of a matrix product. Other operations overload it for their types.
template <class C, class Accumulators>
CUSYNC_DEVICE void multiply(Params<C> const& params, SharedStorage<C>& shared, WorkItem const& item, int thread,
                            Accumulators& acc) {
  using namespace cute;
  Stage const& stage = params.stage;
  int const m = int(stage.m), n = int(params.operands.n), k = int(params.operands.k);
  auto const shape = typename C::TileShape{};
  Tensor const a = make_tensor(make_gmem_ptr(params.operands.of.ptr_A), make_shape(m, k, 1), params.operands.of.dA);
  Tensor const b = make_tensor(make_gmem_ptr(params.operands.of.ptr_B), make_shape(n, k, 1), params.operands.of.dB);
  Tensor const tile_a = local_tile(a(_, _, 0), shape, make_coord(int(item.m), 0, _), Step<_1, X, _1>{});  // (BM, BK, k)
  Tensor const tile_b = local_tile(b(_, _, 0), shape, make_coord(0, int(item.n), _), Step<X, _1, _1>{});  // (BN, BK, k)
  auto const residue = make_tuple(m - int(item.m) * C::kTileM, n - int(item.n) * C::kTileN,
                                  k - int(params.tiles.k_blocks) * C::kTileK);
  clear(acc);
  WaitingKBlocks<Params<C>> const blocks(params, item, &shared.next_wait);
  typename C::Mainloop mainloop;
  mainloop(acc, tile_a, tile_b, acc, blocks, int(params.tiles.k_blocks), residue, thread,
           reinterpret_cast<char*>(&shared.operands));
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) gemm(CUTE_GRID_CONSTANT Params<C> const params) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<SharedStorage<C>*>(memory);
  Stage const& stage = params.stage;
  if (threadIdx.x == 0) {
    shared.source.begin(params.tiles);
    shared.item = shared.source.next(params.tiles);
  }
  __syncthreads();
  WorkItem const& item = shared.item;
  while (item.valid) {
    auto acc = cute::partition_fragment_C(typename C::TiledMma{}, cute::take<0, 2>(typename C::TileShape{}));
    // `valid` is 1, but the compiler does not know that: it recomputes the thread's addresses for each tile instead of
    // keeping them in registers across tiles.
    int const thread = int(threadIdx.x + item.valid - 1);
    multiply(params, shared, item, thread, acc);

    // Draw late: a ticket taken earlier would be missing on an idle CTA.
    WorkItem next{};
    if (threadIdx.x == 0) next = shared.source.next(params.tiles);
    wait_for_epilogue_operands(params, item);
    uint32_t const row0 = item.m * params.tile_rows;
    Rows const rows{row0, min_u32(stage.m - row0, params.tile_rows)};
    if constexpr (C::kGated)
      stage_gated<C>(stage, acc, shared.staged, thread);
    else
      stage_plain<C>(stage, item, rows, acc, shared.staged, thread);
    __syncthreads();
    store_staged<C>(stage, item, rows, shared.staged, params.d, thread);
    __syncthreads();  // the whole tile is stored
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < stage.post_count; ++i)
        post_tile(params.edges.posts[i], params.coupling.semaphores, item.m, item.n);
      shared.item = next;
    }
    __syncthreads();
  }
}

}  // namespace cusync::kernels::sm80
