// SPDX-License-Identifier: MIT OR Apache-2.0
// The first kernels of a mixture of experts: each row chooses its experts, and pairs of row and expert are listed,
// expert by expert.
#pragma once
#include "cusync/semaphore.cuh"
#include "kernels/common/delays.cuh"
#include "kernels/common/element.cuh"
#include "kernels/experts/layout.h"

namespace cusync::kernels::sm90 {
namespace experts {

inline constexpr uint32_t kListThreads = 1024, kRowThreads = 256;
inline constexpr uint32_t kFewRows = 64;  ///< that the listing CTA chooses for itself
inline constexpr uint32_t kScores = CUSYNC_MAX_EXPERTS / 32;  ///< of a lane
inline constexpr uint32_t kLast = 0xffff;  ///< more than any expert's number

/// The operands, scratch memory and sizes of a stage.
struct Experts {
  void const* x;
  void const* router;
  void const* residual;  ///< optional
  void* out;
  uint32_t* chosen;
  float* weights;
  uint32_t* places;
  uint32_t* listed;
  uint32_t* count;    ///< of tiles
  ExpertTile* tiles;
  void* hidden;
  void* outputs;
  uint32_t rows, width, features, experts, top_k;
  uint32_t pairs;     ///< of a tile
  uint32_t normalized, activation;
  cusync_delays delays;
};

/// A score and its expert as a number that is larger for a larger score, and of equal scores for the first expert. A score
/// that is not a number comes last.
template <class Element>
CUSYNC_DEVICE uint32_t rank_of(Element score, uint32_t expert) {
  float const value = to_float(score);
  if (value != value) return kLast - expert;
  // Both zeros are equal.
  uint32_t const bits = value == 0.f ? 0 : reinterpret_cast<uint16_t const&>(score);
  uint32_t const ordered = bits & 0x8000u ? ~bits & 0xffffu : bits | 0x8000u;
  return ordered << 16 | (kLast - expert);
}

/// The score of a rank.
template <class Element>
CUSYNC_DEVICE float score_of(uint32_t rank) {
  uint32_t const ordered = rank >> 16;
  uint16_t const bits = uint16_t(ordered & 0x8000u ? ordered & 0x7fffu : ~ordered);
  return to_float(reinterpret_cast<Element const&>(bits));
}

/// The experts of a row, and their weights; one warp.
template <class Element>
CUSYNC_DEVICE void choose_row(Experts const& experts, uint32_t row, uint32_t* chosen) {
  uint32_t const lane = threadIdx.x % 32, turns = (experts.experts + 31) / 32;
  auto const scores = static_cast<Element const*>(experts.router) + uint64_t(row) * experts.experts;
  uint32_t ranks[kScores] = {};  ///< of the lane's experts that are not chosen; 0: none
#pragma unroll
  for (uint32_t i = 0; i < kScores && i < turns; ++i)
    if (lane + 32 * i < experts.experts) ranks[i] = rank_of(scores[lane + 32 * i], lane + 32 * i);
  float most = 0.f, sum = 0.f, own = 0.f, rest = 0.f;
  uint32_t taken = 0;
  for (uint32_t j = 0; j < experts.top_k; ++j) {
    uint32_t best = 0;
#pragma unroll
    for (uint32_t i = 0; i < kScores && i < turns; ++i) best = ranks[i] > best ? ranks[i] : best;
    best = __reduce_max_sync(~0u, best);
#pragma unroll
    for (uint32_t i = 0; i < kScores && i < turns; ++i)
      if (ranks[i] == best) ranks[i] = 0;
    float const score = score_of<Element>(best);
    if (j == 0) most = score;
    float const power = __expf(score - most);
    sum += power;
    if (lane == j) own = power, taken = kLast - (best & 0xffffu);
  }
  if (!experts.normalized) {
#pragma unroll
    for (uint32_t i = 0; i < kScores && i < turns; ++i)
      if (ranks[i]) rest += __expf(score_of<Element>(ranks[i]) - most);
#pragma unroll
    for (uint32_t step = 16; step; step /= 2) rest += __shfl_xor_sync(~0u, rest, step);
  }
  if (lane < experts.top_k) {
    uint64_t const pair = uint64_t(row) * experts.top_k + lane;
    chosen[pair] = taken, experts.weights[pair] = own / (sum + rest);
  }
}

template <class Element>
__global__ void __launch_bounds__(kRowThreads) choose(Experts const experts) {
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  delay_at_any_time(experts.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);
  uint32_t const row = blockIdx.x * (kRowThreads / 32) + threadIdx.x / 32;
  if (row < experts.rows) choose_row<Element>(experts, row, experts.chosen);
}

/// Sums of two values over the threads before each, for the first CUSYNC_MAX_EXPERTS; the memory holds those of warps.
CUSYNC_DEVICE uint2 before(uint2 own, uint2 (&of_warps)[kListThreads / 32]) {
  uint32_t const lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint2 sum = own;
#pragma unroll
  for (uint32_t step = 1; step < 32; step *= 2) {
    uint32_t const x = __shfl_up_sync(~0u, sum.x, step), y = __shfl_up_sync(~0u, sum.y, step);
    if (lane >= step) sum.x += x, sum.y += y;
  }
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  if (threadIdx.x < CUSYNC_MAX_EXPERTS)
    for (uint32_t i = 0; i < warp; ++i) sum.x += of_warps[i].x, sum.y += of_warps[i].y;
  return {sum.x - own.x, sum.y - own.y};
}

template <class Element>
__global__ void __launch_bounds__(kListThreads) list(Experts const experts) {
  __shared__ uint32_t pairs_of[CUSYNC_MAX_EXPERTS], next[CUSYNC_MAX_EXPERTS];
  __shared__ uint2 of_warps[kListThreads / 32];
  __shared__ uint32_t chosen_here[kFewRows * CUSYNC_MAX_TOP_K];
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  delay_at_any_time(experts.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);
  if (threadIdx.x < CUSYNC_MAX_EXPERTS) pairs_of[threadIdx.x] = 0;
  uint32_t* const chosen = experts.rows <= kFewRows ? chosen_here : experts.chosen;
  if (experts.rows <= kFewRows)
    for (uint32_t row = threadIdx.x / 32; row < experts.rows; row += kListThreads / 32) choose_row<Element>(experts, row, chosen);
  __syncthreads();
  uint32_t const pairs = experts.rows * experts.top_k;
  for (uint32_t pair = threadIdx.x; pair < pairs; pair += kListThreads) atomicAdd(&pairs_of[chosen[pair]], 1);
  __syncthreads();
  uint32_t const expert = threadIdx.x, own = expert < experts.experts ? pairs_of[expert] : 0;
  uint32_t const tiles = (own + experts.pairs - 1) / experts.pairs;
  uint2 const first = before({own, tiles}, of_warps);
  if (expert < experts.experts) next[expert] = first.x;
  for (uint32_t i = 0; i < tiles; ++i) {
    uint32_t const done = i * experts.pairs, rest = own - done;
    experts.tiles[first.y + i] = {expert, first.x + done, rest < experts.pairs ? rest : experts.pairs};
  }
  if (expert + 1 == experts.experts) *experts.count = first.y + tiles;
  __syncthreads();
  // The order of an expert's pairs may differ from run to run; no result depends on it.
  for (uint32_t pair = threadIdx.x; pair < pairs; pair += kListThreads) {
    uint32_t const place = atomicAdd(&next[chosen[pair]], 1);
    experts.listed[place] = pair, experts.places[pair] = place;
  }
}

}  // namespace experts
}  // namespace cusync::kernels::sm90
