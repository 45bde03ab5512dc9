// SPDX-License-Identifier: MIT OR Apache-2.0
// Epochs and work distribution from one counter in device memory, so that a kernel knows which run it belongs to
// without a host counter in its parameters: eager launches and graph replays mix freely. The counter is zeroed once,
// when the pipeline is made, and counts on for ever. Runs of one kernel must not overlap (stream order sees to it).
#pragma once
#include "cusync/ptx.cuh"

namespace cusync {

/// A piece of work: tile number `index` of the stage's order, in run number `epoch`.
struct Ticket {
  uint32_t index;
  uint32_t epoch;
  bool valid;  ///< false: no tile is left, the CTA ends
};

/// Tiles handed out by the counter: a CTA that starts early takes more. Every CTA draws until its ticket is not
/// valid, so one run draws exactly tiles + CTAs tickets, and a ticket tells its run. One thread of a CTA draws.
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

/// Tiles cta, cta + ctas, ...: the CTA draws all its tickets in one go, so the counter advances as under
/// TicketSchedule, and the two kinds of schedule may follow each other on one counter.
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

/// The epoch of a kernel without a schedule: one thread of each CTA calls it once.
CUSYNC_DEVICE uint32_t draw_epoch(unsigned long long* counter, uint32_t ctas) {
  return uint32_t(ptx::atom_relaxed_gpu_add(counter, 1) / ctas);
}

/// The same without an atomic: a word for each CTA, which only that CTA touches.
CUSYNC_DEVICE uint32_t next_epoch_of_cta(uint32_t* words, uint32_t cta) { return words[cta]++; }

}  // namespace cusync
