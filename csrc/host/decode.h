// SPDX-License-Identifier: MIT OR Apache-2.0
// Shares of decode kernels for tests, in addition to abi/cusync.h. Compiled for the host from the kernels' own code.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A product in a kernel with `workers` workers: computed in pairs or not, and one of its rounds.
typedef struct cusync_shared_product {
  uint32_t operation, k, n, workers, chunk_bytes;
  uint32_t paired, round, rounds;
} cusync_shared_product;

/// A worker's share of a product.
typedef struct cusync_share {
  uint32_t first, count;  ///< its features
  uint32_t rows, lead;    ///< number of its k-blocks (the pair's if paired), and of those before its own
  uint32_t chunks;
  unsigned long long offset;  ///< byte offset of its weights
} cusync_share;

/// Whether pairs of workers compute a product together, in a kernel with attention for `width` tokens.
uint32_t cusync_host_decode_in_pairs(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers, uint32_t width);
/// The share of worker `worker`; writes up to `capacity` of its k-blocks, in multiplication order, and returns their
/// number.
uint32_t cusync_host_decode_share(const cusync_shared_product* product, uint32_t worker, cusync_share* share,
                                  uint32_t* blocks, uint32_t capacity);

#ifdef __cplusplus
}
#endif
