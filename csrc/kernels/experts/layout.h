// SPDX-License-Identifier: MIT OR Apache-2.0
// The scratch memory of a stage with experts, for its kernels and for callers that allocate it. A pair is a row and one of
// the experts that it chose; pairs are numbered row by row, and listed expert by expert.
#pragma once
#include "abi/cusync.h"

namespace cusync::kernels {

/// Pairs of the smallest tile size.
inline constexpr uint32_t kLeastPairs = 16;

/// A run of listed pairs of one expert.
struct ExpertTile {
  uint32_t expert, first, pairs;
};

/// Byte offsets of its arrays, each aligned to CUSYNC_TABLE_ALIGNMENT.
struct ExpertScratch {
  uint64_t chosen;   ///< uint32_t per pair: its expert
  uint64_t weights;  ///< float per pair
  uint64_t places;   ///< uint32_t per pair: its place in the list
  uint64_t listed;   ///< uint32_t per place: the pair
  uint64_t tiles;    ///< uint32_t: number of tiles, then the tiles at the next multiple of 16 bytes
  uint64_t hidden;   ///< 16-bit elements: `features` per place
  uint64_t outputs;  ///< 16-bit elements: n per place
  uint64_t bytes;    ///< of all
};

/// Most tiles that the lists need, if a tile holds `size` pairs.
inline uint64_t most_tiles(uint64_t pairs, uint64_t experts, uint64_t size) {
  uint64_t const full = pairs / size + experts;
  return full < pairs ? full : pairs;
}

inline ExpertScratch expert_scratch(cusync_experts const& experts, uint32_t m, uint32_t n) {
  uint64_t const pairs = uint64_t(m) * experts.top_k;
  uint64_t next = 0;
  auto const take = [&](uint64_t bytes) {
    uint64_t const at = next;
    next += (bytes + CUSYNC_TABLE_ALIGNMENT - 1) / CUSYNC_TABLE_ALIGNMENT * CUSYNC_TABLE_ALIGNMENT;
    return at;
  };
  ExpertScratch scratch{};
  scratch.chosen = take(pairs * sizeof(uint32_t));
  scratch.weights = take(pairs * sizeof(float));
  scratch.places = take(pairs * sizeof(uint32_t));
  scratch.listed = take(pairs * sizeof(uint32_t));
  scratch.tiles = take(16 + most_tiles(pairs, experts.experts, kLeastPairs) * sizeof(ExpertTile));
  scratch.hidden = take(pairs * experts.features * 2);
  scratch.outputs = take(pairs * n * 2);
  scratch.bytes = next;
  return scratch;
}

}  // namespace cusync::kernels
