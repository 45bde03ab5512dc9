// SPDX-License-Identifier: MIT OR Apache-2.0
// Maps each element type to its CUTLASS type.
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

/// A set of enum cusync_operation, as a bit mask in the form of cusync_kernel_id.
template <cusync_operation... Operations>
inline constexpr uint32_t kOperationSet = ((1u << Operations) | ... | 0u);

}  // namespace cusync::kernels
