// SPDX-License-Identifier: MIT OR Apache-2.0
// What a family of chain kernels owes the C ABI. Host code only; see registry.h for why tables are named.
#pragma once
#include "abi/registry.h"

/// A chain made ready: tensor maps encoded, attributes set, module loaded.
struct cusync_fused {
  virtual ~cusync_fused() = default;
  /// Enqueues one run. Neither synchronises nor allocates.
  virtual int32_t launch(cusync_launch const& launch) const = 0;
};

namespace cusync::kernels {

/// One compiled chain kernel.
struct FusedFamily {
  cusync_fused_info info;  ///< `registers` is left 0 here
  uint32_t (*registers)();
  int32_t (*workers)(uint32_t* workers);
  /// `args` has been validated and names this kernel; `stages` are its stages with every field set.
  int32_t (*create)(cusync_fused_args const& args, cusync_gemm_args const* stages, cusync_fused** out);
};

struct FusedTable {
  FusedFamily const* entries;
  uint32_t count;
};

FusedTable fused_sm90_kernels();

/// Defined for the instantiations in chain/sm90.
template <cusync_element Element, int TileM, int TileN, int ClusterM, int ClusterN>
FusedFamily fused_sm90_family();

}  // namespace cusync::kernels
