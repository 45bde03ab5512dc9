// SPDX-License-Identifier: MIT OR Apache-2.0
// Who owns what of a decode stage, and where each weight lies once re-laid. Host and device; kernel, re-layout and the
// sizes that callers ask for all come from here.
//
// In device memory the weights of a stage are: worker by worker; of a worker, k-block by k-block (64 elements, 128
// bytes a row); of a k-block, row by row, without gaps. So any run of k-blocks is one bulk copy. The eight 16-byte pieces
// of a row are permuted as WGMMA's 128-byte swizzle wants them in shared memory, which depends on the row's address there
// modulo 1024: a copy goes to a place of the same phase as its first row has in the worker's weights.
//
// A stage that pairs of workers do together (share.h) lies as one of half as many workers, and one that is done in rounds as one
// of as many workers as there are parts.
//
// A worker's rows are its features in order. Of a gated stage they are groups of 8 features, 8 gate rows and then 8 up
// rows, so that one thread's accumulators hold gate and up of the same output. The last group may be shorter: its up rows
// follow its gate rows at once, and the epilogue brings them together.
#pragma once
#include "cusync/policy.hpp"

namespace cusync::kernels::decode {

inline constexpr uint32_t kBlock = 64;       ///< k elements of a k-block, and columns of D behind one semaphore
inline constexpr uint32_t kRowBytes = 128;   ///< a row of a k-block
inline constexpr uint32_t kPhases = 8;  ///< rows after which the swizzle repeats
inline constexpr uint32_t kSwizzleBytes = kPhases * kRowBytes;

CUSYNC_HD constexpr uint32_t round_up(uint32_t x, uint32_t to) { return ceil_div(x, to) * to; }

CUSYNC_HD constexpr uint32_t k_blocks(uint32_t k) { return ceil_div(k, kBlock); }

/// Features [first_feature(c), first_feature(c + 1)) belong to worker c. features * workers stays below 2^32.
CUSYNC_HD constexpr uint32_t first_feature(uint32_t worker, uint32_t features, uint32_t workers) {
  return worker * features / workers;
}

/// The worker that owns a feature: the last one that starts at or before it.
CUSYNC_HD constexpr uint32_t owner_of(uint32_t feature, uint32_t features, uint32_t workers) {
  return ((feature + 1) * workers - 1) / features;
}

/// Workers that own some of the 64 features of column tile `tile`: the posts of one run to its semaphore.
CUSYNC_HD constexpr uint32_t owners_of_tile(uint32_t tile, uint32_t features, uint32_t workers) {
  uint32_t const begin = tile * kBlock, end = min_u32(begin + kBlock, features);
  uint32_t const spread = owner_of(end - 1, features, workers) - owner_of(begin, features, workers) + 1;
  return min_u32(spread, end - begin);  // with fewer features than workers, some workers between own nothing
}

/// Rows of weights of `features` features of one worker in device memory.
CUSYNC_HD constexpr uint32_t stored_rows(uint32_t features, bool gated) { return gated ? 2 * features : features; }

/// Place of a row in its k-block in device memory; `up`: 0 for gate or a plain stage, 1 for up.
CUSYNC_HD constexpr uint32_t stored_row(uint32_t feature, uint32_t up, uint32_t features, bool gated) {
  if (!gated) return feature;
  uint32_t const group = feature / 8, rest = features % 8;
  bool const whole = group < features / 8;
  return group * 16 + up * (whole ? 8 : rest) + feature % 8;
}

/// Bytes of all weights before worker `worker`'s.
CUSYNC_HD constexpr uint64_t worker_offset(uint32_t worker, uint32_t k, uint32_t features, bool gated,
                                           uint32_t workers) {
  return uint64_t(stored_rows(first_feature(worker, features, workers), gated)) * k_blocks(k) * kRowBytes;
}

/// Where element `k` of a feature's weights lies, `up` as for stored_row: a byte offset. The rest of its 16-byte piece
/// follows it. The phase of the swizzle is the row's number, counted through all of the worker's k-blocks, modulo 8.
CUSYNC_HD constexpr uint64_t weight_offset(uint32_t feature, uint32_t up, uint32_t at_k, uint32_t k, uint32_t features,
                                           bool gated, uint32_t workers) {
  uint32_t const worker = owner_of(feature, features, workers), first = first_feature(worker, features, workers);
  uint32_t const owned = first_feature(worker + 1, features, workers) - first, mine = feature - first;
  uint64_t const row = uint64_t(at_k / kBlock) * stored_rows(owned, gated) + stored_row(mine, up, owned, gated);
  uint32_t const piece = (at_k % kBlock / 8) ^ uint32_t(row % kPhases);
  return worker_offset(worker, k, features, gated, workers) + row * kRowBytes + piece * 16 + at_k % 8 * 2;
}

/// Bytes of a stage's weights.
CUSYNC_HD constexpr uint64_t weights_bytes(uint32_t k, uint32_t features, bool gated) {
  return uint64_t(stored_rows(features, gated)) * k_blocks(k) * kRowBytes;
}

}  // namespace cusync::kernels::decode
