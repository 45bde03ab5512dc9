// SPDX-License-Identifier: MIT OR Apache-2.0
// From accumulators to global memory in a chain kernel: bias, activation, residual, then 16-byte stores straight from
// registers. Not by TMA: its engine works in order, so a store would wait behind the loads that already run ahead for
// the next item, and with it the post that other workers wait for. A warp of the producer group posts, so that
// consumers never wait for their stores to arrive.
#pragma once
#include "cusync/edge.cuh"
#include "fused_sm90_config.cuh"
#include "fused_sm90_slabs.cuh"
#include "gemm_sm90_fragment.cuh"

namespace cusync::kernels::sm90 {

/// Where unit `u` of a warpgroup's part of a tile begins in the output.
template <class C>
struct Unit {
  uint32_t row, col;

  CUSYNC_DEVICE Unit(FusedWork const& item, bool gated, uint32_t group, int u)
      : row(item.range.m * C::kTileM + (u / C::kColUnits * C::kTeamGroups + group) * C::kUnitRows),
        col((item.range.n * C::kTileN + u % C::kColUnits * C::kUnitCols) >> (gated ? 1 : 0)) {}
};

/// Transposes a 4 x 4 matrix of words over the four lanes of a quad: lane q's word j goes to lane j's word q.
CUSYNC_DEVICE void transpose_quad(uint32_t (&w)[4]) {
  uint32_t const q = threadIdx.x % 4;
  // Blocks of 2 x 2 first, then the words within them: a lane sends what its partner keeps.
  bool const high = q & 2, odd = q & 1;
  uint32_t const a = __shfl_xor_sync(~0u, high ? w[0] : w[2], 2), b = __shfl_xor_sync(~0u, high ? w[1] : w[3], 2);
  (high ? w[0] : w[2]) = a, (high ? w[1] : w[3]) = b;
  uint32_t const c = __shfl_xor_sync(~0u, odd ? w[0] : w[1], 1), d = __shfl_xor_sync(~0u, odd ? w[2] : w[3], 1);
  (odd ? w[0] : w[1]) = c, (odd ? w[2] : w[3]) = d;
}

/// Stores 32 columns of a row block from (row, col): `words` are the thread's column pairs of rows at.row and
/// at.row + 8. After the transposition each lane has 8 neighbouring columns, and a quad 64 bytes of a row.
template <class Element>
CUSYNC_DEVICE void store_chunk(Stage const& stage, Element* output, Fragment const& at, uint32_t row, uint32_t col,
                               uint32_t (&words)[2][4]) {
  col += at.col * 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    transpose_quad(words[half]);
    uint32_t const r = row + at.row + 8 * half;
    if (r < stage.m && col < stage.columns)
      *reinterpret_cast<uint4*>(output + size_t(r) * stage.columns + col) =
          make_uint4(words[half][0], words[half][1], words[half][2], words[half][3]);
  }
}

/// Finishes and stores the units of a tile that this part owns, by the threads of one consumer warpgroup; `thread`
/// counts over the team's.
template <class C>
CUSYNC_DEVICE void finish_item(typename C::Params const& params, FusedWork const& item, Parts<C> const& parts,
                               uint32_t epoch, uint32_t rank, Units<C>& units, uint32_t group, int thread) {
  using Element = typename C::Element;
  typename C::StageParams const& stage_params = params.stages[item.stage];
  Stage const& stage = stage_params.stage;
  Fragment const at(thread % 128);
  bool const gated = stage_params.gated;
  Element* const output = stage_params.output;

  if (stage.wait_count > stage.load_waits) {
    // Bias or residual come from a stage. One thread of the warpgroup acquires for all of it.
    if (thread % 128 == 0) {
      WaitContext const context = wait_context(stage, epoch);
      for (uint32_t i = stage.load_waits; i < stage.wait_count; ++i)
        wait_for_tile<ReadBy::kLoads>(stage.edges[i], item.range.m, item.range.n, context);
    }
    ptx::bar_sync(warpgroup_barrier(), 128);
  }

#pragma unroll 1
  for (uint32_t u = 0; u < C::kUnits; ++u, units.rotate()) {
    if (!parts.owns(u)) continue;
    Unit<C> const unit(item, gated, group, int(u));
    float* const v = units.current();
    add_sums<C>(params, parts, rank, u, v, thread);
    uint32_t words[2][4];
    if (gated) {
      // Groups of 8 columns alternate between gate and up, so a thread holds both of its outputs' factors.
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float const* const gate = v + 8 * j + 2 * half;
          float const* const up = gate + 4;
          words[half][j] = pack<Element>(silu(gate[0]) * up[0], silu(gate[1]) * up[1]);
        }
      store_chunk(stage, output, at, unit.row, unit.col, words);
    } else {
#pragma unroll
      for (int c = 0; c < C::kUnitCols / C::kChunkCols; ++c) {
        uint32_t const col = unit.col + c * C::kChunkCols;
        float* const w = v + c * (C::kUnitAccumulators / 2);
        finish_chunk<Element, C::kChunkCols>(stage, w, unit.row, col, at);
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            words[half][j] = pack<Element>(w[4 * j + 2 * half], w[4 * j + 2 * half + 1]);
        store_chunk(stage, output, at, unit.row, col, words);
      }
    }
  }
}

/// Posts a tile whose stores by one warpgroup have been issued; by one thread, which has synchronised with them. `tile`
/// counts the tiles of this CTA that were posted before. Whoever comes last has seen both warpgroups' stores, and its
/// release covers them. A counter is used again eight tiles later, further than the ring of items lets one lead.
template <class C>
CUSYNC_DEVICE void post_item(typename C::Params const& params, FusedWork const& item,
                             typename C::SharedStorage& shared, uint32_t tile) {
  Stage const& stage = params.stages[item.stage].stage;
  if (!stage.post_count) return;
  if constexpr (C::kTeamGroups == 2) {
    uint32_t* const counter = shared.complete + tile % (2 * C::kWorkDepth);
    if (ptx::atom_acq_rel_cta_shared_add(counter, 1) % 2 == 0) return;
  }
  uint32_t const value = stage.post_value * Parts<C>(item).weight();
  for (uint32_t i = 0; i < stage.post_count; ++i)
    post_tile(stage.posts[i], stage.semaphores, item.range.m, item.range.n, value);
}

}  // namespace cusync::kernels::sm90
