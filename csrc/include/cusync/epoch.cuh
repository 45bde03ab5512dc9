// SPDX-License-Identifier: MIT OR Apache-2.0
// Epochs and work distribution from one counter in device memory. A kernel learns its run number without a host counter
// among its parameters, so eager launches and graph replays mix freely. The counter is zeroed once, when the pipeline
// is created, and never reset. Runs of one kernel must not overlap; stream order guarantees that.
#pragma once
#include "cusync/ptx.cuh"

namespace cusync {

/// One unit of work: tile number `index` of the stage's order, in run number `epoch`.
struct Ticket {
  uint32_t index;
  uint32_t epoch;
  bool valid;  ///< false: no tiles are left, the CTA exits
};

/// Dynamic distribution: CTAs that start early take more tiles. Every CTA draws until its ticket is invalid, so one run
/// draws exactly tiles + CTAs tickets, and a ticket determines its run. One thread per CTA draws.
class TicketSchedule {
 public:
  CUSYNC_DEVICE TicketSchedule(unsigned long long* counter, uint32_t tiles, uint32_t ctas)
      : counter_(counter), tiles_(tiles), per_run_(uint64_t(tiles) + ctas) {}

  CUSYNC_DEVICE Ticket next() {
    unsigned long long const ticket = ptx::atom_relaxed_gpu_add(counter_, 1);
    if (!started_) {
      unsigned long long const run = ticket / per_run_;
      first_ = run * per_run_;
      epoch_ = uint32_t(run);
      started_ = true;
    }
    uint32_t const index = uint32_t(ticket - first_);
    return {index, epoch_, index < tiles_};
  }

 private:
  unsigned long long* counter_;
  uint32_t tiles_;
  unsigned long long per_run_;
  unsigned long long first_ = 0;
  uint32_t epoch_ = 0;
  bool started_ = false;
};

/// Static distribution: tiles cta, cta + ctas, ... The CTA draws all its tickets at once, so the counter advances as
/// under TicketSchedule, and both kinds of schedule may alternate on one counter.
class StaticSchedule {
 public:
  CUSYNC_DEVICE StaticSchedule(unsigned long long* counter, uint32_t tiles, uint32_t ctas, uint32_t cta)
      : tiles_(tiles), ctas_(ctas), next_(cta) {
    uint32_t const mine = cta < tiles ? (tiles - cta - 1) / ctas + 1 : 0;
    epoch_ = uint32_t(ptx::atom_relaxed_gpu_add(counter, mine + 1ull) / (uint64_t(tiles) + ctas));
  }

  CUSYNC_DEVICE Ticket next() {
    Ticket const ticket{next_, epoch_, next_ < tiles_};
    next_ += ctas_;
    return ticket;
  }

 private:
  uint32_t tiles_, ctas_, next_, epoch_;
};

/// The epoch of a kernel without a schedule. One thread of each CTA calls it, once.
CUSYNC_DEVICE uint32_t draw_epoch(unsigned long long* counter, uint32_t ctas) {
  return uint32_t(ptx::atom_relaxed_gpu_add(counter, 1) / ctas);
}

/// draw_epoch without an atomic: one word per CTA, accessed only by that CTA.
CUSYNC_DEVICE uint32_t next_epoch_of_cta(uint32_t* words, uint32_t cta) { return words[cta]++; }

}  // namespace cusync
