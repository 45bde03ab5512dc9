// SPDX-License-Identifier: MIT OR Apache-2.0
// Draws the next token of each sequence from its logits: one CTA per row. The largest of logit / temperature plus a
// Gumbel noise of its own for each token has the distribution of the softmax, so nothing is sorted. The logits that
// top_k and top_p keep follow from histograms of the bits of the logits, high byte first.
#include <climits>

#include "kernels/common/elementwise.cuh"

namespace cusync::kernels {
namespace {

constexpr uint32_t kThreads = 1024, kWarps = kThreads / 32, kBins = 256;
/// Weights are integers, so that their sums do not depend on the order of additions.
constexpr float kUnit = 1 << 24;

/// Bits of a 16-bit float whose order as integers is that of the values; NaNs count as the smallest.
template <class Element>
__device__ uint32_t ordered(Element x) {
  uint32_t const bits = reinterpret_cast<unsigned short const&>(x);
  if (to_float(x) != to_float(x)) return 0;
  return bits & 0x8000 ? 0xffff & ~bits : bits | 0x8000;
}

template <class Element>
__device__ float value_of(uint32_t key) {
  unsigned short const bits = key & 0x8000 ? key & 0x7fff : 0xffff & ~key;
  return to_float(reinterpret_cast<Element const&>(bits));
}

/// A well-mixed number for each (seed, position, token).
__device__ uint32_t mixed(uint32_t seed, uint32_t position, uint32_t token) {
  uint32_t x = token * 0x9e3779b1u ^ position * 0x85ebca77u ^ seed * 0xc2b2ae3du;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    x ^= x >> 16, x *= 0x7feb352du;
    x ^= x >> 15, x *= 0x846ca68bu;
    x ^= x >> 16, x += position + seed;
  }
  return x;
}

__device__ float gumbel(uint32_t bits) {
  float const uniform = (float(bits >> 9) + 0.5f) * (1.f / (1 << 23));
  return -logf(-logf(uniform));
}

struct Best {
  float score;
  int32_t token;
  __device__ void take(Best const& other) {
    if (other.score > score || (other.score == score && other.token < token)) *this = other;
  }
};

/// State shared by the threads of a row.
struct Shared {
  uint32_t counts[kBins];
  unsigned long long weights[kBins], kept;
  uint32_t largest[kWarps], least;
  Best best[kWarps];
};

template <class Element>
struct Row {
  Element const* logits;
  uint32_t vocabulary;
  float most, inverse;  ///< the largest logit; 1 / temperature

  /// Calls f(token, key) for this thread's tokens.
  template <class F>
  __device__ void each(F&& f) const {
    for (uint32_t first = threadIdx.x * 8; first < vocabulary; first += kThreads * 8) {
      Group<Element> const group = *reinterpret_cast<Group<Element> const*>(logits + first);
#pragma unroll
      for (uint32_t j = 0; j < 8; ++j)
        if (first + j < vocabulary) f(first + j, ordered(group.values[j]));
    }
  }

  __device__ float score(uint32_t key) const { return (value_of<Element>(key) - most) * inverse; }
  __device__ uint32_t weight(uint32_t key) const { return uint32_t(__float2int_rz(__expf(score(key)) * kUnit)); }

  /// Fills the histograms with the tokens of at least `least` whose key has the given high byte; with the high bytes
  /// themselves if there is none.
  __device__ void count(Shared& s, uint32_t least, uint32_t high) const {
    __syncthreads();
    if (threadIdx.x < kBins) s.counts[threadIdx.x] = 0, s.weights[threadIdx.x] = 0;
    __syncthreads();
    each([&](uint32_t, uint32_t key) {
      if (key < least || (high < kBins && key >> 8 != high)) return;
      uint32_t const bin = high < kBins ? key & 0xff : key >> 8;
      // Logits have few high bytes: lanes with the same bin add to it once.
      uint32_t const alike = __match_any_sync(__activemask(), bin), sum = __reduce_add_sync(alike, weight(key));
      if (threadIdx.x % 32 != uint32_t(__ffs(alike)) - 1) return;
      atomicAdd(s.counts + bin, __popc(alike));
      if (sum) atomicAdd(s.weights + bin, sum);
    });
    __syncthreads();
  }

  /// The smallest key to keep: with all larger ones it has `count` tokens or a weight of `limit`, whichever is stated.
  __device__ uint32_t threshold(Shared& s, uint32_t least, uint32_t count_limit, unsigned long long limit) const {
    uint32_t high = kBins, counted = 0;
    unsigned long long weighed = 0;
    for (uint32_t round = 0; round < 2; ++round) {
      count(s, least, high);
      // All threads walk the same bins.
      uint32_t bin = kBins - 1;
      for (; bin > 0; --bin) {
        uint32_t const next = counted + s.counts[bin];
        unsigned long long const heavier = weighed + s.weights[bin];
        if (s.counts[bin] && (count_limit ? next >= count_limit : heavier >= limit)) break;
        counted = next, weighed = heavier;
      }
      if (round == 1) return high << 8 | bin;
      high = bin;
    }
    return least;
  }
};

template <class Element>
__global__ void __launch_bounds__(kThreads) draw(Element const* logits, cusync_sampling const* samplings, int32_t const* positions,
                                                 int32_t* drawn, uint32_t vocabulary, uint32_t pitch) {
  __shared__ Shared s;
  cusync_sampling const sampling = samplings[blockIdx.x];
  if (sampling.temperature < 0.f) return;
  uint32_t const lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool const greedy = !(sampling.temperature > 0.f);
  Row<Element> row{logits + (unsigned long long)blockIdx.x * pitch, vocabulary, 0.f, greedy ? 1.f : 1.f / sampling.temperature};
  Best best{-INFINITY, INT_MAX};
  uint32_t least = 0;
  if (!greedy) {
    uint32_t largest = 0;
    row.each([&](uint32_t, uint32_t key) { largest = max(largest, key); });
    largest = __reduce_max_sync(~0u, largest);
    if (lane == 0) s.largest[warp] = largest;
    __syncthreads();
    for (uint32_t w = 0; w < kWarps; ++w) largest = max(largest, s.largest[w]);
    row.most = value_of<Element>(largest);
    if (sampling.top_k && sampling.top_k < vocabulary) least = row.threshold(s, 0, sampling.top_k, 0);
    if (sampling.top_p < 1.f) {
      row.count(s, least, kBins);
      unsigned long long all = 0;
      for (uint32_t bin = 0; bin < kBins; ++bin) all += s.weights[bin];
      auto const limit = (unsigned long long)(double(all) * sampling.top_p);
      least = max(least, row.threshold(s, least, 0, max(limit, 1ull)));
    }
  }
  uint32_t const position = positions[blockIdx.x];
  row.each([&](uint32_t token, uint32_t key) {
    if (key < least) return;
    float const score = greedy ? value_of<Element>(key) : row.score(key) + gumbel(mixed(sampling.seed, position, token));
    best.take({score, int32_t(token)});
  });
#pragma unroll
  for (uint32_t step = 16; step; step /= 2)
    best.take({__shfl_xor_sync(~0u, best.score, step), __shfl_xor_sync(~0u, best.token, step)});
  if (lane == 0) s.best[warp] = best;
  __syncthreads();
  if (threadIdx.x) return;
  for (uint32_t w = 1; w < kWarps; ++w) best.take(s.best[w]);
  // A row of NaNs has no best token.
  drawn[blockIdx.x] = best.token < int32_t(vocabulary) ? best.token : 0;
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_draw(void const* logits, cusync_sampling const* sampling, int32_t const* positions, int32_t* drawn,
                               uint32_t count, uint32_t vocabulary, uint32_t pitch, uint32_t element, void* stream) {
  if (!logits || !sampling || !positions || !drawn || !count || !vocabulary || pitch < vocabulary || pitch % 8 ||
      !aligned16(logits) || vocabulary > 1u << 24)
    return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    draw<<<count, kThreads, 0, cudaStream_t(stream)>>>(static_cast<Element const*>(logits), sampling, positions, drawn,
                                                       vocabulary, pitch);
    return status_of(cudaGetLastError());
  });
}
