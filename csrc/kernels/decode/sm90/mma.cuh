// SPDX-License-Identifier: MIT OR Apache-2.0
// The main loop: weights (64 rows per tile) times activations (8 to 64 tokens), both from shared memory.
#pragma once
#include <utility>

#include "cute/arch/mma_sm90_gmma.hpp"
#include "cute/arch/mma_sm90_desc.hpp"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

#include "kernels/decode/sm90/squares.cuh"

namespace cusync::kernels::decode {

/// CuTe's WGMMA instruction for 64 rows by `Width` tokens by 16.
template <class Element, int Width>
struct Instruction;

#define CUSYNC_INSTRUCTION(Number, Width, Name)                                                         \
  template <>                                                                                           \
  struct Instruction<Number, Width> {                                                                   \
    using Type = cute::SM90::GMMA::Name<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;        \
  };
CUSYNC_INSTRUCTION(cutlass::half_t, 8, MMA_64x8x16_F32F16F16_SS)
CUSYNC_INSTRUCTION(cutlass::half_t, 16, MMA_64x16x16_F32F16F16_SS)
CUSYNC_INSTRUCTION(cutlass::half_t, 32, MMA_64x32x16_F32F16F16_SS)
CUSYNC_INSTRUCTION(cutlass::half_t, 64, MMA_64x64x16_F32F16F16_SS)
CUSYNC_INSTRUCTION(cutlass::bfloat16_t, 8, MMA_64x8x16_F32BF16BF16_SS)
CUSYNC_INSTRUCTION(cutlass::bfloat16_t, 16, MMA_64x16x16_F32BF16BF16_SS)
CUSYNC_INSTRUCTION(cutlass::bfloat16_t, 32, MMA_64x32x16_F32BF16BF16_SS)
CUSYNC_INSTRUCTION(cutlass::bfloat16_t, 64, MMA_64x64x16_F32BF16BF16_SS)
#undef CUSYNC_INSTRUCTION

template <class Atom, size_t... I>
CUSYNC_DEVICE void fma(uint64_t weights, uint64_t activations, float (&sums)[sizeof...(I)], std::index_sequence<I...>) {
  Atom::fma(weights, activations, sums[I]..., cute::SM90::GMMA::ScaleOut::One);
}

/// Descriptor of 128-byte rows under the 128-byte swizzle, in groups of eight rows that are 1024 bytes apart. The
/// swizzle depends on addresses, so the first row may have any phase.
CUSYNC_DEVICE uint64_t descriptor(void const* shared) {
  cute::GmmaDescriptor d;
  d.bitfield.start_address_ = uint16_t(__cvta_generic_to_shared(shared) >> 4);
  d.bitfield.leading_byte_offset_ = 1;  // unused with a swizzle
  d.bitfield.stride_byte_offset_ = kSwizzleBytes >> 4;
  d.bitfield.layout_type_ = uint8_t(cute::SM90::GMMA::LayoutType::B128);
  return d;
}

/// Position in the activation ring.
struct SlotPosition {
  uint32_t slot = 0, parity = 0;

  CUSYNC_DEVICE void pass(uint32_t count, uint32_t slots) {
    slot += count;
    if (slot >= slots) slot -= slots, parity ^= 1;
  }
};

/// How the two warpgroups divide a stage.
enum class Sharing {
  kChunks,   ///< alternate chunks, all rows
  kRowTiles  ///< alternate row tiles, all chunks
};

/// Accumulators of one warpgroup: Tiles x 64 rows by Width tokens.
template <class Element, int Width, int Tiles, Sharing By>
struct Sums {
  float v[Tiles][Width / 2] = {};
  Squares<Element, Width, 128> squares;  ///< of the tokens that it multiplied, if they are normalized

  /// Worker row tile of the warpgroup's i-th row tile.
  CUSYNC_DEVICE static uint32_t row_tile(uint32_t i, uint32_t group) {
    return By == Sharing::kChunks ? i : 2 * i + group;
  }

  /// Adds `Blocks` k-blocks: weights at `weights`, `block_bytes` apart, activations in the slots from `at`. If
  /// `normed`, adds their squares too.
  template <int Blocks, class AnyParams>
  CUSYNC_DEVICE void multiply(AnyParams const& p, Shared const& shared, uint32_t group, char const* weights,
                              uint32_t block_bytes, SlotPosition& at, bool normed, uint32_t lane) {
    constexpr uint64_t kStep = 32 >> 4, kTile = 64 * kRowBytes >> 4;  // 16 elements of k, 64 rows
    uint64_t activations[Blocks];
    uint32_t slots[Blocks];
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      ptx::mbarrier_wait_parity_or_trap(shared.slot_full(at.slot), at.parity, p.limit_ns);
      slots[b] = at.slot;
      activations[b] = descriptor(shared.slots() + at.slot * (Width * kRowBytes));
      at.pass(1, p.activation_slots);
    }
    // Other threads' cp.async wrote these tiles, and WGMMA reads through the async proxy.
    if constexpr (!AnyParams::kMaps) ptx::fence_proxy_async_shared_cta();
    __syncwarp();
    uint64_t const first = descriptor(weights);
    uint64_t const block = block_bytes >> 4;
    fence();
    cute::warpgroup_arrive();
#pragma unroll
    for (int b = 0; b < Blocks; ++b)
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int i = 0; i < Tiles; ++i)
          fma<typename Instruction<Element, Width>::Type>(
              first + b * block + row_tile(i, group) * kTile + k * kStep, activations[b] + k * kStep, v[i],
              std::make_index_sequence<Width / 2>{});
    cute::warpgroup_commit_batch();
    // Behind the products, which take longer.
    if constexpr (AnyParams::kAttends) {
      if (normed)
#pragma unroll
        for (int b = 0; b < Blocks; ++b) squares.add(shared.slots() + slots[b] * (Width * kRowBytes));
    }
    cute::warpgroup_wait<0>();
    fence();
    if (lane == 0) {
#pragma unroll
      for (int b = 0; b < Blocks; ++b) ptx::mbarrier_arrive(shared.slot_empty(slots[b]), 32 * kArrivals);
    }
  }

  /// Multiplies the sums of each token by its factor.
  CUSYNC_DEVICE void scale(float const* factors) {
#pragma unroll
    for (int j = 0; j < Width / 2; ++j) {
      float const factor = factors[j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) v[i][j] *= factor;
    }
  }

  static constexpr uint32_t kArrivals = By == Sharing::kChunks ? 2 : 1;  ///< arrivals of a warp per chunk

 private:
  CUSYNC_DEVICE void fence() {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int j = 0; j < Width / 2; ++j) cute::warpgroup_fence_operand(v[i][j]);
  }
};

/// Position of a math warp in both rings.
struct MathPosition {
  RingPosition ring;
  SlotPosition slots;
};

/// This warpgroup's part of a stage. Multiplies the k-blocks of a chunk `Batch` at a time.
template <int Batch, class Element, int Width, int Tiles, Sharing By, class AnyParams>
CUSYNC_DEVICE void main_loop(Sums<Element, Width, Tiles, By>& sums, AnyParams const& p, Shared const& shared, uint32_t s,
                             uint32_t group, MathPosition& at) {
  Stage const& stage = p.stages[s];
  Share const share = shared.share(s);
  uint32_t const bytes = stage.chunk_bytes, shift = stage.chunk_shift, ring_bytes = p.ring_bytes;
  uint32_t const block_bytes = share.rows * kRowBytes, lead = turn_lead(p.activation_slots, shift, kMaxChunks);
  bool const normed = stage.epsilon > 0.f;
  uint32_t const lane = ptx::lane_id();
#pragma unroll 1
  for (uint32_t i = 0; i < share.chunks; ++i) {
    at.ring.skip_for(bytes, ring_bytes);
    uint32_t const blocks = share.blocks_of(i, 1u << shift);
    if (By == Sharing::kRowTiles || i % 2 == group) {
      // All chunks of earlier stages have been multiplied: stages end with a barrier of both warpgroups.
      if (By == Sharing::kChunks && i >= lead)
        ptx::mbarrier_wait_parity_or_trap(shared.chunk_empty(at.ring.barrier_before(lead)), at.ring.parity_before(lead),
                                          p.limit_ns);
      ptx::mbarrier_wait_parity_or_trap(shared.chunk_full(at.ring.barrier), at.ring.parity, p.limit_ns);
      char const* weights = shared.ring(at.ring.offset) + share.rows_before(i, shift) % kPhases * kRowBytes;
      uint32_t left = blocks;
#pragma unroll 1
      for (; left >= Batch; left -= Batch, weights += Batch * block_bytes)
        sums.template multiply<Batch>(p, shared, group, weights, block_bytes, at.slots, normed, lane);
      if (Batch > 1) {
#pragma unroll 1
        for (; left > 0; --left, weights += block_bytes)
          sums.template multiply<1>(p, shared, group, weights, 0, at.slots, normed, lane);
      }
      if (lane == 0) ptx::mbarrier_arrive(shared.chunk_empty(at.ring.barrier), sums.kArrivals);
      if (p.trace && threadIdx.x == 0 && i == 0)
        p.trace[blockIdx.x * p.stage_count + s].loaded = ptx::globaltimer();
    } else {
      at.slots.pass(blocks, p.activation_slots);
    }
    at.ring.pass(bytes);
  }
}

}  // namespace cusync::kernels::decode
