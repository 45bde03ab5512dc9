// SPDX-License-Identifier: MIT OR Apache-2.0
// The decode kernels as their table and the C ABI see them. Host code only.
#pragma once
#include "abi/registry.h"

/// A chain made ready: shared memory planned, attributes set, module loaded.
struct cusync_decode {
  virtual ~cusync_decode() = default;
  /// Enqueues one run. Neither synchronises nor allocates.
  virtual int32_t launch(cusync_launch const& launch) const = 0;
};

namespace cusync::kernels {

/// One compiled decode kernel.
struct DecodeFamily {
  cusync_decode_info info;  ///< `registers` is left 0 here
  uint32_t (*registers)();
  /// `args` has passed `validate_decode` and names this kernel. On success `*out` owns the chain.
  int32_t (*create)(cusync_decode_args const& args, cusync_decode** out);
};

/// Defined for the instantiations in decode/sm90.
template <cusync_element Element, int Width>
DecodeFamily decode_sm90_family();

}  // namespace cusync::kernels
