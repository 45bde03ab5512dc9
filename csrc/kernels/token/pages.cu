// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies between the pages of a sequence's cache and its rows: kernels of prompts read and write rows.
#include "kernels/common/elementwise.cuh"

namespace cusync::kernels {
namespace {

constexpr uint32_t kPageTokens = 64;

/// A CTA copies one head of one page, of keys or of values: 64 tokens, which are contiguous in either form.
__global__ void copy_pages(cusync_paged_cache cache, uint32_t first, bool to_pool) {
  uint32_t const entry = first + blockIdx.x, head = blockIdx.y, tensor = blockIdx.z;
  uint32_t const page = uint32_t(cache.table[entry]);
  if (page >= cache.pages) return;
  uint32_t const groups = kPageTokens * cache.columns / 8;
  auto* const paged = static_cast<uint4*>(cache.pool[tensor]) + (uint64_t(page) * cache.heads + head) * groups;
  uint64_t const row = uint64_t(head) * cache.capacity + uint64_t(entry) * kPageTokens;
  auto* const rows = static_cast<uint4*>(cache.rows[tensor]) + row * (cache.columns / 8);
  uint4 const* const from = to_pool ? rows : paged;
  uint4* const to = to_pool ? paged : rows;
  for (uint32_t i = threadIdx.x; i < groups; i += blockDim.x) to[i] = from[i];
}

bool valid(cusync_paged_cache const& cache) {
  for (int i = 0; i < 2; ++i) {
    if (!cache.pool[i] || !cache.rows[i] || !aligned16(cache.pool[i]) || !aligned16(cache.rows[i])) return false;
  }
  return cache.table && cache.heads && cache.heads < 65536 && cache.columns && cache.columns % 8 == 0;
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_copy_pages(cusync_paged_cache const* cache, uint32_t first, uint32_t count, int32_t to_pool,
                                     void* stream) {
  if (!cache || !valid(*cache)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if ((uint64_t(first) + count) * kPageTokens > cache->capacity) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (!count) return CUSYNC_OK;
  copy_pages<<<dim3(count, cache->heads, 2), kElementwiseThreads, 0, cudaStream_t(stream)>>>(*cache, first, to_pool != 0);
  return status_of(cudaGetLastError());
}
