// SPDX-License-Identifier: MIT OR Apache-2.0
// The math of attention in a chain kernel: 64 queries of a tile per warpgroup. Overlapping the scores of one k-block
// with the weighted values of the previous one would need more registers than there are.
#pragma once
#include "kernels/attention/sm90/steps.cuh"
#include "kernels/common/sm90/operation.cuh"

namespace cusync::kernels::sm90 {

/// The operand ring, in the interface that attend_steps expects.
template <class C>
struct RingOf {
  typename C::SharedStorage& shared;
  typename C::LoadPipeline& loaded;
  typename C::LoadState& read;

  CUSYNC_DEVICE char* half(int i) const { return prompt_half<C>(shared, read.index(), i); }
  CUSYNC_DEVICE void wait() const { loaded.consumer_wait(read); }
  CUSYNC_DEVICE void leave() const {
    loaded.consumer_release(read);
    ++read;
  }
};

struct PromptArithmetic {
  /// All consumer threads; `state` is the ring stage of the queries, and is advanced past the last values.
  template <class C, class Item, class Staging, class Accumulators>
  CUSYNC_DEVICE static void accumulate(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                                       typename C::LoadPipeline& loaded, typename C::LoadState& state, Staging const& staging,
                                       Accumulators& acc, int thread) {
    Prompt const& prompt = params.prompts[item.stage];
    if (prompt.head_dim == 128) {
      attend<C, 128>(params, item, shared, loaded, state, staging, acc, thread);
      if (prompt.appends) append<C, 128>(params, item, thread);
    } else {
      attend<C, 64>(params, item, shared, loaded, state, staging, acc, thread);
      if (prompt.appends) append<C, 64>(params, item, thread);
    }
  }

 private:
  /// The tile of a group's first head appends the keys and values of the tile's own tokens. They are all in memory,
  /// because they were multiplied.
  template <class C, int Dim, class Item>
  CUSYNC_DEVICE static void append(typename C::Params const& params, Item const& item, int thread) {
    Prompt const prompt = params.prompts[item.stage];
    if (item.range.n % prompt.group) return;
    PromptTile const tile(prompt, item.range.m);
    append_tokens<typename C::Element, Dim, C::kConsumerThreads>(prompt, params.table[item.stage], tile.sequence, tile.row,
                                                                 item.range.n / prompt.group,
                                                                 params.stages[item.stage].grid_n / prompt.group, kPromptTokens, thread);
  }

  template <class C, int Dim, class Item, class Staging, class Accumulators>
  CUSYNC_DEVICE static void attend(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                                   typename C::LoadPipeline& loaded, typename C::LoadState& read, Staging const& staging,
                                   Accumulators& acc, int thread) {
    using namespace cute;
    using Element = typename C::Element;
    constexpr int kSums = Dim / 2;  // per thread
    Prompt const prompt = params.prompts[item.stage];
    PromptTile const tile(prompt, item.range.m);
    uint32_t const steps = item.range.k_end - item.range.k_begin, group = uint32_t(__shfl_sync(~0u, thread / 128, 0));
    auto buffer = staging.next;
    uint32_t const first_row = tile.row + group * C::kUnitRows;

    using Rows = HeadRows<Dim>;

    // The staging buffers are free until the outputs are ready: move the queries there to free their ring stage.
    Rows queries{};
    loaded.consumer_wait(read);
#pragma unroll
    for (int half = 0; half < Dim / 64; ++half, ++buffer) {
      staging.ring.producer_acquire(buffer);
      (half ? queries.second : queries.first) = reinterpret_cast<char*>(shared.staging[group][buffer.index()]);
    }
    Rows arrived{prompt_half<C>(shared, read.index(), 0), prompt_half<C>(shared, read.index(), 1)};
    arrived.first += group * C::kUnitRows * 128, arrived.second += group * C::kUnitRows * 128;
    copy_rows<C::kUnitRows>(arrived, queries, thread % 128);
    ptx::fence_proxy_async_shared_cta();
    ptx::bar_sync(8 + group, 128);
    loaded.consumer_release(read);
    ++read;

    Tensor sums = make_tensor(acc.data(), Layout<Int<kSums>>{});
    Softmax softmax;
    RingOf<C> ring{shared, loaded, read};
    attend_steps<Element, Dim>(prompt, first_row, queries, 0, steps, 1, ring, softmax, sums, thread);
    float const share[2] = {1.f / softmax.whole(0), 1.f / softmax.whole(1)};
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums(i) *= share[i / 2 % 2];
    // A head may be narrower than a product tile: columns beyond it are not stored.
#pragma unroll
    for (int i = kSums; i < C::kAccumulators; ++i) acc(i) = 0.f;
    // The whole warpgroup is done with the queries: the outputs replace them.
    ptx::bar_sync(8 + group, 128);
  }
};

}  // namespace cusync::kernels::sm90
