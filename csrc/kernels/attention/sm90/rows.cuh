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

/// The cosines and sines of eight pairs of a position.
template <class Element, int Dim>
struct Angles {
  uint4 cosines, sines;

  /// `angles`: those of the first of them.
  CUSYNC_DEVICE void load(Element const* angles) {
    cosines = __ldg(reinterpret_cast<uint4 const*>(angles));
    sines = __ldg(reinterpret_cast<uint4 const*>(angles + Dim / 2));
  }

  CUSYNC_DEVICE void rotate(RowFloats& x, RowFloats& y) const {
    RowFloats const c = widen<Element>(cosines), s = widen<Element>(sines);
#pragma unroll
    for (int i = 0; i < kRowElements; ++i) {
      float const turned = x[i] * c[i] - y[i] * s[i];
      y[i] = x[i] * s[i] + y[i] * c[i];
      x[i] = turned;
    }
  }
};

/// Rounded to fp16, which has three bits more than bf16; what it does not reach becomes its greatest.
CUSYNC_DEVICE uint4 narrow_to_half(RowFloats values) {
  constexpr float most = 65504.f;
#pragma unroll
  for (int i = 0; i < kRowElements; ++i) values[i] = fminf(fmaxf(values[i], -most), most);
  return narrow<cutlass::half_t>(values);
}

/// `Rows` rows on their way through the registers of `Threads` threads.
template <int Rows, int Threads, class Element, int Dim>
struct RowPieces {
  static constexpr int kPieces = HeadRows<Element, Dim>::kPieces, kCount = Rows * kPieces / Threads;
  int thread;

  CUSYNC_DEVICE int row(int i) const { return (i * Threads + thread) / kPieces; }
  CUSYNC_DEVICE int piece() const { return thread % kPieces; }

  /// Asks for the angles of all of them, whose positions begin at `first`. Behind position `tokens` - 1 rows are zeros, whatever
  /// turns them: a branch would let the angles of one row wait for those of another.
  CUSYNC_DEVICE void load(Angles<Element, Dim> (&angles)[kCount], Element const* table, uint32_t first, uint32_t tokens) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      angles[i].load(table + uint64_t(min_u32(first + row(i), tokens - 1)) * Dim + piece() * kRowElements);
  }

  /// Rotates them, to fp16.
  CUSYNC_DEVICE void rotate(HeadRows<Element, Dim> const& from, HeadRows<Element, Dim> const& to,
                            Angles<Element, Dim> const (&angles)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      RowFloats x = widen<Element>(*from.at(row(i), piece())), y = widen<Element>(*from.at(row(i), piece() + kPieces));
      angles[i].rotate(x, y);
      *to.at(row(i), piece()) = narrow_to_half(x), *to.at(row(i), piece() + kPieces) = narrow_to_half(y);
    }
  }

  CUSYNC_DEVICE void copy(HeadRows<Element, Dim> const& from, HeadRows<Element, Dim> const& to) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      for (int half = 0; half < 2 * kPieces; half += kPieces) *to.at(row(i), piece() + half) = *from.at(row(i), piece() + half);
  }
};

/// Copies `rows` rows of a head, `stride` elements apart, to a cache, keys with their `angles` rotated; by `Threads` threads.
template <int Threads, int Dim, class Element>
CUSYNC_DEVICE void append_rows(Element const* from, uint64_t stride, Element* cache, Element const* angles, int rows, int thread) {
  constexpr int pieces = HeadRows<Element, Dim>::kPieces;
  int const at = thread % pieces * kRowElements;
#pragma unroll 1
  for (int row = thread / pieces; row < rows; row += Threads / pieces) {
    Element const* const place = from + uint64_t(row) * stride + at;
    uint4 const low = __ldcg(reinterpret_cast<uint4 const*>(place));
    uint4 const high = __ldcg(reinterpret_cast<uint4 const*>(place + Dim / 2));
    Angles<Element, Dim> turn;
    if (angles) turn.load(angles + uint64_t(row) * Dim + at);  // on their way beside the row
    RowFloats x = widen<Element>(low), y = widen<Element>(high);
    if (angles) turn.rotate(x, y);
    Element* const to = cache + uint64_t(row) * Dim + at;
    *reinterpret_cast<uint4*>(to) = narrow<Element>(x);
    *reinterpret_cast<uint4*>(to + Dim / 2) = narrow<Element>(y);
  }
}

}  // namespace cusync::kernels::sm90
