// SPDX-License-Identifier: MIT OR Apache-2.0
// The Hopper kernels by number, so that their table needs no CUTLASS header.
#pragma once
#include "abi/registry.h"

namespace cusync::kernels {

/// Defined for the instantiations in gemm/sm90.
template <cusync_element Element, int TileM, int TileN, bool Gated>
KernelFamily sm90_family();

}  // namespace cusync::kernels
