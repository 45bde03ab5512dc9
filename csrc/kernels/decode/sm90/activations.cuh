// SPDX-License-Identifier: MIT OR Apache-2.0
// The warps that bring activations: each takes every fourth 64-wide tile, waits until all workers that compute it have
// posted, and copies it, swizzled, into the second ring. cp.async and not TMA: TMA would queue behind the weights.
#pragma once
#include "kernels/decode/sm90/attend_load.cuh"

namespace cusync::kernels::decode {

/// One warp's walk over tiles and slots.
template <class AnyParams>
class ActivationLoader {
 public:
  CUSYNC_DEVICE ActivationLoader(AnyParams const& p, Shared const& shared, uint32_t warp, uint32_t width)
      : p_(p), shared_(shared), width_(width), lane_(threadIdx.x % 32), slot_(warp), next_(warp),
        epoch_(p.epochs[blockIdx.x]), segments_(p, shared, warp, epoch_) {}

  CUSYNC_DEVICE void run() {
#pragma unroll 1
    for (uint32_t s = 0; s < p_.stage_count; ++s) {
      Share const share = shared_.share(s);
      if (share.chunks) stage(s, share);
      if constexpr (AnyParams::kAttends) {
        if (p_.attend_of[s]) segments_.stage(s);
      }
    }
  }

  CUSYNC_DEVICE uint32_t epoch() const { return epoch_; }

 private:
  /// Tiles of one stage.
  CUSYNC_DEVICE void stage(uint32_t s, Share const& share) {
    Stage const& stage = p_.stages[s];
    uint32_t ready = stage.waits ? 0 : share.tiles;
    delay(p_.delays, DelayAt::kItem, epoch_, s, blockIdx.x, next_);
#pragma unroll 1
    for (; next_ < share.tiles; next_ += kLoadWarps) {
      if (next_ >= ready) {
        ready = await(s, share);
        delay(p_.delays, DelayAt::kLoads, epoch_, s, blockIdx.x, next_);
      }
      if (p_.trace && lane_ == 0 && next_ == 0)
        p_.trace[blockIdx.x * p_.stage_count + s].ready = ptx::globaltimer();
      // Now and then a warp falls behind the three others, so that slots are filled out of order.
      if (next_ / kLoadWarps % 4 == 3) delay(p_.delays, DelayAt::kLoads, epoch_, s, blockIdx.x, next_);
      copy(stage, share.tile(next_, stage.chunk_shift));
    }
    next_ -= share.tiles;
  }

  /// Waits for tile number `next_`; returns up to where this warp's tiles are known to be there. All lanes look, each at
  /// another tile; when the first one is missing, one lane alone goes on looking.
  CUSYNC_DEVICE uint32_t await(uint32_t s, Share const& share) {
    Stage const& stage = p_.stages[s];
    uint32_t const mine = next_ + lane_ * kLoadWarps;
    bool const exists = mine < share.tiles;
    uint32_t const tile = exists ? share.tile(mine, stage.chunk_shift) : 0;
    uint32_t posts = owners_of_tile(tile, stage.produced_features, p_.workers.value), slot = tile;
    if constexpr (AnyParams::kAttends) {
      Produced const produced = p_.produced[s];
      if (produced.posts) posts = produced.posts, slot = tile / produced.tiles;
    }
    uint32_t const want = exists ? wait_value(epoch_, posts) : 0;
    bool const there = !exists || reached(ptx::ld_acquire_gpu(stage.waits + stage.wait_base + slot), want);
    uint32_t const missing = __ballot_sync(~0u, !there);
    uint32_t known = missing ? next_ + (__ffs(int(missing)) - 1) * kLoadWarps : next_ + 32 * kLoadWarps;
    if (missing & 1) {
      if (lane_ == 0) {
        Watch const watch{p_.report, p_.timeout_ns, stage.index};
        wait_reached(stage.waits, stage.wait_base + slot, want, {stage.edge, 0, blockIdx.x, tile}, watch);
      }
      known = next_ + kLoadWarps;
    }
    __syncwarp();
    return known;
  }

  /// Tile `tile` of `a`: tokens by 64 elements, zeros past k.
  CUSYNC_DEVICE void copy(Stage const& stage, uint32_t tile) {
    ptx::mbarrier_wait_parity_or_trap(shared_.slot_empty(slot_), parity_ ^ 1, p_.limit_ns);
    uint32_t const to = uint32_t(__cvta_generic_to_shared(shared_.slots() + slot_ * width_ * kRowBytes));
    uint32_t const piece = lane_ % 8, k = tile * kBlock + piece * 8;
    bool const inside = k < stage.k;
    auto const* from = static_cast<char const*>(stage.a) + (uint64_t(lane_ / 8) * stage.k + (inside ? k : 0)) * 2;
    uint64_t const step = uint64_t(stage.k) * 8;  // four tokens, two bytes an element
#pragma unroll 4
    for (uint32_t token = lane_ / 8; token < p_.m; token += 4, from += step)
      ptx::cp_async_16_or_zero(to + token * kRowBytes + ((piece ^ (token % 8)) * 16), from, inside);
    ptx::cp_async_mbarrier_arrive_noinc(shared_.slot_full(slot_));
    slot_ += kLoadWarps;
    if (slot_ >= p_.activation_slots) slot_ -= p_.activation_slots, parity_ ^= 1;
  }

  AnyParams const& p_;
  Shared const& shared_;
  uint32_t width_, lane_, slot_;
  uint32_t next_;  ///< this warp's next tile of the stage, in order
  uint32_t parity_ = 0, epoch_;
  SegmentLoaderOf<AnyParams> segments_;
};

/// What each warp of the four runs.
template <class AnyParams>
CUSYNC_DEVICE void load_activations(AnyParams const& p, Shared const& shared, uint32_t warp, uint32_t width) {
  ptx::griddepcontrol_wait();
  ActivationLoader<AnyParams> loader(p, shared, warp, width);
  loader.run();
  // All four have read the epoch by now; only this CTA touches its word.
  ptx::bar_sync(2, kLoadThreads);
  if (warp == 0 && threadIdx.x % 32 == 0) p.epochs[blockIdx.x] = loader.epoch() + 1;
}

}  // namespace cusync::kernels::decode
