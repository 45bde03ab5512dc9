// SPDX-License-Identifier: MIT OR Apache-2.0
#include "gemm_sm80_launch.cuh"

namespace cusync::kernels {

template KernelFamily sm80_family<CUSYNC_BF16, 128, 256, false>();
template KernelFamily sm80_family<CUSYNC_BF16, 128, 256, true>();

}  // namespace cusync::kernels
