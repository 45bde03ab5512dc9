// SPDX-License-Identifier: MIT OR Apache-2.0
// Queries and keys in shared memory, a token a row, on their way through registers; keys and values on theirs to a cache.
#pragma once
#include "kernels/attention/sm90/prompt.cuh"
#include "kernels/common/sm90/rows.cuh"

namespace cusync::kernels::sm90 {

/// The rows of a head, by pieces of 16 bytes under the 128-byte swizzle. Elements i and i + Dim / 2 are a pair.
template <class Element, int Dim>
struct HeadRows {
  char *first, *second;  ///< halves of a ring stage; heads of 64 columns have only the first

  /// Pieces of half a row.
  static constexpr int kPieces = Dim / 16;

  /// Piece `piece` of 2 kPieces of a row.
  CUSYNC_DEVICE uint4* at(int row, int piece) const {
    char* const half = piece < 8 ? first : second;
    return reinterpret_cast<uint4*>(half + row * 128 + ((piece ^ row) % 8) * 16);
  }
};

/// Rotates eight pairs by the angles of a position, `angles` that of the first of them.
template <class Element, int Dim>
CUSYNC_DEVICE void rotate(RowFloats& x, RowFloats& y, Element const* angles) {
  RowFloats const cosines = widen<Element>(__ldg(reinterpret_cast<uint4 const*>(angles)));
  RowFloats const sines = widen<Element>(__ldg(reinterpret_cast<uint4 const*>(angles + Dim / 2)));
#pragma unroll
  for (int i = 0; i < kRowElements; ++i) {
    float const turned = x[i] * cosines[i] - y[i] * sines[i];
    y[i] = x[i] * sines[i] + y[i] * cosines[i];
    x[i] = turned;
  }
}

/// Rounded to fp16, which has three bits more than bf16; what it does not reach becomes its greatest.
CUSYNC_DEVICE uint4 narrow_to_half(RowFloats values) {
  constexpr float most = 65504.f;
#pragma unroll
  for (int i = 0; i < kRowElements; ++i) values[i] = fminf(fmaxf(values[i], -most), most);
  return narrow<cutlass::half_t>(values);
}

/// Brings `Rows` rows from `from` to `to`, by `Threads` threads. With `angles`, those of the first row's position, they are
/// rotated on the way, and of fp16 then. Only `valid` rows are a sequence's; the others are zeros.
template <int Rows, int Threads, class Element, int Dim>
CUSYNC_DEVICE void pass_rows(HeadRows<Element, Dim> const& from, HeadRows<Element, Dim> const& to, Element const* angles,
                             int valid, int thread) {
  constexpr int pieces = HeadRows<Element, Dim>::kPieces;
#pragma unroll
  for (int i = 0; i < Rows * pieces / Threads; ++i) {
    int const row = (i * Threads + thread) / pieces, piece = thread % pieces;
    uint4 low = *from.at(row, piece), high = *from.at(row, piece + pieces);
    if (angles && row < valid) {
      RowFloats x = widen<Element>(low), y = widen<Element>(high);
      rotate<Element, Dim>(x, y, angles + uint64_t(row) * Dim + piece * kRowElements);
      low = narrow_to_half(x), high = narrow_to_half(y);
    }
    *to.at(row, piece) = low, *to.at(row, piece + pieces) = high;
  }
}

/// Copies `rows` rows of a head, `stride` elements apart, to a cache, keys with their `angles` rotated; by `Threads` threads.
template <int Threads, int Dim, class Element>
CUSYNC_DEVICE void append_rows(Element const* from, uint64_t stride, Element* cache, Element const* angles, int rows, int thread) {
  constexpr int pieces = HeadRows<Element, Dim>::kPieces;
  int const at = thread % pieces * kRowElements;
#pragma unroll 1
  for (int row = thread / pieces; row < rows; row += Threads / pieces) {
    Element const* const low = from + uint64_t(row) * stride + at;
    RowFloats x = widen<Element>(__ldcg(reinterpret_cast<uint4 const*>(low)));
    RowFloats y = widen<Element>(__ldcg(reinterpret_cast<uint4 const*>(low + Dim / 2)));
    if (angles) rotate<Element, Dim>(x, y, angles + uint64_t(row) * Dim + at);
    Element* const to = cache + uint64_t(row) * Dim + at;
    *reinterpret_cast<uint4*>(to) = narrow<Element>(x);
    *reinterpret_cast<uint4*>(to + Dim / 2) = narrow<Element>(y);
  }
}

}  // namespace cusync::kernels::sm90
