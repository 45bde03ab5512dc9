// SPDX-License-Identifier: MIT OR Apache-2.0
// Additional state shared by the warps of a decode kernel with attention.
//
// Attention is one more stage: its units (decode/attend.h) are chunks of the ring, a tile of keys and a tile of values
// each; with wide heads two chunks, of half of the tokens each. Rows are tokens of 64 columns (128 bytes) under the
// 128-byte swizzle; wider heads are several such tiles, the last one padded with zeros. The eight warps add up their
// results in the last chunk of a segment.
//
//   warps 0-7       have 16 tokens of every other chunk each; with wide heads two warps share them, and each has half
//                   of the columns of the values
//   warp 8          streams cached keys and values, which wait for nothing in this run
//   warps 9, 10     find the segments, wait for their queries, new keys and new values, and copy them, alternate
//                   segments each
#pragma once
#include <cuda.h>

#include <type_traits>

#include "cutlass/bfloat16.h"

#include "kernels/decode/attend.h"
#include "kernels/decode/sm90/config.cuh"

namespace cusync::kernels::decode {

inline constexpr uint32_t kLine = 128;  ///< bytes per L2 cache line
inline constexpr uint32_t kMaxAttends = 16;   ///< attention stages per kernel (MAX_ATTENDS)
inline constexpr uint32_t kSegmentSlots = 2;  ///< segments with queries in shared memory
inline constexpr uint32_t kPlanWarp = kMathWarps - 1;  ///< computes the units of all sequences: it is still idle then
inline constexpr uint32_t kBadSequence = ~0u;

/// An attention stage, in addition to its Stage.
struct Attend {
  CUtensorMap keys, values;
  uint32_t kv_heads, group;     ///< group: query heads per key/value head
  uint32_t head_dim;            ///< 64, 80, 96, 128 or 256
  uint32_t pages, page_row;     ///< pages in the pool, 0: contiguous cache; pages per sequence
  uint32_t segment_bytes;       ///< bytes per slot, enough for the largest attention stage
  float scale;                  ///< factor on scores, for powers of two
  float capped;                 ///< factor on products of queries and keys in front of a tanh; 0: no tanh
  uint32_t window;              ///< tokens that a token attends to, itself included; 0: all
  int32_t const* page_table;
  char const* rotary;           ///< NULL: none
  char const *query_gain, *key_gain;
  float epsilon;                ///< 0: heads are not normalized
  char *key_rows, *value_rows;  ///< rows for new keys and values
  float* slabs;
  uint32_t* arrived;            ///< one counter per (sequence, head); 0 between runs

  /// Elements per token: queries, keys and values.
  CUSYNC_DEVICE uint32_t columns() const { return (group + 2) * kv_heads * head_dim; }
};

/// How a stage's operand A is posted, if no product wrote it.
struct Produced {
  Divisor columns;  ///< per slot, at least 64
  uint32_t posts;   ///< posts per run; 0: one slot per 64-wide tile, one post per owner

  /// The first and the last slot that columns of a 64-wide tile have.
  CUSYNC_DEVICE uint32_t first(uint32_t tile) const { return columns.divide(tile * kBlock); }
  CUSYNC_DEVICE uint32_t last(uint32_t tile, uint32_t all) const {
    return columns.divide(min_u32(tile * kBlock + kBlock, all) - 1);
  }
};

/// A normalization stage, in addition to its Stage.
struct Normalised {
  float epsilon;           ///< 0: not a normalization
  uint16_t centred;        ///< 1: the mean of a row is subtracted
  uint16_t one_plus_gain;  ///< 1: multiplied by one plus the gain
  char const* gain;
  char const* bias;        ///< optional
  char const* residual;    ///< optional: an input, or rows that this worker has normalized
};

/// Parameters of a kernel with attention and normalization, in addition to those of its products.
template <uint32_t MostStages, uint32_t MostAttends>
struct AttendParamsOf : ParamsOf<MostStages> {
  static constexpr bool kAttends = true;
  static constexpr uint32_t kMostAttends = MostAttends;
  int32_t const* lengths;  ///< shared by all attention stages
  uint32_t capacity;
  uint32_t attend, attend_bytes;         ///< shared-memory offset of AttendShared; its size with the segments' rows
  uint8_t attend_of[MostStages];  ///< 1 + index of the stage's Attend; 0: not attention
  Produced produced[MostStages];
  Attend attends[MostAttends];
  Normalised norms[MostStages];
  uint32_t pairs;               ///< stages computed in pairs; if any, clusters are pairs
  uint8_t pair_of[MostStages];  ///< 1 + number of such stages before this one; 0: not in pairs
  uint32_t pair, pair_bytes;    ///< shared-memory offset of the neighbor's sums; bytes per stage, allocated twice
};

using AttendParams = AttendParamsOf<CUSYNC_MAX_STAGES, kMaxAttends>;
using ShortAttendParams = AttendParamsOf<ShortParams::kMostStages, 1>;

/// A segment whose rows a loader has copied to a slot.
struct LoadedSegment {
  Segment segment;
  uint32_t append;  ///< row of the new token in the cache, or kBadSequence
  uint32_t slab;    ///< for this worker's part
  uint32_t left;    ///< units of this worker in later segments

  CUSYNC_DEVICE bool bad() const { return append == kBadSequence; }
};

/// Shared memory in front of the segments' rows.
struct AttendShared {
  uint64_t planned, begun, full[kSegmentSlots], empty[kSegmentSlots];
  uint32_t before[kMaxSequences + 1], runs[kMaxSequences + 1], run;  ///< for Units
  uint32_t lengths[kMaxSequences];     ///< cached tokens, or kBadLength
  LoadedSegment segments[kSegmentSlots];
  LoadedSegment pending;                       ///< the head that this worker has to finish, if it was the last to write a part
  uint32_t epoch;                      ///< epoch of this run, valid after `begun`
  uint32_t finishes;                   ///< whether this worker was the last to write its part
  float most[kMathWarps][kMaxGroup], sum[kMathWarps][kMaxGroup];
  uint32_t phases[kMathWarps];    ///< for Attending
  float row_sums[2][kMathWarps];  ///< for Normalising
  alignas(8) float scales[kMathWarps][kMaxSequences];  ///< for Squares; scales[0] may end up as factors of tokens
  uint64_t paired[2];             ///< the neighbor's sums have arrived, for alternate stages
};

/// Elements per row of a segment, padded so that rows begin in different banks.
CUSYNC_HD constexpr uint32_t segment_row(uint32_t head_dim) { return head_dim + 8; }
/// Number of parts in which weights and rotated queries are multiplied. Rounding them to 8 significant bits would lose
/// as much precision as rounding the outputs, so the rounding errors are multiplied separately.
template <class Element>
inline constexpr uint32_t kParts = std::is_same_v<Element, cutlass::bfloat16_t> ? 2 : 1;
/// Rows: queries, the new key, the new value, the rotary table's row, the gains of queries and keys if heads are
/// normalized, and the rounding errors of rotated queries.
template <class Element>
CUSYNC_HD constexpr uint32_t segment_bytes(uint32_t group, uint32_t head_dim, bool normed) {
  return (kParts<Element> * group + (normed ? 5 : 3)) * segment_row(head_dim) * 2;
}
CUSYNC_HD constexpr uint32_t attend_bytes(uint32_t segment) {
  return round_up(uint32_t(sizeof(AttendShared)), 16) + kSegmentSlots * segment;
}
/// Chunks per unit. A chunk of 64 tokens of a wide head would leave the ring room for two or three chunks.
CUSYNC_HD constexpr uint32_t unit_chunks(uint32_t head_dim) { return head_dim > 128 ? 2 : 1; }
/// Tokens per chunk.
CUSYNC_HD constexpr uint32_t chunk_tokens(uint32_t head_dim) { return kUnitTokens / unit_chunks(head_dim); }
/// Bytes per chunk in the ring: keys and values.
CUSYNC_HD constexpr uint32_t cache_bytes(uint32_t head_dim) {
  return 2 * chunk_tokens(head_dim) * round_up(head_dim, kBlock) * 2;
}
/// Byte offset of element `column` of a token's row in a tile of keys or values of `tokens` tokens.
CUSYNC_HD constexpr uint32_t tile_offset(uint32_t tokens, uint32_t token, uint32_t column) {
  return column / kBlock * (tokens * kRowBytes) + token * kRowBytes + ((column % kBlock / 8) ^ token % 8) * 16 +
         column % 8 * 2;
}

template <class AnyParams>
CUSYNC_DEVICE AttendShared& attend_shared(AnyParams const& p, Shared const& shared) {
  return *reinterpret_cast<AttendShared*>(shared.base + p.attend);
}

template <class AnyParams>
CUSYNC_DEVICE char* segment_rows(AnyParams const& p, Shared const& shared, Attend const& attend, uint32_t slot) {
  return shared.base + p.attend + round_up(uint32_t(sizeof(AttendShared)), 16) +
         slot * attend.segment_bytes;
}

/// Waits until the units are computed.
template <class AnyParams>
CUSYNC_DEVICE Units await_units(AnyParams const& p, Shared const& shared, Attend const& attend) {
  AttendShared& own = attend_shared(p, shared);
  ptx::mbarrier_wait_parity_or_trap(&own.planned, 0, p.limit_ns);
  return {own.before, own.runs, p.m, attend.kv_heads, p.workers.value, own.run};
}

/// Initializes the barriers. One thread, before the CTA's barrier. Every lane arrives for its own reads and writes,
/// which race checkers can follow.
template <class AnyParams>
CUSYNC_DEVICE void prepare_attend(AnyParams const& p, Shared const& shared) {
  AttendShared& own = attend_shared(p, shared);
  ptx::mbarrier_init(&own.planned, 32);
  ptx::mbarrier_init(&own.begun, 1);
  for (uint32_t& phases : own.phases) phases = 0;
  for (uint64_t& paired : own.paired) ptx::mbarrier_init(&paired, 1);
  for (uint32_t i = 0; i < kSegmentSlots; ++i) {
    ptx::mbarrier_init(own.full + i, 33);  // the copying lanes, and the lane that publishes the row of the new token
    ptx::mbarrier_init(own.empty + i, kMathThreads);
  }
}

/// Prefix sums of `values` over sequences; each lane has sequences lane and lane + 32. Called by the whole warp.
CUSYNC_DEVICE void sum_up(uint32_t (&values)[2]) {
  uint32_t const lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
#pragma unroll
    for (uint32_t step = 1; step < 32; step *= 2) {
      uint32_t const other = __shfl_up_sync(~0u, values[i], step);
      if (lane >= step) values[i] += other;
    }
  }
  values[1] += __shfl_sync(~0u, values[0], 31);
}

/// Reads the lengths and computes the prefix sums of units. One warp, once per run.
template <class AnyParams>
CUSYNC_DEVICE void plan_units(AnyParams const& p, Shared const& shared) {
  if (!p.lengths) return;
  ptx::griddepcontrol_wait();
  AttendShared& own = attend_shared(p, shared);
  uint32_t const lane = threadIdx.x % 32, heads = p.attends[0].kv_heads;
  uint32_t units[2] = {};
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    uint32_t const sequence = i * 32 + lane;
    if (sequence >= p.m) continue;
    int32_t const said = __ldcg(p.lengths + sequence);
    uint32_t const length = checked_length(said, p.capacity);
    if (length == kBadLength && blockIdx.x == 0)
      report_only(p.report, CUSYNC_REPORT_BAD_LENGTH, sequence, 0, uint32_t(said), p.capacity);
    own.lengths[sequence] = length;
    units[i] = units_of(length);
  }
  auto const put = [&](uint32_t* sums, uint32_t (&values)[2]) {
    sum_up(values);
    if (lane == 0) sums[0] = 0;
    if (lane < p.m) sums[lane + 1] = values[0];
    if (lane + 32 < p.m) sums[lane + 33] = values[1];
    return __shfl_sync(~0u, values[1], 31);
  };
  auto const workers_of = [&](uint32_t most) { return ceil_div(units[0], most) + ceil_div(units[1], most); };
  uint32_t sums[2] = {units[0], units[1]};
  uint32_t const all = put(own.before, sums) * heads;
  uint32_t const run = longest_run(all, p.workers.value, [&](uint32_t most) {
    return __reduce_add_sync(~0u, workers_of(most)) * heads;
  });
  if (run) {
    uint32_t workers[2] = {ceil_div(units[0], run), ceil_div(units[1], run)};
    put(own.runs, workers);
  }
  if (lane == 0) own.run = run;
  ptx::mbarrier_arrive(&own.planned);
}

}  // namespace cusync::kernels::decode
