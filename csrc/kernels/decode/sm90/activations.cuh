// SPDX-License-Identifier: MIT OR Apache-2.0
// The warps that load activations. A loader is a warp or a quarter of one. The loaders take the 64-wide tiles in turn:
// each waits until all workers that compute its tile have posted, and copies it, swizzled, into the second ring: with
// few tokens by cp.async, which does not queue behind the weights; with more by TMA, which takes one instruction of one
// thread per tile.
#pragma once
#include "kernels/common/activation.cuh"
#include "kernels/decode/sm90/attend_load.cuh"
#include "kernels/decode/sm90/jobs.cuh"

namespace cusync::kernels::decode {

/// One loader of `Lanes` lanes, stepping through tiles and slots. Loaders of a warp stay together.
template <class AnyParams, uint32_t Lanes>
class ActivationLoader {
 public:
  static constexpr uint32_t kLoaders = kLoadThreads / Lanes;  ///< divides the slot count: each loader has its own slots

  CUSYNC_DEVICE ActivationLoader(AnyParams const& p, Shared const& shared, uint32_t warp, uint32_t width)
      : p_(p), shared_(shared), width_(width), lane_(threadIdx.x % Lanes),
        slot_(warp * (32 / Lanes) + threadIdx.x % 32 / Lanes), next_(slot_), epoch_(p.epochs[blockIdx.x]),
        segments_(p, shared, warp, epoch_) {
    if constexpr (AnyParams::kAttends) {
      if (warp == 0 && threadIdx.x % 32 == 0) attend_shared(p, shared).epoch = epoch_, ptx::mbarrier_arrive(&attend_shared(p, shared).begun);
    }
  }

  CUSYNC_DEVICE void run(Run<AnyParams> const& current) {
    run_ = current;
#pragma unroll 1
    for (uint32_t s = 0; s < p_.stage_count; ++s) {
      Share const share = shared_.share(s);
      if (share.chunks) stage(s, share);
      if constexpr (AnyParams::kAttends) {
        if (p_.attend_of[s]) segments_.stage(s);
      }
    }
    ++epoch_;
  }

  CUSYNC_DEVICE uint32_t epoch() const { return epoch_; }

 private:
  /// Loads the tiles of one stage.
  CUSYNC_DEVICE void stage(uint32_t s, Share const& share) {
    Stage const& stage = p_.stages[s];
    uint32_t ready = stage.waits ? 0 : share.tiles;
    delay(p_.delays, DelayAt::kItem, epoch_, s, blockIdx.x, next_);
#pragma unroll 1
    while (any(next_ < share.tiles)) {
      if (any(next_ < share.tiles && next_ >= ready)) {
        ready = await(s, share);
        if constexpr (AnyParams::kMaps) ptx::fence_proxy_async_global();
        delay(p_.delays, DelayAt::kLoads, epoch_, s, blockIdx.x, next_);
      }
      if (p_.trace && lane_ == 0 && next_ == 0)
        p_.trace[blockIdx.x * p_.stage_count + s].ready = ptx::globaltimer();
      // Occasionally delay one warp more than the other three, so that slots are filled out of order.
      if (next_ / kLoaders % 4 == 3) delay(p_.delays, DelayAt::kLoads, epoch_, s, blockIdx.x, next_);
      if (Lanes < 32 && next_ >= share.tiles) continue;  // other loaders of the warp have one more tile
      copy(s, tile_of(share, next_, stage.chunk_shift));
      next_ += kLoaders;
    }
    next_ -= share.tiles;
  }

  /// k-block of its i-th tile.
  CUSYNC_DEVICE static uint32_t tile_of(Share const& share, uint32_t i, uint32_t shift) {
    return share.tile(i, shift) + (AnyParams::kAttends ? share.begin : 0);
  }

  /// Whether `holds` is true for any loader of the warp.
  CUSYNC_DEVICE static bool any(bool holds) { return Lanes == 32 ? holds : __any_sync(~0u, holds); }

  /// Waits for tile number `next_`; returns the end of this loader's tiles that are known to be ready. Each lane checks
  /// a different tile; if the first one is missing, a single lane keeps polling.
  CUSYNC_DEVICE uint32_t await(uint32_t s, Share const& share) {
    Stage const& stage = p_.stages[s];
    uint32_t const mine = next_ + lane_ * kLoaders;
    bool const exists = mine < share.tiles;
    uint32_t const tile = exists ? tile_of(share, mine, stage.chunk_shift) : 0;
    uint32_t posts = stage.posts_of(tile), slot = tile, last = tile;
    if constexpr (AnyParams::kAttends) {
      Produced const produced = p_.produced[s];
      if (produced.posts) posts = produced.posts, slot = produced.first(tile), last = produced.last(tile, stage.k);
    }
    uint32_t const want = exists ? wait_value(epoch_, posts) : 0;
    uint32_t const have = exists ? ptx::ld_acquire_gpu(stage.waits + stage.wait_base + slot) : 0;
    bool there = !exists || reached(have, want);
    NoteOf const where{stage.index, 0, stage.part_of(blockIdx.x), 0};
    if (exists && there) note(p_.notes, CUSYNC_EVENT_WAIT, where, slot, have);
    if constexpr (AnyParams::kAttends) {
      // A tile may have columns of two heads.
      if (rarely(exists && there && last != slot)) {
        uint32_t const other = ptx::ld_acquire_gpu(stage.waits + stage.wait_base + last);
        there = reached(other, want);
        if (there) note(p_.notes, CUSYNC_EVENT_WAIT, where, last, other);
      }
    }
    uint32_t missing = __ballot_sync(~0u, !there);
    if constexpr (Lanes < 32) missing = missing >> (threadIdx.x % 32 - lane_) & ((1u << Lanes) - 1);
    uint32_t known = missing ? next_ + (__ffs(int(missing)) - 1) * kLoaders : next_ + Lanes * kLoaders;
    if (missing & 1) {
      if (lane_ == 0) {
        Watch const watch{p_.report, p_.timeout_ns, stage.index};
#pragma unroll 1
        for (; slot <= last; ++slot) {
          wait_reached(stage.waits, stage.wait_base + slot, want, {stage.edge, 0, stage.part_of(blockIdx.x), tile}, watch);
          note(p_.notes, CUSYNC_EVENT_WAIT, where, slot, want);
        }
      }
      known = next_ + kLoaders;
    }
    __syncwarp();
    return known;
  }

  /// Tile `tile` of `a`: tokens by 64 elements, zeros beyond k.
  CUSYNC_DEVICE void copy(uint32_t s, uint32_t tile) {
    Stage const& stage = p_.stages[s];
    ptx::mbarrier_wait_parity_or_trap(shared_.slot_empty(slot_), parity_ ^ 1, p_.limit_ns);
    if (lane_ == 0 && stage.waits)
      note(p_.notes, CUSYNC_EVENT_LOAD, {stage.index, 0, stage.part_of(blockIdx.x), 0}, CUSYNC_OPERAND_A, tile);
    if constexpr (AnyParams::kMaps) {
      if (lane_ == 0) {
        ptx::mbarrier_arrive_expect_tx(shared_.slot_full(slot_), p_.m * kRowBytes);
        cute::SM90_TMA_LOAD_2D::copy(&p_.activations[s], shared_.slot_full(slot_), uint64_t(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                     shared_.slots() + slot_ * width_ * kRowBytes, int32_t(tile * kBlock), 0);
      }
      return pass();
    }
    uint32_t const to = uint32_t(__cvta_generic_to_shared(shared_.slots() + slot_ * width_ * kRowBytes));
    uint32_t const piece = lane_ % 8, k = tile * kBlock + piece * 8;
    bool const inside = k < stage.k;
    auto const* from = static_cast<char const*>(run_.tensors(p_, s).a) + (uint64_t(lane_ / 8) * stage.k + (inside ? k : 0)) * 2;
    constexpr uint32_t kTokens = Lanes / 8;  // at once
    uint64_t const step = uint64_t(stage.k) * kTokens * 2;
    uint32_t const tokens = run_.m(p_);
#pragma unroll 4
    for (uint32_t token = lane_ / 8; token < tokens; token += kTokens, from += step)
      ptx::cp_async_16_or_zero(to + token * kRowBytes + ((piece ^ (token % 8)) * 16), from, inside);
    ptx::cp_async_mbarrier_arrive_noinc(shared_.slot_full(slot_));
    pass();
  }

  CUSYNC_DEVICE void pass() {
    slot_ += kLoaders;
    if (slot_ >= p_.activation_slots) slot_ -= p_.activation_slots, parity_ ^= 1;
  }

  AnyParams const& p_;
  Shared const& shared_;
  uint32_t width_, lane_, slot_;
  uint32_t next_;  ///< this loader's next tile of the stage, in order
  uint32_t parity_ = 0, epoch_;
  Run<AnyParams> run_{};
  SegmentLoaderOf<AnyParams> segments_;
};

/// The code of each of the four warps.
template <uint32_t Lanes, class AnyParams>
CUSYNC_DEVICE void load_activations(AnyParams const& p, Shared const& shared, uint32_t warp, uint32_t width) {
  ptx::griddepcontrol_wait();
  ActivationLoader<AnyParams, Lanes> loader(p, shared, warp, width);
  // Input activations may have been written by the preceding kernel.
  if constexpr (AnyParams::kMaps) ptx::fence_proxy_async_global();
  if constexpr (AnyParams::kSession) {
    Jobs jobs(p, shared);
#pragma unroll 1
    while (jobs.next_behind_the_last(warp)) loader.run(jobs.run());
  } else {
    loader.run(Run<AnyParams>{});
  }
  // All four warps have read the epoch by now; only this CTA accesses its word.
  ptx::bar_sync(2, kLoadThreads);
  if (warp == 0 && threadIdx.x % 32 == 0) p.epochs[blockIdx.x] = loader.epoch();
}

}  // namespace cusync::kernels::decode
