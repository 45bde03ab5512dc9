// SPDX-License-Identifier: MIT OR Apache-2.0
// Data of tests and benchmarks: random fill, comparison, packing, and the element-wise kernels that peers without a
// fused epilogue need.
#include "activation.cuh"
#include "element.cuh"

namespace cusync::kernels {
namespace {

constexpr unsigned kThreads = 256;

__device__ unsigned long long first_index() { return blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; }
__device__ unsigned long long index_stride() { return gridDim.x * (unsigned long long)blockDim.x; }

/// A bijective 64-bit mixer: neighbouring indices give unrelated values (the finaliser of SplitMix64, Steele et al.).
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
  uint32_t largest = 0;  // bits of a non-negative float, which order like integers; a NaN is above all numbers
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

/// Moves groups of 8 columns; the element type does not matter.
__global__ void pack_gated(uint4 const* gate, uint4 const* up, uint4* packed, unsigned long long groups) {
  for (auto i = first_index(); i < groups; i += index_stride()) {
    packed[2 * i] = gate[i];
    packed[2 * i + 1] = up[i];
  }
}

template <class Element>
__global__ void gated_activation(Group<Element> const* packed, Group<Element>* d, unsigned long long groups) {
  for (auto i = first_index(); i < groups; i += index_stride()) {
    Group<Element> const gate = packed[2 * i], up = packed[2 * i + 1];
    Group<Element> out;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      out.values[j] = from_float<Element>(silu(to_float(gate.values[j])) * to_float(up.values[j]));
    d[i] = out;
  }
}

template <class Element>
__global__ void elementwise(Element const* x, Element* d, unsigned long long count, uint32_t activation) {
  for (auto i = first_index(); i < count; i += index_stride())
    d[i] = from_float<Element>(activate(activation, to_float(x[i])));
}

bool aligned16(void const* pointer) { return (reinterpret_cast<uintptr_t>(pointer) & 15) == 0; }

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_fill_random(void* data, unsigned long long count, uint32_t element, float scale,
                                      uint32_t seed, void* stream) {
  if (!data) return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    fill_random<<<blocks_for(count, kThreads), kThreads, 0, cudaStream_t(stream)>>>(static_cast<decltype(type)>(data),
                                                                                    count, scale, seed);
    return status_of(cudaGetLastError());
  });
}

extern "C" int32_t cusync_compare(void const* x, float const* y, unsigned long long count, uint32_t element,
                                  float* out, void* stream) {
  if (!x || !y || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    compare<<<blocks_for(count, kThreads), kThreads, 0, cudaStream_t(stream)>>>(static_cast<Element const*>(x), y,
                                                                                count, out);
    return status_of(cudaGetLastError());
  });
}

extern "C" int32_t cusync_pack_gated(void const* gate, void const* up, void* packed, uint32_t k, uint32_t n,
                                     void* stream) {
  if (!gate || !up || !packed || n % 8 || !aligned16(gate) || !aligned16(up) || !aligned16(packed))
    return CUSYNC_ERROR_BAD_ARGUMENT;
  unsigned long long const groups = (unsigned long long)k * (n / 8);
  pack_gated<<<blocks_for(groups, kThreads), kThreads, 0, cudaStream_t(stream)>>>(
      static_cast<uint4 const*>(gate), static_cast<uint4 const*>(up), static_cast<uint4*>(packed), groups);
  return status_of(cudaGetLastError());
}

extern "C" int32_t cusync_gated_activation(void const* packed, void* d, uint32_t m, uint32_t n, uint32_t element,
                                           void* stream) {
  if (!packed || !d || n % 8 || !aligned16(packed) || !aligned16(d)) return CUSYNC_ERROR_BAD_ARGUMENT;
  unsigned long long const groups = (unsigned long long)m * (n / 8);
  return with_element(element, [&](auto* type) {
    using Vector = Group<std::remove_pointer_t<decltype(type)>>;
    gated_activation<<<blocks_for(groups, kThreads), kThreads, 0, cudaStream_t(stream)>>>(
        static_cast<Vector const*>(packed), static_cast<Vector*>(d), groups);
    return status_of(cudaGetLastError());
  });
}

extern "C" int32_t cusync_activation_kernel(void const* x, void* d, unsigned long long count, uint32_t activation,
                                            uint32_t element, void* stream) {
  if (!x || !d || activation > CUSYNC_RELU) return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    elementwise<<<blocks_for(count, kThreads), kThreads, 0, cudaStream_t(stream)>>>(
        static_cast<Element const*>(x), static_cast<Element*>(d), count, activation);
    return status_of(cudaGetLastError());
  });
}
