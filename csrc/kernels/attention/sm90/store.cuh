// SPDX-License-Identifier: MIT OR Apache-2.0
// Maps a tile's queries to rows of the output, within the sequence.
#pragma once
#include "kernels/common/sm90/operation.cuh"
#include "kernels/attention/sm90/prompt.cuh"
#include "kernels/common/notes.cuh"

namespace cusync::kernels::sm90 {

/// The rows of a chunk of a tile, counted within the sequence.
struct SequenceRows {
  uint32_t first, tokens;
  CUSYNC_DEVICE bool any(Stage const&) const { return first < tokens; }
};

struct SequenceStore {
  template <class C, class Item>
  CUSYNC_DEVICE static SequenceRows rows(typename C::Params const& params, Item const& item, uint32_t row) {
    Prompt const& prompt = params.prompts[item.stage];
    return {PromptTile(prompt, item.range.m).row + row, prompt.tokens};
  }

  /// Output columns of a tile.
  template <class C, class Item>
  CUSYNC_DEVICE static uint32_t columns(typename C::Params const& params, Item const& item) {
    return params.prompts[item.stage].head_dim;
  }

  template <class C, class Found, class Item>
  CUSYNC_DEVICE static void store(typename C::Params const& params, Item const& item, SequenceRows const& rows, uint32_t col,
                                  typename C::Element* buffer) {
    PromptTile const tile(params.prompts[item.stage], item.range.m);
    cute::SM90_TMA_STORE_3D::copy(&params.table[item.stage].out, buffer, int(col), int(rows.first), int(tile.sequence));
  }

  template <class C, class Item, class Parts, class Ring>
  CUSYNC_DEVICE static void send(typename C::Params const& params, Item const& item, Parts const& parts,
                                 typename C::SharedStorage& shared, Ring& ring, uint32_t group, bool leader) {
    send_units<C>(params, item, parts, shared, ring, group, leader);
  }
};

}  // namespace cusync::kernels::sm90
