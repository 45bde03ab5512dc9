// SPDX-License-Identifier: MIT OR Apache-2.0
// The Ampere kernels of this library. codegen/src/device/kernels.rs lists the same shapes; a test compares the two.
#include "kernels/gemm/sm80/family.h"

namespace cusync::kernels {

KernelTable sm80_kernels() {
#define CUSYNC_TILE(M, N)                                                                        \
  sm80_family<CUSYNC_F16, M, N, false>(), sm80_family<CUSYNC_F16, M, N, true>(),                 \
      sm80_family<CUSYNC_BF16, M, N, false>(), sm80_family<CUSYNC_BF16, M, N, true>()
  static KernelFamily const table[] = {CUSYNC_TILE(64, 128), CUSYNC_TILE(128, 128), CUSYNC_TILE(128, 256)};
#undef CUSYNC_TILE
  return {table, sizeof(table) / sizeof(table[0])};
}

}  // namespace cusync::kernels
