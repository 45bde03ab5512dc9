// SPDX-License-Identifier: MIT OR Apache-2.0
// Delays of pseudo-random length, for tests: with them tiles become ready in another order in every run, and what a
// kernel gets right by luck alone goes wrong. They are in builds with CUSYNC_DELAYS only: a site that never sleeps still
// cost decode kernels 2 to 7 % of their time.
#pragma once
#include "abi/cusync.h"
#include "cusync/ptx.cuh"

namespace cusync::kernels {

/// What is delayed. Values are hashed: the sites of one tile are late independently of each other. Nothing is delayed in
/// the warps that multiply, which have no registers for it; the partial sums that they exchange are late with their items.
enum class DelayAt : uint32_t {
  kItem,   ///< the work item, before its waits
  kLoads,  ///< the loads behind a satisfied wait: whoever overwrites their source too early has more time for it
  kStore,  ///< a part of the output, before it is stored
  kPost,   ///< the post of what is stored
};

#ifndef CUSYNC_DELAYS
#define CUSYNC_DELAYS 0
#endif

/// Whether a request for these delays can be met.
inline bool has_delays(cusync_delays const& delays) { return CUSYNC_DELAYS || !delays.limit_ns; }

/// Sleeps for a length that depends on the seed, the SM, the run, and (stage, m, n). One thread, or a converged warp
/// whose lanes agree. The limit is halved up to seven times, so that most delays are short and some are long.
CUSYNC_DEVICE void delay(cusync_delays const& delays, DelayAt at, uint32_t run, uint32_t stage, uint32_t m, uint32_t n) {
#if CUSYNC_DELAYS
  if (!delays.limit_ns) return;
  // A sum of multiples of odd constants, then a finaliser: every bit depends on every word, in few registers.
  uint32_t hash = delays.seed + run * 0x9e3779b1u + (ptx::smid() * 8 + uint32_t(at)) * 0x85ebca77u +
                  stage * 0xc2b2ae3du + m * 0x27d4eb2fu + n * 0x165667b1u;
  hash = (hash ^ (hash >> 15)) * 0x2c1b3c6du;
  hash = (hash ^ (hash >> 12)) * 0x297a2d39u;
  hash ^= hash >> 15;
  ptx::nanosleep((hash >> 3) % (delays.limit_ns >> (hash & 7) | 1));
#endif
}

/// In a kernel that counts no runs: the same site is late by another time in each.
CUSYNC_DEVICE void delay_at_any_time(cusync_delays const& delays, DelayAt at, uint32_t m, uint32_t n) {
  if (CUSYNC_DELAYS && delays.limit_ns) delay(delays, at, uint32_t(ptx::globaltimer()), 0, m, n);
}

}  // namespace cusync::kernels
