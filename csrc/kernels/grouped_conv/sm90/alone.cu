// SPDX-License-Identifier: MIT OR Apache-2.0
// Standalone grouped convolutions over NHWC images. A thread computes eight output channels of a few neighboring pixels
// of an output row, with their sums in registers. If each group is one channel (a depthwise convolution), the taps of a
// CTA's channels are in shared memory; the filters of other groups are read through L1, which their pixels share. Like
// the other kernels that run alone, it uses no list and no slots.
#include "cusync/ptx.cuh"
#include "kernels/common/activation.cuh"
#include "kernels/common/delays.cuh"
#include "kernels/common/element.cuh"
#include "kernels/common/host.h"

namespace cusync::kernels {
namespace {

constexpr uint32_t kElements = 8;  ///< of a vector
constexpr uint32_t kThreads = 128, kLeastAcross = 8, kMostAcross = 16;  ///< of a CTA; its vectors along the channels
constexpr int kPixels = 4;  ///< of a strip
/// Taps of a depthwise filter that fit in the shared memory of a few CTAs per SM.
constexpr uint32_t kMostTaps = 255, kMostShared = kMostTaps * kMostAcross * 16;

struct GroupedConv {
  void const* x;
  void const* filter;
  void const* bias;      ///< optional
  void const* residual;  ///< optional
  void* out;
  cusync_images images;
  uint32_t dilation_rows, dilation_cols;
  uint32_t channels, features;      ///< of a group: input and output channels
  uint32_t vectors;                 ///< of an output pixel
  uint32_t across, blocks;          ///< vectors of a CTA, and CTAs for all vectors
  uint32_t strips, strips_of_line;  ///< of all images, and of a row of output pixels
  uint32_t activation, residual_first;
  cusync_delays delays;
};

template <class Element, bool kDepthwise>
__global__ void __launch_bounds__(kThreads, 5) convolve(GroupedConv const conv) {
  using Words = Group<Element>;
  extern __shared__ __align__(16) unsigned char memory[];
  // The next kernel waits for this launch to complete, so it may take an SM as soon as there is room.
  if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  delay_at_any_time(conv.delays, DelayAt::kLoads, blockIdx.x, threadIdx.x / 32);

  cusync_images const& i = conv.images;
  uint32_t const first = blockIdx.x % conv.blocks * conv.across, column = threadIdx.x % conv.across;
  uint32_t const row = threadIdx.x / conv.across, down = kThreads / conv.across;
  uint32_t const vector = first + column, strip = blockIdx.x / conv.blocks * down + row;
  auto const filter = static_cast<Words const*>(conv.filter);
  auto const taps = reinterpret_cast<Words*>(memory);
  if constexpr (kDepthwise) {
    for (uint32_t at = threadIdx.x; at < i.filter_rows * i.filter_cols * conv.across; at += kThreads) {
      uint32_t const tap = at / conv.across, from = first + at % conv.across;
      if (from < conv.vectors) taps[at] = filter[uint64_t(tap) * conv.vectors + from];
    }
    __syncthreads();
  }
  // Threads that are left over have no strip.
  if (row >= down || vector >= conv.vectors || strip >= conv.strips) return;

  uint32_t const line = strip / conv.strips_of_line, left = strip % conv.strips_of_line * kPixels;
  uint32_t const image = line / i.out_height, top = line % i.out_height * i.stride_rows;
  // The first input channel of each output channel's group.
  uint32_t origin[kElements];
#pragma unroll
  for (uint32_t e = 0; e < kElements; ++e)
    origin[e] = kDepthwise ? vector * kElements + e : (vector * kElements + e) / conv.features * conv.channels;
  float sum[kPixels][kElements] = {};
  for (uint32_t r = 0; r < i.filter_rows; ++r) {
    // Positions before an image wrap around and are beyond it, too.
    uint32_t const h = top + r * conv.dilation_rows - i.padding_rows;
    if (h >= i.height) continue;
    auto const pixels = static_cast<Element const*>(conv.x) + (uint64_t(image) * i.height + h) * i.width * i.channels;
    for (uint32_t s = 0; s < i.filter_cols; ++s) {
      uint32_t const tap = r * i.filter_cols + s;
      uint32_t w[kPixels];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) w[p] = (left + p) * i.stride_cols + s * conv.dilation_cols - i.padding_cols;
      if constexpr (kDepthwise) {
        Words x[kPixels];
#pragma unroll
        for (int p = 0; p < kPixels; ++p)
          if (w[p] < i.width) x[p] = *reinterpret_cast<Words const*>(pixels + uint64_t(w[p]) * i.channels + origin[0]);
        Words const weights = taps[tap * conv.across + column];
#pragma unroll
        for (int p = 0; p < kPixels; ++p)
          if (w[p] < i.width)
#pragma unroll
            for (uint32_t e = 0; e < kElements; ++e) sum[p][e] += to_float(x[p].values[e]) * to_float(weights.values[e]);
      } else {
        for (uint32_t c = 0; c < conv.channels; ++c) {
          Words const weights = filter[(uint64_t(tap) * conv.channels + c) * conv.vectors + vector];
#pragma unroll
          for (int p = 0; p < kPixels; ++p)
            if (w[p] < i.width) {
              Element const* const x = pixels + uint64_t(w[p]) * i.channels + c;
#pragma unroll
              for (uint32_t e = 0; e < kElements; ++e) sum[p][e] += to_float(x[origin[e]]) * to_float(weights.values[e]);
            }
        }
      }
    }
  }

  delay_at_any_time(conv.delays, DelayAt::kStore, blockIdx.x, threadIdx.x / 32);
  Words bias{};
  if (conv.bias) bias = static_cast<Words const*>(conv.bias)[vector];
#pragma unroll
  for (int p = 0; p < kPixels; ++p) {
    if (left + p >= i.out_width) break;
    uint64_t const at = (uint64_t(line) * i.out_width + left + p) * conv.vectors + vector;
    Words residual{}, result;
    if (conv.residual) residual = static_cast<Words const*>(conv.residual)[at];
    float y[kElements];
    auto const add = [&](Words const& other) {
#pragma unroll
      for (uint32_t e = 0; e < kElements; ++e) y[e] += to_float(other.values[e]);
    };
#pragma unroll
    for (uint32_t e = 0; e < kElements; ++e) y[e] = sum[p][e];
    add(bias);
    if (conv.residual_first) add(residual);
    activate_all<kElements>(conv.activation, y);
    if (!conv.residual_first) add(residual);
#pragma unroll
    for (uint32_t e = 0; e < kElements; ++e) result.values[e] = from_float<Element>(y[e]);
    static_cast<Words*>(conv.out)[at] = result;
  }
}

template <class Element>
Code code(bool depthwise, uint32_t shared_bytes) {
  auto const kernel = depthwise ? convolve<Element, true> : convolve<Element, false>;
  return {reinterpret_cast<void const*>(kernel), CUSYNC_SM90A, kThreads, shared_bytes};
}

/// The vectors along the channels with which the fewest threads are left over; as many as possible.
uint32_t across_for(uint32_t vectors) {
  uint32_t best = kMostAcross;
  for (uint32_t across = kMostAcross; across >= kLeastAcross; --across)
    if (ceil_div(vectors, across) * across < ceil_div(vectors, best) * best) best = across;
  return vectors < kLeastAcross ? vectors : best;
}

template <class Element, cusync_element Number>
struct GroupedConvOf {
  static constexpr cusync_operation kOperation = CUSYNC_GROUPED_CONV;
  static constexpr uint32_t kElement = Number;

  static Code code() { return kernels::code<Element>(true, kMostShared); }
  static int32_t create(Request const& request, cusync_kernel** out) {
    cusync_stage const& stage = request.stages[0];
    cusync_grouped_conv const& shape = stage.shape.grouped_conv;
    GroupedConv conv{};
    conv.x = data_of(stage, CUSYNC_OPERAND_A), conv.filter = data_of(stage, CUSYNC_OPERAND_B);
    conv.bias = data_of(stage, CUSYNC_OPERAND_BIAS), conv.residual = data_of(stage, CUSYNC_OPERAND_RESIDUAL);
    conv.out = stage.out;
    conv.images = shape.images;
    conv.dilation_rows = shape.dilation_rows, conv.dilation_cols = shape.dilation_cols;
    conv.channels = shape.images.channels / shape.groups, conv.features = stage.n / shape.groups;
    conv.vectors = stage.n / kElements;
    conv.across = across_for(conv.vectors), conv.blocks = ceil_div(conv.vectors, conv.across);
    conv.strips_of_line = ceil_div(shape.images.out_width, kPixels);
    conv.strips = stage.m / shape.images.out_width * conv.strips_of_line;
    conv.activation = stage.activation, conv.residual_first = stage.residual_first;
    conv.delays = request.sync.test.delays;
    bool const depthwise = conv.channels == 1 && conv.features == 1;
    uint32_t const taps = shape.images.filter_rows * shape.images.filter_cols;
    Code const own = kernels::code<Element>(depthwise, depthwise ? taps * conv.across * 16 : 0);
    uint64_t const ctas = uint64_t(ceil_div(conv.strips, kThreads / conv.across)) * conv.blocks;
    if (ctas > INT32_MAX) return CUSYNC_ERROR_BAD_ARGUMENT;
    uint32_t resident = 0;
    if (int32_t const status = kernels::resident(own, kMostShared, &resident); status != CUSYNC_OK) return status;
    return ready(own, uint32_t(ctas), conv, out);
  }
};

}  // namespace

KernelTable alone_sm90_grouped_conv_f16() { return alone<GroupedConvOf<__half, CUSYNC_F16>>(); }
KernelTable alone_sm90_grouped_conv_bf16() { return alone<GroupedConvOf<__nv_bfloat16, CUSYNC_BF16>>(); }

}  // namespace cusync::kernels
