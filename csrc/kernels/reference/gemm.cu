// SPDX-License-Identifier: MIT OR Apache-2.0
// The reference product: float accumulation on CUDA cores, one CTA per tile, no tensor cores, no TMA, no semaphores. It
// shares no arithmetic with the kernels that it verifies.
#include "kernels/common/element.cuh"

namespace cusync::kernels {
namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256;  // each thread: 8 x 8 outputs
constexpr int kPitch = kTile + 4;                        // pitch of A's transposed tile, to avoid bank conflicts

template <class Element>
__device__ Group<Element> load_group(Element const* base, uint32_t row, uint32_t col, uint32_t rows, uint32_t cols) {
  if (row >= rows || col >= cols) return {};  // cols is a multiple of 8: a group is inside or outside
  return *reinterpret_cast<Group<Element> const*>(base + uint64_t(row) * cols + col);
}

template <class Element>
__global__ void __launch_bounds__(kThreads) product(Element const* a, Element const* b, uint32_t m, uint32_t n, uint32_t k,
                                                    float* sums, float* largest) {
  __shared__ float a_tile[kDepth][kPitch];  // transposed: (k, m)
  __shared__ float b_tile[kDepth][kTile];   // (k, n)
  int const t = threadIdx.x, tx = t % 16, ty = t / 16;
  uint32_t const row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile;
  float acc[8][8] = {}, most[8][8] = {};  // sums, and upper bounds of their largest partial sums

  for (uint32_t k0 = 0; k0 < k; k0 += kDepth) {
    int const a_row = t / 2, a_col = t % 2 * 8, b_row = t / 16, b_col = t % 16 * 8;
    Group<Element> const from_a = load_group(a, row0 + a_row, k0 + a_col, m, k);
    Group<Element> const from_b = load_group(b, k0 + b_row, col0 + b_col, k, n);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      a_tile[a_col + i][a_row] = to_float(from_a.values[i]);
      b_tile[b_row][b_col + i] = to_float(from_b.values[i]);
    }
    __syncthreads();
    float of_rows[8] = {}, of_columns[8] = {};  // squared norms: partial sums within a block are at most their product
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float x[8], y[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = a_tile[d][ty * 8 + i], y[i] = b_tile[d][tx * 8 + i];
#pragma unroll
      for (int i = 0; i < 8; ++i) of_rows[i] = fmaf(x[i], x[i], of_rows[i]), of_columns[i] = fmaf(y[i], y[i], of_columns[i]);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) of_rows[i] = sqrtf(of_rows[i]), of_columns[i] = sqrtf(of_columns[i]);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) most[i][j] = fmaxf(most[i][j], fmaf(of_rows[i], of_columns[j], fabsf(acc[i][j])));
  }

#pragma unroll
  for (int i = 0; i < 8; ++i) {
    uint32_t const row = row0 + ty * 8 + i;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      uint32_t const col = col0 + tx * 8 + j;
      if (row >= m || col >= n) continue;
      sums[uint64_t(row) * n + col] = acc[i][j];
      largest[uint64_t(row) * n + col] = most[i][j];
    }
  }
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_reference_product(void const* a, void const* b, uint32_t m, uint32_t n, uint32_t k, uint32_t element,
                                            float* sums, float* largest, void* stream) {
  if (!a || !b || !sums || !largest || m == 0 || n == 0 || k == 0 || k % 8 || n % 8) return CUSYNC_ERROR_BAD_ARGUMENT;
  dim3 const grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    product<Element><<<grid, kThreads, 0, cudaStream_t(stream)>>>(static_cast<Element const*>(a), static_cast<Element const*>(b), m, n,
                                                                  k, sums, largest);
    return status_of(cudaGetLastError());
  });
}
