// SPDX-License-Identifier: MIT OR Apache-2.0
// The decode kernel: one persistent CTA an SM runs its share of every stage.
#pragma once
#include "decode_sm90_activations.cuh"
#include "decode_sm90_epilogue.cuh"
#include "decode_sm90_weights.cuh"

namespace cusync::kernels::decode {

/// A warpgroup's share of stage `s`, in `RowTiles` tiles of rows and chunks of `Blocks` k-blocks.
template <class Element, int Width, int RowTiles, int Blocks>
CUSYNC_DEVICE void compute_stage(Params const& p, Shared const& shared, uint32_t s, uint32_t group, MathPosition& at) {
  Epilogue<Element, Width, RowTiles> const epilogue(p, shared, s, group);
  Sums<Element, Width, RowTiles> sums;
  main_loop<Blocks>(sums, p, shared, s, group, at);
  if (p.trace && threadIdx.x == 0) p.trace[blockIdx.x * p.stage_count + s].math_end = ptx::globaltimer();
  epilogue.finish(sums);
}

template <class Element, int Width>
CUSYNC_DEVICE void compute(Params const& p, Shared const& shared) {
  ptx::griddepcontrol_wait();
  // Through a shuffle the compiler knows it to be the same in all lanes.
  uint32_t const group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  MathPosition at;
#pragma unroll 1
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    Stage const& stage = p.stages[s];
    Share const& share = shared.share(s);
    if (p.trace && threadIdx.x == 0) p.trace[blockIdx.x * p.stage_count + s].begin = ptx::globaltimer();
    if (share.count) {
      switch (stage.row_tiles * 8 + stage.blocks_per_chunk) {
        case 8 + 1: compute_stage<Element, Width, 1, 1>(p, shared, s, group, at); break;
        case 8 + 2: compute_stage<Element, Width, 1, 2>(p, shared, s, group, at); break;
        case 8 + 4: compute_stage<Element, Width, 1, 4>(p, shared, s, group, at); break;
        case 16 + 1: compute_stage<Element, Width, 2, 1>(p, shared, s, group, at); break;
        case 24 + 1:
          if constexpr (max_row_tiles(Width) >= 3) compute_stage<Element, Width, 3, 1>(p, shared, s, group, at);
          break;
        case 32 + 1:
          if constexpr (max_row_tiles(Width) >= 4) compute_stage<Element, Width, 4, 1>(p, shared, s, group, at);
          break;
      }
    }
    post_stage(stage, share);
    if (p.trace && threadIdx.x == 0) {
      cusync_trace& trace = p.trace[blockIdx.x * p.stage_count + s];
      trace.end = ptx::globaltimer();
      trace.sm = ptx::smid();
      trace.item = s;
    }
  }
}

/// Instead of arithmetic: frees every chunk when it has arrived.
CUSYNC_DEVICE void drain(Params const& p, Shared const& shared) {
  RingPosition at;
#pragma unroll 1
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    uint32_t const bytes = p.stages[s].blocks_per_chunk * p.stages[s].block_bytes;
#pragma unroll 1
    for (uint32_t i = 0; i < shared.share(s).chunks; ++i) {
      at.skip_for(bytes, p.ring_bytes);
      if (i % 2 == threadIdx.x / 128) {
        wait_phase(shared.chunk_full(at.barrier), at.parity, p.timeout_ns);
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.chunk_empty(at.barrier));
      }
      at.pass(bytes);
    }
  }
}

template <class Element, int Width>
__global__ void __launch_bounds__(kThreads, 1) decode(Params const __grid_constant__ p) {
  extern __shared__ __align__(1024) char memory[];
  ptx::griddepcontrol_launch_dependents();
  Shared const shared{memory, p.shared};
  uint32_t const warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (threadIdx.x < p.stage_count) shared.share(threadIdx.x) = share_of(p.stages[threadIdx.x], blockIdx.x, p.workers);
  for (uint32_t i = threadIdx.x; i < kMaxChunks; i += kThreads) {
    ptx::mbarrier_init(shared.chunk_full(i), 1);
    ptx::mbarrier_init(shared.chunk_empty(i), 4);  // the warps of the warpgroup that multiplied it
  }
  for (uint32_t i = threadIdx.x; i < p.activation_slots; i += kThreads) {
    ptx::mbarrier_init(shared.slot_full(i), 32);  // the lanes of the warp that copies it
    ptx::mbarrier_init(shared.slot_empty(i), 4);
  }
  ptx::fence_mbarrier_init();
  __syncthreads();
  if (warp == kWeightWarp) {
    if (threadIdx.x % 32 == 0) stream_weights(p, shared);
  } else if (p.stream_only) {
    if (warp < kWeightWarp) drain(p, shared);
  } else if (warp > kWeightWarp) {
    load_activations(p, shared, warp - kWeightWarp - 1, Width);
  } else {
    compute<Element, Width>(p, shared);
  }
}

}  // namespace cusync::kernels::decode
