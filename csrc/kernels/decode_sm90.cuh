// SPDX-License-Identifier: MIT OR Apache-2.0
// The decode kernel: persistent CTAs, one an SM, each of which runs its share of every stage.
#pragma once
#include "decode_sm90_activations.cuh"
#include "decode_sm90_epilogue.cuh"
#include "decode_sm90_weights.cuh"

namespace cusync::kernels::decode {

/// Where a math warp stands.
struct MathState {
  MathPosition at;
  uint32_t exchange_parity = 0;
};

/// A warpgroup's part of stage `s`: `Tiles` tiles of rows.
template <class Element, int Width, int Split, int Tiles, Sharing By>
CUSYNC_DEVICE void compute_part(Params const& p, Shared const& shared, uint32_t s, uint32_t group, MathState& state) {
  constexpr int kBatch = Tiles > 2 ? 1 : 2;  // k-blocks between two waits for the tensor cores
  Epilogue<Element, Width, Tiles, By> const epilogue(p, shared, s, group);
  Sums<Element, Width, Tiles, By> sums;
  main_loop<kBatch>(sums, p, shared, s, group, state.at);
  if (p.trace && threadIdx.x == 0) p.trace[blockIdx.x * p.stage_count + s].math_end = ptx::globaltimer();
  if constexpr (Split == 2)
    epilogue.finish_with_cta(sums, state.exchange_parity);
  else if constexpr (By == Sharing::kChunks)
    epilogue.finish_with_warpgroup(sums);
  else
    epilogue.finish(sums);
}

template <class Element, int Width, int Split>
CUSYNC_DEVICE void compute_stage(Params const& p, Shared const& shared, uint32_t s, uint32_t group, MathState& state) {
  uint32_t const tiles = p.stages[s].row_tiles;
  if constexpr (Split == 1) {
    constexpr Sharing kBy = Sharing::kChunks;
    if (tiles == 1) return compute_part<Element, Width, 1, 1, kBy>(p, shared, s, group, state);
    if (tiles == 2) return compute_part<Element, Width, 1, 2, kBy>(p, shared, s, group, state);
    if constexpr (takes_turns(4, Width, 1)) {
      if (tiles == 3) return compute_part<Element, Width, 1, 3, kBy>(p, shared, s, group, state);
      return compute_part<Element, Width, 1, 4, kBy>(p, shared, s, group, state);
    }
  }
  if constexpr (!takes_turns(4, Width, Split)) {
    constexpr Sharing kBy = Sharing::kRowTiles;
    uint32_t const mine = (tiles + 1 - group) / 2;
    if (mine == 0) return pass_stage(p, shared, s, state.at);
    if (mine == 2) return compute_part<Element, Width, Split, 2, kBy>(p, shared, s, group, state);
    return compute_part<Element, Width, Split, 1, kBy>(p, shared, s, group, state);
  }
}

template <class Element, int Width, int Split>
CUSYNC_DEVICE void compute(Params const& p, Shared const& shared) {
  ptx::griddepcontrol_wait();
  // Through a shuffle the compiler knows it to be the same in all lanes.
  uint32_t const group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  MathState state;
#pragma unroll 1
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    Stage const& stage = p.stages[s];
    Share const& share = shared.share(s);
    if (p.trace && threadIdx.x == 0) p.trace[blockIdx.x * p.stage_count + s].begin = ptx::globaltimer();
    if (share.count) {
      if (Split == 2 && threadIdx.x == 0) expect_exchange<Width>(stage, shared);
      compute_stage<Element, Width, Split>(p, shared, s, group, state);
      if constexpr (Split == 2) {
        release_exchange(share, shared);
        state.exchange_parity ^= 1;
      }
    }
    post_stage(p, stage, share);
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
    uint32_t const bytes = p.stages[s].chunk_bytes;
#pragma unroll 1
    for (uint32_t i = 0; i < shared.share(s).chunks; ++i) {
      at.skip_for(bytes, p.ring_bytes);
      ptx::mbarrier_wait_parity_or_trap(shared.chunk_full(at.barrier), at.parity, p.limit_ns);
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.chunk_empty(at.barrier));
      at.pass(bytes);
    }
  }
}

/// Barriers and this CTA's shares. All threads.
template <int Split>
CUSYNC_DEVICE void prepare(Params const& p, Shared const& shared) {
  if (threadIdx.x < p.stage_count)
    shared.share(threadIdx.x) = share_of<Split>(p.stages[threadIdx.x], blockIdx.x, p.workers);
  for (uint32_t i = threadIdx.x; i < kMaxChunks; i += kThreads) {
    ptx::mbarrier_init(shared.chunk_full(i), 1);
    ptx::mbarrier_init(shared.chunk_empty(i), kMathWarps);
  }
  for (uint32_t i = threadIdx.x; i < p.activation_slots; i += kThreads) {
    ptx::mbarrier_init(shared.slot_full(i), 32);  // the lanes of the warp that copies it
    ptx::mbarrier_init(shared.slot_empty(i), kMathWarps);
  }
  if (threadIdx.x == kMathThreads) {
    ptx::mbarrier_init(shared.exchange_full(), 1);
    ptx::mbarrier_init(shared.exchange_empty(), kMathWarps);
  }
  ptx::fence_mbarrier_init();
  if constexpr (Split == 1)
    __syncthreads();
  else
    ptx::barrier_cluster();
}

template <class Element, int Width, int Split>
__global__ void __launch_bounds__(kThreads, 1) decode(Params const __grid_constant__ p) {
  extern __shared__ __align__(1024) char memory[];
  ptx::griddepcontrol_launch_dependents();
  Shared const shared{memory, p.shared};
  uint32_t const warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  prepare<Split>(p, shared);
  if (warp == kWeightWarp) {
    if (ptx::elect_one()) stream_weights(p, shared);
    __syncwarp();
  } else if (p.stream_only) {
    if (warp < kWeightWarp) drain(p, shared);
  } else if (warp > kWeightWarp) {
    load_activations(p, shared, warp - kWeightWarp - 1, Width);
  } else {
    compute<Element, Width, Split>(p, shared);
  }
  // The other CTA may still send to this one's shared memory.
  if constexpr (Split == 2) ptx::barrier_cluster();
}

}  // namespace cusync::kernels::decode
