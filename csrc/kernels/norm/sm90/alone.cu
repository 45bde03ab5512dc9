// SPDX-License-Identifier: MIT OR Apache-2.0
// Standalone normalization: one CTA per row, or per two rows if there are many wide ones, kept in registers. It uses no
// list and no slots, because stream order puts the launch after its predecessor. A chain kernel would do the same work,
// but a layer's weights evict its 200 KB of code from L2, and fetching them again takes longer than the normalization.
// These kernels have 10 KB of code for one row and 17 KB for two.
#include "cusync/ptx.cuh"
#include "kernels/common/delays.cuh"
#include "kernels/common/element.cuh"
#include "kernels/common/host.h"
#include "kernels/common/sum_of_cta.cuh"

namespace cusync::kernels {
namespace {

constexpr uint32_t kElements = 8, kVectors = 4;  ///< elements per vector; vectors per thread
/// Threads of a CTA for one row, and for two: with two rows a thread has 80 registers, so that two CTAs fit on an SM.
constexpr uint32_t kMostThreads = 1024, kLeastOfTwo = 257, kMostOfTwo = 384;

struct RowNorm {
  void const* x;
  void const* gain;
  void const* bias;      ///< optional
  void const* residual;  ///< optional: as many rows as x
  void* out;
  uint32_t rows, vectors;  ///< all rows; vectors per row
  uint32_t centred;
  float one;             ///< added to the gain
  float epsilon, share;  ///< share: 1 / number of columns
  cusync_delays delays;
};

/// The two elements of a word.
__device__ float2 pair(uint32_t word, __half const*) { return __half22float2(reinterpret_cast<__half2 const&>(word)); }
__device__ float2 pair(uint32_t word, __nv_bfloat16 const*) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000)};
}
__device__ uint32_t word(float2 pair, __half const*) {
  __half2 const rounded = __float22half2_rn(pair);
  return reinterpret_cast<uint32_t const&>(rounded);
}
__device__ uint32_t word(float2 pair, __nv_bfloat16 const*) {
  __nv_bfloat162 const rounded = __float22bfloat162_rn(pair);
  return reinterpret_cast<uint32_t const&>(rounded);
}

template <class Element, int kRows>
__global__ void __launch_bounds__(kRows == 1 ? kMostThreads : kMostOfTwo, kRows) normalise(RowNorm const norm) {
  __shared__ float sums[2][kRows][kMostThreads / 32];
  // The next kernel waits for this launch to complete, so it may take an SM as soon as there is room.
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  constexpr Element const* type = nullptr;
  uint32_t const thread = threadIdx.x, threads = blockDim.x, first = blockIdx.x * kRows;
  auto const has = [&](uint32_t j) { return thread + j * threads < norm.vectors; };
  auto const each = [&](void const* base, auto&& f) {
    auto const from = static_cast<uint4 const*>(base) + thread;
#pragma unroll
    for (uint32_t j = 0; j < kVectors; ++j)
      if (has(j)) f(from + j * threads, j);
  };
  auto const ask = [](uint4 const* from, uint32_t) { ptx::prefetch_global_l2(from); };
  each(norm.gain, ask);
  if (norm.bias) each(norm.bias, ask);
  ptx::griddepcontrol_wait();
  delay_at_any_time(norm.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);

  uint32_t x[kRows][kVectors][4] = {}, gain[kVectors][4];
  auto const take = [](uint32_t (&to)[4], uint4 words) {
    to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
  };
  auto const row = [&](void const* base, int r) { return static_cast<uint4 const*>(base) + uint64_t(first + r) * norm.vectors; };
  // Evict the rows from L2 first: the next launch reads their results instead. Gain and bias stay in L1 for the SM's
  // next CTA: read from L2 by each CTA they would be at least half of the L2 traffic of a wide row.
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (first + r < norm.rows) each(row(norm.x, r), [&](uint4 const* from, uint32_t j) { take(x[r][j], __ldcs(from)); });
  each(norm.gain, [&](uint4 const* from, uint32_t j) { take(gain[j], __ldg(from)); });
  // Two passes, because the difference of two sums would lose precision if the mean is large.
  float mean[kRows] = {}, variance[kRows] = {};
#pragma unroll 1
  for (int squared = !norm.centred; squared < 2; ++squared) {
    float2 sum[kRows]{};
    each(nullptr, [&](uint4 const*, uint32_t j) {
#pragma unroll
      for (int i = 0; i < 4 * kRows; ++i) {
        int const r = i / 4;
        float2 const v = pair(ptx::opaque(x[r][j][i % 4]), type);  // or both passes keep its floats in registers
        float2 const apart{v.x - mean[r], v.y - mean[r]};
        sum[r].x += apart.x * (squared ? apart.x : 1.f), sum[r].y += apart.y * (squared ? apart.y : 1.f);
      }
    });
    float found[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) found[r] = sum[r].x + sum[r].y;
    sum_of_cta(found, sums[squared]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) (squared ? variance : mean)[r] = found[r] * norm.share;
  }
  float scale[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) scale[r] = rsqrtf(variance[r] + norm.epsilon);
  delay_at_any_time(norm.delays, DelayAt::kStore, blockIdx.x, threadIdx.x / 32);
  each(norm.bias, [&](uint4 const* from, uint32_t j) {
    uint32_t bias[4];
    take(bias, norm.bias ? __ldg(from) : uint4{});
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      uint32_t made[4], added[4];
      take(added, norm.residual && first + r < norm.rows ? __ldcs(row(norm.residual, r) + thread + j * threads) : uint4{});
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float2 const v = pair(x[r][j][i], type), g = pair(gain[j][i], type), b = pair(bias[i], type);
        float2 const d = pair(added[i], type);
        made[i] = word({(v.x - mean[r]) * scale[r] * (g.x + norm.one) + b.x + d.x, (v.y - mean[r]) * scale[r] * (g.y + norm.one) + b.y + d.y}, type);
      }
      if (first + r < norm.rows)
        const_cast<uint4*>(row(norm.out, r))[thread + j * threads] = {made[0], made[1], made[2], made[3]};
    }
  });
}

uint32_t threads_for(uint32_t vectors) { return ceil_div(ceil_div(vectors, kVectors), 32) * 32; }

template <class Element, int kRows>
Code code(uint32_t threads) {
  return {reinterpret_cast<void const*>(normalise<Element, kRows>), CUSYNC_SM90A, threads, 0};
}

template <class Element, int kRows>
int32_t create_for(RowNorm const& norm, cusync_kernel** out) {
  Code const own = code<Element, kRows>(threads_for(norm.vectors));
  uint32_t resident = 0;
  if (int32_t const status = kernels::resident(own, 0, &resident); status != CUSYNC_OK) return status;
  return ready(own, ceil_div(norm.rows, uint32_t(kRows)), norm, out);
}

template <class Element, cusync_element Number>
struct Norm {
  static constexpr cusync_operation kOperation = CUSYNC_NORM;
  static constexpr uint32_t kElement = Number;

  static Code code() { return kernels::code<Element, 1>(kMostThreads); }
  static int32_t create(Request const& request, cusync_kernel** out) {
    cusync_stage const& stage = request.stages[0];
    uint32_t const threads = threads_for(stage.n / kElements);
    if (threads > kMostThreads) return CUSYNC_ERROR_NOT_BUILT;
    int sms = 0;
    if (cudaError_t const error = ask(&sms, cudaDevAttrMultiProcessorCount); error) return status_of(error);
    RowNorm const norm{data_of(stage, CUSYNC_OPERAND_A),
                       data_of(stage, CUSYNC_OPERAND_GAIN),
                       data_of(stage, CUSYNC_OPERAND_BIAS),
                       data_of(stage, CUSYNC_OPERAND_RESIDUAL),
                       stage.out,
                       stage.m,
                       stage.n / kElements,
                       stage.shape.norm.centred,
                       float(stage.shape.norm.one_plus_gain),
                       stage.shape.norm.epsilon,
                       1.f / float(stage.n),
                       request.sync.test.delays};
    // Rows so wide that an SM holds at most three are taken in pairs: an SM then holds four, and a pair shares gain and
    // bias. If there are few rows, each has its own SM.
    bool const two = stage.m >= 2 * uint32_t(sms) && threads >= kLeastOfTwo && threads <= kMostOfTwo;
    return two ? create_for<Element, 2>(norm, out) : create_for<Element, 1>(norm, out);
  }
};

}  // namespace

KernelTable alone_sm90_norm_f16() { return alone<Norm<__half, CUSYNC_F16>>(); }
KernelTable alone_sm90_norm_bf16() { return alone<Norm<__nv_bfloat16, CUSYNC_BF16>>(); }

}  // namespace cusync::kernels
