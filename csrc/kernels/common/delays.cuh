// SPDX-License-Identifier: MIT OR Apache-2.0
// Pseudo-random delays for tests: they change the order in which tiles become ready in every run, and so expose code
// that is correct only by luck. Only in builds with CUSYNC_DELAYS: even sites that never sleep cost decode kernels 2 to
// 7 % of their time.
#pragma once
#include "abi/cusync.h"
#include "cusync/ptx.cuh"

namespace cusync::kernels {

/// Delay sites. The value enters the hash, so the sites of one tile are delayed independently. Math warps have no
/// delays because they have no registers to spare; the partial sums they exchange are delayed with their items.
enum class DelayAt : uint32_t {
  kItem,   ///< the work item, before its waits
  kLoads,  ///< the loads behind a satisfied wait: leaves more time for a premature overwrite of their source
  kStore,  ///< a part of the output, before it is stored
  kPost,   ///< the post of stored data
};

#ifndef CUSYNC_DELAYS
#define CUSYNC_DELAYS 0
#endif

/// Whether this build supports the requested delays.
inline bool has_delays(cusync_delays const& delays) { return CUSYNC_DELAYS || !delays.limit_ns; }

/// Sleeps for a time that depends on the seed, the SM, the run, and (stage, m, n). Called by one thread, or by a
/// converged warp with equal arguments. The limit is halved up to seven times, so most delays are short and some are
/// long.
CUSYNC_DEVICE void delay(cusync_delays const& delays, DelayAt at, uint32_t run, uint32_t stage, uint32_t m, uint32_t n) {
#if CUSYNC_DELAYS
  if (!delays.limit_ns) return;
  // A sum of multiples of odd constants, then a finalizer: every bit depends on every word, in few registers.
  uint32_t hash = delays.seed + run * 0x9e3779b1u + (ptx::smid() * 8 + uint32_t(at)) * 0x85ebca77u +
                  stage * 0xc2b2ae3du + m * 0x27d4eb2fu + n * 0x165667b1u;
  hash = (hash ^ (hash >> 15)) * 0x2c1b3c6du;
  hash = (hash ^ (hash >> 12)) * 0x297a2d39u;
  hash ^= hash >> 15;
  ptx::nanosleep((hash >> 3) % (delays.limit_ns >> (hash & 7) | 1));
#endif
}

/// For kernels without run numbers: the same site is delayed differently in each run.
CUSYNC_DEVICE void delay_at_any_time(cusync_delays const& delays, DelayAt at, uint32_t m, uint32_t n) {
  if (CUSYNC_DELAYS && delays.limit_ns) delay(delays, at, uint32_t(ptx::globaltimer()), 0, m, n);
}

}  // namespace cusync::kernels
