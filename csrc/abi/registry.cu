// SPDX-License-Identifier: MIT OR Apache-2.0
// The five functions of the C ABI through which all kernels are used.
#include "kernels/common/host.h"

namespace cusync::kernels {

// One per line of instances.txt and element type in this build.
#define CUSYNC_INSTANCE(name) KernelTable name();
#include "instances.inc"
#undef CUSYNC_INSTANCE

namespace {

/// Calls f with each compiled kernel until it returns true.
template <class F>
bool any_kernel(F&& f) {
  static KernelTable const tables[] = {
#define CUSYNC_INSTANCE(name) name(),
#include "instances.inc"
#undef CUSYNC_INSTANCE
      {nullptr, 0},
  };
  for (KernelTable const& table : tables)
    for (uint32_t i = 0; i < table.count; ++i)
      if (f(table.entries[i])) return true;
  return false;
}

/// Whether `kernel` satisfies `id`; it may support more operations.
bool serves(cusync_kernel_id const& kernel, cusync_kernel_id const& id) {
  return kernel.family == id.family && kernel.arch == id.arch && kernel.element == id.element &&
         kernel.tile_m == id.tile_m && kernel.tile_n == id.tile_n && kernel.cluster_m == id.cluster_m &&
         kernel.cluster_n == id.cluster_n && kernel.width == id.width && (id.operations & ~kernel.operations) == 0;
}

Kernel const* find(cusync_kernel_id const& id) {
  Kernel const* found = nullptr;
  any_kernel([&](Kernel const& kernel) {
    if (!serves(kernel.info.id, id)) return false;
    found = &kernel;
    return true;
  });
  return found;
}

}  // namespace

int32_t launch(Code const& code, uint32_t workers, cusync_how const& how, void const* params) {
  cudaLaunchAttribute attributes[4]{};
  cudaLaunchConfig_t config = configure(code, workers, attributes);
  config.stream = static_cast<cudaStream_t>(how.stream);
  if (how.programmatic && code.arch == CUSYNC_SM90A) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
  } else if (code.together) {
    // Other work must not occupy SMs while our workers spin on the rest. With a programmatic edge this costs 2 us.
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeCooperative;
    a.val.cooperative = 1;
  }
  if (how.started_event) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    cudaEvent_t const event = static_cast<cudaEvent_t>(how.started_event);
    if (code.arch == CUSYNC_SM90A) {
      // NVIDIA guarantees that this event fires only after every CTA has issued its trigger or exited. The launch
      // completion event is documented as best effort.
      a.id = cudaLaunchAttributeProgrammaticEvent;
      a.val.programmaticEvent.event = event;
    } else {
      a.id = cudaLaunchAttributeLaunchCompletionEvent;
      a.val.launchCompletionEvent.event = event;
    }
  }
  void* arguments[] = {const_cast<void*>(params)};
  return status_of(cudaLaunchKernelExC(&config, code.kernel, arguments));
}

}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" uint32_t cusync_kernels(cusync_kernel_info* out, uint32_t capacity) {
  uint32_t count = 0;
  any_kernel([&](Kernel const& kernel) {
    if (out && count < capacity) {
      out[count] = kernel.info;
      out[count].registers = kernel.registers();
    }
    ++count;
    return false;
  });
  return count;
}

extern "C" int32_t cusync_resident(cusync_kernel_id const* id, uint32_t* workers) {
  if (!id || !workers) return CUSYNC_ERROR_BAD_ARGUMENT;
  *workers = 0;
  Kernel const* const kernel = find(*id);
  return kernel ? kernel->resident(workers) : CUSYNC_ERROR_NOT_BUILT;
}

extern "C" int32_t cusync_create(cusync_kernel_id const* id, cusync_stage const* stages, uint32_t count,
                                 cusync_work const* work, cusync_sync const* sync, void* table, cusync_kernel** out) {
  if (!id || !work || !sync || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  *out = nullptr;
  Kernel const* const kernel = find(*id);
  if (!kernel) return CUSYNC_ERROR_NOT_BUILT;
  Request const request{kernel->info, stages, count, *work, *sync, table};
  int32_t const status = validate(request);
  return status == CUSYNC_OK ? kernel->create(request, out) : status;
}

extern "C" int32_t cusync_launch(cusync_kernel const* kernel, cusync_how const* how) {
  return kernel && how ? kernel->launch(*how) : CUSYNC_ERROR_BAD_ARGUMENT;
}

extern "C" void cusync_destroy(cusync_kernel* kernel) { delete kernel; }
