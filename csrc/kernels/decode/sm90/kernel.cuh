// SPDX-License-Identifier: MIT OR Apache-2.0
// The decode kernel: persistent CTAs, one per SM; each runs its share of every stage.
#pragma once
#include <type_traits>
#include <utility>

#include "kernels/decode/sm90/activations.cuh"
#include "kernels/decode/sm90/attend.cuh"
#include "kernels/decode/sm90/epilogue.cuh"
#include "kernels/decode/sm90/narrow.cuh"
#include "kernels/decode/sm90/norm.cuh"
#include "kernels/decode/sm90/weights.cuh"

namespace cusync::kernels::decode {

/// Notes when a stage's products end: before the sums of warps are added up, but after they are gathered in the layout of
/// WGMMA.
template <class AnyParams>
CUSYNC_DEVICE void trace_math_end(AnyParams const& p, uint32_t s) {
  if (p.trace && threadIdx.x == 0) p.trace[blockIdx.x * p.stage_count + s].math_end = ptx::globaltimer();
}

/// Calls `finish` with whether the stage's activation has no code of its own, as a constant. Epilogues are constructed
/// there, behind the main loop: their job state would occupy registers in the loop.
template <int Width, class AnyParams, class F>
CUSYNC_DEVICE void with_curves(AnyParams const& p, uint32_t s, F&& finish) {
  if constexpr (takes_curves(AnyParams::kAttends, Width)) {
    if (rarely(is_curved(p.stages[s].activation, p.stages[s].gated))) return finish(std::true_type{});
  }
  finish(std::false_type{});
}

/// A warpgroup's part of stage `s`: `Tiles` row tiles.
template <class Element, int Width, int Tiles, Sharing By, class AnyParams>
CUSYNC_DEVICE void compute_part(AnyParams const& p, Shared const& shared, Run<AnyParams> const& run, uint32_t s,
                                uint32_t group, MathPosition& at) {
  constexpr int kBatch = Tiles > 2 ? 1 : 2;  // k-blocks between two waits for the tensor cores
  // With many tokens, narrow stages use the epilogue of WGMMA.
  constexpr bool kGathers = AnyParams::kAttends && !scales_units(Width) && Tiles == 1 && By == Sharing::kChunks;
  auto const biases = Epilogue<Element, Width, Tiles, By, false, AnyParams>::biases(
      run.tensors(p, s), shared.share(s), group, kGathers ? shared.share(s).lead : 0);
  Sums<Element, Width, Tiles, By> sums;
  uint32_t const rows = p.stages[s].rows;
  if (!kGathers || !is_narrow(rows, Width)) main_loop<kBatch>(sums, p, shared, s, group, at);
  if constexpr (kGathers) {
    if (rows <= 16) gathered_loop<1>(sums, p, shared, s, group, at);
    else if (rows <= 32) gathered_loop<2>(sums, p, shared, s, group, at);
    else if (rows <= 48) gathered_loop<3>(sums, p, shared, s, group, at);
  }
  trace_math_end(p, s);
  if constexpr (AnyParams::kAttends) {
    if (p.stages[s].epsilon > 0.f) {
      AttendShared& own = attend_shared(p, shared);
      if (!kGathers || !is_narrow(rows, Width)) sums.squares.leave(own.scales[threadIdx.x / 32]);
      if constexpr (!scales_units(Width)) {
        scale_tokens(p.stages[s], own, Width);
        sums.scale(own.scales[0]);
      }
    }
  }
  with_curves<Width>(p, s, [&](auto curved) {
    using Epilogue = decode::Epilogue<Element, Width, Tiles, By, curved.value, AnyParams>;
    Epilogue const epilogue(p, run.tensors(p, s), run.m(p), shared, s, group, biases);
    if constexpr (kGathers) {
      if (p.pair_of[s]) {
        uint32_t const number = p.pair_of[s] - 1u, turn = number % 2;
        Neighbour const neighbour{shared.base + p.pair + turn * p.pair_bytes, attend_shared(p, shared).paired + turn,
                                  number / 2 % 2, blockIdx.x % 2 ^ 1, p.limit_ns};
        return epilogue.finish_with_neighbour(sums, neighbour);
      }
    }
    epilogue.finish(sums);
  });
}

/// A warp's part of narrow stage `s`, of `Tiles` tiles of 16 rows.
template <class Element, int Width, int Tiles, class AnyParams>
CUSYNC_DEVICE void compute_narrow(AnyParams const& p, Shared const& shared, Run<AnyParams> const& run, uint32_t s,
                                  uint32_t group, MathPosition& at) {
  auto const biases = NarrowEpilogue<Element, Width, Tiles, false, AnyParams>::biases(run.tensors(p, s), shared.share(s));
  float sums[Tiles][Width / 8][4] = {};
  narrow_loop<Element, Width, Tiles>(sums, p, shared, s, group, at);
  trace_math_end(p, s);
  with_curves<Width>(p, s, [&](auto curved) {
    NarrowEpilogue<Element, Width, Tiles, curved.value, AnyParams>(p, run.tensors(p, s), run.m(p), shared, s, biases).finish(sums);
  });
}

template <class Element, int Width, class AnyParams>
CUSYNC_DEVICE void compute_stage(AnyParams const& p, Shared const& shared, Run<AnyParams> const& run, uint32_t s,
                                 MathPosition& at) {
  // Found anew in each stage: it would occupy a register in attention. The shuffle tells the compiler that the value is
  // warp-uniform.
  uint32_t const group = __shfl_sync(~0u, ptx::thread_id() / 128, 0);
  // Kernels with products only have no narrow loop: the stages of MLPs are wide.
  if constexpr (AnyParams::kAttends && scales_units(Width)) {
    uint32_t const rows = p.stages[s].rows;
    if (rows <= 16) return compute_narrow<Element, Width, 1>(p, shared, run, s, group, at);
    if (rows <= 32) return compute_narrow<Element, Width, 2>(p, shared, run, s, group, at);
    if (rows <= 48) return compute_narrow<Element, Width, 3>(p, shared, run, s, group, at);
  }
  uint32_t const tiles = p.stages[s].row_tiles;
  if (tiles == 1) return compute_part<Element, Width, 1, Sharing::kChunks>(p, shared, run, s, group, at);
  if (tiles == 2) return compute_part<Element, Width, 2, Sharing::kChunks>(p, shared, run, s, group, at);
  if constexpr (takes_turns(kMaxRowTiles, Width)) {
    if (tiles == 3) return compute_part<Element, Width, 3, Sharing::kChunks>(p, shared, run, s, group, at);
    return compute_part<Element, Width, 4, Sharing::kChunks>(p, shared, run, s, group, at);
  } else {
    static_assert(takes_turns(2, Width));
    if (tiles == 3 && group == 1) return compute_part<Element, Width, 1, Sharing::kRowTiles>(p, shared, run, s, group, at);
    return compute_part<Element, Width, 2, Sharing::kRowTiles>(p, shared, run, s, group, at);
  }
}

/// Runs an attention stage by the code for its heads' columns.
template <class Element, class AnyParams, uint32_t... Columns>
CUSYNC_DEVICE void attend(AnyParams const& p, Shared const& shared, uint32_t s, RingPosition& ring,
                          std::integer_sequence<uint32_t, Columns...>) {
  uint32_t const columns = p.attends[p.attend_of[s] - 1].head_dim;
  ((columns == Columns ? Attending<Element, Columns, AnyParams>(p, shared, s).run(ring) : void()), ...);
}

/// One run of all stages.
template <class Element, int Width, class AnyParams>
CUSYNC_DEVICE void compute_run(AnyParams const& p, Shared const& shared, Run<AnyParams> const& run, MathPosition& at) {
#pragma unroll 1
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    Stage const& stage = p.stages[s];
    Share const& share = shared.share(s);
    if (p.trace && threadIdx.x == 0) p.trace[blockIdx.x * p.stage_count + s].begin = ptx::globaltimer();
    if constexpr (AnyParams::kGroup) {
      if (is_summed(p, s)) begin_sums(p, s, shared);
    }
    if (share.count) compute_stage<Element, Width>(p, shared, run, s, at);
    if constexpr (AnyParams::kGroup) {
      if (is_summed(p, s) && share.count) sum_over_devices<Element>(p, s, share, shared);
    }
    if constexpr (AnyParams::kAttends) {
      if (p.norms[s].epsilon > 0.f) Normalising<Element, AnyParams>(p, shared, s).run();
      if (p.attend_of[s]) attend<Element>(p, shared, s, at.ring, HeadColumns{});
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

template <class Element, int Width, class AnyParams>
CUSYNC_DEVICE void compute(AnyParams const& p, Shared const& shared) {
  ptx::griddepcontrol_wait();
  if constexpr (AnyParams::kGroup) begin_group_run(p, shared);
  MathPosition at;
  if constexpr (AnyParams::kSession) {
    Jobs jobs(p, shared);
#pragma unroll 1
    while (jobs.next()) {
      jobs.skip(at.ring);
      compute_run<Element, Width>(p, shared, jobs.run(), at);
      jobs.end();
    }
  } else {
    compute_run<Element, Width>(p, shared, Run<AnyParams>{}, at);
  }
}

/// Replaces the math in stream_only runs: frees every chunk on arrival.
template <class AnyParams>
CUSYNC_DEVICE void drain(AnyParams const& p, Shared const& shared) {
  RingPosition at;
#pragma unroll 1
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    uint32_t const bytes = p.stages[s].chunk_bytes;
    uint32_t chunks = shared.share(s).chunks;
    if constexpr (AnyParams::kAttends) {
      if (p.attend_of[s]) {
        UnitShare const share = await_units(p, shared, p.attends[p.attend_of[s] - 1]).share(blockIdx.x);
        chunks = (share.end - share.begin) * unit_chunks(p.attends[p.attend_of[s] - 1].head_dim);
      }
    }
#pragma unroll 1
    for (uint32_t i = 0; i < chunks; ++i) {
      at.skip_for(bytes, p.ring_bytes);
      ptx::mbarrier_wait_parity_or_trap(shared.chunk_full(at.barrier), at.parity, p.limit_ns);
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.chunk_empty(at.barrier));
      at.pass(bytes);
    }
  }
}

/// Initializes barriers and this CTA's shares. All threads.
template <class AnyParams>
CUSYNC_DEVICE void prepare(AnyParams const& p, Shared const& shared, uint32_t tile_lanes) {
  bool paired = false;
  if constexpr (AnyParams::kAttends) paired = threadIdx.x < p.stage_count && p.pair_of[threadIdx.x];
  if (threadIdx.x < p.stage_count)
    shared.share(threadIdx.x) = share_of(p.stages[threadIdx.x], blockIdx.x, p.workers, p.m, paired);
  for (uint32_t i = threadIdx.x; i < kMaxChunks; i += kThreads) {
    ptx::mbarrier_init(shared.chunk_full(i), 1);
    ptx::mbarrier_init(shared.chunk_empty(i), kMathWarps);
  }
  for (uint32_t i = threadIdx.x; i < p.activation_slots; i += kThreads) {
    ptx::mbarrier_init(shared.slot_full(i), AnyParams::kMaps ? 1 : tile_lanes);  // lanes that copy it
    ptx::mbarrier_init(shared.slot_empty(i), kMathThreads);
  }
  if constexpr (AnyParams::kAttends) {
    if (threadIdx.x == 0) prepare_attend(p, shared);
  }
  if constexpr (AnyParams::kSession) {
    if (threadIdx.x == 0) prepare_jobs(p, shared);
  }
  ptx::fence_mbarrier_init();
  __syncthreads();
  if constexpr (AnyParams::kAttends) {
    if (p.pairs) cute::cluster_sync();  // a neighbor's barriers must be initialized before anything is sent
  }
}

template <class Element, int Width, class AnyParams>
__global__ void __launch_bounds__(kThreads, 1) decode(AnyParams const __grid_constant__ p) {
  extern __shared__ __align__(1024) char memory[];
  ptx::griddepcontrol_launch_dependents();
  Shared const shared{memory, p.shared};
  uint32_t const warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  constexpr uint32_t kTileLanes = tile_lanes(AnyParams::kAttends, Width);
  prepare(p, shared, kTileLanes);
  if constexpr (AnyParams::kAttends) {
    if (warp == kPlanWarp) plan_units(p, shared);
  }
  if (warp == kWeightWarp) {
    if (ptx::elect_one()) stream_weights(p, shared);
    __syncwarp();
  } else if (p.stream_only) {
    if (warp < kWeightWarp) drain(p, shared);
  } else if (warp > kWeightWarp) {
    load_activations<kTileLanes>(p, shared, warp - kWeightWarp - 1, Width);
  } else {
    compute<Element, Width>(p, shared);
  }
  if constexpr (AnyParams::kAttends) {
    // Do not send to a CTA that has exited.
    __syncwarp();
    if (p.pairs) cute::cluster_sync();
  }
}

}  // namespace cusync::kernels::decode
