// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel of an attention of prompts that has a launch to itself. Host code only.
#pragma once
#include "abi/kernel.h"

namespace cusync::kernels {

/// Makes the kernel of an attention that `is_alone` ready, in a chain kernel's place.
int32_t create_attention_alone(Request const& request, cusync_kernel** out);

}  // namespace cusync::kernels
