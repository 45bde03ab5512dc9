// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention over whole sequences in a chain kernel. A tile is 128 queries of one head and one sequence; each k-block is
// 128 tokens. Ring stages then have no parts A and B, but two halves of 128 tokens by 64 columns, in 128-byte rows
// under the 128-byte swizzle.
//
//   heads of 128 columns   a stage has the queries, the keys of a k-block, or its values
//   heads of 64 columns    a stage has the queries, or the keys and values of a k-block, a half each
#pragma once
#include <cuda.h>

#include <type_traits>

#include "cusync/ptx.cuh"
#include "cutlass/half.h"

#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// Queries per tile, and tokens per k-block.
inline constexpr uint32_t kPromptTokens = CUSYNC_PROMPT_TOKENS;
inline constexpr uint32_t kPromptHalfBytes = kPromptTokens * 128;

/// The fields that every tile of an attention stage needs. Small: all stages fit in constant memory.
struct alignas(16) Prompt {
  uint32_t tokens;    ///< per sequence
  uint16_t tiles;     ///< per sequence and head
  uint16_t group;     ///< query heads that share keys and values
  uint8_t head_dim;   ///< 64 or 128
  uint8_t causal;
  uint8_t appends;    ///< tiles of a group's first head append their own tokens' keys and values to a cache
};

/// The fields that every tile needs to rotate the queries and keys it computes.
struct alignas(16) Rotation {
  void const* angles;  ///< one row per position: cosines, then sines
  uint32_t tokens;     ///< per sequence
  uint16_t heads;      ///< rotated heads: those of queries and keys
  uint8_t head_dim;    ///< 64 or 128
};

/// Attention data in the kernel parameters.
struct PromptParams {
  union {
    Prompt prompts[CUSYNC_MAX_STAGES];       ///< of attention stages
    Rotation rotations[CUSYNC_MAX_STAGES];   ///< of stages that rotate their output
  };
  static_assert(sizeof(Prompt) == sizeof(Rotation), "those of other stages lie elsewhere");
};

/// Attention data in a stage's table in device memory. Sequences are a separate tensor axis, so copies end at sequence
/// boundaries.
struct PromptTable {
  CUtensorMap qkv, out;
  void const* tokens;
  void* cache[2];     ///< keys, values
  uint32_t capacity;  ///< tokens per sequence and head
};

/// Half `half` of ring stage `stage`.
template <class C>
CUSYNC_DEVICE char* prompt_half(typename C::SharedStorage& shared, uint32_t stage, uint32_t half) {
  constexpr uint32_t a = C::kTileM * C::kTileK * 2, b = C::kTileN * C::kTileK * 2;
  static_assert(a == kPromptHalfBytes && (b == a || b == 2 * a), "both halves lie in one ring stage");
  char* const first = reinterpret_cast<char*>(shared.operands.smem_A.data());
  char* const second = reinterpret_cast<char*>(shared.operands.smem_B.data());
  if constexpr (b == a) return half ? second + stage * b : first + stage * a;
  return second + stage * b + half * a;
}

/// Position of a tile.
struct PromptTile {
  uint32_t sequence, row;  ///< row: token of the first query, within the sequence

  CUSYNC_DEVICE PromptTile(Prompt const& prompt, uint32_t m)
      : sequence(m / prompt.tiles), row((m - sequence * prompt.tiles) * kPromptTokens) {}
};

}  // namespace cusync::kernels::sm90
