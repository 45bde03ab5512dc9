// SPDX-License-Identifier: MIT OR Apache-2.0
// What tests ask of the shares of decode kernels, beside what abi/cusync.h declares. Compiled for the host from what kernels run.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A product in the kernel of so many workers: done in pairs of them or not, and one of its rounds.
typedef struct cusync_shared_product {
  uint32_t operation, k, n, workers, chunk_bytes;
  uint32_t paired, round, rounds;
} cusync_shared_product;

/// A worker's share of it.
typedef struct cusync_share {
  uint32_t first, count;  ///< its features
  uint32_t rows, lead;    ///< of its k-blocks, which are a pair's where it is one's, and those before its own
  uint32_t chunks;
  unsigned long long offset;  ///< of its weights, bytes
} cusync_share;

/// Whether pairs of workers do a product together in a kernel that attends, for `width` tokens.
uint32_t cusync_host_decode_in_pairs(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers, uint32_t width);
/// The share of worker `worker`; writes up to `capacity` of its k-blocks, in the order in which it multiplies them, and returns how many there are.
uint32_t cusync_host_decode_share(const cusync_shared_product* of, uint32_t worker, cusync_share* share, uint32_t* blocks,
                                  uint32_t capacity);

#ifdef __cplusplus
}
#endif
