// SPDX-License-Identifier: MIT OR Apache-2.0
// Data for tests and benchmarks: random values, and the comparison with a reference.
#include "kernels/common/elementwise.cuh"

namespace cusync::kernels {
namespace {

/// A bijective 64-bit mixer: neighboring indices give unrelated values (the finalizer of SplitMix64, Steele et al.).
__device__ unsigned long long mix(unsigned long long x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

template <class Element>
__global__ void fill_random(Element* data, unsigned long long count, float scale, uint32_t seed) {
  unsigned long long const key = mix(seed + 0x9e3779b97f4a7c15ull);
  for (auto i = first_index(); i < count; i += index_stride()) {
    uint32_t const bits = uint32_t(mix(i + key) >> 41);  // 23 bits
    float const unit = (float(bits) + 0.5f) * (1.f / 4194304.f) - 1.f;
    data[i] = from_float<Element>(unit * scale);
  }
}

template <class Element>
__global__ void compare(Element const* x, float const* y, unsigned long long count, float* out) {
  float difference = 0.f, norm = 0.f;
  uint32_t largest = 0;  // bits of a non-negative float, ordered like integers; NaN is above all numbers
  for (auto i = first_index(); i < count; i += index_stride()) {
    float const d = to_float(x[i]) - y[i];
    difference += d * d;
    norm += y[i] * y[i];
    largest = max(largest, __float_as_uint(fabsf(d)));
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    difference += __shfl_xor_sync(~0u, difference, lanes);
    norm += __shfl_xor_sync(~0u, norm, lanes);
    largest = max(largest, __shfl_xor_sync(~0u, largest, lanes));
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(out, difference);
    atomicAdd(out + 1, norm);
    atomicMax(reinterpret_cast<uint32_t*>(out + 2), largest);
  }
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_fill_random(void* data, unsigned long long count, uint32_t element, float scale,
                                      uint32_t seed, void* stream) {
  if (!data) return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    fill_random<<<blocks_for(count), kElementwiseThreads, 0, cudaStream_t(stream)>>>(static_cast<decltype(type)>(data),
                                                                                    count, scale, seed);
    return status_of(cudaGetLastError());
  });
}

extern "C" int32_t cusync_compare(void const* x, float const* y, unsigned long long count, uint32_t element,
                                  float* out, void* stream) {
  if (!x || !y || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    compare<<<blocks_for(count), kElementwiseThreads, 0, cudaStream_t(stream)>>>(static_cast<Element const*>(x), y,
                                                                                count, out);
    return status_of(cudaGetLastError());
  });
}
