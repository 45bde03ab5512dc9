// SPDX-License-Identifier: MIT OR Apache-2.0
// Turned kernels: convolutions with pixels on WGMMA's N side. Operand A is a filter block, 64 output channels by 64
// input channels, and operand B the window rows shifted by the tap. N is 56 to 128 slots, so a k-block takes as long as
// the tensor cores need, and few slots are empty (kernels/conv2d/window.h cuts tiles into products). A thread's sums
// are then channels by pixels; they are transposed on their way to shared memory.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <utility>

#include "cute/arch/copy_sm75.hpp"
#include "cute/arch/copy_sm90.hpp"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cute/arch/mma_sm90_gmma_ext.hpp"
#include "kernels/common/sm90/operation.cuh"
#include "kernels/common/sm90/window.cuh"

namespace cusync::kernels::sm90 {

/// CuTe's WGMMA instruction for 64 channels by `Slots` by 16.
template <class Element, int Slots>
struct TurnedProduct;

#define CUSYNC_TURNED(Number, Slots, Name)                                                         \
  template <>                                                                                      \
  struct TurnedProduct<Number, Slots> {                                                            \
    using Type = cute::SM90::GMMA::Name<cute::SM90::GMMA::Major::MN, cute::SM90::GMMA::Major::K>;  \
  };
CUSYNC_TURNED(cutlass::half_t, 56, MMA_64x56x16_F32F16F16_SS)
CUSYNC_TURNED(cutlass::half_t, 104, MMA_64x104x16_F32F16F16_SS)
CUSYNC_TURNED(cutlass::half_t, 120, MMA_64x120x16_F32F16F16_SS)
CUSYNC_TURNED(cutlass::half_t, 128, MMA_64x128x16_F32F16F16_SS)
CUSYNC_TURNED(cutlass::bfloat16_t, 56, MMA_64x56x16_F32BF16BF16_SS)
CUSYNC_TURNED(cutlass::bfloat16_t, 104, MMA_64x104x16_F32BF16BF16_SS)
CUSYNC_TURNED(cutlass::bfloat16_t, 120, MMA_64x120x16_F32BF16BF16_SS)
CUSYNC_TURNED(cutlass::bfloat16_t, 128, MMA_64x128x16_F32BF16BF16_SS)
#undef CUSYNC_TURNED

/// The slots of a unit of 64 accumulator columns: the first slot within the tile, and the number of slots that belong
/// only to this unit.
struct TurnedUnit {
  uint32_t slot, count;

  CUSYNC_DEVICE TurnedUnit(uint32_t slot, uint32_t count) : slot(slot), count(count) {}
  /// Unit number `index` of `groups` warpgroups, with two units each.
  CUSYNC_DEVICE TurnedUnit(Window const& window, uint32_t groups, uint32_t index) {
    uint32_t const begin = index % 2 * 64, step = window.step(groups);
    // Products may overlap the slots of the next product.
    uint32_t const end = min_u32(window.multiplied(), step);
    slot = index / 2 * step + begin;
    count = end > begin ? min_u32(end - begin, 64) : 0;
  }
};

struct TurnedArithmetic {
  /// The implementation of WindowArithmetic::accumulate for turned kernels.
  template <class C, class Shift, class Item, class Accumulators>
  CUSYNC_DEVICE static void accumulate(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                                       typename C::LoadPipeline& loaded, typename C::LoadState& read, Accumulators& acc, int thread) {
    Window const window = params.windows[item.stage];
    // The cases are kProductSlots.
    switch (window.multiplied()) {
      case 56: return multiply<C, Shift, 56>(window, item, shared, loaded, read, acc, thread);
      case 104: return multiply<C, Shift, 104>(window, item, shared, loaded, read, acc, thread);
      case 120: return multiply<C, Shift, 120>(window, item, shared, loaded, read, acc, thread);
      default: return multiply<C, Shift, 128>(window, item, shared, loaded, read, acc, thread);
    }
  }

 private:
  template <class Atom, size_t... I>
  CUSYNC_DEVICE static void fma(uint64_t filter, uint64_t pixels, float (&sums)[sizeof...(I)], std::index_sequence<I...>) {
    Atom::fma(filter, pixels, sums[I]..., cute::GMMA::ScaleOut::One);
  }

  template <class C, class Shift, int Slots, class Item, class Accumulators>
  CUSYNC_DEVICE static void multiply(Window const& window, Item const& item, typename C::SharedStorage& shared,
                                     typename C::LoadPipeline& loaded, typename C::LoadState& read, Accumulators& acc, int thread) {
    using namespace cute;
    using Atom = typename TurnedProduct<typename C::Element, Slots>::Type;
    // Descriptors of the operands that other kernels have on the opposite side: descriptors do not encode the side.
    auto const slice = typename C::TiledMma{}.get_slice(0);
    Tensor const shared_a = make_tensor(make_smem_ptr(shared.operands.smem_A.data()), typename C::Mainloop::SmemLayoutA{});
    Tensor const shared_b = make_tensor(make_smem_ptr(shared.operands.smem_B.data()), typename C::Mainloop::SmemLayoutB{});
    uint64_t const pixels = slice.partition_fragment_A(shared_a).data().desc_.desc_;
    uint64_t const filters = slice.partition_fragment_B(shared_b).data().desc_.desc_;
    // In units of 16 bytes: a pixel, 16 of its channels, 16 rows of a filter block, a filter block.
    constexpr uint32_t kPixel = 128 / 16, kPixelStep = 32 / 16, kFilterStep = 16 * 128 / 16, kFilter = 64 * 128 / 16;
    uint32_t const of_group = __shfl_sync(~0u, uint32_t(thread) / 128, 0) * window.step(C::kConsumerGroups);
    auto const with_low = [](uint64_t descriptor, uint32_t low) { return (descriptor >> 32 << 32) | low; };

    typename C::LoadState release = read;
    bool held = false;  // whether the ring stage of a multiplied k-block has yet to be released
    auto const give_back = [&] {
      if (held) loaded.consumer_release(release), ++release;
      held = true;
    };
    // Used instead of `acc`: its registers would have to suit the products of every width.
    float sums[Slots / 2] = {};
    auto const fence = [&] {
#pragma unroll
      for (int i = 0; i < Slots / 2; ++i) warpgroup_fence_operand(sums[i]);
    };
    Shift shift(window, item.range.k_begin);
    uint32_t first_row = 0;  // of the current window
#pragma unroll 1
    for (uint32_t k = item.range.k_begin, end = item.range.k_end; k < end; ++k) {
      loaded.consumer_wait(read);
      if (k == item.range.k_begin || shift.index == 0) first_row = shared.windows.first_row[read.index()];
      uint32_t const of_b = __shfl_sync(~0u, uint32_t(pixels) + (first_row + shift.rows + of_group) * kPixel, 0);
      uint32_t const of_a = __shfl_sync(~0u, uint32_t(filters) + read.index() * kFilter, 0);
      fence();
      warpgroup_arrive();
#pragma unroll
      for (int j = 0; j < C::kTileK / 16; ++j)
        fma<Atom>(with_low(filters, of_a + j * kFilterStep), with_low(pixels, of_b + j * kPixelStep), sums,
                  std::make_index_sequence<Slots / 2>{});
      warpgroup_commit_batch();
      ++read;
      shift.template advance<true>(window, 1);
      warpgroup_wait<1>();
      fence();
      give_back();
    }
    warpgroup_wait<0>();
    fence();
    if (held) loaded.consumer_release(release);
    // Zero the rest, because it is added to other parts' sums anyway.
#pragma unroll
    for (int i = 0; i < size(acc); ++i) acc(i) = i < Slots / 2 ? sums[i % (Slots / 2)] : 0.f;
  }
};

/// Address of this lane's row among four 8 x 8 matrices that a warp transposes at once, in a buffer of pixels of 64
/// channels: the warp's own 16 channels of 16 slots, first two groups of eight channels, then those of the next eight
/// slots.
template <class Element>
CUSYNC_DEVICE cute::uint128_t& transposed(Element* buffer, Fragment const& at, int slots) {
  uint32_t const lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8, piece = at.row / 16 * 2 + lane / 8 % 2;
  return reinterpret_cast<cute::uint128_t*>(buffer)[(16 * slots + row) * 8 + (piece ^ lane % 8)];
}

/// The residual of a unit, in the buffer that the unit itself will overwrite.
template <class Element>
struct TransposedResidual {
  Element* buffer;
  Fragment const& at;

  template <int Groups>
  CUSYNC_DEVICE void add(float* v) const {
#pragma unroll
    for (int slots = 0; slots < Groups / 2; ++slots) {
      uint32_t words[4];
      cute::SM75_U16x8_LDSM_T::copy(transposed(buffer, at, slots), words[0], words[1], words[2], words[3]);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        float2 const r = load_pair<Element>(words + w, 0);
        v[8 * slots + 2 * w] += r.x, v[8 * slots + 2 * w + 1] += r.y;
      }
    }
  }
};

/// ReLU of two neighboring elements; NaN is preserved.
CUSYNC_DEVICE uint32_t relu_pair(uint32_t word, cutlass::half_t) {
  __half2 const y = __hmax2_nan(reinterpret_cast<__half2 const&>(word), __half2{});
  return reinterpret_cast<uint32_t const&>(y);
}
CUSYNC_DEVICE uint32_t relu_pair(uint32_t word, cutlass::bfloat16_t) {
  __nv_bfloat162 const y = __hmax2_nan(reinterpret_cast<__nv_bfloat162 const&>(word), __nv_bfloat162{});
  return reinterpret_cast<uint32_t const&>(y);
}

/// Applies bias, activation and residual to a unit of 64 channels by 64 slots, and writes it to `buffer` as pixels of
/// 64 channels, replacing the residual; one warpgroup. A warp has 16 channels of all slots: v[4 * j + 2 * h] and the
/// next value are channel at.row + 8 * h of slots 8 * j + at.col and the next.
template <class Element>
CUSYNC_DEVICE void finish_turned(Stage const& stage, uint32_t col, float* v, Fragment const& at, Element* buffer) {
  constexpr int kSlots = 64;
  if (stage.bias) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t const channel = col + at.row + 8 * half;
      float const bias = channel < stage.columns ? float(static_cast<Element const*>(stage.bias)[channel]) : 0.f;
#pragma unroll
      for (int j = 0; j < kSlots / 8; ++j) v[4 * j + 2 * half] += bias, v[4 * j + 2 * half + 1] += bias;
    }
  }
  // Rounding preserves the sign, so ReLU can follow it: half of the instructions.
  bool const rounded_first = !stage.residual && stage.activation == CUSYNC_RELU;
  if (!rounded_first) {
    Stage rest = stage;
    rest.bias = nullptr;
    finish_chunk<Element, kSlots>(rest, v, col, at, TransposedResidual<Element>{buffer, at});
  }
#pragma unroll
  for (int slots = 0; slots < kSlots / 16; ++slots) {
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = pack<Element>(v[8 * slots + 2 * w], v[8 * slots + 2 * w + 1]);
    if (rounded_first)
#pragma unroll
      for (int w = 0; w < 4; ++w) words[w] = relu_pair(words[w], Element{});
    cute::SM90_U16x8_STSM_T::copy(words[0], words[1], words[2], words[3], transposed(buffer, at, slots));
  }
}

}  // namespace cusync::kernels::sm90
