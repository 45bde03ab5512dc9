// SPDX-License-Identifier: MIT OR Apache-2.0
// The thread that streams weights: it never waits for a semaphore, so the next stage's weights come in while its
// activations are still being computed.
#pragma once
#include "decode_sm90_config.cuh"

namespace cusync::kernels::decode {

/// A second walk along the chunks, behind the one that issues them.
struct Trail {
  RingPosition at;
  uint32_t stage = 0, left = 0, bytes = 0;
  uint32_t passed = 0;  ///< chunks behind it

  /// Goes to the chunk; returns the bytes of the ring that it and the unused piece before it take.
  CUSYNC_DEVICE uint32_t enter(Params const& p, Shared const& shared) {
    while (left == 0) {
      left = shared.share(stage).chunks;
      bytes = p.stages[stage].chunk_bytes();
      ++stage;
    }
    return at.skip_for(bytes, p.ring_bytes) + bytes;
  }

  CUSYNC_DEVICE void leave() {
    at.pass(bytes);
    --left;
    ++passed;
  }
};

/// The chunks of one stage in the order in which this worker multiplies them.
struct ChunkList {
  Stage const& stage;
  Share const share;

  CUSYNC_DEVICE char const* source(uint32_t chunk) const {
    return share.weights + uint64_t(chunk << stage.chunk_shift) * share.block_bytes;
  }
};

/// While the ring is full the L2 takes some of the weights that come next, so that the memory does not stand still: they
/// are then read at the L2's speed. No faster than this SM's part of the memory's bandwidth, or it would take from SMs
/// that others wait for.
class Prefetcher {
 public:
  CUSYNC_DEVICE Prefetcher(ChunkList const& list, uint32_t limit) : list_(list), limit_(limit) {}

  /// While chunk `i` cannot be issued.
  CUSYNC_DEVICE void idle(uint32_t i) {
    if (next_ < i) next_ = i;
    if (next_ >= list_.share.chunks || (next_ - i + 1) * list_.stage.chunk_bytes() > limit_) return;
    long long const now = clock64();
    if (now < due_) return;
    due_ = now + list_.stage.chunk_bytes() / kBytesPerCycle;
    uint32_t const chunk = list_.share.chunk(next_++);
    ptx::cp_async_bulk_prefetch_l2(list_.source(chunk), blocks_in(list_.stage, chunk) * list_.share.block_bytes);
  }

 private:
  static constexpr uint32_t kBytesPerCycle = 16;
  ChunkList const& list_;
  uint32_t limit_, next_ = 0;
  long long due_ = 0;
};

/// Space in the ring, and how much is on its way. Few bytes in flight keep the SMs of the GPU together: with more, some
/// run microseconds ahead of others and the stages' ends spread.
class WeightRing {
 public:
  CUSYNC_DEVICE WeightRing(Params const& p, Shared const& shared) : p_(p), shared_(shared) {}

  /// Makes room for a chunk of `bytes` with at most `limit` bytes in flight, itself included (or it alone). Calls
  /// `idle` again and again while the ring is full.
  template <class Idle>
  CUSYNC_DEVICE void reserve(uint32_t bytes, uint32_t limit, Idle&& idle) {
    while (in_flight_ && in_flight_ + bytes > limit) see_arrival();
    uint32_t const taken = head_.skip_for(bytes, p_.ring_bytes) + bytes;
    while (used_ + taken > p_.ring_bytes || issued_ - freed_.passed == kMaxChunks) free_oldest(idle);
    used_ += taken;
    in_flight_ += bytes;
    ++issued_;
  }

  CUSYNC_DEVICE RingPosition const& head() const { return head_; }
  CUSYNC_DEVICE void pass(uint32_t bytes) { head_.pass(bytes); }

 private:
  CUSYNC_DEVICE void see_arrival() {
    arrived_.enter(p_, shared_);
    wait_phase(shared_.chunk_full(arrived_.at.barrier), arrived_.at.parity, p_.timeout_ns);
    in_flight_ -= arrived_.bytes;
    arrived_.leave();
  }

  template <class Idle>
  CUSYNC_DEVICE void free_oldest(Idle&& idle) {
    // Until the kernel before this one has ended nothing is multiplied, and that is no fault of this one.
    if (!p_.stream_only && freed_.passed == 0) ptx::griddepcontrol_wait();
    if (arrived_.passed == freed_.passed) see_arrival();
    uint32_t const taken = freed_.enter(p_, shared_);
    uint64_t* const empty = shared_.chunk_empty(freed_.at.barrier);
    Deadline deadline(p_.timeout_ns);
    while (!ptx::mbarrier_test_wait_parity(empty, freed_.at.parity)) {
      idle();
      deadline.check();
    }
    used_ -= taken;
    freed_.leave();
  }

  Params const& p_;
  Shared const& shared_;
  RingPosition head_;
  Trail arrived_, freed_;
  uint32_t used_ = 0, in_flight_ = 0, issued_ = 0;
};

/// One k-block of this worker's rows.
CUSYNC_DEVICE void copy_block(Share const& share, char* to, char const* from, uint64_t* barrier) {
  ptx::cp_async_bulk_shared_evict_first(to, from, share.head_bytes, barrier);
  if (share.head_bytes != share.block_bytes)
    ptx::cp_async_bulk_shared_evict_first(to + share.tail_offset, from + share.head_bytes,
                                          share.block_bytes - share.head_bytes, barrier);
}

/// By one thread.
CUSYNC_DEVICE void stream_weights(Params const& p, Shared const& shared) {
  WeightRing ring(p, shared);
#pragma unroll 1
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    ChunkList const list{p.stages[s], shared.share(s)};
    Prefetcher prefetcher(list, p.prefetch_bytes);
    uint32_t const bytes = list.stage.chunk_bytes();
#pragma unroll 1
    for (uint32_t i = 0; i < list.share.chunks; ++i) {
      bool const ahead = list.stage.waits && i * bytes < p.ring_bytes;
      ring.reserve(bytes, ahead ? p.ahead_bytes : p.in_flight_bytes, [&] { prefetcher.idle(i); });
      uint32_t const chunk = list.share.chunk(i), blocks = blocks_in(list.stage, chunk);
      uint64_t* const barrier = shared.chunk_full(ring.head().barrier);
      ptx::mbarrier_arrive_expect_tx(barrier, blocks * list.share.block_bytes);
      char* const to = shared.ring(ring.head().offset);
      char const* const from = list.source(chunk);
#pragma unroll 1
      for (uint32_t b = 0; b < blocks; ++b)
        copy_block(list.share, to + b * list.stage.block_bytes, from + b * list.share.block_bytes, barrier);
      ring.pass(bytes);
    }
  }
}

}  // namespace cusync::kernels::decode
