// SPDX-License-Identifier: MIT OR Apache-2.0
// What the warps of a decode kernel that attends share beside what all of them do.
//
// Attention is one more stage: its units (decode/attend.h) are chunks of the ring, a tile of keys and a tile of values each.
// Rows are tokens, 64 columns (128 bytes) a row, under the 128-byte swizzle; 128 columns are two such tiles. The last chunk
// of a segment becomes the place where the eight warps add up what they have.
//
//   warps 0-7       each has 16 tokens of every other unit
//   warp 8          streams cached keys and values, which wait for nothing of this run
//   warps 9, 10     wait for the segments' queries, new keys and new values, and copy them, each every other segment
#pragma once
#include <cuda.h>

#include <type_traits>

#include "cutlass/bfloat16.h"

#include "kernels/decode/attend.h"
#include "kernels/decode/sm90/config.cuh"

namespace cusync::kernels::decode {

inline constexpr uint32_t kLine = 128;  ///< bytes of a line of the L2
inline constexpr uint32_t kMaxAttends = 16;   ///< attention stages of one kernel (MAX_ATTENDS)
inline constexpr uint32_t kSegmentSlots = 2;  ///< segments whose queries are in shared memory
inline constexpr uint32_t kPlanWarp = kMathWarps - 1;  ///< reckons the units of all sequences: it has nothing else to do yet
inline constexpr uint32_t kBadSequence = ~0u;

/// An attention stage, beside its Stage.
struct Attend {
  CUtensorMap keys, values;
  uint32_t kv_heads, group;     ///< group: query heads of a key/value head
  uint32_t head_dim;            ///< 64 or 128
  uint32_t pages, page_row;     ///< of the pool, 0: contiguous; of a sequence
  uint32_t segment_bytes;       ///< of a slot, which has room for the largest of all attentions
  float scale;                  ///< of scores, for powers of two
  int32_t const* page_table;
  char const* rotary;           ///< NULL: none
  char *key_rows, *value_rows;  ///< where new ones go
  float* slabs;
  uint32_t* arrived;            ///< a counter for each (sequence, head); 0 between runs

  /// Elements of a row of queries, keys and values of one token.
  CUSYNC_DEVICE uint32_t columns() const { return (group + 2) * kv_heads * head_dim; }
};

/// How a stage's operand A is posted where that is not by column tiles and their owners.
struct Produced {
  uint32_t tiles;  ///< 64-wide tiles of a slot
  uint32_t posts;  ///< a run; 0: one slot a tile, a post by each owner
};

/// What a normalisation has beside its Stage.
struct Normalised {
  float epsilon;     ///< 0: the stage is none
  uint32_t centred;  ///< 1: the mean of a row is taken away
  char const* gain;
  char const* bias;  ///< or NULL
};

/// Parameters of a kernel that attends and normalises, beside those of its products.
template <uint32_t MostStages, uint32_t MostAttends>
struct AttendParamsOf : ParamsOf<MostStages> {
  static constexpr bool kAttends = true;
  static constexpr uint32_t kMostAttends = MostAttends;
  int32_t const* lengths;  ///< of all attention stages
  uint32_t capacity;
  uint32_t attend, attend_bytes;         ///< offset of AttendShared in shared memory, and its size with the segments' rows
  uint8_t attend_of[MostStages];  ///< 1 + index of the stage's Attend; 0: a product
  Produced produced[MostStages];
  Attend attends[MostAttends];
  Normalised norms[MostStages];
  uint32_t pairs;               ///< stages that are done in pairs; with any, clusters are pairs
  uint8_t pair_of[MostStages];  ///< 1 + such stages before this one; 0: this one is not
  uint32_t pair, pair_bytes;    ///< offset in shared memory of the sums that a neighbour sends, and room for those of a stage, twice
};

using AttendParams = AttendParamsOf<CUSYNC_MAX_STAGES, kMaxAttends>;
using ShortAttendParams = AttendParamsOf<ShortParams::kMostStages, 1>;

/// What lies in front of the segments' rows.
struct AttendShared {
  uint64_t planned, begun, full[kSegmentSlots], empty[kSegmentSlots];
  uint32_t before[kMaxSequences + 1], runs[kMaxSequences + 1], run;  ///< of Units
  uint32_t lengths[kMaxSequences];     ///< cached tokens, or kBadLength
  uint32_t append[kSegmentSlots];      ///< row of the new token in the cache, or kBadSequence
  uint32_t epoch;                      ///< of this run, once `begun` says so
  uint32_t finishes;                   ///< whether this worker was the last to leave its part
  float most[kMathWarps][kMaxGroup], sum[kMathWarps][kMaxGroup];
  uint32_t phases[kMathWarps];    ///< of Attending
  float row_sums[2][kMathWarps];  ///< of Normalising
  uint64_t paired[2];             ///< the neighbour's sums are there, of stages in turn
};

/// Elements of a row of a segment: padded, so that rows begin in different banks.
CUSYNC_HD constexpr uint32_t segment_row(uint32_t head_dim) { return head_dim + 8; }
/// In how many parts weights and rotated queries are multiplied. 8 significant bits would cost as much precision as the outputs'
/// own rounding, so what is lost is added.
template <class Element>
inline constexpr uint32_t kParts = std::is_same_v<Element, cutlass::bfloat16_t> ? 2 : 1;
/// Rows: queries, the new key, the new value, the rotary table's, and what rounding takes from rotated queries.
template <class Element>
CUSYNC_HD constexpr uint32_t segment_bytes(uint32_t group, uint32_t head_dim) {
  return (kParts<Element> * group + 3) * segment_row(head_dim) * 2;
}
CUSYNC_HD constexpr uint32_t attend_bytes(uint32_t segment) {
  return round_up(uint32_t(sizeof(AttendShared)), 16) + kSegmentSlots * segment;
}
/// Bytes of a unit in the ring: keys and values of 64 tokens.
CUSYNC_HD constexpr uint32_t unit_bytes(uint32_t head_dim) { return 2 * kUnitTokens * head_dim * 2; }
/// Byte of element `column` of a token's row in a tile of keys or values.
CUSYNC_HD constexpr uint32_t tile_offset(uint32_t token, uint32_t column) {
  return column / kBlock * (kUnitTokens * kRowBytes) + token * kRowBytes + ((column % kBlock / 8) ^ token % 8) * 16 +
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

/// When the units are reckoned.
template <class AnyParams>
CUSYNC_DEVICE Units await_units(AnyParams const& p, Shared const& shared, Attend const& attend) {
  AttendShared& own = attend_shared(p, shared);
  ptx::mbarrier_wait_parity_or_trap(&own.planned, 0, p.limit_ns);
  return {own.before, own.runs, p.m, attend.kv_heads, p.workers.value, own.run};
}

/// Barriers. One thread, before the CTA's barrier. Every lane arrives for what it has itself written or read: that is what
/// checkers of races follow.
template <class AnyParams>
CUSYNC_DEVICE void prepare_attend(AnyParams const& p, Shared const& shared) {
  AttendShared& own = attend_shared(p, shared);
  ptx::mbarrier_init(&own.planned, 32);
  ptx::mbarrier_init(&own.begun, 1);
  for (uint32_t& phases : own.phases) phases = 0;
  for (uint64_t& paired : own.paired) ptx::mbarrier_init(&paired, 1);
  for (uint32_t i = 0; i < kSegmentSlots; ++i) {
    ptx::mbarrier_init(own.full + i, 33);  // the copying lanes, and the one that says where the new token goes
    ptx::mbarrier_init(own.empty + i, kMathThreads);
  }
}

/// Sums of `values` over this lane's sequences, lane and lane + 32, and all before them. The whole warp.
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

/// Reads the lengths and sums up the units before each sequence. One warp, once a run.
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
