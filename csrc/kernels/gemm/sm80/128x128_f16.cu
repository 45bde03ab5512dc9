// SPDX-License-Identifier: MIT OR Apache-2.0
#include "kernels/gemm/sm80/launch.cuh"

namespace cusync::kernels {

template KernelFamily sm80_family<CUSYNC_F16, 128, 128, false>();
template KernelFamily sm80_family<CUSYNC_F16, 128, 128, true>();

}  // namespace cusync::kernels
