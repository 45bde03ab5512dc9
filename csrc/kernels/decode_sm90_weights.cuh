// SPDX-License-Identifier: MIT OR Apache-2.0
// The thread that streams weights: it never waits for a semaphore, so the next stage's weights come in while its
// activations are still being computed.
#pragma once
#include "decode_sm90_config.cuh"

namespace cusync::kernels::decode {

/// The chunks of one stage in the order in which this CTA multiplies them.
struct ChunkList {
  Share const share;
  char const* const weights;
  uint32_t const shift, block_bytes, bytes;  ///< of shared memory

  CUSYNC_DEVICE ChunkList(Stage const& stage, Share const& s)
      : share(s),
        weights(stage.weights + s.offset),
        shift(stage.chunk_shift),
        block_bytes(stage.block_bytes),
        bytes(stage.chunk_bytes()) {}
  CUSYNC_DEVICE uint32_t blocks(uint32_t i) const { return share.blocks_of(i, 1u << shift); }
  CUSYNC_DEVICE char const* source(uint32_t i) const {
    return weights + uint64_t(share.chunk(i) << shift) * share.block_bytes;
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
    if (next_ >= list_.share.chunks || (next_ - i + 1) * list_.bytes > limit_) return;
    long long const now = clock64();
    if (now < due_) return;
    due_ = now + list_.bytes / kBytesPerCycle;
    uint32_t const at = next_++;
    ptx::cp_async_bulk_prefetch_l2(list_.source(at), list_.blocks(at) * list_.share.block_bytes);
  }

 private:
  static constexpr uint32_t kBytesPerCycle = 16;
  ChunkList const& list_;
  uint32_t limit_, next_ = 0;
  long long due_ = 0;
};

/// Space in the ring, and how much is on its way. Few bytes in flight keep the SMs of the GPU together: with more, some
/// run microseconds ahead of others and the stages' ends spread. One thread has to do all this in the few hundred
/// cycles that a chunk takes to arrive, so what each chunk takes is noted in shared memory and not reckoned again.
class WeightRing {
 public:
  CUSYNC_DEVICE WeightRing(Params const& p, Shared const& shared) : p_(p), shared_(shared) {}

  /// Makes room for a chunk of `bytes` with at most `limit` bytes in flight, itself included (or it alone), and returns
  /// its place. Calls `idle` again and again while the ring is full.
  template <class Idle>
  CUSYNC_DEVICE char* reserve(uint32_t bytes, uint32_t limit, Idle&& idle) {
    while (in_flight_ && in_flight_ + bytes > limit) {
      ChunkNote const note = shared_.note(arrived_ % kMaxChunks);
      ptx::mbarrier_wait_parity_or_trap(shared_.chunk_full(arrived_ % kMaxChunks), arrived_ / kMaxChunks % 2,
                                        p_.limit_ns);
      in_flight_ -= note.bytes;
      ++arrived_;
    }
    uint32_t const taken = at_.skip_for(bytes, p_.ring_bytes) + bytes;
    while (used_ + taken > p_.ring_bytes || issued_ - freed_ == kMaxChunks) free_oldest(idle);
    used_ += taken;
    in_flight_ += bytes;
    shared_.note(at_.barrier) = {bytes, taken};
    return shared_.ring(at_.offset);
  }

  /// Of the chunk just reserved.
  CUSYNC_DEVICE uint64_t* full() const { return shared_.chunk_full(at_.barrier); }

  /// The chunk is issued.
  CUSYNC_DEVICE void pass(uint32_t bytes) {
    at_.pass(bytes);
    ++issued_;
  }

 private:
  template <class Idle>
  CUSYNC_DEVICE void free_oldest(Idle&& idle) {
    // Until the kernel before this one has ended nothing is multiplied, and that is no fault of this one.
    if (freed_ == 0 && !p_.stream_only) ptx::griddepcontrol_wait();
    ChunkNote const note = shared_.note(freed_ % kMaxChunks);
    uint64_t* const empty = shared_.chunk_empty(freed_ % kMaxChunks);
    uint32_t const parity = freed_ / kMaxChunks % 2;
    if (!ptx::mbarrier_test_wait_parity(empty, parity)) {
      unsigned long long const begin = ptx::globaltimer();
      uint32_t looks = 0;
      while (!ptx::mbarrier_test_wait_parity(empty, parity)) {
        idle();
        if (++looks % 1024 == 0 && ptx::globaltimer() - begin > p_.limit_ns) ptx::trap();
      }
    }
    used_ -= note.taken;
    // What is freed has arrived, whether or not that was looked at.
    if (freed_ == arrived_) {
      in_flight_ -= note.bytes;
      ++arrived_;
    }
    ++freed_;
  }

  Params const& p_;
  Shared const& shared_;
  RingPosition at_;
  uint32_t issued_ = 0, arrived_ = 0, freed_ = 0;  ///< chunks
  uint32_t used_ = 0, in_flight_ = 0;              ///< bytes
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
    ChunkList const list(p.stages[s], shared.share(s));
    Prefetcher prefetcher(list, p.prefetch_bytes);
    // While the ring is first filled for a stage that waits.
    uint32_t const ahead = p.stages[s].waits ? p.ring_bytes / list.bytes : 0;
    uint32_t const ahead_bytes = p.ahead_bytes, in_flight_bytes = p.in_flight_bytes;
#pragma unroll 1
    for (uint32_t i = 0; i < list.share.chunks; ++i) {
      char* const to =
          ring.reserve(list.bytes, i < ahead ? ahead_bytes : in_flight_bytes, [&] { prefetcher.idle(i); });
      uint32_t const blocks = list.blocks(i);
      ptx::mbarrier_arrive_expect_tx(ring.full(), blocks * list.share.block_bytes);
      char const* const from = list.source(i);
#pragma unroll 1
      for (uint32_t b = 0; b < blocks; ++b)
        copy_block(list.share, to + b * list.block_bytes, from + b * list.share.block_bytes, ring.full());
      ring.pass(list.bytes);
    }
  }
}

}  // namespace cusync::kernels::decode
