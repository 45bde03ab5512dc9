// SPDX-License-Identifier: MIT OR Apache-2.0
// The thread that streams weights and caches: it never waits for a semaphore, so the next stage's weights load while
// its activations are still being computed.
#pragma once
#include "kernels/decode/sm90/attend_load.cuh"
#include "kernels/decode/sm90/jobs.cuh"

namespace cusync::kernels::decode {

/// Ring space and bytes in flight. Limiting the bytes in flight keeps the SMs in step: with more, some run microseconds
/// ahead of others, and stages end at different times. One thread does all this in the few hundred cycles that a chunk
/// takes to arrive, so each chunk's sizes are saved in shared memory instead of being recomputed.
class WeightRing {
 public:
  CUSYNC_DEVICE WeightRing(Common const& p, Shared const& shared) : p_(p), shared_(shared) {}

  /// Makes room for a chunk of `bytes` with at most `limit` bytes in flight including it (or for it alone), and returns
  /// its address.
  CUSYNC_DEVICE char* reserve(uint32_t bytes, uint32_t limit) {
    while (in_flight_ && in_flight_ + bytes > limit) {
      ChunkNote const note = shared_.note(arrived_ % kMaxChunks);
      ptx::mbarrier_wait_parity_or_trap(shared_.chunk_full(arrived_ % kMaxChunks), arrived_ / kMaxChunks % 2,
                                        p_.limit_ns);
      in_flight_ -= note.bytes;
      ++arrived_;
    }
    uint32_t const taken = at_.skip_for(bytes, p_.ring_bytes) + bytes;
    while (used_ + taken > p_.ring_bytes || issued_ - freed_ == kMaxChunks) free_oldest();
    used_ += taken;
    in_flight_ += bytes;
    shared_.note(at_.barrier) = {bytes, taken};
    return shared_.ring(at_.offset);
  }

  /// Whether `reserve` would return without waiting.
  CUSYNC_DEVICE bool has_room(uint32_t bytes, uint32_t limit) {
    while (in_flight_ && in_flight_ + bytes > limit) {
      if (!ptx::mbarrier_test_parity(shared_.chunk_full(arrived_ % kMaxChunks), arrived_ / kMaxChunks % 2)) return false;
      in_flight_ -= shared_.note(arrived_ % kMaxChunks).bytes;
      ++arrived_;
    }
    RingPosition at = at_;
    uint32_t const taken = at.skip_for(bytes, p_.ring_bytes) + bytes;
    while (used_ + taken > p_.ring_bytes || issued_ - freed_ == kMaxChunks) {
      if (!ptx::mbarrier_test_parity(shared_.chunk_empty(freed_ % kMaxChunks), freed_ / kMaxChunks % 2)) return false;
      free_oldest();
    }
    return true;
  }

  /// Waits for everything in flight.
  CUSYNC_DEVICE void settle() {
    for (; arrived_ != issued_; ++arrived_)
      ptx::mbarrier_wait_parity_or_trap(shared_.chunk_full(arrived_ % kMaxChunks), arrived_ / kMaxChunks % 2, p_.limit_ns);
  }

  /// The barrier of the chunk just reserved.
  CUSYNC_DEVICE uint64_t* full() const { return shared_.chunk_full(at_.barrier); }

  /// Call after issuing the chunk.
  CUSYNC_DEVICE void pass(uint32_t bytes) {
    at_.pass(bytes);
    ++issued_;
  }

 private:
  CUSYNC_DEVICE void free_oldest() {
    // Nothing is multiplied before the preceding kernel has completed; do not count that wait against the timeout.
    if (freed_ == 0 && !p_.stream_only) ptx::griddepcontrol_wait();
    ChunkNote const note = shared_.note(freed_ % kMaxChunks);
    ptx::mbarrier_wait_parity_or_trap(shared_.chunk_empty(freed_ % kMaxChunks), freed_ / kMaxChunks % 2, p_.limit_ns);
    used_ -= note.taken;
    // A freed chunk has arrived, even if that was not checked yet.
    if (freed_ == arrived_) {
      in_flight_ -= note.bytes;
      ++arrived_;
    }
    ++freed_;
  }

  Common const& p_;
  Shared const& shared_;
  RingPosition at_;
  uint32_t issued_ = 0, arrived_ = 0, freed_ = 0;  ///< chunks
  uint32_t used_ = 0, in_flight_ = 0;              ///< bytes
};

/// One run's weights, from chunk `first` of stage `s`.
template <class AnyParams>
CUSYNC_DEVICE void stream_run(AnyParams const& p, Shared const& shared, WeightRing& ring, Run<AnyParams> const& run,
                              uint32_t s = 0, uint32_t first = 0) {
#pragma unroll 1
  for (; s < p.stage_count; ++s, first = 0) {
    Stage const& stage = p.stages[s];
    Share const share = shared.share(s);
    char const* const weights = run.tensors(p, s).weights + share.offset;
    uint32_t const bytes = stage.chunk_bytes, shift = stage.chunk_shift;
    // Applies while the ring is first filled for a stage that waits.
    uint32_t const ahead = stage.waits && !stage.round ? p.ring_bytes / bytes : 0;
    uint32_t const ahead_bytes = p.ahead_bytes, in_flight_bytes = p.in_flight_bytes;
#pragma unroll 1
    for (uint32_t i = first; i < share.chunks; ++i) {
      char* const place = ring.reserve(bytes, i < ahead ? ahead_bytes : in_flight_bytes);
      uint32_t const size = share.blocks_of(i, 1u << shift) * share.rows * kRowBytes, from = share.rows_before(i, shift);
      ptx::mbarrier_arrive_expect_tx(ring.full(), size);
      ptx::cp_async_bulk_shared_evict_first(place + from % kPhases * kRowBytes, weights + uint64_t(from) * kRowBytes,
                                            size, ring.full());
      ring.pass(bytes);
    }
    if constexpr (AnyParams::kAttends) {
      if (p.attend_of[s]) stream_cache(p, shared, s, ring);
    }
  }
}

/// The weights of consecutive jobs; if the host has announced the next job's set, its weights are prefetched before the
/// job is requested.
CUSYNC_DEVICE void stream_jobs(SessionParams const& p, Shared const& shared) {
  WeightRing ring(p, shared);
  Commands commands(p, shared);
  ChunkWalk at(p, shared);
  // Issues the current chunk of a set, if there is room.
  auto const issue = [&](uint32_t set) {
    Stage const& stage = p.stages[at.s];
    Share const& share = shared.share(at.s);
    uint32_t const bytes = stage.chunk_bytes, shift = stage.chunk_shift;
    uint32_t const limit = stage.waits && !stage.round && at.i < p.ring_bytes / bytes ? p.ahead_bytes : p.in_flight_bytes;
    if (!ring.has_room(bytes, limit)) return false;
    char* const place = ring.reserve(bytes, limit);
    uint32_t const size = share.blocks_of(at.i, 1u << shift) * share.rows * kRowBytes, from = share.rows_before(at.i, shift);
    ptx::mbarrier_arrive_expect_tx(ring.full(), size);
    ptx::cp_async_bulk_shared_evict_first(place + from % kPhases * kRowBytes,
                                          p.sets[set * p.stage_count + at.s].weights + share.offset + uint64_t(from) * kRowBytes,
                                          size, ring.full());
    ring.pass(bytes);
    at.pass();
    return true;
  };
  for (;;) {
    uint32_t const announced = commands.announced();
    uint32_t early = 0;
    commands.begin();
    at.restart();
    do {
      while (announced != kNoSet && at.is_in_run() && issue(announced)) ++early;
    } while (!commands.found());
    Job const& job = commands.job();
    if (job.m == 0) break;
    bool const right = announced == job.set;
    commands.hand(right ? 0 : early);
    if (!right) at.restart();
    stream_run(p, shared, ring, commands.run(), at.s, at.i);
  }
  // No copy may arrive in the memory of a CTA that has exited.
  ring.settle();
  commands.leave();
}

/// The code of the weight thread.
template <class AnyParams>
CUSYNC_DEVICE void stream_weights(AnyParams const& p, Shared const& shared) {
  if constexpr (AnyParams::kSession) {
    stream_jobs(p, shared);
  } else {
    WeightRing ring(p, shared);
    stream_run(p, shared, ring, Run<AnyParams>{});
  }
}

}  // namespace cusync::kernels::decode
