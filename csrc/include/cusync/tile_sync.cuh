// SPDX-License-Identifier: MIT OR Apache-2.0
// Lets a kernel wait for CTAs of earlier kernels instead of for their completion. dag/src/refine proves the waits;
// src/programs/tiled.rs fills in the parameters.
#pragma once
#include "cusync/semaphore.cuh"

namespace cusync {

/// Bits of TileSync::how; for 0 see begin(). The host has the same values.
enum : uint32_t {
  kBeginNextEarly = 1,  ///< triggers the launch of the next kernel before waiting
  kWaitForTiles = 2,    ///< waits for tiles
  kPostTile = 4,        ///< posts its own tile
};

/// The last parameters of a kernel that can wait for tiles. Each CTA has a slot with the number of its posted runs. All
/// kernels that run together advance their slots in step, and only the owning CTA writes a slot.
struct TileSync {
  uint32_t* semaphores;
  uint32_t const* waits;   ///< [ctas][width]: slots; unused entries are kNoSlot
  cusync_report* report;
  uint32_t width;          ///< at most 32
  uint32_t first_slot;     ///< slot of CTA 0
  uint32_t node;           ///< for the report
  uint32_t how;
};

inline constexpr uint32_t kNoSlot = 0xffffffffu;

/// Linear CTA number: x first, then y, then z.
__device__ __forceinline__ uint32_t cta_number() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}

__device__ __forceinline__ uint32_t cta_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

/// Waits as specified by `sync`; returns the run number, in the first warp only. Work that does not depend on earlier
/// kernels can precede it. Called by all threads of the CTA, at least one full warp.
__device__ __forceinline__ uint32_t begin(TileSync const& sync) {
  uint32_t run = 0;
#if CUSYNC_HAS_SM90
  uint32_t const cta = cta_number(), lane = cta_thread();
  bool const first_warp = lane < 32;
  if (sync.how & kBeginNextEarly) ptx::griddepcontrol_launch_dependents();
  // Issue both loads before any wait. Only this CTA writes the slot, once per run; L1 may hold the previous run's
  // value.
  uint32_t slot = kNoSlot;
  if (first_warp && (sync.how & (kWaitForTiles | kPostTile)))
    run = *static_cast<uint32_t const volatile*>(sync.semaphores + sync.first_slot + cta);
  if (sync.how & kWaitForTiles) {
    if (first_warp && lane < sync.width) slot = sync.waits[cta * sync.width + lane];
    if (slot != kNoSlot) {
      uint32_t const* const word = sync.semaphores + slot;
      bool done = false;
      // A hand-off is shorter than a sleep, so poll back to back first, then use the bounded wait.
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

/// Call after the CTA's last access to memory shared with other kernels: posts, and keeps the guarantee that a kernel
/// does not complete before those it waited for.
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
