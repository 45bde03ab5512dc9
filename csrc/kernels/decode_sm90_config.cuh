// SPDX-License-Identifier: MIT OR Apache-2.0
// What the warps of a decode kernel share: its parameters, this CTA's share of the work, the plan of shared memory.
//
//   warps 0-3, 4-7  two warpgroups that multiply and then finish the outputs
//   warp 8          streams weights (one thread)
//   warps 9-12      wait for activations and copy them, one 64-wide tile each in turn
//
// A chunk is the unit of the weight ring: one, two or four k-blocks of this worker's rows. Chunks of stages with
// different row counts have different sizes; the ring is a ring of bytes, and a chunk never wraps around its end.
//
// A worker with at most 64 rows in a stage has its two warpgroups take chunks in turn and add their sums at the end.
// With more, each warpgroup has every other tile of 64 rows and sees every chunk. So do the warpgroups of a worker of
// two CTAs, which take chunks in turn.
#pragma once
#include "cusync/ptx.cuh"
#include "cusync/semaphore.cuh"
#include "decode_layout.h"
#include "cusync.h"

namespace cusync::kernels::decode {

inline constexpr uint32_t kMathThreads = 256, kLoadWarps = 4, kLoadThreads = 32 * kLoadWarps;
inline constexpr uint32_t kMathWarps = kMathThreads / 32, kWeightWarp = kMathWarps;
inline constexpr uint32_t kThreads = kMathThreads + 32 + kLoadThreads;
inline constexpr uint32_t kMaxChunks = 64;     ///< chunks alive in the ring
inline constexpr uint32_t kMaxRowTiles = 4;    ///< 64-row tiles of a worker: what the accumulators have registers for
inline constexpr uint32_t kUnitBytes = 128 * 16;  ///< four floats of each thread of a warpgroup
inline constexpr uint32_t kExchangeUnits = 4;  ///< units that a warpgroup hands to the other at a time

/// Of `units` in all, those that a warpgroup hands over at a time.
CUSYNC_HD constexpr uint32_t exchange_units(uint32_t units) { return min_u32(kExchangeUnits, ceil_div(units, 2)); }

/// One stage as every worker sees it.
struct Stage {
  uint32_t k, features, blocks, gated;
  uint32_t row_tiles;         ///< 64-row WGMMA tiles; spare rows are never stored
  uint32_t chunk_shift;       ///< k-blocks of a chunk: 1 << chunk_shift
  uint32_t block_bytes;       ///< from one k-block to the next in shared memory
  uint32_t activation;        ///< enum cusync_activation
  uint32_t index, edge;       ///< for reports
  uint32_t produced_features; ///< of the stage that writes `a`
  uint32_t wait_base;         ///< its first slot
  uint32_t const* waits;      ///< all slots; NULL: `a` is an input, or waits are skipped
  uint32_t* posts;            ///< this stage's first slot; NULL: nobody waits
  char const* weights;
  void const* a;
  void const* bias;
  void const* residual;
  void* d;

  CUSYNC_HD uint32_t chunk_bytes() const { return block_bytes << chunk_shift; }
};

/// Offsets into shared memory.
struct SharedPlan {
  uint32_t ring, activations, exchange, barriers, shares, bytes;
};

struct Params {
  Stage stages[CUSYNC_MAX_DECODE_STAGES];
  SharedPlan shared;
  uint32_t stage_count, m, split, workers;
  uint32_t ring_bytes, activation_slots, in_flight_bytes, ahead_bytes, prefetch_bytes;
  uint32_t stream_only;
  uint32_t* epochs;
  unsigned long long timeout_ns;
  cusync_report* report;
  cusync_trace* trace;
};

/// What this CTA does in one stage: its worker's features, and of the chunks along k its own, every `split`-th.
struct Share {
  uint32_t first, count;  ///< features
  uint32_t chunks;        ///< of this CTA
  uint32_t tiles;         ///< k-blocks in them: tiles of activations
  uint32_t start;         ///< the chunk that it begins with, among its own
  uint32_t split, rank;
  uint32_t short_end;     ///< tiles up to the end of the short last chunk, or all when that is not here
  uint32_t short_gap;     ///< k-blocks that are missing there
  uint32_t block_bytes;   ///< one k-block in device memory
  uint32_t head_bytes;    ///< of them go to the block's start
  uint32_t tail_offset;   ///< where the others go
  char const* weights;

  /// Number along k of the i-th chunk.
  CUSYNC_DEVICE uint32_t chunk(uint32_t i) const {
    i += start;
    if (i >= chunks) i -= chunks;
    return i * split + rank;
  }

  /// k-block of the i-th tile.
  CUSYNC_DEVICE uint32_t tile(uint32_t i, uint32_t chunk_shift) const {
    if (i >= short_end) i += short_gap;
    return (chunk(i >> chunk_shift) << chunk_shift) + (i & ((1u << chunk_shift) - 1));
  }
};

/// Workers begin at different k-blocks, each with those that it has itself produced: these are there first, and the
/// SMs do not all ask for the same activations at once.
CUSYNC_DEVICE Share share_of(Stage const& stage, uint32_t cta, uint32_t split, uint32_t workers) {
  Share s;
  uint32_t const worker = cta / split, in_chunk = 1u << stage.chunk_shift;
  s.split = split;
  s.rank = cta % split;
  s.first = first_feature(worker, stage.features, workers);
  s.count = first_feature(worker + 1, stage.features, workers) - s.first;
  uint32_t const all = ceil_div(stage.blocks, in_chunk);
  s.chunks = s.count ? (all + split - 1 - s.rank) / split : 0;
  s.start = worker * s.chunks / workers;
  bool const has_last = s.chunks && (all - 1) % split == s.rank;
  s.short_gap = has_last ? all * in_chunk - stage.blocks : 0;
  s.tiles = s.chunks * in_chunk - s.short_gap;
  s.short_end = has_last ? (s.chunks - s.start) * in_chunk - s.short_gap : s.tiles;
  s.block_bytes = stored_rows(s.count, stage.gated) * kRowBytes;
  s.head_bytes = head_rows(s.count, stage.gated) * kRowBytes;
  s.tail_offset = tail_row(s.count) * kRowBytes;
  s.weights = stage.weights + worker_offset(worker, stage.k, stage.features, stage.gated, workers);
  return s;
}

/// k-blocks of chunk `chunk`: the last one may be short.
CUSYNC_DEVICE uint32_t blocks_in(Stage const& stage, uint32_t chunk) {
  return min_u32(1u << stage.chunk_shift, stage.blocks - (chunk << stage.chunk_shift));
}

/// Where the next chunk lies. All parties walk the same way, so nothing is communicated but phases.
struct RingPosition {
  uint32_t offset = 0, barrier = 0, parity = 0;

  /// Bytes that stay unused because a chunk of `bytes` does not fit before the ring's end; goes past them.
  CUSYNC_DEVICE uint32_t skip_for(uint32_t bytes, uint32_t ring) {
    if (offset + bytes <= ring) return 0;
    uint32_t const unused = ring - offset;
    offset = 0;
    return unused;
  }

  CUSYNC_DEVICE void pass(uint32_t bytes) {
    offset += bytes;
    if (++barrier == kMaxChunks) barrier = 0, parity ^= 1;
  }
};

/// The shared memory of one CTA. Chunks and slots are empty when all math warps have arrived; where warpgroups take
/// turns, the one that multiplies arrives for both.
struct Shared {
  char* base;
  SharedPlan const& plan;

  static constexpr uint32_t barriers(uint32_t slots) { return 2 + 2 * kMaxChunks + 2 * slots; }

  CUSYNC_DEVICE uint64_t* exchange_full() const { return barrier(0); }
  CUSYNC_DEVICE uint64_t* exchange_empty() const { return barrier(1); }
  CUSYNC_DEVICE uint64_t* chunk_full(uint32_t i) const { return barrier(2 + i); }
  CUSYNC_DEVICE uint64_t* chunk_empty(uint32_t i) const { return barrier(2 + kMaxChunks + i); }
  CUSYNC_DEVICE uint64_t* slot_full(uint32_t i) const { return barrier(2 + 2 * kMaxChunks + 2 * i); }
  CUSYNC_DEVICE uint64_t* slot_empty(uint32_t i) const { return barrier(2 + 2 * kMaxChunks + 2 * i + 1); }
  CUSYNC_DEVICE char* ring(uint32_t offset) const { return base + plan.ring + offset; }
  CUSYNC_DEVICE char* slots() const { return base + plan.activations; }
  CUSYNC_DEVICE float4* exchange() const { return reinterpret_cast<float4*>(base + plan.exchange); }
  CUSYNC_DEVICE Share& share(uint32_t stage) const { return reinterpret_cast<Share*>(base + plan.shares)[stage]; }

 private:
  CUSYNC_DEVICE uint64_t* barrier(uint32_t i) const { return reinterpret_cast<uint64_t*>(base + plan.barriers) + i; }
};

/// Ends the kernel when a wait inside the CTA lasts too long. What a late semaphore keeps from coming is reported by the
/// warp that waits for the semaphore; this limit is four times as long and only keeps a defect from hanging the GPU.
class Deadline {
 public:
  CUSYNC_DEVICE explicit Deadline(unsigned long long timeout_ns)
      : limit_(4 * (timeout_ns ? timeout_ns : kDefaultTimeoutNs)) {}

  /// After each look that was in vain. The clock is slow, so it is read once in 64.
  CUSYNC_DEVICE void check() {
    if (++looks_ % 64) return;
    unsigned long long const now = ptx::globaltimer();
    if (begin_ == 0) begin_ = now;
    if (now - begin_ > limit_) ptx::trap();
  }

 private:
  unsigned long long limit_, begin_ = 0;
  uint32_t looks_ = 0;
};

/// Waits for a phase of a barrier of shared memory.
CUSYNC_DEVICE void wait_phase(uint64_t* barrier, uint32_t parity, unsigned long long timeout_ns) {
  if (ptx::mbarrier_try_wait_parity(barrier, parity)) return;
  Deadline deadline(timeout_ns);
  while (!ptx::mbarrier_try_wait_parity(barrier, parity)) deadline.check();
}

}  // namespace cusync::kernels::decode
