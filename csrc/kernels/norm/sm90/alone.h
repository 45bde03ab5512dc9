// SPDX-License-Identifier: MIT OR Apache-2.0
// The standalone kernel for normalization. Host code only.
#pragma once
#include "abi/kernel.h"

namespace cusync::kernels {

/// Creates the kernel for a normalization stage that `is_alone`, in place of a chain kernel; CUSYNC_ERROR_NOT_BUILT if
/// its rows are too long.
int32_t create_norm_alone(Request const& request, cusync_kernel** out);

}  // namespace cusync::kernels
