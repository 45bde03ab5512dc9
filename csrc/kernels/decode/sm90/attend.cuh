// SPDX-License-Identifier: MIT OR Apache-2.0
// The math of an attention stage. A warp has 16 tokens of a tile. Its scores are K Q^T, tokens by queries, so up to
// eight queries of a group cost one MMA; the resulting weights are transposed in registers to be the other operand of
// V^T P^T. Warps exchange nothing during a tile. Maxima, sums and outputs of the eight warps are combined at the end of
// the segment.
#pragma once
#include "cute/arch/copy_sm75.hpp"

#include "kernels/common/activation.cuh"
#include "kernels/decode/sm90/attend_config.cuh"
#include "kernels/decode/sm90/mma.cuh"
#include "kernels/decode/sm90/packed.cuh"

namespace cusync::kernels::decode {

CUSYNC_DEVICE uint32_t word(char const* shared) { return *reinterpret_cast<uint32_t const*>(shared); }

CUSYNC_DEVICE float4 add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
CUSYNC_DEVICE float4 scaled(float4 a, float by) { return make_float4(a.x * by, a.y * by, a.z * by, a.w * by); }

/// Factor that rescales values scaled for maximum `most` to maximum `now`.
CUSYNC_DEVICE float rescale(float most, float now) { return most == -INFINITY ? 0.f : ptx::ex2_approx_ftz(most - now); }

/// One warp's part of a segment. In scores and outputs a thread holds queries 2 (lane % 4) and the next one, and rows
/// lane / 4 and 8 below: tokens in scores, columns in outputs.
template <class Element, uint32_t Dim>
class Head {
 public:
  static constexpr uint32_t kSteps = Dim / 16, kPairs = Dim / 16;  ///< pairs: of eight columns each, half a head apart
  static constexpr uint32_t kTokens = chunk_tokens(Dim);
  /// Warps that share tokens; each has as many of a head's columns in its outputs.
  static constexpr uint32_t kSharing = unit_chunks(Dim), kColumns = Dim / kSharing;
  static constexpr uint32_t kParts = decode::kParts<Element>;

  /// Normalizes and rotates the queries of a group of heads in their rows in shared memory. All math threads, a warp for
  /// every eighth pair: this code runs once a segment, so fetching its instructions takes as long as running them.
  CUSYNC_DEVICE Head(char* rows, Attend const& attend, uint32_t thread) : thread_(thread) {
    if (!attend.rotary) return;
    constexpr uint32_t kRow = segment_row(Dim) * 2;
    char *const words = rows + query_at(attend), *const lost = words + lost_behind(attend);
    bool const exists = thread_ % 32 / 4 < attend.group, normed = attend.epsilon > 0.f;
    float const norm = normed ? norm_of(words, attend.epsilon) : 1.f;
    if (normed) ptx::bar_sync(1, kMathThreads);  // all warps have read all queries
#pragma unroll 1
    for (uint32_t i = thread_ / 32; exists && i < kPairs; i += kMathWarps) {
      uint32_t &low = *reinterpret_cast<uint32_t*>(words + i * 16), &high = *reinterpret_cast<uint32_t*>(words + i * 16 + Dim);
      char const* const cosines = rows + (attend.group + 2) * kRow + (i * 8 + thread_ % 4 * 2) * 2;
      Pairs left = pairs_of<Element>(low, high);
      if (normed) {
        char const* const gain = cosines + kRow;
        scale_by<Element>(left, norm, word(gain), word(gain + Dim));
      }
      left = rotated<Element>(left, word(cosines), word(cosines + Dim));
      low = take_rounded<Element>(left.low), high = take_rounded<Element>(left.high);
      if constexpr (kParts > 1) {
        *reinterpret_cast<uint32_t*>(lost + i * 16) = take_rounded<Element>(left.low);
        *reinterpret_cast<uint32_t*>(lost + i * 16 + Dim) = take_rounded<Element>(left.high);
      }
    }
    ptx::bar_sync(1, kMathThreads);
  }

  /// Attends to some of the 16 tokens that start at `first`: those before number `seen` / 256, but not the `seen` % 256
  /// first ones. One number occupies one register. `rows` belong to the segment.
  CUSYNC_DEVICE void add(char const* keys, char const* values, uint32_t first, uint32_t seen, Attend const& attend,
                         char const* rows) {
    uint32_t const lane = thread_ % 32;
    float scores[2][4] = {};
    char const *const query = rows + query_at(attend), *const lost = query + lost_behind(attend);
#pragma unroll
    for (uint32_t k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      char const* const from = keys + tile_offset(kTokens, first + lane % 16, k * 16 + lane / 16 * 8);
      cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<cute::uint128_t const*>(from), a[0], a[1], a[2], a[3]);
      multiply(scores[k % 2], a, word(query + k * 32), word(query + k * 32 + 16));
      if (kParts > 1 && attend.rotary) multiply(scores[k % 2], a, word(lost + k * 32), word(lost + k * 32 + 16));
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) scores[0][i] += scores[1][i];
    if (rarely(attend.capped > 0.f))
#pragma unroll
      for (float& score : scores[0]) score = fmaf(2.f, sigmoid(2.f * attend.capped * score), -1.f);
    float weights[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t const token = lane / 4 + i / 2 * 8;
      weights[i] = token >= seen % 256 && token < seen / 256 ? scores[0][i] * attend.scale : -INFINITY;
    }
    float factor[2];
#pragma unroll
    for (uint32_t q = 0; q < 2; ++q) {
      float most = fmaxf(weights[q], weights[q + 2]);
#pragma unroll
      for (uint32_t step = 4; step < 32; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
      most = fmaxf(most, most_[q]);
      factor[q] = rescale(most_[q], most);
      most_[q] = most;
      weights[q] = ptx::ex2_approx_ftz(weights[q] - most);
      weights[q + 2] = ptx::ex2_approx_ftz(weights[q + 2] - most);
      sum_[q] = sum_[q] * factor[q] + (weights[q] + weights[q + 2]);
    }
    uint32_t turned[kParts][2];
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      float2 left = make_float2(weights[half * 2], weights[half * 2 + 1]);
#pragma unroll
      for (uint32_t part = 0; part < kParts; ++part)
        cute::SM75_U32x1_MOVM_T::copy(take_rounded<Element>(left), turned[part][half]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kColumns / 16; ++i) {
      uint32_t a[4];
      uint32_t const column = first_column() + i * 16 + lane / 8 % 2 * 8;
      char const* const from = values + tile_offset(kTokens, first + lane / 16 * 8 + lane % 8, column);
      cute::SM75_U16x8_LDSM_T::copy(*reinterpret_cast<cute::uint128_t const*>(from), a[0], a[1], a[2], a[3]);
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) outputs_[i][j] *= factor[j % 2];
#pragma unroll
      for (uint32_t part = 0; part < kParts; ++part) multiply(outputs_[i], a, turned[part][0], turned[part][1]);
    }
  }

  /// Writes maxima and sums for the other warps.
  CUSYNC_DEVICE void leave_sums(AttendShared& own) {
    uint32_t const lane = thread_ % 32, warp = thread_ / 32;
#pragma unroll
    for (uint32_t q = 0; q < 2; ++q) {
#pragma unroll
      for (uint32_t step = 4; step < 32; step *= 2) sum_[q] += __shfl_xor_sync(~0u, sum_[q], step);
      if (lane < 4) own.most[warp][lane * 2 + q] = most_[q], own.sum[warp][lane * 2 + q] = sum_[q];
    }
  }

  /// Writes the outputs, scaled for the maximum of all warps, query by query to the warp's part of `scratch`.
  CUSYNC_DEVICE void leave_outputs(AttendShared const& own, float* scratch, uint32_t group) const {
    uint32_t const lane = thread_ % 32, warp = thread_ / 32;
#pragma unroll
    for (uint32_t q = 0; q < 2; ++q) {
      uint32_t const query = lane % 4 * 2 + q;
      if (query >= group) continue;
      float most = own.most[0][query];
#pragma unroll
      for (uint32_t w = 1; w < kMathWarps; ++w) most = fmaxf(most, own.most[w][query]);
      float const factor = rescale(most_[q], most);
#pragma unroll
      for (uint32_t i = 0; i < kColumns / 16; ++i) {
        float* const row = scratch + (warp * group + query) * kScratchRow;
        row[scratch_column(i * 16 + lane / 4, query)] = outputs_[i][q] * factor;
        row[scratch_column(i * 16 + lane / 4 + 8, query)] = outputs_[i][q + 2] * factor;
      }
    }
  }

  /// First of the columns that this warp has in its outputs.
  CUSYNC_DEVICE uint32_t first_column() const { return thread_ / 32 % kSharing * kColumns; }

  static constexpr uint32_t kScratchRow = round_up(kColumns, 32);  ///< floats per query in a warp's scratch memory
  /// Index of a column in a row of scratch memory: the stores of a warp's four queries are in different banks.
  CUSYNC_DEVICE static uint32_t scratch_column(uint32_t column, uint32_t query) { return column ^ (query / 2 % 4 * 8); }

 private:
  CUSYNC_DEVICE static void multiply(float (&sums)[4], uint32_t const (&a)[4], uint32_t b0, uint32_t b1) {
    Packed<Element>::Mma::fma(sums[0], sums[1], sums[2], sums[3], a[0], a[1], a[2], a[3], b0, b1, sums[0], sums[1],
                              sums[2], sums[3]);
  }

  /// Factor that normalizes the thread's query at `words`. Whole warps.
  CUSYNC_DEVICE static float norm_of(char const* words, float epsilon) {
    float squares = 0.f;
#pragma unroll 2
    for (uint32_t i = 0; i < kPairs; ++i) squares += sum_of_squares(pairs_of<Element>(word(words + i * 32), word(words + i * 32 + 16)));
    // Four lanes have the columns of a query.
    squares += __shfl_xor_sync(~0u, squares, 1);
    squares += __shfl_xor_sync(~0u, squares, 2);
    return rsqrtf(squares / Dim + epsilon);
  }

  /// Offset, within the rows of a segment, of the first two elements of a thread's query (or of the last query).
  CUSYNC_DEVICE static uint32_t query_at(Attend const& attend) {
    uint32_t const lane = ptx::lane_id();
    return min_u32(lane / 4, attend.group - 1) * segment_row(Dim) * 2 + lane % 4 * 4;
  }
  /// Bytes between a query and its rounding errors.
  CUSYNC_DEVICE static uint32_t lost_behind(Attend const& attend) {
    return (attend.group + (attend.epsilon > 0.f ? 5 : 3)) * segment_row(Dim) * 2;
  }

  uint32_t thread_;
  float outputs_[kColumns / 16][4] = {};
  float most_[2] = {-INFINITY, -INFINITY}, sum_[2] = {};
};

/// This worker's part of an attention stage. All math threads.
template <class Element, uint32_t Dim, class AnyParams>
class Attending {
 public:
  CUSYNC_DEVICE Attending(AnyParams const& p, Shared const& shared, uint32_t s)
      : p_(p), shared_(shared), own_(attend_shared(p, shared)), stage_(p.stages[s]),
        attend_(p.attends[p.attend_of[s] - 1]), s_(s) {}

  CUSYNC_DEVICE void run(RingPosition& ring) {
    UnitShare const share = await_units(p_, shared_, attend_).share(blockIdx.x);
    uint32_t slot = 0, turn = 0;
    bool is_pending = false;
#pragma unroll 1
    for (uint32_t left = share.end - share.begin; left;) {
      // Read again, so addresses of another segment's end are not kept in registers through the tiles.
      thread_ = ptx::thread_id(), lane_ = thread_ % 32, warp_ = __shfl_sync(~0u, thread_ / 32, 0);
      ptx::mbarrier_wait_parity_or_trap(own_.full + slot, phases() >> slot & 1, p_.limit_ns);
      LoadedSegment const& loaded = own_.segments[slot];
      left = loaded.left;
      char* const rows = segment_rows(p_, shared_, attend_, slot);
      Head<Element, Dim> head(rows, attend_, thread_);
      char* last = nullptr;
      uint32_t last_barrier = 0;
      uint32_t const length = loaded.bad() ? 0 : own_.lengths[loaded.segment.sequence] + 1;
      uint32_t before = (loaded.segment.begin - loaded.segment.first) * kUnitTokens;  // tokens in front of the chunk
      uint32_t const end = (loaded.segment.end - loaded.segment.first) * kUnitTokens;
#pragma unroll 1
      for (; before < end; before += kTokens, ++turn) {
        ring.skip_for(stage_.chunk_bytes, p_.ring_bytes);
        last = shared_.ring(ring.offset), last_barrier = ring.barrier;
        if (turn % 2 == warp_ / 4) {
          ptx::mbarrier_wait_parity_or_trap(shared_.chunk_full(ring.barrier), ring.parity, p_.limit_ns);
          trace(turn == 0, &cusync_trace::loaded);
          multiply(head, before, length, last, rows, loaded);
          __syncwarp();
          // The last chunk of a segment is reused as scratch memory.
          if (lane_ == 0 && before + kTokens < end) ptx::mbarrier_arrive(shared_.chunk_empty(ring.barrier), 2);
        }
        ring.pass(stage_.chunk_bytes);
      }
      trace(true, &cusync_trace::math_end);
      Merged const merged = merge(head, reinterpret_cast<float*>(last));
      // By now it is known which worker finishes the pending head.
      if (is_pending) finish_if_last();
      is_pending = !loaded.segment.whole();
      if (is_pending) leave(merged, loaded); else finish(merged, loaded);
      release(last_barrier, slot);
      __syncwarp();
      if (lane_ == 0) phases() ^= 1 << slot;
      __syncwarp();
      slot = (slot + 1) % kSegmentSlots;
    }
    if (!is_pending) return;
    ptx::bar_sync(1, kMathThreads);
    finish_if_last();
  }

 private:
  static constexpr uint32_t kTokens = chunk_tokens(Dim), kSharing = Head<Element, Dim>::kSharing;
  static constexpr uint32_t kFirstBarrier = 6;  ///< of the warps that share tokens; those below are others'

  /// One bit per segment slot, in shared memory because it would occupy a register in all other stages.
  CUSYNC_DEVICE uint32_t volatile& phases() const { return own_.phases[warp_]; }

  CUSYNC_DEVICE void trace(bool now, unsigned long long cusync_trace::* what) const {
    if (p_.trace && thread_ == 0 && now)
      p_.trace[blockIdx.x * p_.stage_count + s_].*what = ptx::globaltimer();
  }

  /// Multiplies this warp's tokens of a chunk. `before`: tokens of the sequence in front of it; `length`: all tokens, the
  /// new one too.
  CUSYNC_DEVICE void multiply(Head<Element, Dim>& head, uint32_t before, uint32_t length, char* keys, char const* rows,
                              LoadedSegment const& loaded) const {
    char* const values = keys + cache_bytes(Dim) / 2;
    uint32_t const first = warp_ % 4 / kSharing * 16;
    uint32_t const tokens = length > before ? min_u32(length - before, kTokens) : 0;
    uint32_t const begin = attend_.window && length > attend_.window ? length - attend_.window : 0;  // the window's
    if (first >= tokens || begin >= before + first + 16) return;
    uint32_t const hidden = begin > before + first ? begin - before - first : 0;
    if (before + tokens == length && tokens <= first + 16) {
      if (warp_ % kSharing == 0) {
        put_new(keys, values, tokens - 1, rows, loaded.append);
        put_zeros(values, tokens, first + 16);
      }
      if constexpr (kSharing > 1) ptx::bar_sync(kFirstBarrier + warp_ / kSharing, 32 * kSharing);
      __syncwarp();
    }
    head.add(keys, values, first, (tokens - first) * 256 + hidden, attend_, rows);
  }

  /// Writes the new token's key and value into their tiles and into the cache.
  CUSYNC_DEVICE void put_new(char* keys, char* values, uint32_t token, char const* rows, uint32_t append) const {
    constexpr uint32_t kRow = segment_row(Dim) * 2;
    float norm = 1.f;
    if (attend_.epsilon > 0.f) {
      float squares = 0.f;
#pragma unroll
      for (uint32_t i = lane_; i < Dim / 4; i += 32) {
        char const* const words = rows + attend_.group * kRow + i * 4;
        squares += sum_of_squares(pairs_of<Element>(word(words), word(words + Dim)));
      }
#pragma unroll
      for (uint32_t step = 1; step < 32; step *= 2) squares += __shfl_xor_sync(~0u, squares, step);
      norm = rsqrtf(squares / Dim + attend_.epsilon);
    }
#pragma unroll 1
    for (uint32_t i = lane_; i < Dim / 4; i += 32) put_pairs(keys, values, token, rows, append, norm, i * 2);
  }

  /// Writes columns `column` and `column` + 1 of the new token, and those half a head away.
  CUSYNC_DEVICE void put_pairs(char* keys, char* values, uint32_t token, char const* rows, uint32_t append, float norm,
                               uint32_t column) const {
    constexpr uint32_t kRow = segment_row(Dim) * 2;
    char const* const key = rows + attend_.group * kRow + column * 2;
    char const *const value = key + kRow, *const cosines = value + kRow;
    uint32_t low = word(key), high = word(key + Dim);
    if (attend_.rotary) {
      Pairs turned = pairs_of<Element>(low, high);
      if (attend_.epsilon > 0.f) {
        char const* const gain = cosines + 2 * kRow;  // the key's, behind the queries'
        scale_by<Element>(turned, norm, word(gain), word(gain + Dim));
      }
      turned = rotated<Element>(turned, word(cosines), word(cosines + Dim));
      low = Packed<Element>::of(turned.low.x, turned.low.y), high = Packed<Element>::of(turned.high.x, turned.high.y);
    }
    auto const put = [&](char* tile, char* cache, uint32_t at, uint32_t two) {
      *reinterpret_cast<uint32_t*>(tile + tile_offset(kTokens, token, at)) = two;
      *reinterpret_cast<uint32_t*>(cache + (uint64_t(append) * Dim + at) * 2) = two;
    };
    put(keys, attend_.key_rows, column, low);
    put(keys, attend_.key_rows, column + Dim / 2, high);
    put(values, attend_.value_rows, column, word(value));
    put(values, attend_.value_rows, column + Dim / 2, word(value + Dim));
  }

  /// Clears values beyond the last token: their weights are 0, but 0 times stale data may not be.
  CUSYNC_DEVICE void put_zeros(char* values, uint32_t begin, uint32_t end) const {
    for (uint32_t i = lane_; i < (end - begin) * (Dim / 8); i += 32)
      *reinterpret_cast<uint4*>(values + tile_offset(kTokens, begin + i / (Dim / 8), i % (Dim / 8) * 8)) = uint4{};
  }

  /// Four columns of a query, for which a thread adds up the parts of the eight warps, or of several workers.
  struct Merged {
    float4 outputs;
    float most, sum;
  };
  CUSYNC_DEVICE uint32_t query() const { return thread_ / (Dim / 4); }  ///< beyond the group: no query
  CUSYNC_DEVICE uint32_t column() const { return thread_ % (Dim / 4) * 4; }

  /// Adds up the warps' parts of a segment in `scratch`, the segment's last chunk. With wide heads only every other
  /// warp has a thread's columns.
  CUSYNC_DEVICE Merged merge(Head<Element, Dim>& head, float* scratch) const {
    head.leave_sums(own_);
    ptx::bar_sync(1, kMathThreads);  // the last tile has been read
    head.leave_outputs(own_, scratch, attend_.group);
    ptx::bar_sync(1, kMathThreads);
    Merged all{{}, -INFINITY, 0.f};
    if (query() < attend_.group) {
      constexpr uint32_t kColumns = Head<Element, Dim>::kColumns, kScratchRow = Head<Element, Dim>::kScratchRow;
#pragma unroll
      for (uint32_t w = 0; w < kMathWarps; ++w) all.most = fmaxf(all.most, own_.most[w][query()]);
#pragma unroll
      for (uint32_t i = 0; i < kMathWarps / kSharing; ++i) {
        uint32_t const w = i * kSharing + column() / kColumns;
        uint32_t const at = Head<Element, Dim>::scratch_column(column() % kColumns, query());
        float const* const from = scratch + (w * attend_.group + query()) * kScratchRow + at;
        all.outputs = add(all.outputs, *reinterpret_cast<float4 const*>(from));
        all.sum += own_.sum[w][query()] * rescale(own_.most[w][query()], all.most);
      }
    }
    return all;
  }

  /// Releases the resources of a merged segment.
  CUSYNC_DEVICE void release(uint32_t chunk, uint32_t slot) const {
    ptx::fence_proxy_async_shared_cta();  // bulk copies will overwrite generic writes to the chunk
    ptx::mbarrier_arrive(own_.empty + slot);
    __syncwarp();
    if (lane_ == 0) ptx::mbarrier_arrive(shared_.chunk_empty(chunk));
  }

  CUSYNC_DEVICE float* slab_at(uint32_t slab) const { return attend_.slabs + uint64_t(slab) * CUSYNC_ATTEND_SLAB; }

  /// Writes this worker's part of a head to a slab, and counts it. The counter returns to 0 for the next run. No thread
  /// waits for the result here.
  CUSYNC_DEVICE void leave(Merged const& part, LoadedSegment const& loaded) const {
    if (query() < attend_.group) {
      float* const slab = slab_at(loaded.slab);
      __stcg(reinterpret_cast<float4*>(slab + query() * Dim + column()), part.outputs);
      if (column() == 0) {
        slab[attend_.group * Dim + query()] = part.most;
        slab[attend_.group * (Dim + 1) + query()] = part.sum;
      }
    }
    ptx::bar_sync(1, kMathThreads);
    if (thread_ != 0) return;
    Segment const& segment = loaded.segment;
    UnitShare const owners = await_units(p_, shared_, attend_).owners(segment);
    uint32_t* const arrived = attend_.arrived + segment.sequence * attend_.kv_heads + segment.head;
    own_.finishes = ptx::atom_acq_rel_gpu_add(arrived, 1) + 1 == owners.end - owners.begin;
    if (own_.finishes) *arrived = 0, own_.pending = loaded;
  }

  /// Finishes the head to which this worker contributed a part, if all other parts are ready. Called after a barrier
  /// that follows `leave`.
  CUSYNC_DEVICE void finish_if_last() const {
    if (!own_.finishes) return;
    finish(combine(parts_of(await_units(p_, shared_, attend_), own_.pending.segment)), own_.pending);
  }

  /// Adds up the parts in worker order, so the result does not depend on arrival order. All threads take part, those
  /// without a query for the last one: the lanes of a query load the parts' maxima and sums for each other.
  CUSYNC_DEVICE Merged combine(Parts const& parts) const {
    constexpr uint32_t kAtOnce = Dim / 4 % 8 ? 4 : 8;  // a query's lanes are whole groups
    uint32_t const mine = min_u32(query(), attend_.group - 1), place = lane_ % kAtOnce;
    Merged all{{}, -INFINITY, 0.f};
#pragma unroll 1
    for (uint32_t first = 0; first < parts.count; first += kAtOnce) {
      float most = -INFINITY, sum = 0.f;
      if (first + place < parts.count) {
        float const* const slab = slab_at(parts.slab(first + place)) + attend_.group * Dim + mine;
        most = __ldcg(slab), sum = __ldcg(slab + attend_.group);
      }
      float4 others[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        others[i] = float4{};
        if (first + i < parts.count)
          others[i] = __ldcg(reinterpret_cast<float4 const*>(slab_at(parts.slab(first + i)) + mine * Dim + column()));
      }
      float now = fmaxf(all.most, most);
#pragma unroll
      for (uint32_t step = 1; step < kAtOnce; step *= 2) now = fmaxf(now, __shfl_xor_sync(~0u, now, step));
      float const own = rescale(all.most, now), its = rescale(most, now);
      sum *= its;
#pragma unroll
      for (uint32_t step = 1; step < kAtOnce; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      all.outputs = scaled(all.outputs, own), all.sum = all.sum * own + sum, all.most = now;
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i)
        all.outputs = add(all.outputs, scaled(others[i], __shfl_sync(~0u, its, i, kAtOnce)));
    }
    return all;
  }

  /// Stores a head of a sequence, or zeros for a bad sequence, and posts it.
  CUSYNC_DEVICE void finish(Merged const& all, LoadedSegment const& loaded) const {
    Segment const& segment = loaded.segment;
    if (query() < attend_.group) {
      float4 const outputs = loaded.bad() ? float4{} : scaled(all.outputs, 1.f / all.sum);
      uint64_t const row = (uint64_t(segment.sequence) * attend_.kv_heads + segment.head) * attend_.group + query();
      *reinterpret_cast<uint2*>(static_cast<Element*>(stage_.d) + row * Dim + column()) = make_uint2(
          Packed<Element>::of(outputs.x, outputs.y), Packed<Element>::of(outputs.z, outputs.w));
    }
    NoteOf const where{stage_.index, segment.sequence, segment.head, blockIdx.x};
    if (thread_ == 0) note(p_.notes, CUSYNC_EVENT_STORE, where, 0, 0);
    ptx::bar_sync(1, kMathThreads);
    if (thread_ != 0 || !stage_.posts) return;
    if (CUSYNC_DELAYS && p_.delays.limit_ns)
      delay(p_.delays, DelayAt::kPost, ptx::ld_acquire_gpu(p_.epochs + blockIdx.x), stage_.index, segment.sequence,
            segment.head);
    note(p_.notes, CUSYNC_EVENT_POST, where, segment.head, 1);
    post(stage_.posts, segment.head);
  }

  AnyParams const& p_;
  Shared const& shared_;
  AttendShared& own_;
  Stage const& stage_;
  Attend const& attend_;
  uint32_t s_;
  uint32_t thread_ = 0, lane_ = 0, warp_ = 0;  ///< of the thread, from the first segment on
};

}  // namespace cusync::kernels::decode
