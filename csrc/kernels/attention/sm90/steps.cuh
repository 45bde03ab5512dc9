// SPDX-License-Identifier: MIT OR Apache-2.0
// The math of attention: out = softmax(Q K^T / sqrt(dim)) V with a running maximum and sum, 64 queries per warpgroup
// and 128 tokens per step. Scores and outputs are accumulators; weights are rounded in registers, where they are
// operand A of the second product.
#pragma once
#include "cute/tensor.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cutlass/half.h"
#include "kernels/common/sm90/fragment.cuh"

namespace cusync::kernels::sm90 {

/// Tokens per step. A ring stage holds two halves of these tokens by 64 columns, in 128-byte rows under the 128-byte
/// swizzle: both halves of the keys or values of a step, or, with heads of 64 columns, its keys and its values.
inline constexpr uint32_t kPromptTokens = CUSYNC_PROMPT_TOKENS;
inline constexpr uint32_t kPromptHalfBytes = kPromptTokens * 128;

struct Prompt {
  uint32_t tokens;  ///< per sequence
  uint16_t tiles;   ///< per sequence and head
  uint16_t group;   ///< query heads that share keys and values
  uint8_t causal;
  uint8_t appends;  ///< tiles of a group's first head append their own tokens' keys and values to a cache
};

/// The queries of a head with `Dim` columns, in 128-byte rows under the 128-byte swizzle.
template <int Dim>
struct HeadRows {
  char *first, *second;  ///< 64 columns each; heads of 64 columns have only the first
};

/// A descriptor of operand rows of 128 bytes under the 128-byte swizzle, in contiguous groups of 8 rows. `leading`:
/// bytes from one block of 64 columns to the next, if the columns are not the reduction dimension.
CUSYNC_DEVICE cute::GmmaDescriptor rows_descriptor(void const* shared, uint32_t leading) {
  cute::GmmaDescriptor descriptor;
  descriptor.bitfield.start_address_ = uint16_t(cute::cast_smem_ptr_to_uint(shared) >> 4);
  descriptor.bitfield.leading_byte_offset_ = uint16_t(leading >> 4);
  descriptor.bitfield.stride_byte_offset_ = 1024 >> 4;
  descriptor.bitfield.base_offset_ = 0;
  descriptor.bitfield.layout_type_ = uint8_t(cute::SM90::GMMA::LayoutType::B128);
  return descriptor;
}

/// An operand's descriptor as an argument of cute's atoms, advanced by `bytes`.
CUSYNC_DEVICE auto descriptor_at(cute::GmmaDescriptor descriptor, uint32_t bytes) {
  descriptor.reg32_[0] += bytes >> 4;
  return cute::make_tensor(cute::SM90::GMMA::DescriptorIterator{descriptor}, cute::Layout<cute::_1>{});
}

/// log2(e) / sqrt(Dim): converts scores to exponents of two.
template <int Dim>
inline constexpr float kScoreScale = Dim == 128 ? 0.12751743f : 0.18033688f;

/// The running softmax of a thread's two rows.
struct Softmax {
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};

  /// Turns scores into weights, in place. `rescale`: factor on earlier weights. `scale`: factor on scores, for powers
  /// of two.
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

  /// The sum of a row's weights.
  CUSYNC_DEVICE float whole(int half) const {
    float all = sum[half];
    all += __shfl_xor_sync(~0u, all, 1);
    all += __shfl_xor_sync(~0u, all, 2);
    return all;
  }
};

/// Steps `begin`, `begin + stride`, ... before `end` for 64 queries that begin at token `first_row` of their sequence;
/// one warpgroup. `sums` are the outputs, not yet divided by the softmax sums; without a step they are
/// unchanged.
///
/// `ring` provides the operands: `ring.wait()` waits for the current ring stage, `ring.half(i)` is the address of its
/// half i, and `ring.leave()` releases it and advances. Keys and values are in consecutive stages, or are the halves of
/// one stage.
template <class Element, int Dim, class Ring, class Sums>
CUSYNC_DEVICE void attend_steps(Prompt const& prompt, uint32_t first_row, HeadRows<Dim> const& queries, uint32_t begin, uint32_t end,
                                uint32_t stride, Ring& ring, Softmax& softmax, Sums& sums, int thread) {
  using namespace cute;
  using OfScores = MMA_Atom<decltype(SM90::GMMA::ss_op_selector<Element, Element, float, Shape<_64, _128, _16>,
                                                                 SM90::GMMA::Major::K, SM90::GMMA::Major::K>())>;
  using OfSums = MMA_Atom<decltype(SM90::GMMA::rs_op_selector<Element, Element, float, Shape<_64, Int<Dim>, _16>,
                                                               SM90::GMMA::Major::K, SM90::GMMA::Major::MN>())>;
  constexpr bool wide = Dim == 128;
  constexpr int kScores = 64, kSums = Dim / 2;  // per thread
  // In bf16 the rounding errors of weights are multiplied too: rounding weights would cost at least as much precision
  // as rounding the outputs.
  constexpr int kParts = std::is_same_v<Element, cutlass::half_t> ? 1 : 2;
  Fragment const at(thread % 128);
  float s[kScores];
  uint32_t weights[kParts][kScores / 2];
  Tensor scores = make_tensor(&s[0], Layout<Int<kScores>>{});
  OfScores of_scores;
  OfSums of_sums;

  auto const multiply_scores = [&] {
    // Otherwise the descriptors of all query parts would stay in registers across steps.
    GmmaDescriptor of_queries[2] = {rows_descriptor(queries.first, 16), rows_descriptor(queries.second, 16)};
    of_queries[0].reg32_[0] = ptx::opaque(of_queries[0].reg32_[0]), of_queries[1].reg32_[0] = ptx::opaque(of_queries[1].reg32_[0]);
    warpgroup_fence_operand(scores);
    warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < Dim / 16; ++i) {
      auto const a = descriptor_at(of_queries[i / 4], i % 4 * 32);
      auto const b = descriptor_at(rows_descriptor(ring.half(i / 4), 16), i % 4 * 32);
      of_scores.accumulate_ = i ? SM90::GMMA::ScaleOut::One : SM90::GMMA::ScaleOut::Zero;
      of_scores.call(scores, a, b, scores);
    }
    warpgroup_commit_batch();
  };
  auto const multiply_weights = [&](bool first) {
    warpgroup_fence_operand(sums);
    warpgroup_arrive();
    char const* const half = ring.half(wide ? 0 : 1);
    auto const values = rows_descriptor(half, uint32_t(ring.half(1) - half));
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
    uint32_t const from = k * kPromptTokens, to = from + kPromptTokens;
    if (to <= prompt.tokens && !(prompt.causal && to > first_row + 1)) return;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      uint32_t const row = first_row + at.row + (i / 2 % 2) * 8, token = from + i / 4 * 8 + at.col + i % 2;
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
  float rescale[2];
#pragma unroll 1
  for (uint32_t k = begin; k < end; k += stride) {
    ring.wait();
    multiply_scores();
    warpgroup_wait<0>();
    warpgroup_fence_operand(scores);
    if constexpr (wide) ring.leave();
    mask(k);
    softmax.take(s, rescale, kScoreScale<Dim>);
    if (k > begin)
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums(i) *= rescale[i / 2 % 2];
    round();
    if constexpr (wide) ring.wait();
    multiply_weights(k == begin);
    warpgroup_wait<0>();
    warpgroup_fence_operand(sums);
    ring.leave();
  }
}

}  // namespace cusync::kernels::sm90
