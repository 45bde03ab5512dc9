// SPDX-License-Identifier: MIT OR Apache-2.0
// A normalisation that has a launch to itself: a CTA a row, which its threads keep in registers. It follows no list and no slot, for
// its launch is behind the one before. A chain kernel would do the same work, but its 200 KB of code are far away whenever a layer's
// weights have passed through the L2, and fetching them takes longer than normalising. These are 12 KB.
#include "cusync/ptx.cuh"
#include "kernels/common/element.cuh"
#include "kernels/common/host.h"
#include "kernels/norm/sm90/alone.h"

namespace cusync::kernels {
namespace {

constexpr uint32_t kElements = 8, kVectors = 4;  ///< of a vector; of a thread
constexpr uint32_t kMostThreads = 1024;

struct RowNorm {
  void const* x;
  void const* gain;
  void const* bias;  ///< or null
  void* out;
  uint32_t vectors;  ///< of a row
  uint32_t centred;
  float epsilon, share;  ///< one over the columns
};

/// The sum of a value of each thread, the same bits in every thread and in every run: lanes by a butterfly, then warps by another.
__device__ float sum_of_cta(float value, float* of_warps) {
  auto const butterfly = [](float sum) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
  };
  uint32_t const lane = threadIdx.x % 32;
  value = butterfly(value);
  if (lane == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  return butterfly(lane < blockDim.x / 32 ? of_warps[lane] : 0.f);
}

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

template <class Element>
__global__ void __launch_bounds__(kMostThreads) normalise(RowNorm const norm) {
  __shared__ float sums[2][kMostThreads / 32];
  // What follows waits for the end of this launch, so it may take an SM as soon as there is room.
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  constexpr Element const* type = nullptr;
  uint32_t const thread = threadIdx.x, threads = blockDim.x;
  auto const has = [&](uint32_t j) { return thread + j * threads < norm.vectors; };
  auto const each = [&](void const* of, auto&& f) {
    auto const from = static_cast<uint4 const*>(of) + thread;
#pragma unroll
    for (uint32_t j = 0; j < kVectors; ++j)
      if (has(j)) f(from + j * threads, j);
  };
  auto const ask = [](uint4 const* from, uint32_t) { ptx::prefetch_global_l2(from); };
  each(norm.gain, ask);
  if (norm.bias) each(norm.bias, ask);
  ptx::griddepcontrol_wait();

  uint64_t const row = uint64_t(blockIdx.x) * norm.vectors;
  uint32_t x[kVectors][4] = {}, gain[kVectors][4];
  auto const take = [](uint32_t (&to)[4], uint4 words) {
    to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
  };
  // Rows leave the L2 first: what is made of them is what the next launch reads. The gain and bias stay in the L1 for an SM's next CTA.
  each(static_cast<uint4 const*>(norm.x) + row, [&](uint4 const* from, uint32_t j) { take(x[j], __ldcs(from)); });
  each(norm.gain, [&](uint4 const* from, uint32_t j) { take(gain[j], __ldg(from)); });
  // From the mean, and not from two sums: their difference would lose what a large mean leaves of it.
  float mean = 0.f, variance = 0.f;
#pragma unroll 1
  for (int squared = !norm.centred; squared < 2; ++squared) {
    float2 sum{};
    each(nullptr, [&](uint4 const*, uint32_t j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float2 const v = pair(ptx::opaque(x[j][i]), type);  // or both passes would keep its floats
        float2 const apart{v.x - mean, v.y - mean};
        sum.x += apart.x * (squared ? apart.x : 1.f), sum.y += apart.y * (squared ? apart.y : 1.f);
      }
    });
    float const found = sum_of_cta(sum.x + sum.y, sums[squared]) * norm.share;
    (squared ? variance : mean) = found;
  }
  float const scale = rsqrtf(variance + norm.epsilon);
  each(norm.bias, [&](uint4 const* from, uint32_t j) {
    uint32_t bias[4];
    take(bias, norm.bias ? __ldg(from) : uint4{});
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 const v = pair(x[j][i], type), g = pair(gain[j][i], type), b = pair(bias[i], type);
      x[j][i] = word({(v.x - mean) * scale * g.x + b.x, (v.y - mean) * scale * g.y + b.y}, type);
    }
    static_cast<uint4*>(norm.out)[row + thread + j * threads] = {x[j][0], x[j][1], x[j][2], x[j][3]};
  });
}

uint32_t threads_for(uint32_t vectors) { return ceil_div(ceil_div(vectors, kVectors), 32) * 32; }

}  // namespace

int32_t create_norm_alone(Request const& request, cusync_kernel** out) {
  cusync_stage const& stage = request.stages[0];
  if (threads_for(stage.n / kElements) > kMostThreads) return CUSYNC_ERROR_NOT_BUILT;
  return with_element(request.kernel.id.element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    RowNorm const norm{data_of(stage, CUSYNC_OPERAND_A),
                       data_of(stage, CUSYNC_OPERAND_GAIN),
                       data_of(stage, CUSYNC_OPERAND_BIAS),
                       stage.out,
                       stage.n / kElements,
                       stage.norm.centred,
                       stage.norm.epsilon,
                       1.f / float(stage.n)};
    Code const code{reinterpret_cast<void const*>(normalise<Element>), CUSYNC_SM90A, threads_for(norm.vectors), 0};
    uint32_t resident = 0;
    if (int32_t const status = kernels::resident(code, 0, &resident); status != CUSYNC_OK) return status;
    return ready(code, stage.m, norm, out);
  });
}

}  // namespace cusync::kernels
