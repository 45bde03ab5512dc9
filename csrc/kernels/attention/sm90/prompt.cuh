// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention of whole sequences, as the warps of a chain kernel see it. A tile is 128 queries of one head and one sequence, each
// of its k-blocks 128 tokens. The ring has no parts A and B then: a stage is two halves of 128 tokens by 64 columns, rows of
// 128 bytes under the 128-byte swizzle.
//
//   heads of 128 columns   a stage has the queries, the keys of a k-block, or its values
//   heads of 64 columns    a stage has the queries, or keys and values of a k-block, a half each
#pragma once
#include <cuda.h>

#include <type_traits>

#include "cusync/ptx.cuh"
#include "cutlass/half.h"

#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// Queries of a tile, and tokens of a k-block.
inline constexpr uint32_t kPromptTokens = CUSYNC_PROMPT_TOKENS;
inline constexpr uint32_t kPromptHalfBytes = kPromptTokens * 128;

/// What every tile asks of its attention. Small: it lies in constant memory for all stages.
struct alignas(16) Prompt {
  uint32_t tokens;    ///< of a sequence
  uint16_t tiles;     ///< of a sequence and head
  uint16_t group;     ///< query heads that share keys and values
  uint8_t head_dim;   ///< 64 or 128
  uint8_t causal;
  uint8_t appends;    ///< keys and values, to a cache: the tile of the group's first head those of its own tokens
};

/// What every tile asks of the rotation of the queries and keys that it makes.
struct alignas(16) Rotation {
  void const* angles;  ///< a row a position: cosines, then sines
  uint32_t tokens;     ///< of a sequence
  uint16_t heads;      ///< that are rotated: those of queries and keys
  uint8_t head_dim;    ///< 64 or 128
};

/// The part of a kernel's parameters.
struct PromptParams {
  union {
    Prompt prompts[CUSYNC_MAX_STAGES];       ///< of stages that attend
    Rotation rotations[CUSYNC_MAX_STAGES];   ///< of stages that rotate what they make
  };
  static_assert(sizeof(Prompt) == sizeof(Rotation), "those of other stages lie elsewhere");
};

/// The part of a stage's table in device memory. Sequences are an axis of their own, so that copies end where they do.
struct PromptTable {
  CUtensorMap qkv, out;
  void const* tokens;
  void* cache[2];     ///< keys, values
  uint32_t capacity;  ///< tokens of a sequence and head
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

/// A tile's place.
struct PromptTile {
  uint32_t sequence, row;  ///< the first query's token, counted within the sequence

  CUSYNC_DEVICE PromptTile(Prompt const& prompt, uint32_t m)
      : sequence(m / prompt.tiles), row((m - sequence * prompt.tiles) * kPromptTokens) {}
};

}  // namespace cusync::kernels::sm90
