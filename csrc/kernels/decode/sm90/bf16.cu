// SPDX-License-Identifier: MIT OR Apache-2.0
#include "kernels/decode/sm90/launch.cuh"

namespace cusync::kernels {

template DecodeFamily decode_sm90_family<CUSYNC_BF16, 8>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 16>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 32>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 64>();

}  // namespace cusync::kernels
