// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code shared by all kernels: device queries and the launch function.
#pragma once
#include <new>

#include "abi/kernel.h"

namespace cusync::kernels {

/// Queries a device attribute into `*value`.
inline cudaError_t ask(int* value, cudaDeviceAttr attribute) {
  int device = 0;
  cudaError_t const error = cudaGetDevice(&device);
  return error ? error : cudaDeviceGetAttribute(value, attribute, device);
}

/// Whether the device can run code for `arch`: sm_90a code needs exactly compute capability 9.0.
inline int32_t require(uint32_t arch) {
  int major = 0, minor = 0;
  cudaError_t error = ask(&major, cudaDevAttrComputeCapabilityMajor);
  if (!error) error = ask(&minor, cudaDevAttrComputeCapabilityMinor);
  if (error) return status_of(error);
  bool const runs = arch == CUSYNC_SM90A ? major == 9 && minor == 0 : major >= 8;
  return runs ? CUSYNC_OK : CUSYNC_ERROR_NOT_BUILT;
}

/// Registers per thread of a compiled kernel; 0 without a GPU, which is not an error. For sm_80, queried only on GPUs
/// that run its machine code directly: newer ones would first compile the kernel from PTX, for seconds, and report on
/// different code.
inline uint32_t registers_of(void const* kernel, uint32_t arch) {
  int major = 0;
  cudaFuncAttributes attributes{};
  cudaError_t error = ask(&major, cudaDevAttrComputeCapabilityMajor);
  if (!error && (arch != CUSYNC_SM80 || major == 8)) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error) cudaGetLastError();
  return error ? 0 : uint32_t(attributes.numRegs);
}

/// A kernel's code and the launch settings common to all its launches.
struct Code {
  void const* kernel;
  uint32_t arch, threads, shared_bytes;
  uint32_t cluster_m = 1, cluster_n = 1;
  bool together = false;  ///< Workers wait for each other, so all must be co-resident.
};

/// A launch of `workers` clusters; `attributes` has room for three.
inline cudaLaunchConfig_t configure(Code const& code, uint32_t workers, cudaLaunchAttribute* attributes) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(workers * code.cluster_m, code.cluster_n);
  config.blockDim = dim3(code.threads);
  config.dynamicSmemBytes = code.shared_bytes;
  config.attrs = attributes;
  if (code.cluster_m * code.cluster_n > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = code.cluster_m, a.val.clusterDim.y = code.cluster_n, a.val.clusterDim.z = 1;
  }
  return config;
}

/// Enqueues one run.
int32_t launch(Code const& code, uint32_t workers, cusync_how const& how, void const* params);

/// Workers resident at once. Also loads the module and sets the shared-memory limit to `limit` bytes, the maximum over
/// all launches of the kernel: lazy loading, at a launch next to a spinning kernel, could wait for that kernel.
inline int32_t resident(Code const& code, uint32_t limit, uint32_t* workers) {
  *workers = 0;
  if (int32_t const status = require(code.arch); status != CUSYNC_OK) return status;
  int sms = 0, count = 0;
  cudaFuncAttributes unused{};
  cudaError_t error = ask(&sms, cudaDevAttrMultiProcessorCount);
  if (!error) error = cudaFuncGetAttributes(&unused, code.kernel);
  if (!error) error = cudaFuncSetAttribute(code.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(limit));
  if (!error && code.cluster_m * code.cluster_n > 1) {
    cudaLaunchAttribute attributes[3];
    cudaLaunchConfig_t const config = configure(code, uint32_t(sms) / (code.cluster_m * code.cluster_n), attributes);
    error = cudaOccupancyMaxActiveClusters(&count, code.kernel, &config);
  } else if (!error) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, code.kernel, int(code.threads), code.shared_bytes);
    count *= sms;
  }
  if (error) return status_of(error);
  *workers = uint32_t(count);
  return count ? CUSYNC_OK : CUSYNC_ERROR_NOT_BUILT;
}

/// The table of a kernel that has a launch to itself: `Own` has its operation, its element type, `code()` for its largest
/// stages, and `create`.
template <class Own>
KernelTable alone() {
  static Kernel const table[] = {[] {
    Code const code = Own::code();
    cusync_kernel_info info{};
    info.id = {CUSYNC_FAMILY_ALONE, code.arch, 1u << Own::kOperation, Own::kElement, 0, 0, 1, 1, 0};
    info.stages = 1, info.threads = code.threads, info.shared_bytes = code.shared_bytes;
    auto const registers = [] { return registers_of(Own::code().kernel, Own::code().arch); };
    auto const resident = [](uint32_t* workers) { return kernels::resident(Own::code(), Own::code().shared_bytes, workers); };
    return Kernel{info, registers, resident, Own::create};
  }()};
  return {table, 1};
}

/// Copies a table to the caller's device memory and waits for this copy only.
inline int32_t upload(void const* table, size_t bytes, void* to) {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error) return status_of(error);
  error = cudaMemcpyAsync(to, table, bytes, cudaMemcpyHostToDevice, stream);
  if (!error) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return status_of(error);
}

/// Parameters and code, ready to launch.
template <class Params>
struct Ready final : cusync_kernel {
  Code code;
  uint32_t workers;
  Params params;

  int32_t launch(cusync_how const& how) const override { return kernels::launch(code, workers, how, &params); }
};

/// Final step of every `create`.
template <class Params>
int32_t ready(Code const& code, uint32_t workers, Params const& params, cusync_kernel** out) {
  auto* kernel = new (std::nothrow) Ready<Params>;
  if (!kernel) return CUSYNC_ERROR_NO_MEMORY;
  kernel->code = code, kernel->workers = workers, kernel->params = params;
  *out = kernel;
  return CUSYNC_OK;
}

}  // namespace cusync::kernels
