// SPDX-License-Identifier: MIT OR Apache-2.0
// Hidden states of tokens: rows of the embedding.
#include "kernels/common/elementwise.cuh"

namespace cusync::kernels {
namespace {

/// Copies groups of 8 columns, regardless of the element type.
__global__ void embed(int32_t const* tokens, int32_t const* drawn, uint4 const* table, uint4* out,
                      unsigned long long all, uint32_t groups, uint32_t vocabulary) {
  for (auto i = first_index(); i < all; i += index_stride()) {
    auto const row = i / groups;
    int32_t const given = tokens[row];
    uint32_t const token = given < 0 && drawn ? drawn[row] : given;
    out[i] = token < vocabulary ? table[(unsigned long long)token * groups + (i - row * groups)] : uint4{};
  }
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_embed(int32_t const* tokens, int32_t const* drawn, void const* table, void* out, uint32_t count,
                                uint32_t vocabulary, uint32_t width, void* stream) {
  if (!tokens || !table || !out || !width || width % 8 || !aligned16(table) || !aligned16(out)) return CUSYNC_ERROR_BAD_ARGUMENT;
  unsigned long long const all = (unsigned long long)count * (width / 8);
  embed<<<blocks_for(all), kElementwiseThreads, 0, cudaStream_t(stream)>>>(
      tokens, drawn, static_cast<uint4 const*>(table), static_cast<uint4*>(out), all, width / 8, vocabulary);
  return status_of(cudaGetLastError());
}
