// SPDX-License-Identifier: MIT OR Apache-2.0
// The chain kernels of this library. codegen/src/device/kernels.rs lists the same shapes; a test compares the two.
#include "abi/chain.h"

namespace cusync::kernels {

FusedTable fused_sm90_kernels() {
#define CUSYNC_CHAIN(M, N, CM, CN) \
  fused_sm90_family<CUSYNC_F16, M, N, CM, CN>(), fused_sm90_family<CUSYNC_BF16, M, N, CM, CN>()
  static FusedFamily const table[] = {
      CUSYNC_CHAIN(64, 256, 1, 1),  CUSYNC_CHAIN(128, 128, 1, 1), CUSYNC_CHAIN(128, 192, 1, 1),
      CUSYNC_CHAIN(128, 256, 1, 1), CUSYNC_CHAIN(128, 256, 2, 1), CUSYNC_CHAIN(256, 128, 1, 1),
  };
#undef CUSYNC_CHAIN
  return {table, sizeof(table) / sizeof(table[0])};
}

}  // namespace cusync::kernels
