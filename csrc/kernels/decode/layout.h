// SPDX-License-Identifier: MIT OR Apache-2.0
// Ownership of a decode stage's features, and the layout of its repacked weights. Host and device; the kernel, the
// repacking and the size queries of callers all use this file.
//
// In device memory the weights of a stage are ordered by worker, then by k-block (64 elements, 128 bytes per row), then
// by row, without gaps. Any run of k-blocks is therefore one bulk copy. The eight 16-byte pieces of a row are permuted
// for WGMMA's 128-byte swizzle in shared memory, which depends on the row's address modulo 1024: the destination of a
// copy must have the same phase as its first row has in the worker's weights.
//
// A stage that pairs of workers compute together (share.h) is laid out for half as many workers, and a stage that is
// done in rounds for as many workers as there are parts.
//
// A worker's rows are its features in order. Gated stages have groups of 8 features, 8 gate rows followed by 8 up rows,
// so that one thread's accumulators hold gate and up of the same output. The last group may be shorter: its up rows
// directly follow its gate rows, and the epilogue pairs them.
#pragma once
#include "cusync/policy.hpp"

namespace cusync::kernels::decode {

inline constexpr uint32_t kBlock = 64;       ///< k elements per k-block, and columns of D per semaphore
inline constexpr uint32_t kRowBytes = 128;   ///< bytes per row of a k-block
inline constexpr uint32_t kPhases = 8;  ///< rows after which the swizzle repeats
inline constexpr uint32_t kSwizzleBytes = kPhases * kRowBytes;

CUSYNC_HD constexpr uint32_t round_up(uint32_t x, uint32_t to) { return ceil_div(x, to) * to; }

CUSYNC_HD constexpr uint32_t k_blocks(uint32_t k) { return ceil_div(k, kBlock); }

/// Weight rows, in device memory, of a worker's `features` features.
CUSYNC_HD constexpr uint32_t stored_rows(uint32_t features, bool gated) { return gated ? 2 * features : features; }

/// Index of a row within its k-block in device memory; `up`: 0 for gate or a plain stage, 1 for up.
CUSYNC_HD constexpr uint32_t stored_row(uint32_t feature, uint32_t up, uint32_t features, bool gated) {
  if (!gated) return feature;
  uint32_t const group = feature / 8, rest = features % 8;
  bool const whole = group < features / 8;
  return group * 16 + up * (whole ? 8 : rest) + feature % 8;
}

/// Bytes of all weights before those of worker `worker`.
CUSYNC_HD constexpr uint64_t worker_offset(uint32_t worker, uint32_t k, uint32_t features, bool gated,
                                           uint32_t workers) {
  return uint64_t(stored_rows(first_column(worker, features, workers), gated)) * k_blocks(k) * kRowBytes;
}

/// Byte offset of element `k` of a feature's weights, `up` as in stored_row. The rest of its 16-byte piece follows it.
/// The swizzle phase is the row number, counted over all of the worker's k-blocks, modulo 8.
CUSYNC_HD constexpr uint64_t weight_offset(uint32_t feature, uint32_t up, uint32_t at_k, uint32_t k, uint32_t features,
                                           bool gated, uint32_t workers) {
  uint32_t const worker = part_of_column(feature, features, workers), first = first_column(worker, features, workers);
  uint32_t const owned = first_column(worker + 1, features, workers) - first, mine = feature - first;
  uint64_t const row = uint64_t(at_k / kBlock) * stored_rows(owned, gated) + stored_row(mine, up, owned, gated);
  uint32_t const piece = (at_k % kBlock / 8) ^ uint32_t(row % kPhases);
  return worker_offset(worker, k, features, gated, workers) + row * kRowBytes + piece * 16 + at_k % 8 * 2;
}

/// Bytes of a stage's weights.
CUSYNC_HD constexpr uint64_t weights_bytes(uint32_t k, uint32_t features, bool gated) {
  return uint64_t(stored_rows(features, gated)) * k_blocks(k) * kRowBytes;
}

}  // namespace cusync::kernels::decode
