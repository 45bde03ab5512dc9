// SPDX-License-Identifier: MIT OR Apache-2.0
#include "kernels/chain/sm90/launch.cuh"

namespace cusync::kernels {

template FusedFamily fused_sm90_family<CUSYNC_BF16, 128, 192, 1, 1>();

}  // namespace cusync::kernels
