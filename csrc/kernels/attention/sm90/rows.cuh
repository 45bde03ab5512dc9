// SPDX-License-Identifier: MIT OR Apache-2.0
// Queries, keys and values in shared memory, a token a row: rotated in place, and appended to a cache.
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
CUSYNC_DEVICE void rotate(uint4& low, uint4& high, Element const* angles) {
  RowFloats const cosines = widen<Element>(__ldg(reinterpret_cast<uint4 const*>(angles)));
  RowFloats const sines = widen<Element>(__ldg(reinterpret_cast<uint4 const*>(angles + Dim / 2)));
  RowFloats x = widen<Element>(low), y = widen<Element>(high);
#pragma unroll
  for (int i = 0; i < kRowElements; ++i) {
    float const turned = x[i] * cosines[i] - y[i] * sines[i];
    y[i] = x[i] * sines[i] + y[i] * cosines[i];
    x[i] = turned;
  }
  low = narrow<Element>(x), high = narrow<Element>(y);
}

/// Brings `Rows` rows from `from` to `to`, on the way rotated where `angles` are given, those of the first row's position, and
/// copied to `cache`, the first row's place there, where that is given; by `Threads` threads. Only `valid` rows are a
/// sequence's.
template <int Rows, int Threads, class Element, int Dim>
CUSYNC_DEVICE void pass_rows(HeadRows<Element, Dim> const& from, HeadRows<Element, Dim> const& to, Element const* angles,
                             Element* cache, int valid, int thread) {
  constexpr int pieces = HeadRows<Element, Dim>::kPieces;
#pragma unroll
  for (int i = 0; i < Rows * pieces / Threads; ++i) {
    int const row = (i * Threads + thread) / pieces, piece = thread % pieces;
    uint4 low = *from.at(row, piece), high = *from.at(row, piece + pieces);
    bool const real = row < valid;
    if (angles && real) rotate<Element, Dim>(low, high, angles + uint64_t(row) * Dim + piece * kRowElements);
    if (to.first) *to.at(row, piece) = low, *to.at(row, piece + pieces) = high;
    if (cache && real) {
      Element* const at = cache + uint64_t(row) * Dim + piece * kRowElements;
      *reinterpret_cast<uint4*>(at) = low, *reinterpret_cast<uint4*>(at + Dim / 2) = high;
    }
  }
}

}  // namespace cusync::kernels::sm90
