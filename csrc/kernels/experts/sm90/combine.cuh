// SPDX-License-Identifier: MIT OR Apache-2.0
// The last kernel of a mixture of experts: weighted sums of each row's output rows.
#pragma once
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/experts/sm90/lists.cuh"

namespace cusync::kernels::sm90 {
namespace experts {

/// A thread has eight columns of a row.
template <class Element>
__global__ void __launch_bounds__(kRowThreads) combine(Experts const experts) {
  using Words = Group<Element>;
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  uint32_t const vectors = experts.width / 8;
  uint64_t const at = uint64_t(blockIdx.x) * kRowThreads + threadIdx.x;
  if (at >= uint64_t(experts.rows) * vectors) return;
  uint64_t const row = at / vectors, vector = at % vectors;
  // Lists and the residual are complete when the kernel before begins; only its output rows must be waited for. L1 may
  // still hold older values.
  uint4 bits{};
  if (experts.residual) bits = __ldcg(static_cast<uint4 const*>(experts.residual) + at);
  Words const residual = reinterpret_cast<Words const&>(bits);
  uint32_t places[CUSYNC_MAX_TOP_K];
  float weights[CUSYNC_MAX_TOP_K];
#pragma unroll
  for (uint32_t j = 0; j < CUSYNC_MAX_TOP_K; ++j)
    if (j < experts.top_k) {
      uint64_t const pair = row * experts.top_k + j;
      places[j] = __ldcg(experts.places + pair), weights[j] = __ldcg(experts.weights + pair);
    }
  ptx::griddepcontrol_wait();
  delay_at_any_time(experts.delays, DelayAt::kStore, blockIdx.x, threadIdx.x / 32);
  float sums[8] = {};
#pragma unroll
  for (uint32_t j = 0; j < CUSYNC_MAX_TOP_K; ++j)
    if (j < experts.top_k) {
      Words const words = static_cast<Words const*>(experts.outputs)[places[j] * uint64_t(vectors) + vector];
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i] += weights[j] * to_float(words.values[i]);
    }
  Words words;
#pragma unroll
  for (int i = 0; i < 8; ++i) words.values[i] = from_float<Element>(sums[i] + (experts.residual ? to_float(residual.values[i]) : 0.f));
  static_cast<Words*>(experts.out)[at] = words;
}

}  // namespace experts
}  // namespace cusync::kernels::sm90
