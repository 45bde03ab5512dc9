// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared code of row operations: all consumer threads compute a tile and store it to global memory themselves.
//
// Ordering with respect to other warps and CTAs:
//  before   Warp 1 has acquired the slots of the rows, or has waited for the preceding kernel, and has released that
//           through the word `ready`. Then the load warp brings rows through the ring; or, with `await_rows`, one
//           consumer thread acquires the word, a barrier passes it on, and the loads go to L2 (ld.global.cg), so stale
//           L1 lines are never read.
//  after    The stores are ordinary ones, and TMA copies of other CTAs will read them. Each thread orders its own
//           stores before accesses of the async proxy, then its warp arrives at a barrier of the staging ring, as for
//           any finished unit. The store warp waits for that barrier, so its post, a release, covers the stores of all
//           threads. A CTA that acquires the post orders its own TMA copies after it with another proxy fence.
#pragma once
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "kernels/common/sm90/operation.cuh"
#include "kernels/common/sm90/wait.cuh"

namespace cusync::kernels::sm90 {

/// The load warp copies nothing: it requests the next item if items are drawn, and advances the count of k-blocks.
struct RowLoad {
  template <class C, class Item, class Place>
  CUSYNC_DEVICE static void load(typename C::Params const& params, typename C::SharedStorage& shared,
                                 typename C::LoadPipeline&, typename C::LoadState&, Item const& item, ReadyReader& ready,
                                 Place const&) {
    if (params.drawn) shared.more_work.arrive();
    ready.finish_tile(item.range.k_end - item.range.k_begin);
  }
};

/// Waits until a tile's rows may be read in place; called by all consumer threads. The word `ready` covers stages
/// without waits too: it follows the wait for the preceding kernel.
template <class C, class Item>
CUSYNC_DEVICE void await_rows(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared, int thread) {
  ReadyReader ready(&shared.ready, item.done);
  if (thread == 0)
    while (!ready.is_ready(0)) ptx::nanosleep(20);
  ptx::bar_sync(kConsumerBarrier, C::kConsumerThreads);
  if (thread == 0 && params.stages[item.stage].load_waits)
    note(params.coupling.notes, CUSYNC_EVENT_LOAD,
         {params.stages[item.stage].index, item.range.m, item.range.n, item.range.k_begin}, CUSYNC_OPERAND_A, 0);
}

/// Elements that a thread reads or writes at once: 16 bytes.
inline constexpr int kRowElements = 8;
using RowFloats = cutlass::Array<float, kRowElements>;
template <class Element>
using RowVector = cutlass::AlignedArray<Element, kRowElements>;

template <class Element>
CUSYNC_DEVICE RowFloats widen(uint4 const& vector) {
  using Convert = cutlass::NumericArrayConverter<float, Element, kRowElements>;
  return Convert::convert(reinterpret_cast<RowVector<Element> const&>(vector));
}

template <class Element>
CUSYNC_DEVICE uint4 narrow(RowFloats const& values) {
  RowVector<Element> rounded;
  static_cast<cutlass::Array<Element, kRowElements>&>(rounded) =
      cutlass::NumericArrayConverter<Element, float, kRowElements>::convert(values);
  return reinterpret_cast<uint4 const&>(rounded);
}

}  // namespace cusync::kernels::sm90
