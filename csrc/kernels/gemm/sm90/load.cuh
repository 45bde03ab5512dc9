// SPDX-License-Identifier: MIT OR Apache-2.0
// The load warp's k-loop: TMA copies of A and B into the ring. An operand that another stage produces is copied once
// the wait warp signals that its k-block is ready; weights run ahead of it.
#pragma once
#include "kernels/gemm/sm90/config.cuh"
#include "kernels/common/sm90/product.cuh"

namespace cusync::kernels::sm90 {

/// Loads one tile, in one thread. The transaction barrier of a ring stage expects the bytes of both operands, so the
/// operand without a producer (the weights) can be copied while the other is awaited: when the activations arrive, the
/// ring is already full of weights.
template <class C>
CUSYNC_DEVICE void load_tile(typename C::Params const& params, typename C::SharedStorage& shared,
                             typename C::LoadPipeline& pipeline, typename C::LoadState& state, WorkItem const& item,
                             ReadyReader& ready) {
  using namespace cute;
  Stage const& stage = params.stage;
  typename C::Mainloop mainloop;
  auto const shape = make_shape(kAnySize, kAnySize, kAnySize, 1);
  auto const views = mainloop.load_init(shape, params.mainloop);
  auto const slice_a = params.mainloop.tma_load_a.get_slice(0);
  auto const slice_b = params.mainloop.tma_load_b.get_slice(0);
  Tensor const from_a = slice_a.partition_S(get<0>(views)(_, _, int(item.m), _, 0));  // (TMA, TMA_M, TMA_K, k)
  Tensor const from_b = slice_b.partition_S(get<1>(views)(_, _, int(item.n), _, 0));  // (TMA, TMA_N, TMA_K, k)
  Tensor ring_a = make_tensor(make_smem_ptr(shared.operands.smem_A.data()), typename C::Mainloop::SmemLayoutA{});
  Tensor ring_b = make_tensor(make_smem_ptr(shared.operands.smem_B.data()), typename C::Mainloop::SmemLayoutB{});
  Tensor const to_a = slice_a.partition_D(ring_a);  // (TMA, TMA_M, TMA_K, stage)
  Tensor const to_b = slice_b.partition_D(ring_b);  // (TMA, TMA_N, TMA_K, stage)

  auto const copy_a = [&](uint32_t k, typename C::LoadState const& at) {
    copy(params.mainloop.tma_load_a.with(*pipeline.producer_get_barrier(at)), from_a(_, _, _, k),
         to_a(_, _, _, at.index()));
  };
  auto const copy_b = [&](uint32_t k, typename C::LoadState const& at) {
    copy(params.mainloop.tma_load_b.with(*pipeline.producer_get_barrier(at)), from_b(_, _, _, k),
         to_b(_, _, _, at.index()));
  };

  bool const waits_a = stage.produced & kProducedA, waits_b = stage.produced & kProducedB;
  uint32_t const k_blocks = params.tiles.k_blocks;
  // Request the next item while the ring still holds enough of this tile to hide the latency.
  uint32_t const ask_at = k_blocks > 4 ? k_blocks - 4 : 0;
  NoteOf const where{stage.index, item.m, item.n, 0};
  load_k_blocks<C::kStages>(
      pipeline, state, 0, k_blocks, ready, waits_a || waits_b, !(waits_a && waits_b),
      [&](uint32_t k, auto const& at) { copy_b(k, at), copy_a(k, at); },
      [&](uint32_t k, auto const& at) {
        if (!waits_a) copy_a(k, at);
        if (!waits_b) copy_b(k, at);
      },
      [&](uint32_t k, auto const& at) {
        if (waits_a) copy_a(k, at);
        if (waits_b) copy_b(k, at);
      },
      [&](uint32_t k) {
        if (waits_a) note(params.coupling.notes, CUSYNC_EVENT_LOAD, where, CUSYNC_OPERAND_A, k);
        if (waits_b) note(params.coupling.notes, CUSYNC_EVENT_LOAD, where, CUSYNC_OPERAND_B, k);
        if (k == ask_at) shared.more_work.arrive();
      });
  ready.finish_tile(k_blocks);
}

}  // namespace cusync::kernels::sm90
