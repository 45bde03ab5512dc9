// SPDX-License-Identifier: MIT OR Apache-2.0
// Matrix products in a chain kernel. Load: TMA copies of A and B into the ring, multicast if the cluster shape allows;
// weights run ahead; operand A, and B if a stage produces it, follow once warp 1 signals that they are ready.
// Arithmetic: CUTLASS's collective.
#pragma once
#include "cute/tensor.hpp"
#include "cutlass/pipeline/pipeline.hpp"
#include "kernels/common/sm90/wait.cuh"

namespace cusync::kernels::sm90 {

/// Fills ring stages with k-blocks [begin, end) of one tile, in one thread. `both` copies both operands of a k-block.
/// While the awaited operands are not known to be ready, `early` copies the operand that no stage produces
/// (`has_early`: there is one), and `late` copies the rest. `loaded` is called after each k-block. `waits`: whether any
/// operand is awaited.
///
/// In narrow tiles this thread's instructions are the kernel's bottleneck, so k-blocks without waits have their own
/// loop.
template <int Stages, class Pipeline, class State, class Both, class Early, class Late, class Loaded>
CUSYNC_DEVICE void load_k_blocks(Pipeline& pipeline, State& state, uint32_t begin, uint32_t end, ReadyReader& ready, bool waits,
                                 bool has_early, Both const& both, Early const& early, Late const& late, Loaded const& loaded) {
  // k-blocks [k, ahead) have their ring stage and their early operand.
  uint32_t k = begin, ahead = begin;
  State ahead_state = state;
#pragma unroll 1
  while (k < end) {
    if (ahead == k) {
      uint32_t const known = waits ? begin + ready.known(k - begin, end - begin) : end;
#pragma unroll 1
      for (; k < known; ++k) {
        pipeline.producer_acquire(state);
        both(k, state);
        ++state;
        loaded(k);
      }
      if (k == end) return;
      ahead = k, ahead_state = state;
    }
    // Ring stages beyond this limit are freed only by k-blocks that have yet to be loaded.
    uint32_t const limit = has_early ? min_u32(end, k + Stages) : k;
    while (!ready.is_ready(k - begin)) {
      if (ahead >= limit) continue;
      auto const token = pipeline.producer_try_acquire(ahead_state);
      if (token == cutlass::BarrierStatus::WaitDone) {
        pipeline.producer_acquire(ahead_state, token);
        early(ahead, ahead_state);
        ++ahead, ++ahead_state;
      }
    }
    if (ahead == k) continue;
    late(k, state);
    ++state;
    loaded(k);
    ++k;
  }
}

/// Loads the k-range of one item, in one thread. The transaction barrier of a ring stage expects the bytes of both
/// operands, so weights can be copied while activations are still awaited: when these arrive, the ring is full of
/// weights.
///
/// With multicast each CTA of a cluster copies its slice of operand B to all of them. A slice is part of the CTA's own
/// tile, and the wait covers that tile, so it covers everything the CTA copies for others.
struct ProductLoad {
  template <class C, class Item, class Place>
  CUSYNC_DEVICE static void load(typename C::Params const& params, typename C::SharedStorage& shared,
                                 typename C::LoadPipeline& pipeline, typename C::LoadState& state, Item const& item,
                                 ReadyReader& ready, Place const& place) {
    using namespace cute;
    typename C::StageTable const& at = params.table[item.stage];
    typename C::Mainloop mainloop;
    auto const shape = make_shape(kAnySize, kAnySize, kAnySize, 1);
    auto const views = mainloop.load_init(shape, at.mainloop);
    auto const slice_b = at.mainloop.tma_load_b.get_slice(int(place.i));
    Tensor const from_b = slice_b.partition_S(get<1>(views)(_, _, int(item.range.n), _, 0));  // (TMA, TMA_N, TMA_K, k)
    Tensor ring_b = make_tensor(make_smem_ptr(shared.operands.smem_B.data()), typename C::Mainloop::SmemLayoutB{});
    Tensor const to_b = slice_b.partition_D(ring_b);  // (TMA, TMA_N, TMA_K, stage)

    // A tile of operand A is one box with rows of 128 bytes. The TMA takes longer for rows outside the tensor, so the
    // last row of tiles has its own, smaller box, and tiles outside the grid have none. Bytes that do not arrive are
    // subtracted from the barrier's expected count; stale rows of older tiles only affect sums that are never stored.
    static_assert(C::kClusterN == 1, "no two CTAs of a cluster read the same rows");
    constexpr uint32_t kRowBytes = C::kTileK * sizeof(typename C::Element);
    uint32_t const first_row = item.range.m * C::kTileM, all_rows = params.stages[item.stage].m;
    uint32_t const rows = first_row < all_rows ? min_u32(all_rows - first_row, C::kTileM) : 0;
    uint32_t const missing = (C::kTileM - rows) * kRowBytes;
    void const* const map_a = missing ? static_cast<void const*>(&at.last_rows) : at.mainloop.tma_load_a.get_tma_descriptor();
    auto const copy_a = [&](uint32_t k, typename C::LoadState const& slot) {
      auto* const barrier = pipeline.producer_get_barrier(slot);
      if (missing) cutlass::arch::ClusterTransactionBarrier::complete_transaction(barrier, place.rank, missing);
      if (rows)
        SM90_TMA_LOAD_3D::copy(map_a, barrier, uint64_t(TMA::CacheHintSm90::EVICT_NORMAL),
                               shared.operands.smem_A.data() + slot.index() * C::kTileM * C::kTileK, int(k) * C::kTileK, int(first_row), 0);
    };
    // Data that only one row of workers reads is read once: keeping it in L2 would only displace activations.
    auto const keep = params.stages[item.stage].grid_m <= C::kClusterM ? TMA::CacheHintSm90::EVICT_FIRST
                                                                       : TMA::CacheHintSm90::EVICT_NORMAL;
    // All CTAs of a cluster read the same columns.
    constexpr uint16_t kEveryone = (1u << C::kClusterM) - 1;
    auto const copy_b = [&](uint32_t k, typename C::LoadState const& slot) {
      copy(at.mainloop.tma_load_b.with(*pipeline.producer_get_barrier(slot), kEveryone, keep), from_b(_, _, _, k),
           to_b(_, _, _, slot.index()));
    };

    bool const waits_b = params.stages[item.stage].produced & kProducedB;
    uint32_t const begin = item.range.k_begin, end = item.range.k_end;
    // With tickets or mail, request the next item while the ring still holds enough of this one to hide the latency.
    constexpr uint32_t kAhead = C::kMailed ? 12 : 4;
    uint32_t const ask_at = !C::kMailed && !params.drawn ? end : end - begin > kAhead ? end - kAhead : begin;
    NoteOf const where{params.stages[item.stage].index, item.range.m, item.range.n, begin};
    load_k_blocks<C::kStages>(
        pipeline, state, begin, end, ready, true, !waits_b,
        [&](uint32_t k, auto const& slot) { copy_b(k, slot), copy_a(k, slot); },
        [&](uint32_t k, auto const& slot) { copy_b(k, slot); },
        [&](uint32_t k, auto const& slot) {
          copy_a(k, slot);
          if (waits_b) copy_b(k, slot);
        },
        [&](uint32_t k) {
          note(params.coupling.notes, CUSYNC_EVENT_LOAD, where, CUSYNC_OPERAND_A, k);
          if (waits_b) note(params.coupling.notes, CUSYNC_EVENT_LOAD, where, CUSYNC_OPERAND_B, k);
          if (k == ask_at) shared.more_work.arrive();
        });
    ready.finish_tile(end - begin);
  }
};

struct ProductArithmetic {
  /// Called by all consumer threads. `state` is the ring stage of the first k-block, and is advanced past the last.
  template <class C, class Item, class Accumulators>
  CUSYNC_DEVICE static void accumulate(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                                       typename C::LoadPipeline& loaded, typename C::LoadState& state, Accumulators& acc,
                                       int thread) {
    int const k_blocks = int(item.range.k_end - item.range.k_begin);
    typename C::Mainloop mainloop;
    mainloop.mma(loaded, state, acc, k_blocks, thread, shared.operands, params.table->mainloop);
    mainloop.mma_tail(loaded, state, k_blocks);
    state.advance(k_blocks);
  }
};

}  // namespace cusync::kernels::sm90
