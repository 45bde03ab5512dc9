// SPDX-License-Identifier: MIT OR Apache-2.0
// What the warps of a decode kernel share: its parameters, the plan of shared memory, the ring of weights.
//
//   warps 0-3, 4-7  two warpgroups that multiply, chunk by chunk in turn, and then finish the outputs
//   warp 8          streams weights (one thread)
//   warps 9-12      wait for activations and copy them, one 64-wide tile each in turn
//
// A chunk is the unit of the weight ring: one, two or four k-blocks of this worker's rows. Chunks of stages with
// different row counts have different sizes; the ring is a ring of bytes, and a chunk never wraps around its end.
#pragma once
#include "cusync/ptx.cuh"
#include "cusync/semaphore.cuh"
#include "decode_layout.h"
#include "cusync.h"

namespace cusync::kernels::decode {

inline constexpr uint32_t kMathThreads = 256, kLoadWarps = 4, kLoadThreads = 32 * kLoadWarps;
inline constexpr uint32_t kThreads = kMathThreads + 32 + kLoadThreads;
inline constexpr uint32_t kWeightWarp = kMathThreads / 32;
inline constexpr uint32_t kMaxChunks = 64;  ///< chunks alive in the ring
inline constexpr uint32_t kExchangeUnits = 4;  ///< accumulator units that a warpgroup hands over at a time
inline constexpr uint32_t kUnitBytes = 128 * 16;

/// Of `units` in all, those that a warpgroup hands over at a time.
CUSYNC_HD constexpr uint32_t exchange_units(uint32_t units) { return min_u32(kExchangeUnits, ceil_div(units, 2)); }

/// Most 64-row tiles of a worker: what the accumulators have registers for.
constexpr uint32_t max_row_tiles(uint32_t width) { return width == 64 ? 2 : 4; }

/// One stage as every worker sees it.
struct Stage {
  uint32_t k, features, blocks, gated;
  uint32_t row_tiles;         ///< 64-row WGMMA tiles; spare rows are never stored
  uint32_t blocks_per_chunk;  ///< 1, 2 or 4
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
};

/// Offsets into shared memory.
struct SharedPlan {
  uint32_t ring, activations, exchange, chunk_barriers, slot_barriers, shares, bytes;
};

struct Params {
  Stage stages[CUSYNC_MAX_DECODE_STAGES];
  SharedPlan shared;
  uint32_t stage_count, m, workers;
  uint32_t ring_bytes, activation_slots, in_flight_bytes, ahead_bytes, prefetch_bytes;
  uint32_t stream_only;
  uint32_t* epochs;
  unsigned long long timeout_ns;
  cusync_report* report;
  cusync_trace* trace;
};

/// What this worker does in one stage.
struct Share {
  uint32_t first, count;     ///< features
  uint32_t chunks;           ///< 0 when it owns nothing
  uint32_t start;            ///< chunk that it begins with
  uint32_t block_bytes;      ///< one k-block in device memory
  uint32_t head_bytes;       ///< of them go to the block's start
  uint32_t tail_offset;      ///< where the others go
  char const* weights;
};

/// Workers begin at different k-blocks, each with those that it has itself produced: these are there first, and the
/// SMs do not all ask for the same activations at once.
CUSYNC_DEVICE Share share_of(Stage const& stage, uint32_t worker, uint32_t workers) {
  Share s;
  s.first = first_feature(worker, stage.features, workers);
  s.count = first_feature(worker + 1, stage.features, workers) - s.first;
  uint32_t const chunks = ceil_div(stage.blocks, stage.blocks_per_chunk);
  s.chunks = s.count ? chunks : 0;
  s.start = worker * chunks / workers;
  s.block_bytes = stored_rows(s.count, stage.gated) * kRowBytes;
  s.head_bytes = head_rows(s.count, stage.gated) * kRowBytes;
  s.tail_offset = tail_row(s.count) * kRowBytes;
  s.weights = stage.weights + worker_offset(worker, stage.k, stage.features, stage.gated, workers);
  return s;
}

/// k-blocks of chunk `chunk`: the last one may be short.
CUSYNC_DEVICE uint32_t blocks_in(Stage const& stage, uint32_t chunk) {
  return min_u32(stage.blocks_per_chunk, stage.blocks - chunk * stage.blocks_per_chunk);
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

/// The shared memory of one worker.
struct Shared {
  char* base;
  SharedPlan const& plan;

  CUSYNC_DEVICE uint64_t* chunk_full(uint32_t i) const { return words(plan.chunk_barriers) + i; }
  CUSYNC_DEVICE uint64_t* chunk_empty(uint32_t i) const { return words(plan.chunk_barriers) + kMaxChunks + i; }
  CUSYNC_DEVICE uint64_t* slot_full(uint32_t i) const { return words(plan.slot_barriers) + 2 * i; }
  CUSYNC_DEVICE uint64_t* slot_empty(uint32_t i) const { return words(plan.slot_barriers) + 2 * i + 1; }
  CUSYNC_DEVICE char* ring(uint32_t offset) const { return base + plan.ring + offset; }
  CUSYNC_DEVICE char* slots() const { return base + plan.activations; }
  CUSYNC_DEVICE float4* exchange() const { return reinterpret_cast<float4*>(base + plan.exchange); }
  CUSYNC_DEVICE Share& share(uint32_t stage) const { return reinterpret_cast<Share*>(base + plan.shares)[stage]; }

 private:
  CUSYNC_DEVICE uint64_t* words(uint32_t offset) const { return reinterpret_cast<uint64_t*>(base + offset); }
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
