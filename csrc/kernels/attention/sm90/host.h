// SPDX-License-Identifier: MIT OR Apache-2.0
// The host half of attention of whole sequences.
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
          uint8_t(operand(stage, CUSYNC_OPERAND_ROTARY) != nullptr),
          uint8_t(operand(stage, CUSYNC_OPERAND_KEYS) != nullptr)};
}

/// The table of a valid stage; false when the driver refuses a tensor map.
template <class Element>
bool map_prompt(cusync_stage const& stage, PromptTable& to) {
  auto const type = std::is_same_v<Element, cutlass::half_t> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  cusync_heads const& h = stage.heads;
  to.tokens = data_of(stage, CUSYNC_OPERAND_A), to.rotary = data_of(stage, CUSYNC_OPERAND_ROTARY), to.capacity = h.capacity;
  to.cache[0] = const_cast<void*>(data_of(stage, CUSYNC_OPERAND_KEYS));
  to.cache[1] = const_cast<void*>(data_of(stage, CUSYNC_OPERAND_VALUES));
  auto const encode = [&](CUtensorMap& map, void const* data, uint64_t columns, cuuint32_t rows) {
    uint64_t const tokens = stage.k.most, row = columns * sizeof(Element);
    cuuint64_t const sizes[] = {columns, tokens, stage.m / tokens}, strides[] = {row, row * tokens};
    cuuint32_t const box[] = {64, rows, 1}, steps[] = {1, 1, 1};
    return CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
               &map, type, 3, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  };
  return encode(to.qkv, data_of(stage, CUSYNC_OPERAND_A), (h.query_heads + 2 * h.kv_heads) * h.head_dim, kPromptTokens) &&
         encode(to.out, stage.out, stage.n, 64);
}

}  // namespace cusync::kernels::sm90
