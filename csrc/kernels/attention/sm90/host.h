// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code of attention over whole sequences.
#pragma once
#include "kernels/attention/sm90/prompt.cuh"
#include "kernels/common/sm90/host.h"

namespace cusync::kernels::sm90 {

inline Prompt make_prompt(cusync_stage const& stage) {
  cusync_heads const& h = stage.heads;
  return {stage.k.most,
          uint16_t(ceil_div(stage.k.most, kPromptTokens)),
          uint16_t(h.query_heads / h.kv_heads),
          uint8_t(h.head_dim),
          uint8_t(stage.k.step != 0),
          uint8_t(operand(stage, CUSYNC_OPERAND_KEYS) != nullptr)};
}

inline Rotation make_rotation(cusync_stage const& stage) {
  cusync_heads const& h = stage.heads;
  return {data_of(stage, CUSYNC_OPERAND_ROTARY), h.capacity, uint16_t(h.query_heads + h.kv_heads), uint8_t(h.head_dim)};
}

/// The table of a valid stage; false if the driver rejects a tensor map.
template <class Element>
bool map_prompt(cusync_stage const& stage, PromptTable& to) {
  cusync_heads const& h = stage.heads;
  to.tokens = data_of(stage, CUSYNC_OPERAND_A), to.capacity = h.capacity;
  to.cache[0] = const_cast<void*>(data_of(stage, CUSYNC_OPERAND_KEYS));
  to.cache[1] = const_cast<void*>(data_of(stage, CUSYNC_OPERAND_VALUES));
  uint64_t const tokens = stage.k.most, sequences = stage.m / tokens;
  return map_box<Element, 3>(to.qkv, data_of(stage, CUSYNC_OPERAND_A), {(h.query_heads + 2 * h.kv_heads) * h.head_dim, tokens, sequences},
                             {64, kPromptTokens, 1}) &&
         map_box<Element, 3>(to.out, stage.out, {stage.n, tokens, sequences}, {64, 64, 1});
}

}  // namespace cusync::kernels::sm90
