// SPDX-License-Identifier: MIT OR Apache-2.0
// The end of a stage: sums go through shared memory, where the two warpgroups' are added and rows become columns; then
// they are finished, stored and posted. Sums leave the registers by straight code, which is short; what is done with each
// of them is in a loop: this code runs once a stage, so fetching it costs as much as running it.
#pragma once
#include "activation.cuh"
#include "decode_sm90_mma.cuh"

namespace cusync::kernels::decode {

template <class Element, int Width, int Tiles, Sharing By>
class Epilogue {
 public:
  using Sum = Sums<Element, Width, Tiles, By>;

  CUSYNC_DEVICE Epilogue(Params const& p, Shared const& shared, uint32_t s, uint32_t group)
      : p_(p), stage_(p.stages[s]), share_(shared.share(s)), group_(group), staging_(shared.staging()) {}

  /// All math threads.
  CUSYNC_DEVICE void finish(Sum const& sums) const {
#pragma unroll
    for (uint32_t first = 0; first < Width; first += kTokens) {
      if (first >= p_.m) break;
      if (first) ptx::bar_sync(1, kMathThreads);  // the tokens before are stored
      if constexpr (By == Sharing::kChunks) {
        if (group_ == 1) stage<false>(sums, first / 8);
        ptx::bar_sync(1, kMathThreads);
        if (group_ == 0) stage<true>(sums, first / 8);
      } else {
        stage<false>(sums, first / 8);
      }
      ptx::bar_sync(1, kMathThreads);
      if (stage_.gated)
        store<true>(first);
      else
        store<false>(first);
    }
  }

 private:
  static constexpr uint32_t kTokens = staged_tokens(Width);

  /// Puts (or adds) this thread's sums of the staged tokens, from block `block` of 8 tokens on, to their places: token by
  /// token, rows of a token one after the other. The lanes of a warp fall into different banks.
  template <bool Add>
  CUSYNC_DEVICE void stage(Sum const& sums, uint32_t block) const {
    uint32_t const lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4, pitch = stage_.staging_pitch;
    auto const put = [](float* to, float value) { *to = Add ? *to + value : value; };
#pragma unroll
    for (uint32_t b = 0; b < kTokens / 8; ++b)
#pragma unroll
      for (uint32_t i = 0; i < Tiles; ++i) {
        float const* const v = &sums.v[i][(block + b) * 4];
        float* const to = staging_ + (b * 8 + lane % 4 * 2) * pitch + Sum::row_tile(i, group_) * 64 + row;
        put(to, v[0]), put(to + pitch, v[1]), put(to + 8, v[2]), put(to + pitch + 8, v[3]);
      }
  }

  /// Finishes and stores the staged tokens, the first of which is `first`: a warp takes a token, its lanes neighbouring
  /// features.
  template <bool Gated>
  CUSYNC_DEVICE void store(uint32_t first) const {
    uint32_t const end = min_u32(first + kTokens, p_.m), lane = threadIdx.x % 32;
    auto const* const bias = static_cast<Element const*>(stage_.bias);
    auto const* const residual = static_cast<Element const*>(stage_.residual);
#pragma unroll 1
    for (uint32_t token = first + threadIdx.x / 32; token < end; token += kMathWarps) {
      float const* const from = staging_ + (token - first) * stage_.staging_pitch;
      uint64_t const at = uint64_t(token) * stage_.features + share_.first;
#pragma unroll 1
      for (uint32_t feature = lane; feature < share_.count; feature += 32) {
        float value;
        if constexpr (Gated) {
          // Groups of gate and up rows; those of the last group may be fewer than 8 and 8.
          uint32_t const group = feature / 8 * 8, gate = group + feature;
          value = silu(from[gate]) * from[gate + min_u32(share_.count - group, 8)];
        } else {
          value = activate(stage_.activation, from[feature] + (bias ? float(bias[share_.first + feature]) : 0.f));
        }
        if (residual) value += float(residual[at + feature]);
        static_cast<Element*>(stage_.d)[at + feature] = Element(value);
      }
    }
  }

  Params const& p_;
  Stage const& stage_;
  Share const& share_;
  uint32_t group_;
  float* staging_;
};

/// After all stores of the stage: one post to every 64-wide column tile that this worker owns some of. All math threads.
CUSYNC_DEVICE void post_stage(Params const& p, Stage const& stage, Share const& share) {
  // Also keeps the next stage from overwriting the staged sums while they are read.
  ptx::bar_sync(1, kMathThreads);
  if (!stage.posts || !share.count) return;
  uint32_t const tile = share.first / kBlock + threadIdx.x;
  if (tile > (share.first + share.count - 1) / kBlock) return;
  // The word counts on when the last activations are on their way; only the length of a delay depends on it.
  if (p.delays.limit_ns)
    delay(p.delays, DelayAt::kPost, ptx::ld_acquire_gpu(p.epochs + blockIdx.x), stage.index, blockIdx.x, 0);
  post(stage.posts, tile);
}

}  // namespace cusync::kernels::decode
