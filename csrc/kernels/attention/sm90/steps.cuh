// SPDX-License-Identifier: MIT OR Apache-2.0
// The math of attention: out = softmax(scores) V with a running maximum and sum, 64 queries per warpgroup and 128
// tokens per step, or 64 for heads of more than 128 columns. Scores and outputs are accumulators; weights are rounded in
// registers, where they are operand A of the second product. Heads of fewer than `Dim` columns are padded with zeros.
#pragma once
#include "cute/tensor.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cutlass/half.h"
#include "kernels/common/sm90/descriptor.cuh"
#include "kernels/common/sm90/fragment.cuh"

namespace cusync::kernels::sm90 {

/// Tokens per step: what keeps scores, weights and outputs in registers.
template <int Dim>
inline constexpr uint32_t kStepTokens = Dim > 128 ? CUSYNC_PROMPT_TOKENS / 2 : CUSYNC_PROMPT_TOKENS;
/// A step's keys, then its values, are pieces of 64 columns in 128-byte rows under the 128-byte swizzle. A ring stage
/// holds two pieces.
template <int Dim>
inline constexpr uint32_t kPieceBytes = kStepTokens<Dim> * 128;
/// Bytes of 64 queries by 64 columns.
inline constexpr uint32_t kUnitBytes = 64 * 128;

struct Prompt {
  uint32_t tokens;  ///< per sequence
  uint16_t tiles;   ///< per sequence and head
  uint16_t group;   ///< query heads that share keys and values
  uint8_t causal;
  uint8_t appends;  ///< tiles of a group's first head append their own tokens' keys and values to a cache
  uint32_t window;  ///< tokens that a token attends to, itself included; 0: all
  float capped;     ///< factor on products of queries and keys in front of a tanh; 0: no tanh
  float scale;      ///< factor on scores, for powers of two
};

/// The steps of 64 queries: those over cached tokens, then those over the tokens of the prompt. Positions are counted from
/// the first token of the sequence.
struct Steps {
  uint32_t past = 0;          ///< cached tokens of the sequence
  uint32_t first_cached = 0;  ///< token of the first step over cached tokens
  uint32_t cached = 0;        ///< steps over cached tokens
  uint32_t first_own = 0;     ///< token of the prompt, of the first step behind them
  uint32_t all = 0;

  /// Position of the first token of a step.
  template <int Dim>
  CUSYNC_DEVICE uint32_t position(uint32_t step) const {
    return step < cached ? first_cached + step * kStepTokens<Dim> : past + first_own + (step - cached) * kStepTokens<Dim>;
  }
};

/// The running softmax of a thread's two rows. Maxima begin with a finite number: a window can hide all of a step.
struct Softmax {
  float most[2] = {-1e30f, -1e30f}, sum[2] = {0.f, 0.f};

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

/// Steps `begin`, `begin + stride`, ... of 64 queries that begin at position `first_row`; one warpgroup. `queries` are units
/// of 64 columns. `sums` are the outputs, not yet divided by the softmax sums; without a step they are unchanged.
///
/// `ring` provides the operands: `ring.wait(n)` waits for the current ring stage and the n - 1 behind it, `ring.piece(i)`
/// is the address of piece i from the current stage on, and `ring.leave(n)` releases n stages and advances. `ring.barrier`
/// is a named barrier of the warpgroup. `Usual`: there are neither cached tokens nor a window nor a tanh.
template <class Element, int Dim, bool Usual, class Ring, class Sums>
CUSYNC_DEVICE void attend_steps(Prompt const& prompt, uint32_t first_row, Steps const& steps, char const* queries, uint32_t begin,
                                uint32_t stride, Ring& ring, Softmax& softmax, Sums& sums, int thread) {
  using namespace cute;
  using OfScores = MMA_Atom<decltype(SM90::GMMA::ss_op_selector<Element, Element, float, Shape<_64, Int<int(kStepTokens<Dim>)>, _16>,
                                                                 SM90::GMMA::Major::K, SM90::GMMA::Major::K>())>;
  using OfSums = MMA_Atom<decltype(SM90::GMMA::rs_op_selector<Element, Element, float, Shape<_64, Int<Dim>, _16>,
                                                               SM90::GMMA::Major::K, SM90::GMMA::Major::MN>())>;
  constexpr uint32_t kTokens = kStepTokens<Dim>, kPieces = Dim / 64, kStages = ceil_div(kPieces, 2u);  // of keys, and of values
  constexpr int kScores = kTokens / 2, kSums = Dim / 2;  // per thread
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
    GmmaDescriptor of_queries[kPieces];
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      of_queries[i] = rows_descriptor(queries + i * kUnitBytes, 16);
      of_queries[i].reg32_[0] = ptx::opaque(of_queries[i].reg32_[0]);
    }
    warpgroup_fence_operand(scores);
    warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < Dim / 16; ++i) {
      auto const a = descriptor_at(of_queries[i / 4], i % 4 * 32);
      auto const b = descriptor_at(rows_descriptor(ring.piece(i / 4), 16), i % 4 * 32);
      of_scores.accumulate_ = i ? SM90::GMMA::ScaleOut::One : SM90::GMMA::ScaleOut::Zero;
      of_scores.call(scores, a, b, scores);
    }
    warpgroup_commit_batch();
  };
  auto const multiply_weights = [&](bool first) {
    warpgroup_fence_operand(sums);
    warpgroup_arrive();
    // A ring stage of the smallest heads holds keys too.
    auto const values = rows_descriptor(ring.piece(kPieces % 2), kPieceBytes<Dim>);
#pragma unroll
    for (int i = 0; i < int(kTokens) / 16; ++i)
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        auto const a = make_tensor(weights[part] + 4 * i, Layout<_4>{});
        of_sums.accumulate_ = first && i + part == 0 ? SM90::GMMA::ScaleOut::Zero : SM90::GMMA::ScaleOut::One;
        of_sums.call(sums, a, descriptor_at(values, i * 16 * 128), sums);
      }
    warpgroup_commit_batch();
  };
  auto const mask = [&](uint32_t k) {
    uint32_t const from = Usual ? k * kTokens : steps.position<Dim>(k), to = from + kTokens;
    // Behind the cached tokens of the last of their steps are rows that hold none.
    uint32_t const tokens = Usual ? prompt.tokens : k < steps.cached ? steps.past : steps.past + prompt.tokens;
    bool const hides = !Usual && prompt.window && from + prompt.window < first_row + 64;
    if (to <= tokens && !(prompt.causal && to > first_row + 1) && !hides) return;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      uint32_t const row = first_row + at.row + (i / 2 % 2) * 8, token = from + i / 4 * 8 + at.col + i % 2;
      bool const late = token >= tokens || (prompt.causal && token > row);
      if (late || (!Usual && prompt.window && token + prompt.window <= row)) s[i] = -INFINITY;
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
  // A weight of zero does not hide a NaN in the rows behind the cached tokens.
  auto const clear_behind = [&](uint32_t k) {
    uint32_t const tokens = steps.past % kTokens;
    if (k + 1 != steps.cached || tokens == 0) return;
#pragma unroll
    for (uint32_t piece = 0; piece < kPieces; ++piece) {
      char* const rows = ring.piece(kPieces % 2 + piece);
      for (uint32_t at = tokens * 128 + thread * 16; at < kPieceBytes<Dim>; at += 128 * 16) *reinterpret_cast<uint4*>(rows + at) = uint4{};
    }
    ptx::fence_proxy_async_shared_cta();
    ptx::bar_sync(ring.barrier, 128);
  };
  auto const cap = [&] {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = fmaf(2.f, sigmoid(2.f * prompt.capped * s[i]), -1.f);
  };
  float rescale[2];
#pragma unroll 1
  for (uint32_t k = begin; k < steps.all; k += stride) {
    ring.wait(kStages);
    multiply_scores();
    warpgroup_wait<0>();
    warpgroup_fence_operand(scores);
    if constexpr (kPieces > 1) ring.leave(kStages);
    if (!Usual && prompt.capped > 0.f) cap();
    mask(k);
    softmax.take(s, rescale, prompt.scale);
    if (k > begin)
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums(i) *= rescale[i / 2 % 2];
    round();
    if constexpr (kPieces > 1) ring.wait(kStages);
    if constexpr (!Usual) clear_behind(k);
    multiply_weights(k == begin);
    warpgroup_wait<0>();
    warpgroup_fence_operand(sums);
    ring.leave(kStages);
  }
}

}  // namespace cusync::kernels::sm90
