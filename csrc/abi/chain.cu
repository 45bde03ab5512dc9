// SPDX-License-Identifier: MIT OR Apache-2.0
// The chain half of the C ABI: finds the kernel that a request names, checks the request, hands it over.
#include "abi/chain.h"

#include "cusync/policy.hpp"

namespace cusync::kernels {
namespace {

FusedTable table() {
#if CUSYNC_BUILD_SM90A
  return fused_sm90_kernels();
#else
  return {nullptr, 0};
#endif
}

FusedFamily const* find(uint32_t element, uint32_t tile_m, uint32_t tile_n, uint32_t cluster_m, uint32_t cluster_n) {
  FusedTable const kernels = table();
  for (uint32_t i = 0; i < kernels.count; ++i) {
    cusync_fused_info const& k = kernels.entries[i].info;
    if (k.element == element && k.tile_m == tile_m && k.tile_n == tile_n && k.cluster_m == cluster_m &&
        k.cluster_n == cluster_n)
      return &kernels.entries[i];
  }
  return nullptr;
}

bool aligned(void const* pointer, uintptr_t to) {
  return pointer && (reinterpret_cast<uintptr_t>(pointer) & (to - 1)) == 0;
}

/// What concerns the chain as a whole; its stages are judged one by one.
bool valid_chain(cusync_fused_args const& a) {
  bool const lists = a.items && aligned(a.items, 16) && a.list_length && a.workers && a.workers <= 1u << 16;
  bool const counters = aligned(a.epochs, 4) && aligned(a.tickets, 8) && aligned(a.semaphores, 4);
  bool const slabs = a.slab_count == 0 || (aligned(a.slabs, 16) && aligned(a.slab_flags, 4));
  bool const schedule = a.schedule == CUSYNC_SCHEDULE_STATIC ||
                        (a.schedule == CUSYNC_SCHEDULE_TICKET && a.cluster_m * a.cluster_n == 1);
  return a.stages && a.stage_count && a.stage_count <= CUSYNC_MAX_FUSED_STAGES && lists && counters && slabs && schedule;
}

/// A stage with everything that it shares with the chain, as make_stage and validate expect it.
cusync_gemm_args complete(cusync_fused_args const& chain, cusync_gemm_args stage) {
  stage.arch = CUSYNC_SM90A, stage.element = chain.element;
  stage.tile_m = chain.tile_m, stage.tile_n = chain.tile_n;
  stage.schedule = CUSYNC_SCHEDULE_STATIC, stage.grid = 0;
  stage.order = {CUSYNC_ORDER_ROW_MAJOR, ceil_div(stage.m, chain.tile_m), ceil_div(stage.n, chain.tile_n), 1, nullptr};
  stage.tickets = chain.tickets, stage.semaphores = chain.semaphores;
  stage.post_value_scale = chain.post_value_scale, stage.skip_waits = chain.skip_waits;
  stage.timeout_ns = chain.timeout_ns, stage.report = chain.report, stage.delays = chain.delays;
  return stage;
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" uint32_t cusync_fused_kernels(cusync_fused_info* out, uint32_t capacity) {
  FusedTable const kernels = table();
  for (uint32_t i = 0; out && i < kernels.count && i < capacity; ++i) {
    out[i] = kernels.entries[i].info;
    out[i].registers = kernels.entries[i].registers();
  }
  return kernels.count;
}

extern "C" int32_t cusync_fused_workers(cusync_fused_info const* kernel, uint32_t* workers) {
  if (!kernel || !workers) return CUSYNC_ERROR_BAD_ARGUMENT;
  *workers = 0;
  FusedFamily const* family =
      find(kernel->element, kernel->tile_m, kernel->tile_n, kernel->cluster_m, kernel->cluster_n);
  return family ? family->workers(workers) : CUSYNC_ERROR_NOT_BUILT;
}

extern "C" int32_t cusync_fused_create(cusync_fused_args const* args, cusync_fused** out) {
  if (!args || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  *out = nullptr;
  FusedFamily const* family = find(args->element, args->tile_m, args->tile_n, args->cluster_m, args->cluster_n);
  if (!family) return CUSYNC_ERROR_NOT_BUILT;
  if (!valid_chain(*args)) return CUSYNC_ERROR_BAD_ARGUMENT;
  cusync_kernel_info info{};
  info.tile_m = family->info.tile_m, info.tile_n = family->info.tile_n, info.tile_k = family->info.tile_k;
  cusync_gemm_args stages[CUSYNC_MAX_FUSED_STAGES];
  for (uint32_t s = 0; s < args->stage_count; ++s) {
    stages[s] = complete(*args, args->stages[s]);
    if (int32_t const status = validate(stages[s], info); status != CUSYNC_OK) return status;
  }
  return family->create(*args, stages, out);
}

extern "C" int32_t cusync_fused_launch(cusync_fused const* fused, cusync_launch const* launch) {
  return fused && launch ? fused->launch(*launch) : CUSYNC_ERROR_BAD_ARGUMENT;
}

extern "C" void cusync_fused_destroy(cusync_fused* fused) { delete fused; }
