// SPDX-License-Identifier: MIT OR Apache-2.0
// The last steps of a product: complete sums in registers become outputs.
//
// A unit is one thread's part of a block of 8 tokens: rows r and r + 8, two tokens each, in this order: (r, t),
// (r, t + 1), (r + 8, t), (r + 8, t + 1). The same lane of every warp holds the same part, so units are exchanged
// without rearrangement.
#pragma once
#include "kernels/decode/sm90/devices.cuh"
#include "kernels/decode/sm90/squares.cuh"

namespace cusync::kernels::decode {

/// The biases of a unit's rows.
template <class Element>
struct Bias {
  Element upper, lower;
};

/// The biases of a thread's units in `Count` tiles.
template <class Element, uint32_t Count>
struct Biases {
  Bias<Element> tiles[Count];
};

/// `Curved`: the activation has no code of its own, as SiLU of gates and GELU and ReLU of sums have. Such stages have a
/// copy of this code: what they need besides would otherwise be fetched by all.
template <class Element, int Width, bool Curved, class AnyParams>
class Outputs {
 public:
  /// Loads the biases of rows `row` and `row + 8`. Called before the main loop; they are used only after it, so nothing
  /// waits for them. `lead`: rows before the worker's own.
  CUSYNC_DEVICE static Bias<Element> bias_of(Tensors const& tensors, Share const& share, uint32_t row, uint32_t lead) {
    Element const* const from = static_cast<Element const*>(tensors.bias);
    auto const bias = [&](uint32_t feature) {
      return from && feature < share.count ? from[share.first + feature] : Element(0.f);
    };
    return {bias(row - lead), bias(row + 8 - lead)};
  }

  /// The outputs of stage `s` in a run of `m` tokens.
  CUSYNC_DEVICE Outputs(AnyParams const& p, Tensors const& tensors, uint32_t m, Shared const& shared, uint32_t s)
      : p_(p), s_(s), stage_(p.stages[s]), tensors_(tensors), m_(m), share_(shared.share(s)), shared_(shared),
        thread_(ptx::thread_id()) {}

 protected:
  /// Scales a complete unit if tokens are normalized and their sums are not scaled yet. Called after a barrier that
  /// follows the squares of all warps.
  CUSYNC_DEVICE float4 scaled(float4 sum, uint32_t block) const {
    if constexpr (AnyParams::kAttends && scales_units(Width)) {
      if (stage_.epsilon > 0.f) {
        float2 const factor = factors(stage_, attend_shared(p_, shared_), block * 8 + thread_ % 4 * 2);
        sum = make_float4(sum.x * factor.x, sum.y * factor.y, sum.z * factor.x, sum.w * factor.y);
      }
    }
    return sum;
  }

  CUSYNC_DEVICE void store(float4 v, uint32_t row, uint32_t block, Bias<Element> bias) const {
    uint32_t const token = block * 8 + thread_ % 4 * 2;
    if (stage_.gated) {
      uint32_t const feature = row / 16 * 8 + thread_ % 32 / 4;
      if (uint32_t const rest = share_.count - row / 16 * 8; rest < 8) v = with_up_of_short_group(v, rest);
      store(gate(v.x) * v.z, feature, token);
      store(gate(v.y) * v.w, feature, token + 1);
    } else {
      put(v.x + float(bias.upper), row, token);
      put(v.y + float(bias.upper), row, token + 1);
      put(v.z + float(bias.lower), row + 8, token);
      put(v.w + float(bias.lower), row + 8, token + 1);
    }
  }

  CUSYNC_DEVICE void put(float value, uint32_t feature, uint32_t token) const {
    if (!has(feature, token)) return;
    uint64_t const at = index(feature, token);
    float const residual = tensors_.residual ? float(static_cast<Element const*>(tensors_.residual)[at]) : 0.f;
    if (stage_.residual_first) value += residual;
    value = activated(value);
    if (!stage_.residual_first) value += residual;
    if constexpr (AnyParams::kGroup) {
      if (is_summed(p_, s_)) return send(p_, shared_, uint32_t(at), value);
    }
    static_cast<Element*>(tensors_.d)[at] = Element(value);
  }

 private:
  /// The up rows of a last group of `features` features directly follow its gate rows, so another lane holds them.
  CUSYNC_DEVICE float4 with_up_of_short_group(float4 v, uint32_t features) const {
    uint32_t const lane = thread_ % 32, row = lane / 4 + features, from = row % 8 * 4 + lane % 4;
    float const x = __shfl_sync(~0u, v.x, from), y = __shfl_sync(~0u, v.y, from);
    float const z = __shfl_sync(~0u, v.z, from), w = __shfl_sync(~0u, v.w, from);
    return row < 8 ? make_float4(v.x, v.y, x, y) : make_float4(v.x, v.y, z, w);
  }

  CUSYNC_DEVICE float gate(float x) const {
    return Curved ? on_curve(kCurves[stage_.activation], x) : silu(x);
  }
  CUSYNC_DEVICE float activated(float x) const {
    if (Curved) return on_curve(kCurves[stage_.activation], x);
    return stage_.activation == CUSYNC_GELU_TANH ? gelu_tanh(x) : stage_.activation == CUSYNC_RELU ? relu(x) : x;
  }

  CUSYNC_DEVICE bool has(uint32_t feature, uint32_t token) const { return feature < share_.count && token < m_; }
  CUSYNC_DEVICE uint64_t index(uint32_t feature, uint32_t token) const {
    return uint64_t(token) * stage_.features + share_.first + feature;
  }

  /// Gated stages have neither bias nor residual.
  CUSYNC_DEVICE void store(float value, uint32_t feature, uint32_t token) const {
    if (has(feature, token)) static_cast<Element*>(tensors_.d)[index(feature, token)] = Element(value);
  }

 protected:
  AnyParams const& p_;
  uint32_t s_;
  Stage const& stage_;
  Tensors const& tensors_;
  uint32_t m_;
  Share const& share_;
  Shared const& shared_;
  uint32_t thread_;  ///< read once a stage: what derives from it holds no register in the loops of all stages
};

}  // namespace cusync::kernels::decode
