// SPDX-License-Identifier: MIT OR Apache-2.0
// Tests the device library alone on a GPU: schedules hand out every tile once per run; posts and waits carry data
// across launches, graph replays and the wrap-around of a slot; a starved wait reports and ends the kernel. Exits 1 on
// any failure. The last test destroys the process's CUDA context, as a real timeout would.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cusync/cusync.hpp"

namespace {

using namespace cusync;

int failures = 0;

void expect(bool holds, char const* what) {
  if (!holds) ++failures;
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
}
void check(cudaError_t error, int line) {
  if (error == cudaSuccess) return;
  std::printf("FATAL line %d: %s\n", line, cudaGetErrorString(error));
  std::exit(2);
}
#define CUDA(call) check(call, __LINE__)

template <class T>
T* zeroed(size_t count) {
  T* data = nullptr;
  CUDA(cudaMallocManaged(&data, count * sizeof(T)));
  CUDA(cudaMemset(data, 0, count * sizeof(T)));
  CUDA(cudaDeviceSynchronize());
  return data;
}

constexpr uint32_t kTiles = 301, kRuns = 40;

/// seen[epoch * kTiles + tile] counts how often a tile was handed out.
template <class Schedule>
__device__ void count_tiles(Schedule schedule, uint32_t first_epoch, uint32_t* seen) {
  for (Ticket t = schedule.next(); t.valid; t = schedule.next())
    atomicAdd(&seen[(t.epoch - first_epoch) * kTiles + t.index], 1u);
}
__global__ void draw_tickets(unsigned long long* counter, uint32_t first_epoch, uint32_t* seen) {
  count_tiles(TicketSchedule(counter, kTiles, gridDim.x), first_epoch, seen);
}
__global__ void draw_static(unsigned long long* counter, uint32_t first_epoch, uint32_t* seen) {
  count_tiles(StaticSchedule(counter, kTiles, gridDim.x, blockIdx.x), first_epoch, seen);
}

void test_schedules(uint32_t ctas, unsigned long long first_epoch) {
  auto* counter = zeroed<unsigned long long>(1);
  auto* seen = zeroed<uint32_t>(kRuns * kTiles);
  *counter = first_epoch * (kTiles + ctas);
  for (uint32_t run = 0; run < kRuns; ++run)
    (run % 3 ? draw_tickets : draw_static)<<<ctas, 1>>>(counter, uint32_t(first_epoch), seen);
  CUDA(cudaDeviceSynchronize());
  bool once = true;
  for (uint32_t i = 0; i < kRuns * kTiles; ++i) once = once && seen[i] == 1;
  expect(once, "every tile of every run is handed out once, under both schedules in turn");
  expect(*counter == (first_epoch + kRuns) * (kTiles + ctas), "a run draws tiles + CTAs tickets");
}

/// A chain of CTAs, each with a row of `kCols` tiles: row r reads what row r - 1 wrote in the same run.
constexpr uint32_t kRows = 24, kCols = 40, kThreads = 128;

__host__ __device__ cusync_edge chain_edge(uint32_t block_n) {
  cusync_edge e{};
  e.policy = {kRows, kCols, 1, block_n, 0, ceil_div(kCols, block_n), 0, kRows * ceil_div(kCols, block_n), 0, 0, nullptr, nullptr};
  e.id = 5, e.tile_rows = 1, e.tile_cols = kThreads, e.tensor_rows = kRows, e.tensor_cols = kCols * kThreads;
  e.k_blocks = kCols;
  e.rows = {1, 0, 0, -1, 1};         // the row above
  e.cols = {0, 0, kThreads, 0, kThreads};
  return e;
}

/// x[row][.] = x[row - 1][.] + 1, with x[-1][.] = epoch; each CTA posts tile by tile and waits k-block by k-block.
__global__ void chain(cusync_edge e, uint32_t* x, WaitContext ctx, unsigned long long* counter, bool warps) {
  __shared__ uint32_t epoch;
  if (threadIdx.x == 0) epoch = draw_epoch(counter, gridDim.x);
  __syncthreads();
  ctx.epoch = epoch;
  uint32_t const row = blockIdx.x;
  KWaits waits;
  for (uint32_t k = 0; k < kCols; ++k) {
    if (warps) {
      if (threadIdx.x < 32) warp_wait_for_k_block<ReadBy::kLoads>(e, row, 0, k, k == 0, kCols, ctx);
    } else if (threadIdx.x == 0) {
      waits.before<ReadBy::kLoads>(e, row, 0, k, kCols, ctx);
    }
    __syncthreads();
    uint32_t const at = k * kThreads + threadIdx.x;
    x[row * kCols * kThreads + at] = (row ? x[(row - 1) * kCols * kThreads + at] : epoch) + 1;
    cta_post_tile(e.policy, const_cast<uint32_t*>(ctx.semaphores), row, k);
  }
}

void test_chain(uint32_t block_n, bool warps, uint32_t first_epoch) {
  cusync_edge const e = chain_edge(block_n);
  auto* semaphores = zeroed<uint32_t>(e.policy.slot_count);
  auto* x = zeroed<uint32_t>(kRows * kCols * kThreads);
  auto* counter = zeroed<unsigned long long>(1);
  for (uint32_t s = 0; s < e.policy.slot_count; ++s) semaphores[s] = first_epoch * posts_of(e.policy, s);
  *counter = (unsigned long long)first_epoch * kRows;
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  auto const launch = [&] {
    chain<<<kRows, kThreads, 0, stream>>>(e, x, {semaphores, 0, {nullptr, 0, 0}}, counter, warps);
  };
  launch();  // load the kernel before the capture
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 3; ++i) launch();
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphInstantiate(&replay, graph, 0));
  uint32_t runs = 1;
  for (int i = 0; i < 100; ++i) {
    CUDA(cudaGraphLaunch(replay, stream));
    launch();
    runs += 4;
  }
  CUDA(cudaStreamSynchronize(stream));
  bool right = true;
  for (uint32_t row = 0; row < kRows; ++row)
    for (uint32_t i = 0; i < kCols * kThreads; ++i)
      right = right && x[row * kCols * kThreads + i] == first_epoch + runs - 1 + row + 1;
  std::printf("%u tiles a slot, %s, from epoch %u: ", block_n, warps ? "whole warps wait" : "one lane waits", first_epoch);
  expect(right, "data follows the posts through launches and graph replays");
}

__global__ void starve(cusync_edge e, WaitContext ctx) { wait_for_k_block<ReadBy::kLoads>(e, 3, 0, 7, true, 8, ctx); }

void test_starvation() {
  cusync_edge const e = chain_edge(4);
  auto* semaphores = zeroed<uint32_t>(e.policy.slot_count);
  uint32_t const slot = slot_of(e.policy, 2, 7);
  semaphores[slot] = 8 + 3;  // two epochs complete, the third one post short
  cusync_report* report = nullptr;
  CUDA(cudaHostAlloc(&report, sizeof *report, cudaHostAllocMapped));
  *report = {};
  starve<<<4, 32>>>(e, {semaphores, 2, {report, 20'000'000ull, 1}});
  expect(cudaDeviceSynchronize() != cudaSuccess, "a starved wait ends the kernel with an error");
  expect(report->claimed == 2, "its report is complete");
  expect(report->edge == 5 && report->stage == 1 && report->tile_m == 3 && report->tile_n == 0 && report->k_block == 7,
         "the report names edge, stage, tile and k-block");
  expect(report->slot == slot && report->have == 11 && report->want == 12, "the report has slot and values");
}

}  // namespace

int main() {
  for (uint32_t ctas : {1u, 7u, 64u, 500u})
    for (unsigned long long first : {0ull, (1ull << 32) - 5}) test_schedules(ctas, first);
  for (uint32_t block_n : {1u, 4u, kCols})
    for (bool warps : {false, true})
      for (uint32_t first : {0u, UINT32_MAX - 50}) test_chain(block_n, warps, first);
  test_starvation();
  return failures ? 1 : 0;
}
