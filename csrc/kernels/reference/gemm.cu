// SPDX-License-Identifier: MIT OR Apache-2.0
// The reference GEMM: float accumulation on CUDA cores, one CTA a tile, no tensor core, no TMA, no semaphore. It
// shares no arithmetic with the kernels that it judges, its activations included.
#include "kernels/common/element.cuh"

namespace cusync::kernels {
namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256;  // each thread: 8 x 8 outputs
constexpr int kPitch = kTile + 4;                        // of A's transposed tile, against bank conflicts

struct Problem {
  uint32_t m, n, k, columns, activation, residual_first, gated, round;
  void const *a, *b, *bias, *residual;
  float* d;
};

__device__ float reference_activation(uint32_t activation, float x) {
  if (activation == CUSYNC_GELU_TANH) return 0.5f * x * (1.f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
  if (activation == CUSYNC_RELU) return fmaxf(x, 0.f);
  return x;
}

template <class Element>
__device__ Group<Element> load_group(Element const* base, uint32_t row, uint32_t col, uint32_t rows, uint32_t cols) {
  if (row >= rows || col >= cols) return {};  // cols is a multiple of 8: a group is inside or outside
  return *reinterpret_cast<Group<Element> const*>(base + uint64_t(row) * cols + col);
}

// Ends an output: the sum, or where its thread's neighbour has the other half of a gated one, both sums. Not inlined: a
// thread ends 64, and compilers would copy the functions of float into each.
template <class Element>
__device__ __noinline__ void finish(Problem const& p, uint32_t row, uint32_t col, float v, float up) {
  if (p.gated) {
    v = v / (1.f + expf(-v)) * up;
  } else {
    if (p.bias) v += to_float(static_cast<Element const*>(p.bias)[col]);
    float r = 0.f;
    if (p.residual) r = to_float(static_cast<Element const*>(p.residual)[uint64_t(row) * p.columns + col]);
    v = p.residual_first ? reference_activation(p.activation, v + r) : reference_activation(p.activation, v) + r;
  }
  p.d[uint64_t(row) * p.columns + col] = p.round ? to_float(from_float<Element>(v)) : v;
}

template <class Element>
__global__ void __launch_bounds__(kThreads) reference(__grid_constant__ Problem const p) {
  __shared__ float a_tile[kDepth][kPitch];  // transposed: (k, m)
  __shared__ float b_tile[kDepth][kTile];   // (k, n)
  auto const* a = static_cast<Element const*>(p.a);
  auto const* b = static_cast<Element const*>(p.b);
  int const t = threadIdx.x, tx = t % 16, ty = t / 16;
  uint32_t const row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile;
  float acc[8][8] = {};

  for (uint32_t k0 = 0; k0 < p.k; k0 += kDepth) {
    int const a_row = t / 2, a_col = t % 2 * 8, b_row = t / 16, b_col = t % 16 * 8;
    Group<Element> const from_a = load_group(a, row0 + a_row, k0 + a_col, p.m, p.k);
    Group<Element> const from_b = load_group(b, k0 + b_row, col0 + b_col, p.k, p.n);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      a_tile[a_col + i][a_row] = to_float(from_a.values[i]);
      b_tile[b_row][b_col + i] = to_float(from_b.values[i]);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float x[8], y[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = a_tile[k][ty * 8 + i], y[i] = b_tile[k][tx * 8 + i];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
    }
  }

#pragma unroll
  for (int i = 0; i < 8; ++i) {
    uint32_t const row = row0 + ty * 8 + i;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      // A thread's 8 columns are one group: gate in even threads, up in odd ones.
      float const other = __shfl_xor_sync(~0u, acc[i][j], 1);
      uint32_t const packed = col0 + tx * 8 + j;
      uint32_t const col = p.gated ? packed / 16 * 8 + j : packed;
      bool const writes = row < p.m && packed < p.n && !(p.gated && tx % 2);
      if (writes) finish<Element>(p, row, col, acc[i][j], other);
    }
  }
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_reference_gemm(cusync_stage const* stage, uint32_t element, float* d, uint32_t round,
                                         void* stream) {
  if (!stage || !d || stage->operation > CUSYNC_GATED_GEMM) return CUSYNC_ERROR_BAD_ARGUMENT;
  void const* const a = data_of(*stage, CUSYNC_OPERAND_A);
  void const* const b = data_of(*stage, CUSYNC_OPERAND_B);
  uint32_t const m = stage->m, n = packed_columns(*stage), k = stage->k.most;
  if (!a || !b || m == 0 || n == 0 || k == 0 || k % 8 || stage->n % 8) return CUSYNC_ERROR_BAD_ARGUMENT;
  Problem const problem{m, n, k, stage->n, stage->activation, stage->residual_first,
                        stage->operation == CUSYNC_GATED_GEMM, round, a, b, data_of(*stage, CUSYNC_OPERAND_BIAS),
                        data_of(*stage, CUSYNC_OPERAND_RESIDUAL), d};
  dim3 const grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
  return with_element(element, [&](auto* type) {
    reference<std::remove_pointer_t<decltype(type)>><<<grid, kThreads, 0, cudaStream_t(stream)>>>(problem);
    return status_of(cudaGetLastError());
  });
}
