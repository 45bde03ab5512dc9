// SPDX-License-Identifier: MIT OR Apache-2.0
// Sizes of stages with experts, for callers that allocate their memory.
#include "kernels/experts/layout.h"

using namespace cusync::kernels;

extern "C" unsigned long long cusync_experts_scratch(const cusync_experts* experts, uint32_t m, uint32_t n) {
  return experts ? expert_scratch(*experts, m, n).bytes : 0;
}
