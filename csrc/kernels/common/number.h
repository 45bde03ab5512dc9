// SPDX-License-Identifier: MIT OR Apache-2.0
// CUTLASS's type of each element.
#pragma once
#include <type_traits>

#include "abi/cusync.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace cusync::kernels {

template <cusync_element Element>
using Number = std::conditional_t<Element == CUSYNC_F16, cutlass::half_t, cutlass::bfloat16_t>;

template <class Element>
inline constexpr uint32_t kElementOf = std::is_same_v<Element, cutlass::half_t> ? CUSYNC_F16 : CUSYNC_BF16;

/// A set of enum cusync_operation, as cusync_kernel_id has it.
template <cusync_operation... Operations>
inline constexpr uint32_t kOperationSet = ((1u << Operations) | ... | 0u);

}  // namespace cusync::kernels
