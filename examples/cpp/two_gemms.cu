// Two plain CUDA kernels that overlap tile by tile, with the policy that `cusync gen policies/two_gemms.ron` rendered.
// CUDA=.toolchain/nvidia/cu13  # `cargo xtask setup`; or your own
// $CUDA/bin/nvcc -std=c++17 -arch=native -Icsrc/include -Ipolicies examples/cpp/two_gemms.cu -L$CUDA/lib -o two_gemms && ./two_gemms
#include <cmath>
#include <cstdio>
#include "cusync/cusync.hpp"
#include "rendered/two_gemms.h"

using namespace cusync::plans::two_gemms;
using Edge = edges::first_to_second;
constexpr uint32_t M = stage_first::m, N = stage_first::n, K = stage_first::k;  // C = A B: M x N, then E = C D: M x K

/// Ends the program if a CUDA call fails.
#define CHECK(call)                                                              \
  if (cudaError_t const error = (call))                                          \
  return std::printf("%s: %s\n", #call, cudaGetErrorString(error)), 1

/// e[tile (m, n)] += a[:, k-range] b[k-range, :], by the whole CTA.
__device__ void multiply_tile(float const* a, float const* b, float* e, uint32_t width, uint32_t depth, uint32_t m,
                              uint32_t n, uint32_t rows, uint32_t cols, uint32_t k_begin, uint32_t k_end) {
  for (uint32_t i = threadIdx.x; i < rows * cols; i += blockDim.x) {
    uint32_t const r = m * rows + i / cols, c = n * cols + i % cols;
    if (r >= M || c >= width) continue;
    float sum = e[r * width + c];
    for (uint32_t k = k_begin; k < k_end && k < depth; ++k) sum += a[r * depth + k] * b[k * width + c];
    e[r * width + c] = sum;
  }
}

__global__ void first(float const* a, float const* b, float* c, uint32_t* semaphores) {
  using S = stage_first;
  cusync::TileCoord const t = S::Order::tile_at(blockIdx.x);
  multiply_tile(a, b, c, N, K, t.m, t.n, S::tile_rows, S::tile_cols, 0, K);
  Edge::Producer::cta_post_tile(semaphores, t.m, t.n);
}

__global__ void second(float const* c, float const* d, float* e, cusync::WaitContext ctx, uint32_t* epochs) {
  using S = stage_second;
  if (threadIdx.x == 0) ctx.epoch = cusync::next_epoch_of_cta(epochs, blockIdx.x);
  cusync::TileCoord const t = S::Order::tile_at(blockIdx.x);
  for (uint32_t k = 0; k < S::k_blocks; ++k) {
    // One thread waits for the tiles of C that this k-block reads; the barrier makes its observation visible to the
    // others.
    if (threadIdx.x == 0) Edge::wait_for_k_block(t.m, t.n, k, k == 0, S::k_blocks, ctx);
    __syncthreads();
    multiply_tile(c, d, e, K, N, t.m, t.n, S::tile_rows, S::tile_cols, k * S::mma_tile_k, (k + 1) * S::mma_tile_k);
  }
}

int main() {
  float *a, *b, *c, *d, *e;
  for (float** x : {&a, &b, &c, &d, &e}) CHECK(cudaMallocManaged(x, sizeof(float) * (M + N) * (N + K)));
  for (uint32_t i = 0; i < M * K; ++i) a[i] = float(i % 7) - 3;
  for (uint32_t i = 0; i < K * N; ++i) b[i] = float(i % 5) - 2, d[i] = float(i % 3) - 1;
  uint32_t* semaphores;
  CHECK(cudaMalloc(&semaphores, sizeof(uint32_t) * (slot_count + stage_second::tiles)));
  CHECK(cudaMemset(semaphores, 0, sizeof(uint32_t) * (slot_count + stage_second::tiles)));  // once: every run has its own epoch
  uint32_t* const epochs = semaphores + slot_count;
  cusync_report* report;
  CHECK(cudaHostAlloc(&report, sizeof *report, cudaHostAllocMapped));
  *report = {};
  cusync::WaitContext const ctx{semaphores, 0, {report, 0, stage_second::index}};
  cudaStream_t streams[2];
  for (cudaStream_t& s : streams) CHECK(cudaStreamCreate(&s));
  cudaFuncAttributes loaded;  // load both kernels before one waits for the other
  CHECK(cudaFuncGetAttributes(&loaded, first));
  CHECK(cudaFuncGetAttributes(&loaded, second));
  double worst = 0, row[N];  // a row of C
  for (int run = 0; run < 3; ++run) {
    CHECK(cudaMemset(c, 0, sizeof(float) * M * N));
    CHECK(cudaMemset(e, 0, sizeof(float) * M * K));
    CHECK(cudaDeviceSynchronize());
    // Producers first; these few CTAs are resident together on any GPU, so waiting consumers starve no producer.
    first<<<stage_first::tiles, 256, 0, streams[0]>>>(a, b, c, semaphores);
    second<<<stage_second::tiles, 256, 0, streams[1]>>>(c, d, e, ctx, epochs);
    CHECK(cudaGetLastError());
    if (cudaError_t const error = cudaDeviceSynchronize())
      return std::printf("%s: edge %u, tile (%u, %u), slot %u, have %u, want %u\n", cudaGetErrorString(error),
                         report->edge, report->tile_m, report->tile_n, report->slot, report->have, report->want);
    for (uint32_t r : {0u, M - 1})  // the first and the last row
      for (uint32_t x = 0; x < N + K; ++x) {
        double sum = 0;
        for (uint32_t k = 0; k < (x < N ? K : N); ++k)
          sum += x < N ? double(a[r * K + k]) * b[k * N + x] : row[k] * d[k * K + x - N];
        if (x < N) row[x] = sum;
        else worst = std::fmax(worst, std::fabs(sum - e[r * K + x - N]) / std::fmax(1.0, std::fabs(sum)));
      }
  }
  return std::printf("%ux%ux%u, 3 runs: largest relative error %.1e\n", M, N, K, worst), worst < 1e-4 ? 0 : 1;
}
