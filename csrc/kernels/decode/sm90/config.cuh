// SPDX-License-Identifier: MIT OR Apache-2.0
// State shared by the warps of a decode kernel: parameters, this CTA's share of the work, the layout of shared memory.
//
//   warps 0-3, 4-7  two warpgroups that multiply and then finish the outputs
//   warp 8          streams weights (one thread)
//   warps 9-12      wait for activations and copy them, one 64-wide tile each in turn
//
// A chunk is the unit of the weight ring: one, two or four k-blocks of this worker's rows, loaded by one copy. Stages
// with different row counts have different chunk sizes; the ring is a ring of bytes, and a chunk never wraps around its
// end.
//
// The two warpgroups take chunks alternately and add their sums at the end. If one warpgroup cannot hold all sums, each
// has every other tile of 64 rows instead and multiplies every chunk.
#pragma once
#include <cuda.h>

#include "cusync/ptx.cuh"
#include "cusync/semaphore.cuh"
#include "kernels/decode/share.h"
#include "kernels/common/notes.cuh"

namespace cusync::kernels::decode {

inline constexpr uint32_t kMathThreads = 256, kLoadWarps = 4, kLoadThreads = 32 * kLoadWarps;
inline constexpr uint32_t kMathWarps = kMathThreads / 32, kWeightWarp = kMathWarps;
inline constexpr uint32_t kThreads = kMathThreads + 32 + kLoadThreads;
inline constexpr uint32_t kUnitBytes = 128 * 16;  ///< four floats per thread of a warpgroup
inline constexpr uint32_t kExchangeUnits = 4;  ///< units that a warpgroup passes to the other at once

/// Lanes that load one activation tile. With narrow stages and few tokens the loaders are limited by instructions, so a
/// warp loads four tiles at once.
CUSYNC_HD constexpr uint32_t tile_lanes(bool attends, uint32_t width) { return attends && width <= 8 ? 8 : 32; }

/// How many of `units` units a warpgroup passes to the other at once.
CUSYNC_HD constexpr uint32_t exchange_units(uint32_t units) { return min_u32(kExchangeUnits, ceil_div(units, 2)); }

/// Whether a kernel runs activations without code of their own (MOST_CURVED in codegen/src/schedule/decode.rs): a second
/// epilogue of the widest kernel that attends would spill.
CUSYNC_HD constexpr bool takes_curves(bool attends, uint32_t width) { return !attends || width < 32; }
/// Whether an activation is one of those.
CUSYNC_HD constexpr bool is_curved(uint32_t activation, bool gated) {
  return gated ? activation != CUSYNC_SILU : activation > CUSYNC_RELU;
}

/// Whether a warpgroup has registers for the sums of all row tiles: if so, warpgroups take chunks alternately.
CUSYNC_HD constexpr bool takes_turns(uint32_t row_tiles, uint32_t width) { return row_tiles * width <= 128; }

/// The tensors that a stage reads and writes.
struct Tensors {
  char const* weights;
  void const* a;
  void const* bias;
  void const* residual;
  void* d;
};

/// A stage's operation and its coupling to other stages.
struct Coupled : Geometry {
  uint16_t activation;         ///< enum cusync_activation
  uint16_t residual_first;     ///< 1: residual added before the activation
  float epsilon;               ///< if positive, rows of `a` are divided by the root of their mean square plus epsilon
  uint32_t index, edge;        ///< for reports
  uint32_t produced_features;  ///< columns of `a`, if a product wrote it
  uint32_t produced_parts;     ///< even parts in which it did
  uint32_t wait_base;          ///< first slot of that stage
  uint32_t const* waits;       ///< all slots; NULL: `a` is an input, or waits are skipped
  uint32_t* posts;             ///< this stage's first slot; NULL: no consumers

  /// Posts per run to column tile `tile` of `a`, if a product wrote it.
  CUSYNC_DEVICE uint32_t posts_of(uint32_t tile) const {
    uint32_t const begin = tile * kBlock, end = min_u32(begin + kBlock, produced_features);
    return parts_of_columns({begin, end}, produced_features, produced_parts);
  }
};

/// One stage in the form that the kernel uses. Every warp visits it once per run, so all of it is in constant memory.
struct Stage : Coupled, Tensors {};

/// Offsets into shared memory.
struct SharedPlan {
  uint32_t ring, activations, exchange, barriers, shares, bytes;
};

/// Launch parameters other than the stages.
struct Common {
  static constexpr bool kAttends = false, kSession = false, kMaps = false, kGroup = false;
  SharedPlan shared;
  uint32_t stage_count, m;
  Divisor workers;
  uint32_t ring_bytes, activation_slots, in_flight_bytes, ahead_bytes;
  uint32_t stream_only;
  uint32_t* epochs;
  unsigned long long timeout_ns;  ///< timeout of a semaphore wait
  /// Timeout of a wait within the CTA. The warp that waits for a late semaphore reports it; this limit is four times as
  /// long and only keeps a defect from hanging the GPU.
  unsigned long long limit_ns;
  cusync_report* report;
  cusync_trace* trace;
  cusync_delays delays;
  cusync_notes notes;
};

/// Parameters of a kernel with products only. All declared parameters are copied at every launch, which costs the host
/// 0.15 us per KB and delays the kernel's start by as much again. So short chains use kernels with room for few stages.
template <uint32_t MostStages>
struct ParamsOf : Common {
  static constexpr uint32_t kMostStages = MostStages;
  Stage stages[MostStages];
};

using Params = ParamsOf<CUSYNC_MAX_STAGES>;
using ShortParams = ParamsOf<8>;

/// Adds the tensor maps with which the TMA reads the stages' activations.
struct MappedParams : ShortParams {
  static constexpr bool kMaps = true;
  CUtensorMap activations[kMostStages];
};

/// Position of the next chunk. All warps advance it identically, so only phases are communicated.
struct RingPosition {
  uint32_t offset = 0, barrier = 0, parity = 0;

  /// Skips the bytes before the end of the ring if a chunk of `bytes` does not fit there; returns their number.
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

  /// The barrier of the chunk `count` chunks before this one (fewer than kMaxChunks), and its parity.
  CUSYNC_DEVICE uint32_t barrier_before(uint32_t count) const { return (barrier - count) % kMaxChunks; }
  CUSYNC_DEVICE uint32_t parity_before(uint32_t count) const { return parity ^ uint32_t(barrier < count); }
};

/// Ring space of a chunk, for the thread that issues chunks.
struct ChunkNote {
  uint32_t bytes, taken;  ///< taken: including the bytes skipped before it
};

/// The shared memory of one CTA. Chunks are empty when all math warps have arrived, slots when all math threads have;
/// if warpgroups take turns, the one that multiplies arrives for both.
struct Shared {
  char* base;
  SharedPlan const& plan;

  static constexpr uint32_t barriers(uint32_t slots) { return 2 * kMaxChunks + 2 * slots; }
  static constexpr uint32_t kNoteBytes = kMaxChunks * sizeof(ChunkNote);
  static constexpr uint32_t share_bytes(uint32_t stages) { return kNoteBytes + stages * uint32_t(sizeof(Share)); }

  CUSYNC_DEVICE uint64_t* chunk_full(uint32_t i) const { return barrier(i); }
  CUSYNC_DEVICE uint64_t* chunk_empty(uint32_t i) const { return barrier(kMaxChunks + i); }
  CUSYNC_DEVICE uint64_t* slot_full(uint32_t i) const { return barrier(2 * kMaxChunks + 2 * i); }
  CUSYNC_DEVICE uint64_t* slot_empty(uint32_t i) const { return barrier(2 * kMaxChunks + 2 * i + 1); }
  CUSYNC_DEVICE ChunkNote& note(uint32_t i) const {
    return reinterpret_cast<ChunkNote*>(base + plan.shares)[i];
  }
  CUSYNC_DEVICE char* ring(uint32_t offset) const { return base + plan.ring + offset; }
  CUSYNC_DEVICE char* slots() const { return base + plan.activations; }
  CUSYNC_DEVICE float4* exchange() const { return reinterpret_cast<float4*>(base + plan.exchange); }
  CUSYNC_DEVICE Share& share(uint32_t stage) const {
    return reinterpret_cast<Share*>(base + plan.shares + kNoteBytes)[stage];
  }

 private:
  CUSYNC_DEVICE uint64_t* barrier(uint32_t i) const { return reinterpret_cast<uint64_t*>(base + plan.barriers) + i; }
};

}  // namespace cusync::kernels::decode
