// SPDX-License-Identifier: MIT OR Apache-2.0
// Repacks a stage's weights for the decode kernels, once, at bind time.
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

#include "kernels/common/elementwise.cuh"
#include "kernels/decode/layout.h"

namespace cusync::kernels {
namespace {

struct Repack {
  uint32_t k, features, parts, gated;
  uint16_t const *plain, *up;  // k x features; `plain` is the gate of a gated stage
  uint16_t const* gain;        // k factors, or null
  char* out;
};

template <class Element>
__device__ uint16_t product(uint16_t x, uint16_t y) {
  return Element(float(Element::bitcast(x)) * float(Element::bitcast(y))).raw();
}

/// One thread moves 8 elements of one row; neighboring threads take neighboring features, so reads coalesce.
template <class Element>
__global__ void __launch_bounds__(kElementwiseThreads) repack(Repack const r, unsigned long long pieces) {
  using namespace decode;
  for (auto i = first_index(); i < pieces; i += index_stride()) {
    uint32_t const feature = uint32_t(i % r.features);
    uint32_t const rest = uint32_t(i / r.features), up = r.gated ? rest % 2 : 0, piece = r.gated ? rest / 2 : rest;
    uint16_t const* const from = up ? r.up : r.plain;
    uint16_t values[8];
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
      uint32_t const k = piece * 8 + j;
      values[j] = k < r.k ? from[uint64_t(k) * r.features + feature] : uint16_t(0);  // +0 in both formats
      if (r.gain && k < r.k) values[j] = product<Element>(values[j], r.gain[k]);
    }
    uint64_t const at = weight_offset(feature, up, piece * 8, r.k, r.features, r.gated, r.parts);
    *reinterpret_cast<uint4*>(r.out + at) = *reinterpret_cast<uint4 const*>(values);
  }
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_repack(uint32_t operation, uint32_t element, uint32_t k, uint32_t n, uint32_t parts,
                                 void const* weights, void const* up, void const* gain, void* out, void* stream) {
  bool const gated = operation == CUSYNC_GATED_GEMM;
  if (operation > CUSYNC_GATED_GEMM || element > CUSYNC_BF16 || !k || !n || !parts || !weights || !out || !aligned16(out) ||
      gated != (up != nullptr))
    return CUSYNC_ERROR_BAD_ARGUMENT;
  if (uint64_t(n + 1) * parts >> 32) return CUSYNC_ERROR_BAD_ARGUMENT;
  Repack const request{k,     n, parts, gated, static_cast<uint16_t const*>(weights), static_cast<uint16_t const*>(up),
                      static_cast<uint16_t const*>(gain), static_cast<char*>(out)};
  unsigned long long const pieces = (unsigned long long)n * (gated ? 2 : 1) * decode::k_blocks(k) * 8;
  auto const kernel = element == CUSYNC_F16 ? repack<cutlass::half_t> : repack<cutlass::bfloat16_t>;
  kernel<<<blocks_for(pieces), kElementwiseThreads, 0, cudaStream_t(stream)>>>(request, pieces);
  return status_of(cudaGetLastError());
}
