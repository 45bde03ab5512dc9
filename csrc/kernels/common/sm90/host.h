// SPDX-License-Identifier: MIT OR Apache-2.0
// What the host halves of the Hopper kernels share.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "abi/registry.h"

namespace cusync::kernels::sm90 {

/// Registers of a compiled kernel; 0 when there is no GPU to ask, which is not an error.
inline uint32_t registers_of(void const* kernel) {
  cudaFuncAttributes attributes{};
  bool const known = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
  if (!known) cudaGetLastError();
  return known ? uint32_t(attributes.numRegs) : 0;
}

/// cute prints and goes on when the driver refuses a tensor map, and leaves it zero.
inline bool encoded(CUtensorMap const* map) {
  static constexpr CUtensorMap zero{};
  return std::memcmp(map, &zero, sizeof zero) != 0;
}

/// The device's answer to an attribute query in `*value`.
inline cudaError_t ask(int* value, cudaDeviceAttr attribute) {
  int device = 0;
  cudaError_t const error = cudaGetDevice(&device);
  return error ? error : cudaDeviceGetAttribute(value, attribute, device);
}

/// sm_90a code runs on compute capability 9.0 only.
inline int32_t require_hopper() {
  int major = 0, minor = 0;
  cudaError_t error = ask(&major, cudaDevAttrComputeCapabilityMajor);
  if (!error) error = ask(&minor, cudaDevAttrComputeCapabilityMinor);
  if (error) return status_of(error);
  return major == 9 && minor == 0 ? CUSYNC_OK : CUSYNC_ERROR_NOT_BUILT;
}

}  // namespace cusync::kernels::sm90
