// SPDX-License-Identifier: MIT OR Apache-2.0
// The Ampere kernels by number, so that their table needs no CUTLASS header.
#pragma once
#include "abi/registry.h"

namespace cusync::kernels {

/// Defined for the instantiations in gemm/sm80.
template <cusync_element Element, int TileM, int TileN, bool Gated>
KernelFamily sm80_family();

}  // namespace cusync::kernels
