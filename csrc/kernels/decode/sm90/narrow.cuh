// SPDX-License-Identifier: MIT OR Apache-2.0
// The main loop of a stage with few rows per worker, such as QKV projections: WGMMA multiplies 64 rows whether they
// exist or not, which is most of the time if k is long. Here each warp multiplies its own k-blocks, 16 rows at a time,
// by mma.sync. At the end each warp adds up the sums of all warps for some of the outputs or, with many tokens, the
// four warps of a group gather their sums in the layout of WGMMA.
#pragma once
#include "cute/arch/copy_sm75.hpp"

#include "kernels/decode/sm90/mma.cuh"
#include "kernels/decode/sm90/outputs.cuh"

namespace cusync::kernels::decode {

/// Maximum 16-row tiles for which a warp has registers.
CUSYNC_HD constexpr uint32_t narrow_tiles(uint32_t width) { return width <= 32 ? 3 : 1; }
CUSYNC_HD constexpr bool is_narrow(uint32_t rows, uint32_t width) { return rows <= narrow_tiles(width) * 16; }
/// 16-row tiles that the warps add up at once, in kernels that scale units: at most one unit per warp, and 16 KiB.
CUSYNC_HD constexpr uint32_t narrow_at_once(uint32_t tiles, uint32_t width) { return min_u32(tiles, width <= 8 ? 3 : 2); }
/// Shared memory through which the warps add up their sums of `rows` rows.
CUSYNC_HD constexpr uint32_t narrow_exchange_bytes(uint32_t rows, uint32_t width) {
  uint32_t const tiles = scales_units(width) ? narrow_at_once(ceil_div(rows, 16), width) : 1;
  return tiles * (width / 8) * kMathWarps * 32 * 16;
}

/// Barrier of the threads of one warpgroup.
CUSYNC_DEVICE void sync_group(uint32_t group) { ptx::bar_sync(4 + group, 128); }

/// Adds one k-block: `Tiles` tiles of 16 rows at `weights`, times the tokens in an activation slot.
template <class Element, int Width, int Tiles>
CUSYNC_DEVICE void multiply_block(float (&sums)[Tiles][Width / 8][4], char const* weights, char const* activations,
                                  uint32_t lane) {
  using Mma = typename Packed<Element>::Mma;
  uint32_t const phase = uint32_t(__cvta_generic_to_shared(weights)) / kRowBytes + lane % 16;
  // With many tokens the sums leave registers for only one step of 16 elements at a time; otherwise two steps share one
  // load of activations.
  constexpr uint32_t kSteps = Width == 8 ? 2 : 1, kUnrolled = Width >= 32 ? 1 : 4 / kSteps;
#pragma unroll kUnrolled
  for (uint32_t k = 0; k < 4; k += kSteps) {
    uint32_t b[kSteps == 2 ? 1 : Width / 16][4];  // two steps for 8 tokens, or one step for 16
#pragma unroll
    for (uint32_t j = 0; j < sizeof(b) / sizeof(b[0]); ++j) {
      uint32_t const token = kSteps == 2 ? lane % 8 : j * 16 + lane / 16 * 8 + lane % 8;
      uint32_t const piece = (2 * k + (kSteps == 2 ? lane / 8 : lane / 8 % 2)) ^ lane % 8;
      char const* const from = activations + token * kRowBytes + piece * 16;
      cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<cute::uint128_t const*>(from), b[j][0], b[j][1], b[j][2], b[j][3]);
    }
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        uint32_t a[4];
        uint32_t const piece = (2 * (k + step) + lane / 16) ^ phase % kPhases;
        char const* const from = weights + (i * 16 + lane % 16) * kRowBytes + piece * 16;
        cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<cute::uint128_t const*>(from), a[0], a[1], a[2], a[3]);
#pragma unroll
        for (int n = 0; n < Width / 8; ++n) {
          float(&s)[4] = sums[i][n];
          uint32_t const* const two = kSteps == 2 ? b[0] + 2 * step : b[n / 2] + n % 2 * 2;
          Mma::fma(s[0], s[1], s[2], s[3], a[0], a[1], a[2], a[3], two[0], two[1], s[0], s[1], s[2], s[3]);
        }
      }
  }
}

/// Gathers the sums of tile i in warp i of the group, in WGMMA's accumulator layout.
template <class Element, int Width, int Tiles>
CUSYNC_DEVICE void gather_sums(Sums<Element, Width, 1, Sharing::kChunks>& to, float const (&sums)[Tiles][Width / 8][4],
                               Shared const& shared, uint32_t group) {
  constexpr uint32_t kBlocks = Width / 8;
  uint32_t const thread = ptx::thread_id(), lane = thread % 32, warp = thread / 32 % 4;
  float4* const buffer = shared.exchange() + group * (4 * kBlocks * 32) + lane;
#pragma unroll
  for (int i = 0; i < Tiles; ++i)
#pragma unroll
    for (uint32_t j = 0; j < Width / 2; ++j)
      if (warp == i) to.v[0][j] = sums[i][j / 4][j % 4];
#pragma unroll
  for (uint32_t round = 1; round < 4; ++round) {
    uint32_t const receiver = (warp + round) % 4, sender = (warp - round) % 4;
#pragma unroll
    for (uint32_t i = 0; i < Tiles; ++i)
#pragma unroll
      for (uint32_t n = 0; n < kBlocks; ++n)
        if (receiver == i)
          buffer[(warp * kBlocks + n) * 32] = make_float4(sums[i][n][0], sums[i][n][1], sums[i][n][2], sums[i][n][3]);
    sync_group(group);
    if (warp < Tiles) {
#pragma unroll
      for (uint32_t n = 0; n < kBlocks; ++n) {
        float4 const more = buffer[(sender * kBlocks + n) * 32];
        to.v[0][4 * n] += more.x, to.v[0][4 * n + 1] += more.y;
        to.v[0][4 * n + 2] += more.z, to.v[0][4 * n + 3] += more.w;
      }
    }
    sync_group(group);
  }
  // The epilogue then exchanges sums with the other group through the same memory.
  ptx::bar_sync(1, kMathThreads);
}

/// The end of a narrow stage: each warp adds up the sums of all warps, a unit at a time, and finishes them.
template <class Element, int Width, int Tiles, bool Curved, class AnyParams>
class NarrowEpilogue : Outputs<Element, Width, Curved, AnyParams> {
  using Base = Outputs<Element, Width, Curved, AnyParams>;
  static constexpr uint32_t kBlocks = Width / 8, kAtOnce = narrow_at_once(Tiles, Width), kRounds = ceil_div(Tiles, kAtOnce);
  static_assert(scales_units(Width) && kAtOnce * kBlocks <= kMathWarps);

 public:
  using Biases = decode::Biases<Element, kRounds>;

  /// The biases of the rows that the thread finishes in each round.
  CUSYNC_DEVICE static Biases biases(Tensors const& tensors, Share const& share) {
    Biases found;
    uint32_t const thread = ptx::thread_id();
#pragma unroll
    for (uint32_t r = 0; r < kRounds; ++r) found.tiles[r] = Base::bias_of(tensors, share, row(r, thread), share.lead);
    return found;
  }

  CUSYNC_DEVICE NarrowEpilogue(AnyParams const& p, Tensors const& tensors, uint32_t m, Shared const& shared, uint32_t s,
                               Biases const& biases)
      : Base(p, tensors, m, shared, s), biases_(biases) {}

  CUSYNC_DEVICE void finish(float const (&sums)[Tiles][kBlocks][4]) const {
#pragma unroll
    for (uint32_t r = 0; r < kRounds; ++r) {
      float4 const all = added(sums, r);
      if (has_unit(r)) this->store(this->scaled(all, block()), row(r, this->thread_), block(), biases_.tiles[r]);
    }
  }

 private:
  /// The warp's unit in a round: a block of tokens, and the rows of one tile.
  CUSYNC_DEVICE uint32_t warp() const { return this->thread_ / 32; }
  CUSYNC_DEVICE uint32_t block() const { return warp() % kBlocks; }
  CUSYNC_DEVICE static uint32_t tile(uint32_t round, uint32_t thread) { return round * kAtOnce + thread / 32 / kBlocks; }
  CUSYNC_DEVICE static uint32_t row(uint32_t round, uint32_t thread) { return tile(round, thread) * 16 + thread % 32 / 4; }
  CUSYNC_DEVICE bool has_unit(uint32_t round) const {
    return warp() < kAtOnce * kBlocks && tile(round, this->thread_) < Tiles;
  }

  /// The sums of all warps for this warp's unit of a round. All math threads.
  CUSYNC_DEVICE float4 added(float const (&sums)[Tiles][kBlocks][4], uint32_t round) const {
    float4* const buffer = this->shared_.exchange() + this->thread_ % 32;
    if (round) ptx::bar_sync(1, kMathThreads);  // the buffer has been read
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (uint32_t n = 0; n < kBlocks; ++n)
        if (uint32_t const t = round * kAtOnce + i; t < Tiles)
          buffer[((i * kBlocks + n) * kMathWarps + warp()) * 32] =
              make_float4(sums[t][n][0], sums[t][n][1], sums[t][n][2], sums[t][n][3]);
    ptx::bar_sync(1, kMathThreads);
    float4 all{};
    if (has_unit(round)) {
#pragma unroll
      for (uint32_t w = 0; w < kMathWarps; ++w) {
        float4 const more = buffer[(warp() * kMathWarps + w) * 32];
        all.x += more.x, all.y += more.y, all.z += more.z, all.w += more.w;
      }
    }
    return all;
  }

  Biases const& biases_;
};

/// This warpgroup's part of a stage. The whole group advances to the next chunk together, so chunks and slots change
/// owners as they do between groups that use WGMMA.
template <class Element, int Width, int Tiles, class AnyParams>
CUSYNC_DEVICE void narrow_loop(float (&sums)[Tiles][Width / 8][4], AnyParams const& p, Shared const& shared, uint32_t s,
                               uint32_t group, MathPosition& at) {
  Squares<Element, Width, 32> squares;
  uint32_t const thread = ptx::thread_id(), lane = thread % 32;  // so addresses do not outlive the stage
  Stage const& stage = p.stages[s];
  Share const share = shared.share(s);
  uint32_t const bytes = stage.chunk_bytes, shift = stage.chunk_shift, warp = thread / 32 % 4;
  uint32_t const block_bytes = share.rows * kRowBytes, lead = turn_lead(p.activation_slots, shift, kMaxChunks);
#pragma unroll 1
  for (uint32_t i = 0; i < share.chunks; ++i) {
    at.ring.skip_for(bytes, p.ring_bytes);
    uint32_t const blocks = share.blocks_of(i, 1u << shift);
    if (i % 2 == group) {
      if (i >= lead)
        ptx::mbarrier_wait_parity_or_trap(shared.chunk_empty(at.ring.barrier_before(lead)), at.ring.parity_before(lead),
                                          p.limit_ns);
      ptx::mbarrier_wait_parity_or_trap(shared.chunk_full(at.ring.barrier), at.ring.parity, p.limit_ns);
      char const* const weights = shared.ring(at.ring.offset) + share.rows_before(i, shift) % kPhases * kRowBytes;
#pragma unroll 1
      for (uint32_t block = warp; block < blocks; block += 4) {
        SlotPosition slot = at.slots;
        slot.pass(block, p.activation_slots);
        ptx::mbarrier_wait_parity_or_trap(shared.slot_full(slot.slot), slot.parity, p.limit_ns);
        char const* const activations = shared.slots() + slot.slot * (Width * kRowBytes);
        multiply_block<Element, Width, Tiles>(sums, weights + block * block_bytes, activations, lane);
        if (stage.epsilon > 0.f) squares.add(activations);
        ptx::mbarrier_arrive(shared.slot_empty(slot.slot), kMathWarps);
      }
      sync_group(group);
      if (lane == 0) ptx::mbarrier_arrive(shared.chunk_empty(at.ring.barrier), 2);
      if (p.trace && thread == 0 && i == 0) p.trace[blockIdx.x * p.stage_count + s].loaded = ptx::globaltimer();
    }
    at.slots.pass(blocks, p.activation_slots);
    at.ring.pass(bytes);
  }
  if (stage.epsilon > 0.f) squares.leave(attend_shared(p, shared).scales[thread / 32]);
}

/// Runs `narrow_loop`, then gathers the sums in the layout of WGMMA.
template <int Tiles, class Element, int Width, class AnyParams>
CUSYNC_DEVICE void gathered_loop(Sums<Element, Width, 1, Sharing::kChunks>& to, AnyParams const& p, Shared const& shared,
                                 uint32_t s, uint32_t group, MathPosition& at) {
  float sums[Tiles][Width / 8][4] = {};
  narrow_loop<Element, Width, Tiles>(sums, p, shared, s, group, at);
  gather_sums<Element, Width, Tiles>(to, sums, shared, group);
}

}  // namespace cusync::kernels::decode
