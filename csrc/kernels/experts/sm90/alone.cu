// SPDX-License-Identifier: MIT OR Apache-2.0
// Standalone mixture of experts: five kernels in stream order, or four if there are few rows.
//
//   choose   a warp per row: its experts and their weights
//   list     one CTA: the pairs of row and expert in lists, expert by expert, and their tiles
//   multiply gate and up: hidden rows, in the order of the lists
//   multiply down: output rows, in the same order
//   combine  weighted sums of each row's output rows
//
// Weights are on the tensor cores' M side and pairs on the N side, so a tile of few pairs needs little padding. A CTA multiplies two
// blocks of weight rows, gate and up or two of down, by the pairs of a tile. Tiles are known on the device only: a fixed
// number of CTAs takes them in turn.
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // products of 160 columns
#include <cmath>

#include "cute/arch/copy_sm90.hpp"
#include "cute/arch/copy_sm90_tma.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cusync/semaphore.cuh"
#include "cutlass/arch/reg_reconfig.h"
#include "kernels/common/delays.cuh"
#include "kernels/common/element.cuh"
#include "kernels/common/number.h"
#include "kernels/common/sm90/descriptor.cuh"
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/common/sm90/host.h"
#include "kernels/experts/layout.h"

namespace cusync::kernels::sm90 {
namespace {

constexpr uint32_t kRowsOfBlock = 64, kBlockBytes = kRowsOfBlock * 128;  ///< weight rows of 64 elements
constexpr uint32_t kListThreads = 1024, kRowThreads = 256;
constexpr uint32_t kFewRows = 64;  ///< that the listing CTA chooses for itself
constexpr uint32_t kGatherThreads = 96;  ///< of the loading warpgroup: the other warp copies
constexpr uint32_t kScores = CUSYNC_MAX_EXPERTS / 32;  ///< of a lane
constexpr uint32_t kLast = 0xffff;  ///< more than any expert's number

struct Experts {
  void const* x;
  void const* router;
  void const* residual;  ///< optional
  void* out;
  uint32_t* chosen;
  float* weights;
  uint32_t* places;
  uint32_t* listed;
  uint32_t* count;    ///< of tiles
  ExpertTile* tiles;
  void* hidden;
  void* outputs;
  uint32_t rows, width, features, experts, top_k;
  uint32_t pairs;     ///< of a tile
  uint32_t normalized, activation;
  cusync_delays delays;
};

/// The operands and sizes of a product.
struct Product {
  CUtensorMap weights[2];  ///< gate and up; twice those of down
  CUtensorMap right;       ///< hidden rows, unless rows of x are gathered
  Experts experts;
  uint32_t columns;  ///< output columns of an expert
  uint32_t inputs;   ///< terms of a sum
  uint32_t blocks;   ///< tiles along the columns
};

/// A score and its expert as a number that is larger for a larger score, and of equal scores for the first expert. A score
/// that is not a number comes last.
template <class Element>
CUSYNC_DEVICE uint32_t rank_of(Element score, uint32_t expert) {
  float const value = to_float(score);
  if (value != value) return kLast - expert;
  // Both zeros are equal.
  uint32_t const bits = value == 0.f ? 0 : reinterpret_cast<uint16_t const&>(score);
  uint32_t const ordered = bits & 0x8000u ? ~bits & 0xffffu : bits | 0x8000u;
  return ordered << 16 | (kLast - expert);
}

/// The score of a rank.
template <class Element>
CUSYNC_DEVICE float score_of(uint32_t rank) {
  uint32_t const ordered = rank >> 16;
  uint16_t const bits = uint16_t(ordered & 0x8000u ? ordered & 0x7fffu : ~ordered);
  return to_float(reinterpret_cast<Element const&>(bits));
}

/// The experts of a row, and their weights; one warp.
template <class Element>
CUSYNC_DEVICE void choose_row(Experts const& experts, uint32_t row, uint32_t* chosen) {
  uint32_t const lane = threadIdx.x % 32, turns = (experts.experts + 31) / 32;
  auto const scores = static_cast<Element const*>(experts.router) + uint64_t(row) * experts.experts;
  uint32_t ranks[kScores] = {};  ///< of the lane's experts that are not chosen; 0: none
#pragma unroll
  for (uint32_t i = 0; i < kScores && i < turns; ++i)
    if (lane + 32 * i < experts.experts) ranks[i] = rank_of(scores[lane + 32 * i], lane + 32 * i);
  float most = 0.f, sum = 0.f, own = 0.f, rest = 0.f;
  uint32_t taken = 0;
  for (uint32_t j = 0; j < experts.top_k; ++j) {
    uint32_t best = 0;
#pragma unroll
    for (uint32_t i = 0; i < kScores && i < turns; ++i) best = ranks[i] > best ? ranks[i] : best;
    best = __reduce_max_sync(~0u, best);
#pragma unroll
    for (uint32_t i = 0; i < kScores && i < turns; ++i)
      if (ranks[i] == best) ranks[i] = 0;
    float const score = score_of<Element>(best);
    if (j == 0) most = score;
    float const power = __expf(score - most);
    sum += power;
    if (lane == j) own = power, taken = kLast - (best & 0xffffu);
  }
  if (!experts.normalized) {
#pragma unroll
    for (uint32_t i = 0; i < kScores && i < turns; ++i)
      if (ranks[i]) rest += __expf(score_of<Element>(ranks[i]) - most);
#pragma unroll
    for (uint32_t step = 16; step; step /= 2) rest += __shfl_xor_sync(~0u, rest, step);
  }
  if (lane < experts.top_k) {
    uint64_t const pair = uint64_t(row) * experts.top_k + lane;
    chosen[pair] = taken, experts.weights[pair] = own / (sum + rest);
  }
}

template <class Element>
__global__ void __launch_bounds__(kRowThreads) choose(Experts const experts) {
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  delay_at_any_time(experts.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);
  uint32_t const row = blockIdx.x * (kRowThreads / 32) + threadIdx.x / 32;
  if (row < experts.rows) choose_row<Element>(experts, row, experts.chosen);
}

/// Sums of two values over the threads before each, for the first CUSYNC_MAX_EXPERTS; the memory holds those of warps.
CUSYNC_DEVICE uint2 before(uint2 own, uint2 (&of_warps)[kListThreads / 32]) {
  uint32_t const lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint2 sum = own;
#pragma unroll
  for (uint32_t step = 1; step < 32; step *= 2) {
    uint32_t const x = __shfl_up_sync(~0u, sum.x, step), y = __shfl_up_sync(~0u, sum.y, step);
    if (lane >= step) sum.x += x, sum.y += y;
  }
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  if (threadIdx.x < CUSYNC_MAX_EXPERTS)
    for (uint32_t i = 0; i < warp; ++i) sum.x += of_warps[i].x, sum.y += of_warps[i].y;
  return {sum.x - own.x, sum.y - own.y};
}

template <class Element>
__global__ void __launch_bounds__(kListThreads) list(Experts const experts) {
  __shared__ uint32_t pairs_of[CUSYNC_MAX_EXPERTS], next[CUSYNC_MAX_EXPERTS];
  __shared__ uint2 of_warps[kListThreads / 32];
  __shared__ uint32_t chosen_here[kFewRows * CUSYNC_MAX_TOP_K];
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  delay_at_any_time(experts.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);
  if (threadIdx.x < CUSYNC_MAX_EXPERTS) pairs_of[threadIdx.x] = 0;
  uint32_t* const chosen = experts.rows <= kFewRows ? chosen_here : experts.chosen;
  if (experts.rows <= kFewRows)
    for (uint32_t row = threadIdx.x / 32; row < experts.rows; row += kListThreads / 32) choose_row<Element>(experts, row, chosen);
  __syncthreads();
  uint32_t const pairs = experts.rows * experts.top_k;
  for (uint32_t pair = threadIdx.x; pair < pairs; pair += kListThreads) atomicAdd(&pairs_of[chosen[pair]], 1);
  __syncthreads();
  uint32_t const expert = threadIdx.x, own = expert < experts.experts ? pairs_of[expert] : 0;
  uint32_t const tiles = (own + experts.pairs - 1) / experts.pairs;
  uint2 const first = before({own, tiles}, of_warps);
  if (expert < experts.experts) next[expert] = first.x;
  for (uint32_t i = 0; i < tiles; ++i) {
    uint32_t const done = i * experts.pairs, rest = own - done;
    experts.tiles[first.y + i] = {expert, first.x + done, rest < experts.pairs ? rest : experts.pairs};
  }
  if (expert + 1 == experts.experts) *experts.count = first.y + tiles;
  __syncthreads();
  // The order of an expert's pairs may differ from run to run; no result depends on it.
  for (uint32_t pair = threadIdx.x; pair < pairs; pair += kListThreads) {
    uint32_t const place = atomicAdd(&next[chosen[pair]], 1);
    experts.listed[place] = pair, experts.places[pair] = place;
  }
}

/// Shared memory of a product of tiles of `Pairs` pairs by `Groups` math warpgroups.
template <int Pairs, int Groups>
struct alignas(1024) Memory {
  static constexpr uint32_t kLeft = 2 * Groups * kBlockBytes, kStage = kLeft + Pairs * 128;
  static constexpr uint32_t kPitch = 2 * kRowsOfBlock + 16;  ///< bytes of a staged row; stores of 8 rows meet 32 banks
  static constexpr int kStaged = Pairs < 64 ? Pairs : 64;    ///< pairs that are staged at once
  static constexpr uint32_t kSlots = (226 * 1024 - Groups * kStaged * kPitch) / kStage;

  char ring[kSlots][kStage];  ///< both blocks of each warpgroup, then the pairs, in 128-byte rows under the swizzle
  char staged[Groups][kStaged * kPitch];
  uint64_t full[kSlots], empty[kSlots];
};

/// A tile of pairs and a block of columns.
struct Work {
  ExpertTile tile;
  uint32_t column;

  CUSYNC_DEVICE Work(Product const& product, uint32_t item, uint32_t rows)
      : column(item % product.blocks * rows) {
    // The kernel before may still run, and L1 may still hold tiles of an earlier run.
    ExpertTile const* const from = product.experts.tiles + item / product.blocks;
    tile = {__ldcg(&from->expert), __ldcg(&from->first), __ldcg(&from->pairs)};
  }
};

/// Copies weights, and hidden rows where they are the right operand; one thread.
template <class Element, int Pairs, int Groups, bool Gated>
CUSYNC_DEVICE void copy(Product const& product, Memory<Pairs, Groups>& memory, uint32_t items) {
  using Shared = Memory<Pairs, Groups>;
  constexpr uint32_t kRows = Groups * kRowsOfBlock;
  constexpr auto kUsual = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
  uint32_t const k_blocks = (product.inputs + 63) / 64;
  uint32_t next = 0;
  bool waited = Gated;
  for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
    Work const work(product, item, Gated ? kRows : 2 * kRows);
    uint32_t const row = work.tile.expert * product.columns + work.column;
#pragma unroll 1
    for (uint32_t block = 0; block < k_blocks; ++block, ++next) {
      uint32_t const slot = next % Shared::kSlots;
      char* const stage = memory.ring[slot];
      while (!ptx::mbarrier_test_parity(&memory.empty[slot], next / Shared::kSlots % 2 ^ 1)) {
      }
      ptx::mbarrier_arrive_expect_tx(&memory.full[slot], Gated ? Shared::kLeft : Shared::kStage);
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half)
        cute::SM90_TMA_LOAD_2D::copy(&product.weights[half], &memory.full[slot], kUsual, stage + half * kRows * 128, int(block * 64),
                                     int(row + (Gated ? 0 : half * kRows)));
      if constexpr (!Gated) {
        // Lists and weights are complete; only the hidden rows are made by the kernel before.
        if (!waited) ptx::griddepcontrol_wait();
        waited = true;
        cute::SM90_TMA_LOAD_2D::copy(&product.right, &memory.full[slot], kUsual, stage + Shared::kLeft, int(block * 64), int(work.tile.first));
      }
    }
  }
}

/// Gathers rows of x; kGatherThreads threads, numbered from 0.
template <class Element, int Pairs, int Groups>
CUSYNC_DEVICE void gather(Product const& product, Memory<Pairs, Groups>& memory, uint32_t items, uint32_t thread) {
  using Shared = Memory<Pairs, Groups>;
  constexpr uint32_t kTogether = kGatherThreads / 8, kTurns = (Pairs + kTogether - 1) / kTogether;
  uint32_t const chunk = thread % 8, k_blocks = (product.inputs + 63) / 64;
  uint32_t next = 0;
  for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
    Work const work(product, item, Groups * kRowsOfBlock);
    Element const* from[kTurns];
#pragma unroll
    for (uint32_t i = 0; i < kTurns; ++i) {
      uint32_t const place = thread / 8 + kTogether * i;
      from[i] = nullptr;
      if (place < work.tile.pairs)
        from[i] = static_cast<Element const*>(product.experts.x) +
                  uint64_t(product.experts.listed[work.tile.first + place] / product.experts.top_k) * product.inputs + chunk * 8;
    }
#pragma unroll 1
    for (uint32_t block = 0; block < k_blocks; ++block, ++next) {
      uint32_t const slot = next % Shared::kSlots;
      uint32_t const right = cute::cast_smem_ptr_to_uint(memory.ring[slot] + Shared::kLeft);
      bool const inside = block * 64 + chunk * 8 < product.inputs;
      while (!ptx::mbarrier_test_parity(&memory.empty[slot], next / Shared::kSlots % 2 ^ 1)) {
      }
#pragma unroll
      for (uint32_t i = 0; i < kTurns; ++i) {
        uint32_t const place = thread / 8 + kTogether * i;
        bool const valid = from[i] && inside;
        if (place < Pairs)
          ptx::cp_async_16_or_zero(right + place * 128 + (chunk ^ place % 8) * 16, valid ? from[i] + block * 64 : product.experts.x, valid);
      }
      ptx::cp_async_mbarrier_arrive_noinc(&memory.full[slot]);
    }
  }
}

/// A math warpgroup: 64 rows of both blocks by the pairs of each tile.
template <class Element, int Pairs, int Groups, bool Gated>
CUSYNC_DEVICE void multiply(Product const& product, Memory<Pairs, Groups>& memory, uint32_t items) {
  using namespace cute;
  using Shared = Memory<Pairs, Groups>;
  using Atom = MMA_Atom<decltype(SM90::GMMA::ss_op_selector<Element, Element, float, Shape<_64, Int<Pairs>, _16>, SM90::GMMA::Major::K,
                                                             SM90::GMMA::Major::K>())>;
  constexpr uint32_t kRows = Groups * kRowsOfBlock;
  constexpr int kSums = Pairs / 2;
  uint32_t const group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
  uint32_t const k_blocks = (product.inputs + 63) / 64;
  float sums[2][kSums];
  Tensor first = make_tensor(&sums[0][0], Layout<Int<kSums>>{});
  Tensor second = make_tensor(&sums[1][0], Layout<Int<kSums>>{});
  Atom atom;
  uint32_t next = 0;
  auto const release = [&](uint32_t slot) {
    if (lane == 0) ptx::mbarrier_arrive(&memory.empty[slot]);
  };
  for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
    Work const work(product, item, Gated ? kRows : 2 * kRows);
#pragma unroll 1
    for (uint32_t block = 0; block < k_blocks; ++block, ++next) {
      uint32_t const slot = next % Shared::kSlots;
      while (!ptx::mbarrier_test_parity(&memory.full[slot], next / Shared::kSlots % 2)) {
      }
      if constexpr (Gated) ptx::fence_proxy_async_shared_cta();
      char const* const stage = memory.ring[slot];
      auto const left = [&](uint32_t half) { return rows_descriptor(stage + half * kRows * 128 + group * kBlockBytes, 16); };
      auto const right = rows_descriptor(stage + Shared::kLeft, 16);
      warpgroup_fence_operand(first);
      warpgroup_fence_operand(second);
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        atom.accumulate_ = block || k ? SM90::GMMA::ScaleOut::One : SM90::GMMA::ScaleOut::Zero;
        auto const b = descriptor_at(right, k * 32);
        atom.call(first, descriptor_at(left(0), k * 32), b, first);
        atom.call(second, descriptor_at(left(1), k * 32), b, second);
      }
      warpgroup_commit_batch();
      warpgroup_wait<1>();
      if (block) release((next - 1) % Shared::kSlots);
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(first);
    warpgroup_fence_operand(second);
    release((next - 1) % Shared::kSlots);

    if constexpr (Gated) {
      activate_gates<kSums>(product.experts.activation, sums[0]);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[0][i] *= sums[1][i];
    }
    auto const to = static_cast<Element*>(Gated ? product.experts.hidden : product.experts.outputs);
    char* const staged = memory.staged[group];
#pragma unroll
    for (int half = 0; half < (Gated ? 1 : 2); ++half)
#pragma unroll
      for (int first_staged = 0; first_staged < Pairs; first_staged += Shared::kStaged) {
        constexpr int kStaged = Shared::kStaged;
        // A matrix of 8 features by 8 pairs is stored by pairs.
#pragma unroll
        for (int j = 0; j < kStaged / 8; j += 2) {
          if (first_staged + 8 * j >= Pairs) continue;
          uint32_t const matrix = lane / 8, pair = 8 * (j + matrix / 2) + lane % 8, feature = thread / 32 * 16 + matrix % 2 * 8;
          float const* const v = &sums[half][4 * (first_staged / 8 + j)];
          SM90_U16x8_STSM_T::copy(pack<Element>(v[0], v[1]), pack<Element>(v[2], v[3]), pack<Element>(v[4], v[5]), pack<Element>(v[6], v[7]),
                                  *reinterpret_cast<uint128_t*>(staged + pair * Shared::kPitch + feature * 2));
        }
        ptx::bar_sync(1 + group, 128);
        uint32_t const column = work.column + half * kRows + group * kRowsOfBlock + thread % 8 * 8;
        for (uint32_t row = thread / 8; row < kStaged && first_staged + row < work.tile.pairs; row += 16)
          if (column < product.columns)
            *reinterpret_cast<uint4*>(to + uint64_t(work.tile.first + first_staged + row) * product.columns + column) =
                *reinterpret_cast<uint4 const*>(staged + row * Shared::kPitch + thread % 8 * 16);
        ptx::bar_sync(1 + group, 128);
      }
  }
}

template <class Element, int Pairs, int Groups, bool Gated>
__global__ void __launch_bounds__(128 * (1 + Groups), 1) products(CUTE_GRID_CONSTANT Product const product) {
  using Shared = Memory<Pairs, Groups>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<Shared*>(bytes);
  if (threadIdx.x == 0) {
    for (auto const& map : product.weights) cute::prefetch_tma_descriptor(reinterpret_cast<cute::TmaDescriptor const*>(&map));
    if constexpr (!Gated) cute::prefetch_tma_descriptor(reinterpret_cast<cute::TmaDescriptor const*>(&product.right));
    for (uint32_t slot = 0; slot < Shared::kSlots; ++slot)
      ptx::mbarrier_init(&memory.full[slot], Gated ? kGatherThreads + 1 : 1), ptx::mbarrier_init(&memory.empty[slot], 4 * Groups);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // The product by down begins when all CTAs of the one before it are here, with complete lists.
  if constexpr (Gated) ptx::griddepcontrol_wait();
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  uint32_t const items = __ldcg(product.experts.count) * product.blocks;
  if (threadIdx.x < 128) {
    // Together the registers with which three warpgroups start: 168 a thread.
    if constexpr (Groups > 1) cutlass::arch::warpgroup_reg_dealloc<72>();
    delay_at_any_time(product.experts.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);
    if (threadIdx.x == 0) copy<Element, Pairs, Groups, Gated>(product, memory, items);
    if constexpr (Gated)
      if (threadIdx.x >= 32) gather<Element, Pairs, Groups>(product, memory, items, threadIdx.x - 32);
  } else {
    if constexpr (Groups > 1) cutlass::arch::warpgroup_reg_alloc<216>();
    // Outputs replace those of the run before, which ended before the lists were made.
    multiply<Element, Pairs, Groups, Gated>(product, memory, items);
  }
}

/// A thread has eight columns of a row.
template <class Element>
__global__ void __launch_bounds__(kRowThreads) combine(Experts const experts) {
  using Words = Group<Element>;
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  uint32_t const vectors = experts.width / 8;
  uint64_t const at = uint64_t(blockIdx.x) * kRowThreads + threadIdx.x;
  if (at >= uint64_t(experts.rows) * vectors) return;
  uint64_t const row = at / vectors, vector = at % vectors;
  // Lists and the residual are complete when the kernel before begins; only its output rows must be waited for. L1 may
  // still hold older values.
  uint4 bits{};
  if (experts.residual) bits = __ldcg(static_cast<uint4 const*>(experts.residual) + at);
  Words const residual = reinterpret_cast<Words const&>(bits);
  uint32_t places[CUSYNC_MAX_TOP_K];
  float weights[CUSYNC_MAX_TOP_K];
#pragma unroll
  for (uint32_t j = 0; j < CUSYNC_MAX_TOP_K; ++j)
    if (j < experts.top_k) {
      uint64_t const pair = row * experts.top_k + j;
      places[j] = __ldcg(experts.places + pair), weights[j] = __ldcg(experts.weights + pair);
    }
  ptx::griddepcontrol_wait();
  delay_at_any_time(experts.delays, DelayAt::kStore, blockIdx.x, threadIdx.x / 32);
  float sums[8] = {};
#pragma unroll
  for (uint32_t j = 0; j < CUSYNC_MAX_TOP_K; ++j)
    if (j < experts.top_k) {
      Words const words = static_cast<Words const*>(experts.outputs)[places[j] * uint64_t(vectors) + vector];
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i] += weights[j] * to_float(words.values[i]);
    }
  Words words;
#pragma unroll
  for (int i = 0; i < 8; ++i) words.values[i] = from_float<Element>(sums[i] + (experts.residual ? to_float(residual.values[i]) : 0.f));
  static_cast<Words*>(experts.out)[at] = words;
}

/// The element type of plain CUDA.
template <class Element>
using Plain = std::conditional_t<std::is_same_v<Element, cutlass::half_t>, __half, __nv_bfloat16>;

template <class Element, int Pairs, int Groups, bool Gated>
Code code() {
  auto const kernel = products<Element, Pairs, Groups, Gated>;
  return {reinterpret_cast<void const*>(kernel), CUSYNC_SM90A, 128 * (1 + Groups), uint32_t(sizeof(Memory<Pairs, Groups>))};
}

Code plain(void const* kernel, uint32_t threads) { return {kernel, CUSYNC_SM90A, threads, 0}; }

/// All kernels of a stage, ready to launch.
struct Mixture final : cusync_kernel {
  Code choose, list, hidden, outputs, combine;
  Experts experts;
  Product up, down;
  uint32_t workers[2];  ///< of the products

  int32_t launch(cusync_how const& how) const override {
    cusync_how next = how;
    auto const queue = [&](Code const& code, uint32_t ctas, void const* params) {
      int32_t const status = kernels::launch(code, ctas, next, params);
      next.programmatic = 1;
      return status;
    };
    auto const of_rows = [](uint64_t threads) { return uint32_t((threads + kRowThreads - 1) / kRowThreads); };
    int32_t status = experts.rows > kFewRows ? queue(choose, of_rows(uint64_t(experts.rows) * 32), &experts) : CUSYNC_OK;
    if (status == CUSYNC_OK) status = queue(list, 1, &experts);
    if (status == CUSYNC_OK) status = queue(hidden, workers[0], &up);
    if (status == CUSYNC_OK) status = queue(outputs, workers[1], &down);
    return status == CUSYNC_OK ? queue(combine, of_rows(uint64_t(experts.rows) * (experts.width / 8)), &experts) : status;
  }
};

/// Products with tiles of `Pairs` pairs.
template <class Element, int Pairs, int Groups>
int32_t create_for(Experts experts, cusync_stage const& stage, cusync_kernel** out) {
  constexpr uint32_t kRows = Groups * kRowsOfBlock;
  uint64_t const pairs = uint64_t(experts.rows) * experts.top_k, width = experts.width, features = experts.features;
  experts.pairs = Pairs;
  Product up{}, down{};
  up.experts = down.experts = experts;
  up.columns = down.inputs = experts.features, up.inputs = down.columns = experts.width;
  up.blocks = ceil_div(experts.features, kRows), down.blocks = ceil_div(experts.width, 2 * kRows);
  auto const map_weights = [&](CUtensorMap& map, uint32_t role, uint64_t inputs, uint64_t columns) {
    return map_box<Element, 2>(map, data_of(stage, role), {inputs, columns * experts.experts}, {64, kRows});
  };
  bool const mapped = map_weights(up.weights[0], CUSYNC_OPERAND_B, width, features) &&
                      map_weights(up.weights[1], CUSYNC_OPERAND_UP, width, features) &&
                      map_weights(down.weights[0], CUSYNC_OPERAND_DOWN, features, width) &&
                      map_weights(down.weights[1], CUSYNC_OPERAND_DOWN, features, width) &&
                      map_box<Element, 2>(down.right, experts.hidden, {features, pairs}, {64, Pairs});
  if (!mapped) return status_of(cudaErrorInvalidValue);
  auto* kernel = new (std::nothrow) Mixture;
  if (!kernel) return CUSYNC_ERROR_NO_MEMORY;
  kernel->experts = experts, kernel->up = up, kernel->down = down;
  kernel->choose = plain(reinterpret_cast<void const*>(choose<Plain<Element>>), kRowThreads);
  kernel->list = plain(reinterpret_cast<void const*>(list<Plain<Element>>), kListThreads);
  kernel->hidden = code<Element, Pairs, Groups, true>();
  kernel->outputs = code<Element, Pairs, Groups, false>();
  kernel->combine = plain(reinterpret_cast<void const*>(combine<Plain<Element>>), kRowThreads);
  uint64_t const tiles = most_tiles(pairs, experts.experts, Pairs);
  int32_t status = CUSYNC_OK;
  uint32_t unused = 0;
  for (Code const* code : {&kernel->choose, &kernel->list, &kernel->combine})
    if (status == CUSYNC_OK) status = resident(*code, 0, &unused);
  for (int i = 0; i < 2 && status == CUSYNC_OK; ++i) {
    Code const& code = i ? kernel->outputs : kernel->hidden;
    uint64_t const items = tiles * (i ? down.blocks : up.blocks);
    status = resident(code, code.shared_bytes, &kernel->workers[i]);
    if (items < kernel->workers[i]) kernel->workers[i] = uint32_t(items);
  }
  if (status != CUSYNC_OK) {
    delete kernel;
    return status;
  }
  *out = kernel;
  return CUSYNC_OK;
}

template <class Element>
struct Mix {
  static constexpr cusync_operation kOperation = CUSYNC_EXPERTS;
  static constexpr uint32_t kElement = kElementOf<Element>;

  static Code code() { return sm90::code<Element, 160, 2, true>(); }
  static int32_t create(Request const& request, cusync_kernel** out) {
    cusync_stage const& stage = request.stages[0];
    cusync_experts const& shape = stage.shape.experts;
    ExpertScratch const at = expert_scratch(shape, stage.m, stage.n);
    char* const scratch = static_cast<char*>(request.work.scratch);
    Experts experts{};
    experts.x = data_of(stage, CUSYNC_OPERAND_A), experts.router = data_of(stage, CUSYNC_OPERAND_ROUTER);
    experts.residual = data_of(stage, CUSYNC_OPERAND_RESIDUAL), experts.out = stage.out;
    experts.chosen = reinterpret_cast<uint32_t*>(scratch + at.chosen);
    experts.weights = reinterpret_cast<float*>(scratch + at.weights);
    experts.places = reinterpret_cast<uint32_t*>(scratch + at.places);
    experts.listed = reinterpret_cast<uint32_t*>(scratch + at.listed);
    experts.count = reinterpret_cast<uint32_t*>(scratch + at.tiles);
    experts.tiles = reinterpret_cast<ExpertTile*>(scratch + at.tiles + 16);
    experts.hidden = scratch + at.hidden, experts.outputs = scratch + at.outputs;
    experts.rows = stage.m, experts.width = stage.n, experts.features = shape.features;
    experts.experts = shape.experts, experts.top_k = shape.top_k;
    experts.normalized = shape.normalized, experts.activation = stage.activation;
    experts.delays = request.sync.test.delays;
    // One tile for nearly every expert, if rows choose independently: experts of few pairs are limited by reading weights.
    double const average = double(stage.m) * shape.top_k / shape.experts, most = average + 2.5 * std::sqrt(average);
    if (most <= 16) return create_for<Element, 16, 1>(experts, stage, out);
    if (most <= 32) return create_for<Element, 32, 1>(experts, stage, out);
    if (most <= 64) return create_for<Element, 64, 2>(experts, stage, out);
    if (most <= 96) return create_for<Element, 96, 2>(experts, stage, out);
    return most <= 160 ? create_for<Element, 160, 2>(experts, stage, out) : create_for<Element, 128, 2>(experts, stage, out);
  }
};

}  // namespace
}  // namespace cusync::kernels::sm90

namespace cusync::kernels {

KernelTable alone_sm90_experts_f16() { return alone<sm90::Mix<cutlass::half_t>>(); }
KernelTable alone_sm90_experts_bf16() { return alone<sm90::Mix<cutlass::bfloat16_t>>(); }

}  // namespace cusync::kernels
