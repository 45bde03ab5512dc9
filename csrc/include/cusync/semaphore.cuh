// SPDX-License-Identifier: MIT OR Apache-2.0
// Waiting for and posting to one semaphore slot. Every wait is bounded: on timeout it writes a report, so that the host
// can name the edge, and traps. No wait hangs forever.
#pragma once
#include "cusync/policy.hpp"
#include "cusync/ptx.cuh"

namespace cusync {

inline constexpr unsigned long long kDefaultTimeoutNs = 1'000'000'000ull;

/// Where late waits are reported, and the timeout.
struct Watch {
  cusync_report* report;          ///< device pointer to a pinned host record; NULL: trap without a report
  unsigned long long timeout_ns;  ///< timeout of one wait; 0: kDefaultTimeoutNs
  uint32_t stage;                 ///< plan index of the waiting stage
};

/// The site of a wait, for the report.
struct WaitSite {
  uint32_t edge, tile_m, tile_n, k_block;
};

/// How data is read after the wait.
enum class ReadBy {
  kLoads,  ///< ordinary loads or cp.async
  kTma,    ///< bulk copies: a proxy fence follows the acquire
};

/// Orders reads after a completed acquire. Called by the acquiring thread.
template <ReadBy By>
CUSYNC_DEVICE void order_reads() {
  if constexpr (By == ReadBy::kTma) {
#if CUSYNC_HAS_SM90
    ptx::fence_proxy_async_global();
#else
    static_assert(By != ReadBy::kTma, "TMA reads need sm_90");
#endif
  }
}

/// Fills the report, once per record, and traps. Inlined like everything here: with a call inside a kernel ptxas
/// serializes the kernel's WGMMA instructions.
CUSYNC_DEVICE void report_and_trap(Watch const& watch, WaitSite const& site, uint32_t slot, uint32_t have,
                                   uint32_t want) {
  if (cusync_report* r = watch.report) {
    uint32_t was = ptx::atom_acq_rel_sys_cas(&r->claimed, 0, 1);
    // A fatal report overwrites a non-fatal one.
    if (was == 2 && r->kind != CUSYNC_REPORT_LATE && ptx::atom_acq_rel_sys_cas(&r->claimed, 2, 1) == 2) was = 0;
    if (was == 0) {
      r->kind = CUSYNC_REPORT_LATE;
      r->edge = site.edge;
      r->stage = watch.stage;
      r->tile_m = site.tile_m;
      r->tile_n = site.tile_n;
      r->k_block = site.k_block;
      r->slot = slot;
      r->have = have;
      r->want = want;
      r->sm = ptx::smid();
      ptx::fence_acq_rel_sys();
      ptx::st_release_sys(&r->claimed, 2);
      ptx::fence_acq_rel_sys();
    } else {
      // Another waiter is reporting. A trap ends the whole grid, so let the other finish first.
      for (uint32_t i = 0; i < 1000 && ptx::ld_acquire_sys(&r->claimed) != 2; ++i) ptx::nanosleep(1000);
    }
  }
  ptx::trap();
}

/// Fills the report if it is still empty, and continues.
CUSYNC_DEVICE void report_only(cusync_report* r, uint32_t kind, uint32_t tile_m, uint32_t tile_n, uint32_t have,
                               uint32_t want) {
  if (!r || ptx::atom_acq_rel_sys_cas(&r->claimed, 0, 1) != 0) return;
  r->kind = kind;
  r->tile_m = tile_m;
  r->tile_n = tile_n;
  r->have = have;
  r->want = want;
  r->sm = ptx::smid();
  ptx::st_release_sys(&r->claimed, 2);
}

/// Returns once `semaphores[slot]` has reached `want`. Called by one thread; the writes before the posts are then
/// visible to it, and to other threads after a barrier. Its first poll is an acquire too.
CUSYNC_DEVICE void wait_reached(uint32_t const* semaphores, uint32_t slot, uint32_t want, WaitSite const& site,
                                Watch const& watch) {
  uint32_t have = ptx::ld_acquire_gpu(semaphores + slot);
  if (reached(have, want)) return;
  unsigned long long const limit = watch.timeout_ns ? watch.timeout_ns : kDefaultTimeoutNs;
  unsigned long long const begin = ptx::globaltimer();
  uint32_t pause = 16;
  do {
    // A poll takes about a microsecond, so short sleeps suffice; the clock is read once in 64 polls.
#pragma unroll 1
    for (uint32_t i = 0; i < 64; ++i) {
      ptx::nanosleep(pause);
      have = ptx::ld_acquire_gpu(semaphores + slot);
      if (reached(have, want)) return;
      if (pause < 64) pause *= 2;
    }
  } while (ptx::globaltimer() - begin < limit);
  report_and_trap(watch, site, slot, have, want);
}

/// Posts to a slot. Called by one thread, after a barrier over the threads that made the stores.
CUSYNC_DEVICE void post(uint32_t* semaphores, uint32_t slot, uint32_t value = 1) {
  ptx::red_release_gpu_add(semaphores + slot, value);
}

}  // namespace cusync
