// SPDX-License-Identifier: MIT OR Apache-2.0
// How a kernel waits for CTAs of earlier kernels in place of these kernels' ends. dag/src/refine proves what is asked for
// here, and src/programs/tiled.rs fills it in.
#pragma once
#include "cusync/semaphore.cuh"

namespace cusync {

/// Bits of TileSync::how. 0: as begin(). The host has the same numbers.
enum : uint32_t {
  kBeginNextEarly = 1,  ///< lets the next kernel begin to launch before it waits
  kWaitForTiles = 2,    ///< waits for tiles
  kPostTile = 4,        ///< posts its own
};

/// The last parameters of a kernel that can wait for tiles. Every CTA has a slot, which counts the runs that it has
/// posted: the slots of all kernels that are run together count alike, and only their CTAs write them.
struct TileSync {
  uint32_t* semaphores;
  uint32_t const* waits;   ///< [ctas][width]: slots; kNoSlot past the last
  cusync_report* report;
  uint32_t width;          ///< at most 32
  uint32_t first_slot;     ///< of CTA 0
  uint32_t node;           ///< for the report
  uint32_t how;
};

inline constexpr uint32_t kNoSlot = 0xffffffffu;

/// The CTA's number: along x, then y, then z.
__device__ __forceinline__ uint32_t cta_number() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}

__device__ __forceinline__ uint32_t cta_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

/// Waits as `sync` says; returns the number of the run, in the first warp. What does not depend on earlier kernels can
/// be done before it. Whole warps of at least one call it, all threads of the CTA.
__device__ __forceinline__ uint32_t begin(TileSync const& sync) {
  uint32_t run = 0;
#if CUSYNC_HAS_SM90
  uint32_t const cta = cta_number(), lane = cta_thread();
  bool const first_warp = lane < 32;
  if (sync.how & kBeginNextEarly) ptx::griddepcontrol_launch_dependents();
  // Both loads are under way before anything is waited for. Nobody but this CTA writes the slot, once a run; the L1 may
  // have it from the run before.
  uint32_t slot = kNoSlot;
  if (first_warp && (sync.how & (kWaitForTiles | kPostTile)))
    run = *static_cast<uint32_t const volatile*>(sync.semaphores + sync.first_slot + cta);
  if (sync.how & kWaitForTiles) {
    if (first_warp && lane < sync.width) slot = sync.waits[cta * sync.width + lane];
    if (slot != kNoSlot) {
      uint32_t const* const word = sync.semaphores + slot;
      bool done = false;
      // A hand-off takes less than a sleep, so the first looks follow each other; then it is the bounded wait.
      for (uint32_t look = 0; look < 64 && !done; ++look)
        done = reached(ptx::ld_acquire_gpu(word), run + 1);
      if (!done)
        wait_reached(sync.semaphores, slot, run + 1, {sync.node, cta, lane, 0},
                             Watch{sync.report, 0, sync.node});
    }
    __syncthreads();
  } else {
    ptx::griddepcontrol_wait();
  }
  if (!(sync.how & kBeginNextEarly)) ptx::griddepcontrol_launch_dependents();
#endif
  return run;
}

/// After the CTA's last access to memory that other kernels touch: posts, and keeps the promise that a kernel does not
/// end before those that it waited for.
__device__ __forceinline__ void end(TileSync const& sync, uint32_t run) {
#if CUSYNC_HAS_SM90
  if (sync.how & kPostTile) {
    __syncthreads();
    if (cta_thread() == 0) ptx::st_release_gpu(sync.semaphores + sync.first_slot + cta_number(), run + 1);
  }
  if (sync.how & kWaitForTiles) ptx::griddepcontrol_wait();
#endif
}

}  // namespace cusync
