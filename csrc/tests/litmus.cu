// SPDX-License-Identifier: MIT OR Apache-2.0
// Litmus tests of the protocols by which kernels hand data from one CTA to another: any number of rounds of store,
// post, poll and load, with an acknowledgment after which the data is overwritten. Pairs of CTAs pass a block of words;
// words of any round other than the expected one are counted as wrong.
//
//   litmus [millions of rounds of each]      exits 1 if a protocol fails, or if no weakened protocol fails
//
// Weakened protocols omit one part. If one of them fails, this program can detect errors; if another does not fail on
// this GPU, that proves nothing for other GPUs.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "cute/arch/copy_sm90_tma.hpp"

#include "cusync/ptx.cuh"

namespace {

using namespace cusync;

constexpr uint32_t kThreads = 128, kWords = 512, kBytes = kWords * 4;
constexpr unsigned long long kLimitNs = 2'000'000'000ull;

enum Store : uint32_t { kBulk, kPlain, kStreaming, kRows };  ///< TMA; threads; bypassing L1; threads, for TMA loads
enum Load : uint32_t { kTma, kOrdinary, kPastL1, kAsync };
enum Without : uint32_t { kNothing, kFullWait, kAnyWait, kRelease, kAcquire, kFence, kBarrier, kAck };

struct Way {
  char const* name;
  Store store;
  Load load;
  Without without;
};

constexpr Way kWays[] = {
    {"bulk store, full wait, post, acquire, proxy fence, bulk load", kBulk, kTma, kNothing},
    {"bulk store, full wait, post, acquire, ordinary load (residual)", kBulk, kOrdinary, kNothing},
    {"stores past L1, barrier, flag, acquire, barrier, loads past L1 (slabs)", kStreaming, kPastL1, kNothing},
    {"stores, barrier, post, acquire, cp.async (decode)", kPlain, kAsync, kNothing},
    {"stores, proxy fence, barrier, post, acquire, proxy fence, bulk load (rows)", kRows, kTma, kNothing},
    {"stores, barrier, post, acquire, proxy fence, bulk load (pixels)", kPlain, kTma, kNothing},
    {"weakened: bulk store, `.read` wait", kBulk, kTma, kFullWait},
    {"weakened: bulk store, no wait", kBulk, kTma, kAnyWait},
    {"weakened: bulk store, relaxed post", kBulk, kTma, kRelease},
    {"weakened: bulk store, relaxed look", kBulk, kTma, kAcquire},
    {"weakened: bulk store, no proxy fence", kBulk, kTma, kFence},
    {"weakened: stores, no barrier before the post", kPlain, kAsync, kBarrier},
    {"weakened: stores, relaxed look, ordinary load", kPlain, kOrdinary, kAcquire},
    {"weakened: overwritten before it is read", kBulk, kTma, kAck},
};

struct Memory {
  uint32_t* data;   ///< kWords per pair
  uint32_t* words;  ///< per pair: posts, and acknowledgments on another cache line
  unsigned long long* wrong;
};

__device__ void await(uint32_t const* word, uint32_t value, bool acquire) {
  unsigned long long const begin = ptx::globaltimer();
  for (uint32_t looks = 1;; ++looks) {
    uint32_t const have = acquire ? ptx::ld_acquire_gpu(word) : *static_cast<uint32_t const volatile*>(word);
    if (int32_t(have - value) >= 0) return;
    if (looks % 1024 == 0 && ptx::globaltimer() - begin > kLimitNs) ptx::trap();
  }
}

__device__ void post(uint32_t* word, bool release) {
  if (release)
    ptx::red_release_gpu_add(word, 1);
  else
    atomicAdd(word, 1u);
}

/// Sleeps occasionally, for a time that depends on pair and round, before operations that others wait for.
__device__ void sometimes(uint32_t round, uint32_t pair) {
  uint32_t const hash = (round * 0x9e3779b1u + pair * 0x85ebca77u) ^ (round >> 7);
  if ((hash >> 9) % 16 == 0) ptx::nanosleep((hash >> 16) % 1024);
}

__global__ void __launch_bounds__(kThreads) run(Way way, Memory memory, uint32_t rounds) {
  __shared__ alignas(128) uint32_t block[kWords];
  __shared__ alignas(8) uint64_t arrived;
  uint32_t const pair = blockIdx.x / 2, thread = threadIdx.x;
  bool const writes = blockIdx.x % 2 == 0;
  uint32_t* const data = memory.data + pair * kWords;
  uint32_t* const posts = memory.words + pair * 64;
  uint32_t* const acks = posts + 32;
  if (thread == 0) ptx::mbarrier_init(&arrived, way.load == kAsync ? kThreads : 1);
  ptx::fence_mbarrier_init();
  __syncthreads();
  uint32_t wrong = 0;
  for (uint32_t round = 1; round <= rounds; ++round) {
    if (writes) {
      // Wait until the previous data has been read.
      if (thread == 0 && way.without != kAck) await(acks, round - 1, true);
      if (thread == 0) ptx::fence_proxy_async_global();
      __syncthreads();
      if (way.store == kBulk) {
        for (uint32_t i = thread; i < kWords; i += kThreads) block[i] = round;
        ptx::fence_proxy_async_shared_cta();
        __syncthreads();
        if (thread == 0) {
          cute::SM90_BULK_COPY_S2G::copy(block, data, kBytes);
          ptx::cp_async_bulk_commit_group();
          if (way.without == kFullWait)
            ptx::cp_async_bulk_wait_group_read<0>();
          else if (way.without != kAnyWait)
            ptx::cp_async_bulk_wait_group<0>();
        }
      } else {
        uint4 const value = make_uint4(round, round, round, round);
        uint4* const to = reinterpret_cast<uint4*>(data) + thread;
        if (way.store == kStreaming)
          __stcg(to, value);
        else
          *to = value;
        if (way.store == kRows) ptx::fence_proxy_async_global();
        if (way.without != kBarrier) __syncthreads();
      }
      if (thread == 0) {
        sometimes(round, pair);
        if (way.store == kStreaming)
          ptx::st_release_gpu(posts, round);
        else
          post(posts, way.without != kRelease);
      }
      // Do not overwrite the block before the copy has read it.
      if (thread == 0 && way.without == kAnyWait) ptx::cp_async_bulk_wait_group_read<0>();
      __syncthreads();
      continue;
    }
    if (way.load == kTma) {
      if (thread == 0) {
        await(posts, round, way.without != kAcquire);
        if (way.without != kFence) ptx::fence_proxy_async_global();
        ptx::mbarrier_arrive_expect_tx(&arrived, kBytes);
        ptx::cp_async_bulk_shared_evict_first(block, data, kBytes, &arrived);
      }
      ptx::mbarrier_wait_parity_or_trap(&arrived, (round - 1) & 1, kLimitNs);
    } else {
      if (thread == 0) await(posts, round, way.without != kAcquire);
      __syncthreads();
      uint4* const to = reinterpret_cast<uint4*>(block) + thread;
      uint4 const* const from = reinterpret_cast<uint4 const*>(data) + thread;
      if (way.load == kAsync) {
        ptx::cp_async_16_or_zero(uint32_t(__cvta_generic_to_shared(to)), from, true);
        ptx::cp_async_mbarrier_arrive_noinc(&arrived);
        ptx::mbarrier_wait_parity_or_trap(&arrived, (round - 1) & 1, kLimitNs);
      } else {
        *to = way.load == kPastL1 ? __ldcg(from) : *from;
      }
    }
    __syncthreads();
    for (uint32_t i = thread; i < kWords; i += kThreads) wrong += block[i] != round;
    __syncthreads();
    if (thread == 0) {
      sometimes(round, pair + 7);
      post(acks, true);
    }
  }
  if (wrong) atomicAdd(memory.wrong, (unsigned long long)wrong);
}

void check(cudaError_t error, char const* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

}  // namespace

int main(int count, char** arguments) {
  double const millions = count > 1 ? std::atof(arguments[1]) : 1;
  int sms = 0, fit = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "no GPU");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, run, kThreads, 0), "occupancy");
  // Partners have consecutive CTA numbers, so they are on different SMs.
  uint32_t const pairs = uint32_t(sms) * uint32_t(fit < 8 ? fit : 8) / 2;
  uint32_t const rounds = uint32_t(millions * 1e6 / pairs) + 1;
  Memory memory{};
  check(cudaMalloc(&memory.data, size_t(pairs) * kBytes), "memory");
  check(cudaMalloc(&memory.words, size_t(pairs) * 64 * 4), "memory");
  check(cudaMalloc(&memory.wrong, 8), "memory");
  bool sound = true, can_fail = false;
  for (Way const& way : kWays) {
    check(cudaMemset(memory.data, 0, size_t(pairs) * kBytes), "memset");
    check(cudaMemset(memory.words, 0, size_t(pairs) * 64 * 4), "memset");
    check(cudaMemset(memory.wrong, 0, 8), "memset");
    // Weakened protocols need fewer rounds, because they fail early.
    uint32_t const own = way.without == kNothing ? rounds : rounds / 10 + 1;
    Way one = way;
    uint32_t own_rounds = own;
    void* parameters[] = {&one, &memory, &own_rounds};
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event");
    check(cudaEventRecord(begin), "event");
    check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(run), 2 * pairs, kThreads, parameters, 0, nullptr), "launch");
    check(cudaEventRecord(end), "event");
    check(cudaDeviceSynchronize(), way.name);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    unsigned long long wrong = 0;
    check(cudaMemcpy(&wrong, memory.wrong, 8, cudaMemcpyDeviceToHost), "copy");
    std::printf("%-75s %12llu rounds, %llu words wrong, %.1f s\n", way.name, (unsigned long long)own * pairs, wrong, ms * 1e-3);
    std::fflush(stdout);
    if (way.without == kNothing)
      sound = sound && wrong == 0;
    else
      can_fail = can_fail || wrong > 0;
  }
  std::printf("%s\n", !sound ? "a way fails" : !can_fail ? "no weakened way fails" : "every way holds, and weakened ones fail");
  return sound && can_fail ? 0 : 1;
}
