// SPDX-License-Identifier: MIT OR Apache-2.0
// Interleaves the gate and up weights of a gated stage, once, at bind time.
#include "kernels/common/elementwise.cuh"

namespace cusync::kernels {
namespace {

/// Moves groups of 8 columns, regardless of the element type.
__global__ void pack_gated(uint4 const* gate, uint4 const* up, uint4* packed, unsigned long long groups) {
  for (auto i = first_index(); i < groups; i += index_stride()) {
    packed[2 * i] = gate[i];
    packed[2 * i + 1] = up[i];
  }
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_pack_gated(void const* gate, void const* up, void* packed, uint32_t k, uint32_t n,
                                     void* stream) {
  if (!gate || !up || !packed || n % 8 || !aligned16(gate) || !aligned16(up) || !aligned16(packed))
    return CUSYNC_ERROR_BAD_ARGUMENT;
  unsigned long long const groups = (unsigned long long)k * (n / 8);
  pack_gated<<<blocks_for(groups), kElementwiseThreads, 0, cudaStream_t(stream)>>>(
      static_cast<uint4 const*>(gate), static_cast<uint4 const*>(up), static_cast<uint4*>(packed), groups);
  return status_of(cudaGetLastError());
}
