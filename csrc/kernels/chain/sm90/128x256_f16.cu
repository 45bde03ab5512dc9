// SPDX-License-Identifier: MIT OR Apache-2.0
#include "kernels/chain/sm90/launch.cuh"

namespace cusync::kernels {

template FusedFamily fused_sm90_family<CUSYNC_F16, 128, 256, 1, 1>();

}  // namespace cusync::kernels
