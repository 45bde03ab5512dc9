// SPDX-License-Identifier: MIT OR Apache-2.0
// The end of a stage: the two warpgroups' sums are added, finished in registers, stored, and posted.
#pragma once
#include "activation.cuh"
#include "decode_sm90_mma.cuh"

namespace cusync::kernels::decode {

/// A unit is what one thread holds of a 64-row by 8-token block: rows r and r + 8, two tokens each, in this order:
/// (r, t), (r, t + 1), (r + 8, t), (r + 8, t + 1). Units are dealt to the two warpgroups in turn; each hands the other
/// one's over through shared memory.
template <class Element, int Width, int RowTiles>
class Epilogue {
 public:
  static constexpr uint32_t kUnits = RowTiles * Width / 8;
  static constexpr uint32_t kGiven = exchange_units(kUnits), kPassUnits = 2 * kGiven;

  CUSYNC_DEVICE Epilogue(Params const& p, Shared const& shared, uint32_t s, uint32_t group)
      : p_(p), stage_(p.stages[s]), share_(shared.share(s)), exchange_(shared.exchange()), group_(group) {
    // Loaded before the main loop, so that nothing waits for it at the end.
    Element const* const from = static_cast<Element const*>(stage_.bias);
#pragma unroll
    for (int r = 0; r < RowTiles; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t const feature = row(r) + 8 * h;
        bias_[r][h] = from && feature < share_.count ? float(from[share_.first + feature]) : 0.f;
      }
  }

  /// Adds, finishes and stores. All math threads.
  CUSYNC_DEVICE void finish(Sums<Element, Width, RowTiles>& sums) const {
#pragma unroll
    for (uint32_t first = 0; first < kUnits; first += kPassUnits) {
      if (first) ptx::bar_sync(1, kMathThreads);  // the exchange buffer is read
      if (group_ == 0)
        pass<0>(sums, first);
      else
        pass<1>(sums, first);
    }
  }

 private:
  /// The thread's row in row tile `r`; the other one is 8 below.
  CUSYNC_DEVICE static uint32_t row(uint32_t r) { return r * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }

  template <int Group>
  CUSYNC_DEVICE void pass(Sums<Element, Width, RowTiles>& sums, uint32_t first) const {
    uint32_t const thread = threadIdx.x % 128;
    float4* const given = exchange_ + (1 - Group) * kGiven * 128 + thread;
    float4 const* const taken = exchange_ + Group * kGiven * 128 + thread;
#pragma unroll
    for (uint32_t i = 0; i < kGiven; ++i) {
      uint32_t const u = first + 2 * i + 1 - Group;
      if (u < kUnits) {
        float const* const v = &sums.v[u / (Width / 8)][u % (Width / 8) * 4];
        given[i * 128] = make_float4(v[0], v[1], v[2], v[3]);
      }
    }
    ptx::bar_sync(1, kMathThreads);
#pragma unroll
    for (uint32_t i = 0; i < kGiven; ++i) {
      uint32_t const u = first + 2 * i + Group;
      if (u < kUnits) {
        uint32_t const r = u / (Width / 8), block = u % (Width / 8);
        float const* const v = &sums.v[r][block * 4];
        float4 const other = taken[i * 128];
        float const total[4] = {v[0] + other.x, v[1] + other.y, v[2] + other.z, v[3] + other.w};
        store(total, r, block * 8 + threadIdx.x % 4 * 2);
      }
    }
  }

  CUSYNC_DEVICE void store(float const (&v)[4], uint32_t r, uint32_t token) const {
    if (stage_.gated) {
      uint32_t const feature = row(r) / 16 * 8 + threadIdx.x % 32 / 4;
#pragma unroll
      for (uint32_t t = 0; t < 2; ++t) put(silu(v[t]) * v[2 + t], feature, token + t);
    } else {
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h)
#pragma unroll
        for (uint32_t t = 0; t < 2; ++t)
          put(activate(stage_.activation, v[2 * h + t] + bias_[r][h]), row(r) + 8 * h, token + t);
    }
  }

  CUSYNC_DEVICE void put(float value, uint32_t feature, uint32_t token) const {
    if (feature >= share_.count || token >= p_.m) return;
    uint64_t const at = uint64_t(token) * stage_.features + share_.first + feature;
    if (stage_.residual) value += float(static_cast<Element const*>(stage_.residual)[at]);
    static_cast<Element*>(stage_.d)[at] = Element(value);
  }

  Params const& p_;
  Stage const& stage_;
  Share const& share_;
  float4* exchange_;
  uint32_t group_;
  float bias_[RowTiles][2];
};

/// After all stores of the stage: one post to every 64-wide column tile that this worker owns some of. All math threads.
CUSYNC_DEVICE void post_stage(Stage const& stage, Share const& share) {
  // Also keeps the next stage from overwriting the exchange buffer while it is read.
  ptx::bar_sync(1, kMathThreads);
  if (!stage.posts || !share.count) return;
  uint32_t const tile = share.first / kBlock + threadIdx.x;
  if (tile <= (share.first + share.count - 1) / kBlock) post(stage.posts, tile);
}

}  // namespace cusync::kernels::decode
