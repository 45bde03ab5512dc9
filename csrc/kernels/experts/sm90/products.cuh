// SPDX-License-Identifier: MIT OR Apache-2.0
// The products of a mixture of experts: gate and up, then down, by the listed pairs.
//
// Weights are on the tensor cores' M side and pairs on the N side, so a tile of few pairs needs little padding. A CTA
// multiplies two blocks of weight rows, gate and up or two of down, by the pairs of a tile. Tiles are known on the
// device only: a fixed number of CTAs takes them in turn.
#pragma once
#include "cute/arch/copy_sm90.hpp"
#include "cute/arch/copy_sm90_tma.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cutlass/arch/reg_reconfig.h"
#include "kernels/common/number.h"
#include "kernels/common/sm90/descriptor.cuh"
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/experts/sm90/lists.cuh"

namespace cusync::kernels::sm90 {
namespace experts {

inline constexpr uint32_t kRowsOfBlock = 64, kBlockBytes = kRowsOfBlock * 128;  ///< weight rows of 64 elements
inline constexpr uint32_t kGatherThreads = 96;  ///< of the loading warpgroup: the other warp copies

/// The operands and sizes of a product.
struct Product {
  CUtensorMap weights[2];  ///< gate and up; twice those of down
  CUtensorMap right;       ///< hidden rows, unless rows of x are gathered
  Experts experts;
  uint32_t columns;  ///< output columns of an expert
  uint32_t inputs;   ///< terms of a sum
  uint32_t blocks;   ///< tiles along the columns
};

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

}  // namespace experts
}  // namespace cusync::kernels::sm90
