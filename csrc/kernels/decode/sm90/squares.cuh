// SPDX-License-Identifier: MIT OR Apache-2.0
// Normalization of a product's activations. Rows are divided by the root of their mean square, which is a factor of the
// sums: the math threads add up the squares of the activations that they multiply, and the epilogue scales the sums.
// Gains are part of the weights (cusync_repack).
#pragma once
#include "kernels/decode/sm90/attend_config.cuh"
#include "kernels/decode/sm90/packed.cuh"

namespace cusync::kernels::decode {

/// A thread's sum of squares, of one token of a kernel for `Width`. `Threads` threads read the same activation slots.
template <class Element, int Width, uint32_t Threads>
class Squares {
 public:
  /// Adds an activation slot: 64 elements of each token, in 16 pieces. Lanes with the same pieces of other tokens begin
  /// with different ones, in different banks.
  CUSYNC_DEVICE void add(char const* slot) {
    uint32_t const token = threadIdx.x % Width, first = threadIdx.x % Threads / Width;
    uint2 const* const row = reinterpret_cast<uint2 const*>(slot) + token * 16;
#pragma unroll 1
    for (uint32_t i = first; i < 16; i += Threads / Width) {
      uint2 const piece = row[(i + token) % 16];
      float2 const a = Packed<Element>::values(piece.x), b = Packed<Element>::values(piece.y);
      sum_ += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
    }
  }

  /// Writes the warp's sums to `to`, a float per token.
  CUSYNC_DEVICE void leave(float* to) const {
    float sum = sum_;
#pragma unroll
    for (uint32_t step = Width; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 < Width) to[threadIdx.x % 32] = sum;
  }

 private:
  float sum_ = 0.f;
};

/// Whether epilogues scale each unit by itself. With more tokens, reading the squares for every unit takes longer than
/// the barrier behind which the factors are ready.
CUSYNC_HD constexpr bool scales_units(uint32_t width) { return width <= 16; }

/// The factors of tokens `token` and `token + 1`, from the sums of squares of all warps.
CUSYNC_DEVICE float2 factors(Stage const& stage, AttendShared const& own, uint32_t token) {
  float2 squares{};
#pragma unroll
  for (uint32_t warp = 0; warp < kMathWarps; ++warp) {
    float2 const more = *reinterpret_cast<float2 const*>(&own.scales[warp][token]);
    squares.x += more.x, squares.y += more.y;
  }
  float const k = float(stage.k);
  return make_float2(rsqrtf(__fdividef(squares.x, k) + stage.epsilon), rsqrtf(__fdividef(squares.y, k) + stage.epsilon));
}

/// Turns the sums of squares of all warps into the factors of all tokens. All math threads, after they have left their
/// sums.
CUSYNC_DEVICE void scale_tokens(Stage const& stage, AttendShared& own, uint32_t width) {
  ptx::bar_sync(1, kMathThreads);
  if (uint32_t const token = threadIdx.x; token < width) {
    float squares = 0.f;
#pragma unroll 1
    for (uint32_t warp = 0; warp < kMathWarps; ++warp) squares += own.scales[warp][token];
    own.scales[0][token] = rsqrtf(__fdividef(squares, float(stage.k)) + stage.epsilon);
  }
  ptx::bar_sync(1, kMathThreads);
}

}  // namespace cusync::kernels::decode
