// SPDX-License-Identifier: MIT OR Apache-2.0
// Standalone normalization of groups of channels: a cluster of CTAs per image and group, each with an even share of the
// image's pixels. A CTA keeps its share in shared memory if it fits, and otherwise reads it twice. Like the kernel that
// normalizes rows, it uses no list and no slots, because stream order puts the launch after its predecessor.
#include <cooperative_groups.h>

#include "cusync/ptx.cuh"
#include "kernels/common/activation.cuh"
#include "kernels/common/delays.cuh"
#include "kernels/common/element.cuh"
#include "kernels/common/host.h"
#include "kernels/common/sum_of_cta.cuh"

namespace cusync::kernels {
namespace {

constexpr uint32_t kMostThreads = 512, kMostCtas = 8;  ///< of a CTA; of a cluster, which every GPU supports
/// Bytes of a share: more fill the threads of a CTA several times; more do not fit in shared memory.
constexpr uint32_t kFewBytes = 4 << 10, kMostKept = 220 << 10;

struct GroupNorm {
  void const* x;
  void const* gain;
  void const* bias;
  void* out;
  uint32_t channels, groups, pixels;
  uint32_t ctas, share;  ///< of a cluster; pixels of a CTA, the last one may have fewer
  uint32_t kept;         ///< 1: the share fits in shared memory
  uint32_t activation;  ///< enum cusync_activation
  float epsilon, part;  ///< part: 1 / elements of a group
  cusync_delays delays;
};

/// Elements of one access: as many as divide a group, so that a group's pixels are whole accesses.
template <class Element, int kWidth>
struct alignas(kWidth * sizeof(Element)) Piece {
  Element values[kWidth];
};

/// Sums one value per thread over the cluster, in the order of its CTAs; bitwise identical in all threads and runs.
/// No other call may use the same memory. Other CTAs read `of_cta` until the cluster's next synchronization.
__device__ float sum_of_cluster(float value, float (&of_warps)[1][32], float& of_cta, uint32_t ctas) {
  float sum[1]{value};
  sum_of_cta(sum, of_warps);
  if (ctas == 1) return sum[0];
  auto const cluster = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) of_cta = sum[0];
  cluster.sync();
  float all = 0.f;
#pragma unroll
  for (uint32_t cta = 0; cta < kMostCtas; ++cta)
    if (cta < ctas) all += *cluster.map_shared_rank(&of_cta, cta);
  return all;
}

template <class Element, int kWidth>
__global__ void __launch_bounds__(kMostThreads, 2) normalise(GroupNorm const norm) {
  using Words = Piece<Element, kWidth>;
  constexpr uint32_t kAhead = kWidth == 8 ? 2 : 4;  // accesses in flight: two CTAs have 64 registers per thread
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float of_warps[2][1][32], of_cta[2];
  // The next kernel waits for this launch to complete, so it may take an SM as soon as there is room.
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  delay_at_any_time(norm.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);

  // Neighboring clusters have neighboring groups of one image, whose columns share sectors of L2.
  uint32_t const tile = blockIdx.x / norm.ctas, rank = blockIdx.x % norm.ctas;
  uint32_t const columns = norm.channels / norm.groups, pieces = columns / kWidth;
  uint32_t const first = tile % norm.groups * columns, begin = rank * norm.share;
  uint32_t const rows = begin < norm.pixels ? min(norm.share, norm.pixels - begin) : 0;
  uint64_t const origin = (uint64_t(tile / norm.groups) * norm.pixels + begin) * norm.channels + first;
  auto const x = static_cast<Element const*>(norm.x) + origin;
  auto const out = static_cast<Element*>(norm.out) + origin;
  auto const keep = reinterpret_cast<Words*>(memory);
  // A thread has the same columns in all of its pixels, so gain and bias stay in registers. Threads that are left over
  // have no pixels.
  uint32_t const across = min(pieces, blockDim.x), down = blockDim.x / across;
  uint32_t const row = threadIdx.x / across < down ? threadIdx.x / across : rows;
  auto const each = [&](uint32_t piece, bool kept, auto&& f) {
    for (uint32_t r = row; r < rows; r += kAhead * down) {
      auto const place = [&](uint32_t j) { return (r + j * down) * pieces + piece; };
      auto const at = [&](uint32_t j) { return uint64_t(r + j * down) * norm.channels + piece * kWidth; };
      Words words[kAhead];
#pragma unroll
      for (uint32_t j = 0; j < kAhead; ++j)
        if (r + j * down < rows) words[j] = kept ? keep[place(j)] : *reinterpret_cast<Words const*>(x + at(j));
#pragma unroll
      for (uint32_t j = 0; j < kAhead; ++j)
        if (r + j * down < rows) f(words[j], place(j), at(j));
    }
  };
  auto const columns_of_thread = [&](auto&& f) {
    for (uint32_t piece = threadIdx.x % across; piece < pieces; piece += across) f(piece);
  };

  // Sums of distances from the thread's first element: the difference of the sums of squares and of elements would lose
  // precision if the mean is large.
  bool any = false;
  float shift = 0.f, sum = 0.f, squares = 0.f, count = 0.f;
  columns_of_thread([&](uint32_t piece) {
    each(piece, false, [&](Words const& words, uint32_t place, uint64_t) {
      if (norm.kept) keep[place] = words;
      if (!any) shift = to_float(words.values[0]);
      any = true, count += kWidth;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float const apart = to_float(words.values[i]) - shift;
        sum += apart, squares += apart * apart;
      }
    });
  });
  float const mean = sum_of_cluster(sum + count * shift, of_warps[0], of_cta[0], norm.ctas) * norm.part;
  // Each thread's squares about the common mean, from those about its own.
  float const own = any ? sum / count : 0.f, away = shift + own - mean;
  float const spread = any ? fmaxf(squares - sum * own, 0.f) + count * away * away : 0.f;
  float const variance = sum_of_cluster(spread, of_warps[1], of_cta[1], norm.ctas) * norm.part;
  float const scale = rsqrtf(variance + norm.epsilon);

  delay_at_any_time(norm.delays, DelayAt::kStore, blockIdx.x, threadIdx.x / 32);
  columns_of_thread([&](uint32_t piece) {
    uint32_t const column = first + piece * kWidth;
    Words const gain = *reinterpret_cast<Words const*>(static_cast<Element const*>(norm.gain) + column);
    Words const bias = *reinterpret_cast<Words const*>(static_cast<Element const*>(norm.bias) + column);
    each(piece, norm.kept, [&](Words& words, uint32_t, uint64_t at) {
      float y[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        y[i] = (to_float(words.values[i]) - mean) * scale * to_float(gain.values[i]) + to_float(bias.values[i]);
      activate_all<kWidth, 1>(norm.activation, y);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) words.values[i] = from_float<Element>(y[i]);
      *reinterpret_cast<Words*>(out + at) = words;
    });
  });
  // A CTA's memory must not go while others may read its sums.
  if (norm.ctas > 1) cooperative_groups::this_cluster().sync();
}

template <class Element, int kWidth>
Code code(uint32_t threads, uint32_t shared_bytes, uint32_t ctas) {
  return {reinterpret_cast<void const*>(normalise<Element, kWidth>), CUSYNC_SM90A, threads, shared_bytes, ctas};
}

/// The smallest cluster whose shares fit in shared memory and with which SMs have two CTAs, or whose shares are small.
uint32_t cluster_for(GroupNorm const& norm, uint32_t tiles, uint32_t sms) {
  uint32_t ctas = 1;
  auto const bytes = [&] { return uint64_t(ceil_div(norm.pixels, ctas)) * (norm.channels / norm.groups) * 2; };
  auto const few = [&] { return bytes() > kFewBytes && uint64_t(tiles) * ctas < 2 * sms; };
  while (ctas < kMostCtas && 2 * ctas <= norm.pixels && (bytes() > kMostKept || few())) ctas *= 2;
  return ctas;
}

template <class Element, int kWidth>
int32_t create_for(GroupNorm norm, uint32_t tiles, uint32_t sms, cusync_kernel** out) {
  uint32_t const columns = norm.channels / norm.groups;
  norm.ctas = cluster_for(norm, tiles, sms);
  norm.share = ceil_div(norm.pixels, norm.ctas);
  uint64_t const bytes = uint64_t(norm.share) * columns * sizeof(Element);
  norm.kept = bytes <= kMostKept;
  uint64_t const pieces = bytes / (kWidth * sizeof(Element));
  uint32_t const threads = pieces < kMostThreads ? ceil_div(uint32_t(pieces), 32) * 32 : kMostThreads;
  Code const own = code<Element, kWidth>(threads, norm.kept ? uint32_t(bytes) : 0, norm.ctas);
  uint32_t resident = 0;
  if (int32_t const status = kernels::resident(own, kMostKept, &resident); status != CUSYNC_OK) return status;
  return ready(own, tiles, norm, out);
}

template <class Element, cusync_element Number>
struct GroupNormOf {
  static constexpr cusync_operation kOperation = CUSYNC_GROUP_NORM;
  static constexpr uint32_t kElement = Number;

  static Code code() { return kernels::code<Element, 8>(kMostThreads, kMostKept, 1); }
  static int32_t create(Request const& request, cusync_kernel** out) {
    cusync_stage const& stage = request.stages[0];
    cusync_group_norm const& shape = stage.shape.group_norm;
    int sms = 0;
    if (cudaError_t const error = ask(&sms, cudaDevAttrMultiProcessorCount); error) return status_of(error);
    uint32_t const columns = stage.n / shape.groups, tiles = stage.m / shape.pixels * shape.groups;
    GroupNorm norm{};
    norm.x = data_of(stage, CUSYNC_OPERAND_A);
    norm.gain = data_of(stage, CUSYNC_OPERAND_GAIN), norm.bias = data_of(stage, CUSYNC_OPERAND_BIAS);
    norm.out = stage.out;
    norm.channels = stage.n, norm.groups = shape.groups, norm.pixels = shape.pixels;
    norm.activation = shape.activation, norm.epsilon = shape.epsilon;
    norm.part = float(1.0 / (double(shape.pixels) * columns));
    norm.delays = request.sync.test.delays;
    switch (columns & -columns) {  // the largest power of two that divides a group
      case 1: return create_for<Element, 1>(norm, tiles, uint32_t(sms), out);
      case 2: return create_for<Element, 2>(norm, tiles, uint32_t(sms), out);
      case 4: return create_for<Element, 4>(norm, tiles, uint32_t(sms), out);
      default: return create_for<Element, 8>(norm, tiles, uint32_t(sms), out);
    }
  }
};

}  // namespace

KernelTable alone_sm90_group_norm_f16() { return alone<GroupNormOf<__half, CUSYNC_F16>>(); }
KernelTable alone_sm90_group_norm_bf16() { return alone<GroupNormOf<__nv_bfloat16, CUSYNC_BF16>>(); }

}  // namespace cusync::kernels
