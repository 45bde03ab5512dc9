// SPDX-License-Identifier: MIT OR Apache-2.0
// The standalone kernel for prompt attention. Host code only.
#pragma once
#include "abi/kernel.h"

namespace cusync::kernels {

/// Creates the kernel for an attention stage that `is_alone`, in place of a chain kernel.
int32_t create_attention_alone(Request const& request, cusync_kernel** out);

}  // namespace cusync::kernels
