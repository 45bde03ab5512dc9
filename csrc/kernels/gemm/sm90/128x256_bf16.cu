// SPDX-License-Identifier: MIT OR Apache-2.0
#include "kernels/gemm/sm90/launch.cuh"

namespace cusync::kernels {

template KernelFamily sm90_family<CUSYNC_BF16, 128, 256, false>();
template KernelFamily sm90_family<CUSYNC_BF16, 128, 256, true>();

}  // namespace cusync::kernels
