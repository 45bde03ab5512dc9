// SPDX-License-Identifier: MIT OR Apache-2.0
// The wait warp: polls the semaphores that guard operands A and B, and the residual of pixel tiles, ahead of the load
// warp, and publishes in a word of shared memory how far that warp may load. It is a separate warp because an acquire
// and a proxy fence wait for the bulk copies that their own thread has in flight: in the load warp every wait, satisfied
// or not, would drain the ring.
#pragma once
#include "cusync/edge.cuh"
#include "kernels/common/notes.cuh"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// Stands in for tensor sizes where only coordinates matter: tensor maps clip accesses outside the tensor.
inline constexpr int kAnySize = 1 << 30;

/// k-blocks [k_begin, k_end) of a tile, in run number `epoch`.
struct TileRange {
  uint32_t m, n, epoch, k_begin, k_end;
};

CUSYNC_DEVICE WaitContext wait_context(Coupling const& coupling, uint32_t stage, uint32_t epoch) {
  return {coupling.semaphores, epoch, {coupling.report, coupling.timeout_ns, stage}, coupling.post_weight};
}

/// The waits of a tile's loads.
struct LoadWaits {
  cusync_edge const* edges;
  uint32_t count;  ///< edges of operands read along k
  uint32_t stage;  ///< plan index of the stage, for reports
  uint32_t early;  ///< end of the edges [count, early) of the epilogue: among them, this warp waits for the residual
};

/// Records the slots of a box, after all of them have been waited for.
CUSYNC_DEVICE void note_box(Coupling const& coupling, cusync_edge const& edge, TileBox const& box, NoteOf const& where,
                            uint32_t epoch) {
#if CUSYNC_DELAYS
  for_each_slot(edge.policy, box, [&](uint32_t slot, uint32_t posts) {
    note(coupling.notes, CUSYNC_EVENT_WAIT, where, slot, wait_value(epoch, posts * coupling.post_weight));
  });
#endif
}

/// Waits for an edge that feeds the epilogue of a warpgroup, in one thread.
template <ReadBy By>
CUSYNC_DEVICE void wait_for_epilogue(Coupling const& coupling, cusync_edge const& edge, TileRange const& item,
                                     uint32_t stage, uint32_t group) {
  wait_for_tile<By>(edge, item.m, item.n, wait_context(coupling, stage, item.epoch));
  NoteOf const where{stage, item.m, item.n, item.k_begin};
  note_box(coupling, edge, producers_of(edge, item.m, item.n, 0), where, item.epoch);
  note(coupling.notes, CUSYNC_EVENT_LOAD, where, edge.operand, group);
}

/// The slot that a lane still waits for before its k-block.
struct Missing {
  uint32_t edge, slot, have, want;
  bool more;  ///< later slots have not been checked
};

/// Checks the slots that guard k-block k of a tile, up to the first one that is not reached. Returns true if all are
/// reached. Ignores edges waited for at the start of the tile.
CUSYNC_DEVICE bool look(Coupling const& coupling, LoadWaits const& waits, TileRange const& item, uint32_t k,
                        Missing& missing) {
  bool all = true;
  missing.more = false;
  for (uint32_t i = 0; i < waits.count; ++i) {
    cusync_edge const& edge = waits.edges[i];
    if (edge.wait_at == CUSYNC_WAIT_AT_START) continue;
    TileBox const box = wait_box(edge, item.m, item.n, k, k == item.k_begin, item.k_end);
    if (box.empty()) continue;
    for_each_slot(edge.policy, box, [&](uint32_t slot, uint32_t posts) {
      if (!all) {
        missing.more = true;
        return;
      }
      uint32_t const want = wait_value(item.epoch, posts * coupling.post_weight);
      uint32_t const have = ptx::ld_acquire_gpu(coupling.semaphores + slot);
      if (reached(have, want))
        return note(coupling.notes, CUSYNC_EVENT_WAIT, {waits.stage, item.m, item.n, item.k_begin}, slot, have);
      all = false;
      missing.edge = edge.id, missing.slot = slot, missing.have = have, missing.want = want;
    });
  }
  return all;
}

/// Calls f(edge, box, k) for the edges that are waited for at the start of a tile.
template <class F>
CUSYNC_DEVICE void for_each_at_start(LoadWaits const& waits, TileRange const& item, F&& f) {
#pragma unroll 1
  for (uint32_t i = 0; i < waits.early; ++i) {
    cusync_edge const& edge = waits.edges[i];
    if (i >= waits.count) {
      if (edge.operand == CUSYNC_OPERAND_RESIDUAL) f(edge, producers_of(edge, item.m, item.n, 0), 0u);
    } else if (edge.wait_at == CUSYNC_WAIT_AT_START) {
      f(edge, wait_box(edge, item.m, item.n, item.k_begin, true, item.k_end), item.k_begin);
    }
  }
}

/// Waits for these edges, in a converged warp. Each lane first finds its slot, then all lanes poll at once, so any
/// number of edges with at most 32 slots together costs one round trip.
CUSYNC_DEVICE void warp_wait_at_start(Coupling const& coupling, LoadWaits const& waits, TileRange const& item) {
  WaitContext const context = wait_context(coupling, waits.stage, item.epoch);
  uint32_t count = 0, own = 0, want = 0;
  WaitSite site{};
  bool some = false;
  auto const poll = [&] {
    if (some) wait_reached(context.semaphores, own, want, site, context.watch);
  };
  for_each_at_start(waits, item, [&](cusync_edge const& edge, TileBox const& box, uint32_t k) {
    if (box.empty()) return;
    for_each_slot(edge.policy, box, [&](uint32_t slot, uint32_t posts) {
      if (count++ % 32 != threadIdx.x % 32) return;
      poll();
      own = slot, want = wait_value(context.epoch, posts * context.post_weight), site = {edge.id, item.m, item.n, k}, some = true;
    });
  });
  if (!count) return;  // warp-uniform
  poll();
  order_reads<ReadBy::kTma>();
  __syncwarp();
}

/// Waits for the k-blocks of one tile's range in order, 32 at a time, one per lane of the warp. `done` counts the
/// k-blocks of earlier ranges; the word becomes done + i + 1 when k-blocks 0 to i of this range may be loaded.
/// `AtStart`: most edges are waited for at the start of a tile.
template <bool AtStart = false>
CUSYNC_DEVICE void wait_for_tile_operands(Coupling const& coupling, LoadWaits const& waits, TileRange const& item,
                                          uint32_t* ready, uint32_t done) {
  unsigned long long const limit = coupling.timeout_ns ? coupling.timeout_ns : kDefaultTimeoutNs;
  uint32_t const lane = threadIdx.x % 32;
  bool along_k = false;
  for (uint32_t i = 0; i < waits.count; ++i) along_k |= waits.edges[i].wait_at != CUSYNC_WAIT_AT_START;
  if constexpr (AtStart)
    warp_wait_at_start(coupling, waits, item);
  for_each_at_start(waits, item, [&](cusync_edge const& edge, TileBox const& box, uint32_t k) {
    if constexpr (!AtStart)
      warp_wait_for_k_block<ReadBy::kTma>(edge, item.m, item.n, k, true, item.k_end, wait_context(coupling, waits.stage, item.epoch));
    if (lane == 0) note_box(coupling, edge, box, {waits.stage, item.m, item.n, item.k_begin}, item.epoch);
  });
  if constexpr (AtStart)
    if (!along_k) {
      delay(coupling.delays, DelayAt::kLoads, item.epoch, waits.stage, item.m, item.n);
      if (lane == 0) ptx::atom_release_cta_shared_exch(ready, done + item.k_end - item.k_begin);
      return;
    }
#pragma unroll 1
  for (uint32_t base = item.k_begin; base < item.k_end; base += 32) {
    uint32_t const k = base + lane, count = min_u32(32, item.k_end - base);
    Missing missing{};
    bool pending = k < item.k_end && !look(coupling, waits, item, k, missing);
    uint32_t published = 0, pause = 16;
    unsigned long long const begin = ptx::globaltimer();
#pragma unroll 1
    for (uint32_t looks = 1;; ++looks) {
      uint32_t const waiting = __ballot_sync(~0u, pending);
      uint32_t const prefix = waiting ? min_u32(__ffs(int(waiting)) - 1, count) : count;
      if (prefix > published) {
        // The lanes below `prefix` have acquired; the fence and __syncwarp order the loads after them.
        order_reads<ReadBy::kTma>();
        __syncwarp();
        delay(coupling.delays, DelayAt::kLoads, item.epoch, waits.stage, item.m, item.n + base + prefix);
        if (lane == 0) ptx::atom_release_cta_shared_exch(ready, done + base - item.k_begin + prefix);
        published = prefix;
        pause = 16;
      }
      if (prefix == count) break;
      ptx::nanosleep(pause);
      if (pause < 128) pause *= 2;
      if (pending) {
        missing.have = ptx::ld_acquire_gpu(coupling.semaphores + missing.slot);
        if (reached(missing.have, missing.want)) {
          note(coupling.notes, CUSYNC_EVENT_WAIT, {waits.stage, item.m, item.n, item.k_begin}, missing.slot, missing.have);
          pending = missing.more && !look(coupling, waits, item, k, missing);
        }
      }
      // A poll takes about a microsecond; the clock is read once in 64 polls. The first waiting lane reports.
      if (looks % 64 == 0 && ptx::globaltimer() - begin > limit && lane == prefix && pending)
        report_and_trap({coupling.report, coupling.timeout_ns, waits.stage}, {missing.edge, item.m, item.n, k}, missing.slot,
                        missing.have, missing.want);
      __syncwarp();
    }
  }
}

/// The load warp's side of the word; one thread. `done` counts the k-blocks of earlier tiles.
class ReadyReader {
 public:
  CUSYNC_DEVICE explicit ReadyReader(uint32_t const* word, uint32_t done = 0) : word_(word), done_(done) {}

  /// Whether k-block k of the current tile may be loaded. Reads the word only if the last value seen is not enough.
  CUSYNC_DEVICE bool is_ready(uint32_t k) {
    uint32_t const need = done_ + k + 1;
    if (!reached(seen_, need)) seen_ = ptx::atom_acquire_cta_shared_read(word_);
    return reached(seen_, need);
  }

  /// How many of the current tile's `all` k-blocks are known to be loadable; reads the word only if k-block k is not
  /// among them.
  CUSYNC_DEVICE uint32_t known(uint32_t k, uint32_t all) { return is_ready(k) ? min_u32(seen_ - done_, all) : k; }

  CUSYNC_DEVICE void finish_tile(uint32_t k_blocks) { done_ += k_blocks; }

 private:
  uint32_t const* word_;
  uint32_t done_, seen_ = 0;
};

}  // namespace cusync::kernels::sm90
