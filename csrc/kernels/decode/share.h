// SPDX-License-Identifier: MIT OR Apache-2.0
// One worker's share of a decode stage: its features, and the order of its chunks along k. Host and device.
#pragma once
#include "kernels/decode/layout.h"

namespace cusync::kernels::decode {

inline constexpr uint32_t kMaxRowTiles = 4;  ///< 64-row tiles per worker, limited by accumulator registers
inline constexpr uint32_t kMaxChunks = 64;   ///< live chunks in the weight ring; a power of two

/// Maximum distance between warpgroups that take chunks alternately: a warpgroup begins a chunk only once the chunk
/// this many before it, which belongs to the other warpgroup, has been multiplied.
///
/// Waiting for the parity of a slot's phase is correct only if the previous phase is over. A warpgroup that multiplies
/// every phase of a slot knows that. But after a chunk with fewer k-blocks slots change owners, and then the previous
/// phase may belong to the other warpgroup, which can lag by the whole weight ring. The k-blocks from the first
/// possibly unfinished chunk to the one waited for are fewer than the slots, so the slot's previous phase belongs to a
/// finished chunk. Below half of kMaxChunks the same holds for the phases of the chunk barriers. The number is odd, so
/// that the chunk waited for belongs to the other warpgroup.
CUSYNC_HD constexpr uint32_t turn_lead(uint32_t slots, uint32_t chunk_shift, uint32_t max_chunks) {
  return min_u32(2 * (slots >> (chunk_shift + 1)) + 1, max_chunks / 2 - 1);
}

/// Exact division by a number fixed on the host, for dividends below 2^32 / divisor.
struct Divisor {
  uint32_t value, reciprocal;  ///< reciprocal: 2^32 / value, rounded up

  static constexpr Divisor of(uint32_t value) { return {value, uint32_t(((uint64_t(1) << 32) + value - 1) / value)}; }
  CUSYNC_HD constexpr uint32_t divide(uint32_t x) const {
    return value == 1 ? x : uint32_t(uint64_t(x) * reciprocal >> 32);
  }
};

/// Maximum weight rows, over both workers of a pair, for which a warp has accumulator registers: three tiles of 16.
inline constexpr uint32_t kPairRows = 48;
/// Minimum k-blocks of a stage for which halving them is worth an exchange of sums.
inline constexpr uint32_t kPairBlocks = 64;
/// Token width of the kernel that supports pairs: with fewer tokens, a worker's weights take longer than its
/// activations.
inline constexpr uint32_t kPairWidth = 32;

/// Whether neighboring workers, (0, 1), (2, 3) and so on, compute a stage together, in kernels with attention. Each
/// multiplies the rows of both by its half of the k-blocks, and sends the other the sums of the other's rows. Each thus
/// reads half of the activations, which take most of the time of a stage with few rows and many tokens. Ownership,
/// stores and posts of features are the same as without pairs. Weights are laid out for half as many workers.
CUSYNC_HD constexpr bool in_pairs(uint32_t k, uint32_t features, bool gated, uint32_t workers, uint32_t width) {
  return width == kPairWidth && !gated && workers % 2 == 0 && features >= workers && ceil_div(features, workers / 2) <= kPairRows &&
         k_blocks(k) >= kPairBlocks;
}

/// k-blocks of the even worker of a pair: whole chunks of any size, so a worker's first row has phase 0.
CUSYNC_HD constexpr uint32_t even_blocks(uint32_t blocks) { return round_up(ceil_div(blocks, 2), kPhases); }

/// One round of a stage with more rows per share than fit in the accumulators. The output is divided into `count`
/// even parts per worker, one per round. A kernel has each round as a separate stage.
struct Round {
  uint32_t number = 0, count = 1;
};

/// Sizes of a stage, or of one round of it, that are the same for all workers.
struct Geometry {
  uint32_t k, features, blocks;
  uint32_t share, spare;  ///< features / parts and features % parts
  Divisor parts;          ///< parts of the output: `rounds` per worker. parts^3 stays below 2^32
  uint32_t rows;          ///< maximum rows of a part per k-block
  uint32_t chunk_bytes;   ///< shared memory per chunk, for any phase of its first row
  uint8_t round, rounds;
  uint8_t gated;
  uint8_t row_tiles;      ///< 64-row WGMMA tiles of a part; excess rows are never stored
  uint32_t chunk_shift;   ///< k-blocks per chunk: 1 << chunk_shift

  /// The part that a worker computes.
  CUSYNC_HD constexpr uint32_t part_of(uint32_t worker) const { return worker * rounds + round; }
};

/// Chunks of one, two or four k-blocks (up to 1 << most_shift): as many as fit into `chunk_bytes`.
constexpr Geometry geometry(uint32_t k, uint32_t features, bool gated, uint32_t workers, uint32_t chunk_bytes,
                            uint32_t most_shift = 2, bool paired = false, Round round = {}) {
  uint32_t const parts = workers * round.count;
  uint32_t const rows = stored_rows(ceil_div(features, paired ? workers / 2 : parts), gated), fit = chunk_bytes / (rows * kRowBytes);
  Geometry g{};
  g.k = k, g.features = features, g.blocks = k_blocks(k), g.gated = gated;
  g.share = features / parts, g.spare = features % parts, g.parts = Divisor::of(parts);
  g.round = uint8_t(round.number), g.rounds = uint8_t(round.count);
  g.rows = rows, g.row_tiles = uint8_t(min_u32(ceil_div(rows, 64), 0xff));
  while (g.chunk_shift < most_shift && fit >> (g.chunk_shift + 1)) ++g.chunk_shift;
  g.chunk_bytes = round_up((rows << g.chunk_shift) + kPhases - 1, kPhases) * kRowBytes;
  return g;
}

/// A worker's share of one stage: its features. All CTAs of a worker take its chunks along k in the same order.
struct Share {
  uint32_t first, count;  ///< features
  uint32_t chunks;
  uint32_t tiles;         ///< k-blocks in the chunks: activation tiles
  uint32_t start;         ///< first chunk in its order
  uint32_t short_at;      ///< index in its order of the chunk with fewer k-blocks, the last one along k; ~0: none
  uint32_t short_blocks;  ///< k-blocks of that chunk
  uint32_t rows;          ///< worker's rows per k-block; for pairs, rows of both
  uint64_t offset;        ///< byte offset of the worker's weights; for pairs, of its half of the pair's weights
  uint32_t begin;         ///< k-blocks of the pair before this worker's half; 0 without pairs
  uint32_t lead;          ///< rows of the pair before this worker's own; 0 without pairs

  /// Position along k of the i-th chunk.
  CUSYNC_HD constexpr uint32_t chunk(uint32_t i) const {
    i += start;
    return i >= chunks ? i - chunks : i;
  }

  /// k-blocks of the i-th chunk; `in_chunk` for a full one.
  CUSYNC_HD constexpr uint32_t blocks_of(uint32_t i, uint32_t in_chunk) const {
    return i == short_at ? short_blocks : in_chunk;
  }

  /// Rows of the worker's weights before the i-th chunk: determines its address in device memory and its phase.
  CUSYNC_HD constexpr uint32_t rows_before(uint32_t i, uint32_t chunk_shift) const {
    return (chunk(i) << chunk_shift) * rows;
  }

  /// k-block of the i-th tile.
  CUSYNC_HD constexpr uint32_t tile(uint32_t i, uint32_t chunk_shift) const {
    uint32_t const in_chunk = 1u << chunk_shift;
    if (short_at != ~0u && i >= (short_at << chunk_shift) + short_blocks) i += in_chunk - short_blocks;
    return (chunk(i >> chunk_shift) << chunk_shift) + (i & (in_chunk - 1));
  }
};

/// first_column with two fewer divisions.
CUSYNC_HD constexpr uint32_t first_of(Geometry const& stage, uint32_t part) {
  return part * stage.share + stage.parts.divide(part * stage.spare);
}

/// Workers that begin at the same k-block, in runs of few tokens: about as many as share a path to L2, which reads
/// simultaneous requests for the same data once.
inline constexpr uint32_t kNeighbours = 16;
/// In runs of more tokens all workers begin at the first k-block: their activations exceed the weights, and are read
/// once for all workers.
inline constexpr uint32_t kFewTokens = 32;

/// A worker's share in runs of up to `tokens` tokens. Groups of neighbors begin at different k-blocks, near those that
/// they produced themselves: these are ready first, and the SMs do not all request the same activations at once.
CUSYNC_HD constexpr Share share_of(Geometry const& stage, uint32_t worker, Divisor workers, uint32_t tokens,
                                   bool paired = false) {
  Share s{};
  uint32_t const shift = stage.chunk_shift;
  s.first = first_of(stage, stage.part_of(worker));
  s.count = first_of(stage, stage.part_of(worker) + 1) - s.first;
  uint32_t blocks = stage.blocks, pair = s.first;
  if (paired) {
    uint32_t const half = even_blocks(blocks);
    if (worker % 2) pair = first_of(stage, worker - 1), s.begin = half;
    s.lead = s.first - pair;
    blocks = worker % 2 ? blocks - half : half;
  }
  uint32_t const all = ((blocks - 1) >> shift) + 1;
  s.chunks = s.count ? all : 0;
  s.start = tokens > kFewTokens ? 0 : workers.divide(worker / kNeighbours * kNeighbours * s.chunks);
  s.short_blocks = blocks - ((all - 1) << shift);
  bool const has_short = s.chunks && s.short_blocks >> shift == 0;
  s.short_at = has_short ? s.chunks - 1 - s.start : ~0u;
  s.tiles = (s.chunks << shift) - (has_short ? (1u << shift) - s.short_blocks : 0);
  s.rows = stored_rows(paired ? first_of(stage, worker / 2 * 2 + 2) - pair : s.count, stage.gated);
  s.offset = (uint64_t(stored_rows(pair, stage.gated)) * stage.blocks + s.begin * s.rows) * kRowBytes;
  return s;
}

}  // namespace cusync::kernels::decode
