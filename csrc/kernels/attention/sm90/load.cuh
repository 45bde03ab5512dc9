// SPDX-License-Identifier: MIT OR Apache-2.0
// The load warp's part of attention: queries, then keys and values in the order in which they are multiplied.
#pragma once
#include "cute/tensor.hpp"
#include "kernels/attention/sm90/prompt.cuh"
#include "kernels/common/sm90/wait.cuh"

namespace cusync::kernels::sm90 {

struct PromptLoad {
  /// Loads one item, in one thread. All its loads wait for warp 1's word `ready`, k-block by k-block.
  template <class C, class Item, class Place>
  CUSYNC_DEVICE static void load(typename C::Params const& params, typename C::SharedStorage& shared,
                                 typename C::LoadPipeline& pipeline, typename C::LoadState& state, Item const& item,
                                 ReadyReader& ready, Place const&) {
    Prompt const prompt = params.prompts[item.stage];
    Stage const& stage = params.stages[item.stage];
    CUtensorMap const* const map = &params.table[item.stage].qkv;
    PromptTile const tile(prompt, item.range.m);
    uint32_t const steps = item.range.k_end - item.range.k_begin, dim = prompt.head_dim;
    uint32_t const keys = (stage.grid_n + item.range.n / prompt.group) * dim, values = keys + stage.grid_n / prompt.group * dim;

    auto const take = [&](uint32_t halves) {
      shared.load.empty_barrier_[state.index()].wait(state.phase());
      shared.load.full_barrier_[state.index()].arrive_and_expect_tx(halves * kPromptHalfBytes);
    };
    auto const bring = [&](uint32_t half, uint32_t column, uint32_t token) {
      cute::SM90_TMA_LOAD_3D::copy(map, pipeline.producer_get_barrier(state),
                                   static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                   prompt_half<C>(shared, state.index(), half), int(column), int(token), int(tile.sequence));
    };
    auto const bring_head = [&](uint32_t column, uint32_t token) {
      take(dim / 64);
      bring(0, column, token);
      if (dim == 128) bring(1, column + 64, token);
      ++state;
    };
    uint32_t const ask_at = steps > 2 ? steps - 2 : 0;
#pragma unroll 1
    for (uint32_t k = 0; k < steps; ++k) {
      while (!ready.is_ready(k)) {
      }
      note(params.coupling.notes, CUSYNC_EVENT_LOAD, {stage.index, item.range.m, item.range.n, item.range.k_begin},
           CUSYNC_OPERAND_A, k);
      if (k == 0) bring_head(item.range.n * dim, tile.row);
      if (dim == 128) {
        bring_head(keys, k * kPromptTokens);
        bring_head(values, k * kPromptTokens);
      } else {
        take(2);
        bring(0, keys, k * kPromptTokens);
        bring(1, values, k * kPromptTokens);
        ++state;
      }
      if (k == ask_at && params.drawn) shared.more_work.arrive();
    }
    ready.finish_tile(steps);
  }
};

}  // namespace cusync::kernels::sm90
