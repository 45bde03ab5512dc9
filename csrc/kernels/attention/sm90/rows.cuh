// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies of token rows: queries to free their ring stage, and keys and values to a cache.
#pragma once
#include "kernels/attention/sm90/prompt.cuh"

namespace cusync::kernels::sm90 {

/// The rows of a head with `Dim` columns, in 16-byte pieces under the 128-byte swizzle.
template <int Dim>
struct HeadRows {
  char *first, *second;  ///< halves of a ring stage; heads of 64 columns have only the first

  static constexpr int kPieces = Dim / 8;  ///< per row

  CUSYNC_DEVICE uint4* at(int row, int piece) const {
    char* const half = piece < 8 ? first : second;
    return reinterpret_cast<uint4*>(half + row * 128 + ((piece ^ row) % 8) * 16);
  }
};

/// Copies `Rows` rows within shared memory; one warpgroup.
template <int Rows, int Dim>
CUSYNC_DEVICE void copy_rows(HeadRows<Dim> const& from, HeadRows<Dim> const& to, int thread) {
  constexpr int pieces = HeadRows<Dim>::kPieces;
#pragma unroll
  for (int i = thread; i < Rows * pieces; i += 128) *to.at(i / pieces, i % pieces) = *from.at(i / pieces, i % pieces);
}

/// Copies `rows` rows of a head, `stride` elements apart, to a cache; `Threads` threads.
template <int Threads, int Dim, class Element>
CUSYNC_DEVICE void append_rows(Element const* from, uint64_t stride, Element* cache, int rows, int thread) {
  constexpr int pieces = HeadRows<Dim>::kPieces, elements = Dim / pieces;
  int const at = thread % pieces * elements;
#pragma unroll 4
  for (int row = thread / pieces; row < rows; row += Threads / pieces)
    *reinterpret_cast<uint4*>(cache + uint64_t(row) * Dim + at) =
        __ldcg(reinterpret_cast<uint4 const*>(from + uint64_t(row) * stride + at));
}

/// Copies the keys and values of at most `most` tokens of a sequence, from token `row`, to their caches; `Threads`
/// threads. `head`, out of `heads`, is the key/value head. The tokens' keys and values must be in global memory.
template <class Element, int Dim, int Threads>
CUSYNC_DEVICE void append_tokens(Prompt const& prompt, PromptTable const& table, uint32_t sequence, uint32_t row, uint32_t head,
                                 uint32_t heads, uint32_t most, int thread) {
  uint32_t const first = (prompt.group * heads + head) * Dim, stride = (prompt.group + 2) * heads * Dim;
  auto const tokens = static_cast<Element const*>(table.tokens) + (uint64_t(sequence) * prompt.tokens + row) * stride;
  uint64_t const to = uint64_t(sequence * heads + head) * table.capacity + row;
  int const rows = int(min_u32(most, prompt.tokens - row));
#pragma unroll 1
  for (int values = 0; values < 2; ++values)
    append_rows<Threads, Dim>(tokens + first + values * heads * Dim, stride, static_cast<Element*>(table.cache[values]) + to * Dim, rows,
                              thread);
}

}  // namespace cusync::kernels::sm90
