// SPDX-License-Identifier: MIT OR Apache-2.0
// Sizes of the decode kernels' weights: known without a GPU.
#include "cusync.h"
#include "kernels/decode_layout.h"

extern "C" unsigned long long cusync_decode_weights_bytes(uint32_t operation, uint32_t k, uint32_t n) {
  return cusync::kernels::decode::weights_bytes(k, n, operation == CUSYNC_GATED_GEMM);
}
