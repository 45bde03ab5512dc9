// SPDX-License-Identifier: MIT OR Apache-2.0
// Tile waits inside CUTLASS's unmodified main loop: the collective advances an iterator over k-blocks just before it
// loads them, and this iterator waits when it advances.
#pragma once
#include "cusync/edge.cuh"
#include "kernels/gemm/sm80/work.cuh"

namespace cusync::kernels::sm80 {

template <class Params>
CUSYNC_DEVICE WaitContext wait_context(Params const& params, uint32_t epoch) {
  Coupling const& coupling = params.coupling;
  return {coupling.semaphores, epoch, {coupling.report, coupling.timeout_ns, params.stage.index}};
}

/// Waits for bias and residual operands that other stages produce. Called by all threads of the CTA.
template <class Params>
CUSYNC_DEVICE void wait_for_epilogue_operands(Params const& params, WorkItem const& item) {
  Stage const& stage = params.stage;
  if (stage.wait_count == stage.load_waits) return;
  if (threadIdx.x == 0)
    for (uint32_t i = stage.load_waits; i < stage.wait_count; ++i)
      wait_for_tile<ReadBy::kLoads>(params.edges.waits[i], item.m, item.n, wait_context(params, item.epoch));
  __syncthreads();
}

/// The k-blocks of one tile. At block k, everything that blocks 0 to k read has been waited for. The collective needs
/// exactly that: it puts a ragged k first, so its block k reads elements of our blocks k - 1 and k. All threads of the
/// CTA advance it together. Everything except k stays in shared and constant memory: the main loop needs the registers.
template <class Params>
class WaitingKBlocks {
 public:
  /// `next`: a word of shared memory, the next k-block with a wait.
  CUSYNC_DEVICE WaitingKBlocks(Params const& params, WorkItem const& item, uint32_t* next)
      : params_(params), item_(item), next_(next) {
    if (params.stage.load_waits) wait();
  }

  CUSYNC_DEVICE int operator*() const { return int(k_); }

  CUSYNC_DEVICE WaitingKBlocks& operator++() {
    ++k_;
    if (params_.stage.load_waits && k_ == *next_) wait();
    return *this;
  }

 private:
  static constexpr uint32_t kNever = ~0u;

  /// Warp 0 waits, one lane per slot; the second barrier extends its acquires to all threads.
  CUSYNC_DEVICE void wait() {
    __syncthreads();  // all threads have read the word
    if (threadIdx.x < 32) {
      uint32_t const k_blocks = params_.tiles.k_blocks;
      uint32_t next = k_blocks;
#pragma unroll 1
      for (uint32_t i = 0; i < params_.stage.load_waits; ++i) {
        cusync_edge const& edge = params_.edges.waits[i];
        warp_wait_for_k_block<ReadBy::kLoads>(edge, item_.m, item_.n, k_, k_ == 0, k_blocks,
                                              wait_context(params_, item_.epoch));
        next = min_u32(next, next_wait(edge, item_.m, item_.n, k_, k_blocks));
      }
      if (threadIdx.x == 0) *next_ = next < k_blocks ? next : kNever;
    }
    __syncthreads();
  }

  Params const& params_;
  WorkItem const& item_;
  uint32_t* next_;
  uint32_t k_ = 0;
};

}  // namespace cusync::kernels::sm80
