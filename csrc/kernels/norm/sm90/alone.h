// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel of a normalisation that has a launch to itself. Host code only.
#pragma once
#include "abi/kernel.h"

namespace cusync::kernels {

/// Makes the kernel of a normalisation that `is_alone` ready, in a chain kernel's place; CUSYNC_ERROR_NOT_BUILT where its rows are too long.
int32_t create_norm_alone(Request const& request, cusync_kernel** out);

}  // namespace cusync::kernels
