// SPDX-License-Identifier: MIT OR Apache-2.0
#include "decode_sm90_launch.cuh"

namespace cusync::kernels {

template DecodeFamily decode_sm90_family<CUSYNC_BF16, 8, 1>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 16, 1>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 16, 2>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 32, 1>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 32, 2>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 64, 1>();
template DecodeFamily decode_sm90_family<CUSYNC_BF16, 64, 2>();

}  // namespace cusync::kernels
