// SPDX-License-Identifier: MIT OR Apache-2.0
// The arithmetic of an attention: out = softmax(Q K^T / sqrt(dim)) V with a running maximum and sum, 64 queries a warpgroup.
// Scores and outputs are accumulators; weights are rounded in registers, where they are operand A of the second product. To
// multiply the scores of a k-block beside the weights of the one before takes more registers than there are.
#pragma once
#include "cute/tensor.hpp"
#include "kernels/attention/sm90/prompt.cuh"
#include "kernels/attention/sm90/rows.cuh"
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/common/sm90/operation.cuh"

namespace cusync::kernels::sm90 {

/// A descriptor of operand rows of 128 bytes under the 128-byte swizzle: groups of 8 rows follow each other. `leading`: bytes
/// from 64 columns to the next, where columns are not what is summed over.
CUSYNC_DEVICE cute::GmmaDescriptor rows_descriptor(void const* shared, uint32_t leading) {
  cute::GmmaDescriptor of;
  of.bitfield.start_address_ = uint16_t(cute::cast_smem_ptr_to_uint(shared) >> 4);
  of.bitfield.leading_byte_offset_ = uint16_t(leading >> 4);
  of.bitfield.stride_byte_offset_ = 1024 >> 4;
  of.bitfield.base_offset_ = 0;
  of.bitfield.layout_type_ = uint8_t(cute::SM90::GMMA::LayoutType::B128);
  return of;
}

/// One operand's descriptor as cute's atoms take it, `bytes` further on.
CUSYNC_DEVICE auto descriptor_at(cute::GmmaDescriptor of, uint32_t bytes) {
  of.reg32_[0] += bytes >> 4;
  return cute::make_tensor(cute::SM90::GMMA::DescriptorIterator{of}, cute::Layout<cute::_1>{});
}

/// The running softmax of a thread's two rows.
struct Softmax {
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};

  /// Turns scores into weights, in place. `rescale`: what earlier weights are worth now. `scale`: of scores, for powers of two.
  template <int Values>
  CUSYNC_DEVICE void take(float (&s)[Values], float (&rescale)[2], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = most[half];
#pragma unroll
      for (int i = 2 * half; i < Values; i += 4) now = fmaxf(now, fmaxf(s[i], s[i + 1]));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
      rescale[half] = ptx::ex2_approx_ftz((most[half] - now) * scale);
      most[half] = now;
      float const base = now * scale;
      float total = 0.f;
#pragma unroll
      for (int i = 2 * half; i < Values; i += 4) {
        s[i] = ptx::ex2_approx_ftz(fmaf(s[i], scale, -base));
        s[i + 1] = ptx::ex2_approx_ftz(fmaf(s[i + 1], scale, -base));
        total += s[i] + s[i + 1];
      }
      sum[half] = sum[half] * rescale[half] + total;
    }
  }

  /// One over the sum of a row's weights.
  CUSYNC_DEVICE float share(int half) const {
    float all = sum[half];
    all += __shfl_xor_sync(~0u, all, 1);
    all += __shfl_xor_sync(~0u, all, 2);
    return 1.f / all;
  }
};

struct PromptArithmetic {
  /// All consumer threads; `state` is the ring stage of the queries, and becomes that behind the last values.
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
  /// The tile of a group's first head appends the keys and values of the tile's own tokens. All of them are in memory: they were
  /// multiplied.
  template <class C, int Dim, class Item>
  CUSYNC_DEVICE static void append(typename C::Params const& params, Item const& item, int thread) {
    using Element = typename C::Element;
    Prompt const prompt = params.prompts[item.stage];
    if (item.range.n % prompt.group) return;
    PromptTable const& table = params.table[item.stage];
    PromptTile const tile(prompt, item.range.m);
    uint32_t const heads = params.stages[item.stage].grid_n / prompt.group, head = item.range.n / prompt.group;
    uint32_t const first = (prompt.group * heads + head) * Dim, stride = (prompt.group + 2) * heads * Dim;
    auto const tokens = static_cast<Element const*>(table.tokens) + (uint64_t(tile.sequence) * prompt.tokens + tile.row) * stride;
    uint64_t const row = uint64_t(tile.sequence * heads + head) * table.capacity + tile.row;
    int const rows = int(min_u32(kPromptTokens, prompt.tokens - tile.row));
#pragma unroll 1
    for (int values = 0; values < 2; ++values)
      append_rows<C::kConsumerThreads, Dim>(tokens + first + values * heads * Dim, stride,
                                            static_cast<Element*>(table.cache[values]) + row * Dim, rows, thread);
  }

  template <class C, int Dim, class Item, class Staging, class Accumulators>
  CUSYNC_DEVICE static void attend(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                                   typename C::LoadPipeline& loaded, typename C::LoadState& read, Staging const& staging,
                                   Accumulators& acc, int thread) {
    using namespace cute;
    using Element = typename C::Element;
    using State = typename C::LoadState;
    using OfScores = MMA_Atom<decltype(SM90::GMMA::ss_op_selector<Element, Element, float, Shape<_64, _128, _16>,
                                                                   SM90::GMMA::Major::K, SM90::GMMA::Major::K>())>;
    using OfSums = MMA_Atom<decltype(SM90::GMMA::rs_op_selector<Element, Element, float, Shape<_64, Int<Dim>, _16>,
                                                                 SM90::GMMA::Major::K, SM90::GMMA::Major::MN>())>;
    constexpr bool wide = Dim == 128;
    constexpr int kScores = 64, kSums = Dim / 2;  // of a thread
    // What bf16 leaves of a weight is multiplied too: rounding weights costs as much as rounding the outputs, and more.
    constexpr int kParts = std::is_same_v<Element, cutlass::half_t> ? 1 : 2;
    Prompt const prompt = params.prompts[item.stage];
    PromptTile const tile(prompt, item.range.m);
    uint32_t const steps = item.range.k_end - item.range.k_begin, group = uint32_t(__shfl_sync(~0u, thread / 128, 0));
    Fragment const at(thread % 128);
    auto buffer = staging.next;
    uint32_t const first_row = tile.row + group * C::kUnitRows;

    using Rows = HeadRows<Dim>;

    // The staging buffers are free until the outputs are there: the queries make room in the ring.
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

    float s[kScores];
    uint32_t weights[kParts][kScores / 2];
    Tensor scores = make_tensor(&s[0], Layout<Int<kScores>>{});
    Tensor sums = make_tensor(acc.data(), Layout<Int<kSums>>{});
    OfScores of_scores;
    OfSums of_sums;

    auto const multiply_scores = [&](State const& slot) {
      // Else the descriptors of all parts of the queries would be kept in registers from step to step.
      GmmaDescriptor of_queries[2] = {rows_descriptor(queries.first, 16), rows_descriptor(queries.second, 16)};
      of_queries[0].reg32_[0] = ptx::opaque(of_queries[0].reg32_[0]), of_queries[1].reg32_[0] = ptx::opaque(of_queries[1].reg32_[0]);
      warpgroup_fence_operand(scores);
      warpgroup_arrive();
#pragma unroll
      for (int i = 0; i < Dim / 16; ++i) {
        auto const a = descriptor_at(of_queries[i / 4], i % 4 * 32);
        auto const b = descriptor_at(rows_descriptor(prompt_half<C>(shared, slot.index(), i / 4), 16), i % 4 * 32);
        of_scores.accumulate_ = i ? SM90::GMMA::ScaleOut::One : SM90::GMMA::ScaleOut::Zero;
        of_scores.call(scores, a, b, scores);
      }
      warpgroup_commit_batch();
    };
    auto const multiply_weights = [&](State const& slot, bool first) {
      warpgroup_fence_operand(sums);
      warpgroup_arrive();
      char const* const half = prompt_half<C>(shared, slot.index(), wide ? 0 : 1);
      auto const values = rows_descriptor(half, uint32_t(prompt_half<C>(shared, slot.index(), 1) - half));
#pragma unroll
      for (int i = 0; i < int(kPromptTokens) / 16; ++i)
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          auto const a = make_tensor(weights[part] + 4 * i, Layout<_4>{});
          of_sums.accumulate_ = first && i + part == 0 ? SM90::GMMA::ScaleOut::Zero : SM90::GMMA::ScaleOut::One;
          of_sums.call(sums, a, descriptor_at(values, i * 16 * 128), sums);
        }
      warpgroup_commit_batch();
    };
    auto const mask = [&](uint32_t k) {
      uint32_t const begin = k * kPromptTokens, end = begin + kPromptTokens;
      if (end <= prompt.tokens && !(prompt.causal && end > first_row + 1)) return;
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        uint32_t const row = first_row + at.row + (i / 2 % 2) * 8, token = begin + i / 4 * 8 + at.col + i % 2;
        if (token >= prompt.tokens || (prompt.causal && token > row)) s[i] = -INFINITY;
      }
    };
    auto const round = [&] {
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i) {
        weights[0][i] = pack<Element>(s[2 * i], s[2 * i + 1]);
        if constexpr (kParts == 2) {
          auto const& high = reinterpret_cast<cutlass::Array<Element, 2> const&>(weights[0][i]);
          weights[1][i] = pack<Element>(s[2 * i] - float(high[0]), s[2 * i + 1] - float(high[1]));
        }
      }
    };

    float const scale = Dim == 128 ? 0.12751743f : 0.18033688f;  // log2(e) / sqrt(Dim)
    Softmax softmax;
    float rescale[2];
    auto const adjust = [&] {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums(i) *= rescale[i / 2 % 2];
    };
    // Keys and values follow each other in the ring, or lie in one stage of it.
    auto const leave = [&] {
      loaded.consumer_release(read);
      ++read;
    };
#pragma unroll 1
    for (uint32_t k = 0; k < steps; ++k) {
      loaded.consumer_wait(read);
      multiply_scores(read);
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      if constexpr (wide) leave();
      mask(k);
      softmax.take(s, rescale, scale);
      if (k > 0) adjust();
      round();
      if constexpr (wide) loaded.consumer_wait(read);
      multiply_weights(read, k == 0);
      warpgroup_wait<0>();
      warpgroup_fence_operand(sums);
      leave();
    }
    float const share[2] = {softmax.share(0), softmax.share(1)};
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums(i) *= share[i / 2 % 2];
    // A head may be narrower than the tile of a product: what is behind it is not stored.
#pragma unroll
    for (int i = kSums; i < C::kAccumulators; ++i) acc(i) = 0.f;
    // All of the warpgroup are done with the queries: outputs take their place.
    ptx::bar_sync(8 + group, 128);
  }
};

}  // namespace cusync::kernels::sm90
