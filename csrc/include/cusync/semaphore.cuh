// SPDX-License-Identifier: MIT OR Apache-2.0
// Waiting for and posting to one semaphore slot. Every wait is bounded: when its time is up it writes a report and
// ends the kernel, so that the host can name the edge. Waiting for ever is never an outcome.
#pragma once
#include "cusync/policy.hpp"
#include "cusync/ptx.cuh"

namespace cusync {

inline constexpr unsigned long long kDefaultTimeoutNs = 1'000'000'000ull;

/// Where a late wait is reported, and when it counts as late.
struct Watch {
  cusync_report* report;          ///< device pointer of a pinned host record; NULL: only end the kernel
  unsigned long long timeout_ns;  ///< of one wait; 0: kDefaultTimeoutNs
  uint32_t stage;                 ///< the waiting stage's index in the plan
};

/// What a wait is for, as the report will say.
struct WaitSite {
  uint32_t edge, tile_m, tile_n, k_block;
};

/// How the data behind a slot is read after the wait.
enum class ReadBy {
  kLoads,  ///< ordinary loads or cp.async
  kTma,    ///< bulk copies: a proxy fence follows the acquire
};

/// Orders reads after an acquire that has been satisfied. By the thread that acquired.
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

/// Fills the report, once per record, and ends the kernel. Inlined like everything here: a call inside a kernel
/// makes ptxas serialise its WGMMA instructions.
CUSYNC_DEVICE void report_and_trap(Watch const& watch, WaitSite const& site, uint32_t slot, uint32_t have,
                                   uint32_t want) {
  if (cusync_report* r = watch.report) {
    uint32_t was = ptx::atom_acq_rel_sys_cas(&r->claimed, 0, 1);
    // What a run goes on after gives way to what ends it.
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
      // Another waiter reports. A trap ends the whole grid, so give it the time to finish.
      for (uint32_t i = 0; i < 1000 && ptx::ld_acquire_sys(&r->claimed) != 2; ++i) ptx::nanosleep(1000);
    }
  }
  ptx::trap();
}

/// Fills the report, where it is still empty, and goes on.
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

/// Returns once `semaphores[slot]` has reached `want`. One thread; the writes behind the posts are then visible to
/// it, and through a barrier to others. Its first look is an acquire too.
CUSYNC_DEVICE void wait_reached(uint32_t const* semaphores, uint32_t slot, uint32_t want, WaitSite const& site,
                                Watch const& watch) {
  uint32_t have = ptx::ld_acquire_gpu(semaphores + slot);
  if (reached(have, want)) return;
  unsigned long long const limit = watch.timeout_ns ? watch.timeout_ns : kDefaultTimeoutNs;
  unsigned long long const begin = ptx::globaltimer();
  uint32_t pause = 16;
  do {
    // A look costs about a microsecond, so short sleeps do; the clock is read once in 64.
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

/// Posts to a slot. One thread, after a barrier over the threads whose stores it stands for.
CUSYNC_DEVICE void post(uint32_t* semaphores, uint32_t slot, uint32_t value = 1) {
  ptx::red_release_gpu_add(semaphores + slot, value);
}

}  // namespace cusync
