// SPDX-License-Identifier: MIT OR Apache-2.0
// The element-wise kernels that peers without a fused epilogue need.
#include "kernels/common/activation.cuh"
#include "kernels/common/elementwise.cuh"

namespace cusync::kernels {
namespace {

template <class From, class Element>
__global__ void gated_activation(Group<From> const* packed, Group<Element>* d, unsigned long long groups) {
  for (auto i = first_index(); i < groups; i += index_stride()) {
    Group<From> const gate = packed[2 * i], up = packed[2 * i + 1];
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

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_gated_activation(void const* packed, uint32_t packed_bits, void* d, uint32_t m, uint32_t n,
                                           uint32_t element, void* stream) {
  if (!packed || !d || n % 8 || !aligned16(packed) || !aligned16(d)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (packed_bits != 16 && packed_bits != 32) return CUSYNC_ERROR_BAD_ARGUMENT;
  unsigned long long const groups = (unsigned long long)m * (n / 8);
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    auto const launch = [&](auto const* from) {
      gated_activation<<<blocks_for(groups), kElementwiseThreads, 0, cudaStream_t(stream)>>>(
          from, static_cast<Group<Element>*>(d), groups);
    };
    if (packed_bits == 32)
      launch(static_cast<Group<float> const*>(packed));
    else
      launch(static_cast<Group<Element> const*>(packed));
    return status_of(cudaGetLastError());
  });
}

extern "C" int32_t cusync_activation_kernel(void const* x, void* d, unsigned long long count, uint32_t activation,
                                            uint32_t element, void* stream) {
  if (!x || !d || activation > CUSYNC_RELU) return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    elementwise<<<blocks_for(count), kElementwiseThreads, 0, cudaStream_t(stream)>>>(
        static_cast<Element const*>(x), static_cast<Element*>(d), count, activation);
    return status_of(cudaGetLastError());
  });
}
