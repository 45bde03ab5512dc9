// SPDX-License-Identifier: MIT OR Apache-2.0
// The GEMM half of the C ABI: finds the kernel that a request names, checks the request, hands it over.
#include "kernels/common/delays.cuh"
#include "abi/registry.h"

#include <new>

#include "cusync/policy.hpp"

namespace cusync::kernels {
namespace {

bool aligned(void const* pointer, uintptr_t to) { return (reinterpret_cast<uintptr_t>(pointer) & (to - 1)) == 0; }

/// A 16-byte aligned tensor that is there.
bool tensor(void const* pointer) { return pointer && aligned(pointer, 16); }

bool valid_policy(cusync_policy const& p) {
  if (p.grid_m == 0 || p.grid_n == 0 || p.slot_count == 0) return false;
  if (p.table) return p.table_posts != nullptr;
  if (p.block_m == 0 || p.block_n == 0 || p.slots_n == 0) return false;
  if (p.stride_n > p.grid_n || (p.stride_n && p.stride_n != p.slots_n)) return false;
  uint64_t const rows = ceil_div(p.grid_m, p.block_m);
  uint32_t const columns = p.stride_n ? p.stride_n : ceil_div(p.grid_n, p.block_n);
  return columns == p.slots_n && rows * columns <= p.slot_count;
}

bool valid_edge(cusync_edge const& e, uint32_t k_blocks) {
  return valid_policy(e.policy) && e.operand <= CUSYNC_OPERAND_RESIDUAL && e.wait_at <= CUSYNC_WAIT_AT_START &&
         e.tile_rows && e.tile_cols && e.tensor_rows && e.tensor_cols && e.k_blocks == k_blocks;
}

bool valid_order(cusync_order const& o, uint32_t grid_m, uint32_t grid_n) {
  if (o.kind > CUSYNC_ORDER_TABLE || o.grid_m != grid_m || o.grid_n != grid_n) return false;
  if (o.kind == CUSYNC_ORDER_TABLE) return o.table != nullptr;
  bool const grouped = o.kind == CUSYNC_ORDER_GROUPED_ROWS || o.kind == CUSYNC_ORDER_GROUPED_COLUMNS;
  return !grouped || o.group > 0;
}

KernelFamily const* find(cusync_gemm_args const& a) {
  KernelTable const tables[] = {
#if CUSYNC_BUILD_SM80
      sm80_kernels(),
#endif
#if CUSYNC_BUILD_SM90A
      sm90_kernels(),
#endif
  };
  for (KernelTable const& table : tables)
    for (uint32_t i = 0; i < table.count; ++i) {
      cusync_kernel_info const& k = table.entries[i].info;
      if (k.arch == a.arch && k.operation == a.operation && k.element == a.element && k.tile_m == a.tile_m &&
          k.tile_n == a.tile_n)
        return &table.entries[i];
    }
  return nullptr;
}

}  // namespace

int32_t validate(cusync_gemm_args const& a, cusync_kernel_info const& info) {
  // Tensor maps and our own index arithmetic take sizes as signed 32-bit integers.
  constexpr uint32_t max_size = 1u << 30;
  bool const gated = a.operation == CUSYNC_GATED_GEMM;
  if (a.m == 0 || a.n == 0 || a.k == 0 || a.m > max_size || a.n > max_size || a.k > max_size)
    return CUSYNC_ERROR_BAD_ARGUMENT;
  if (a.k % 8 || a.n % (gated ? 16 : 8)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (!tensor(a.a) || !tensor(a.b) || !tensor(a.d)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (!aligned(a.bias, 16) || !aligned(a.residual, 16)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (gated && (a.bias || a.residual || a.activation != CUSYNC_IDENTITY)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (a.activation > CUSYNC_RELU || a.schedule > CUSYNC_SCHEDULE_TICKET) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (a.wait_count > CUSYNC_MAX_WAITS || a.post_count > CUSYNC_MAX_POSTS) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (a.skip_waits > 1 || a.delays.limit_ns > CUSYNC_MAX_DELAY_NS) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (!has_delays(a.delays)) return CUSYNC_ERROR_NOT_BUILT;

  uint32_t const grid_m = ceil_div(a.m, info.tile_m), grid_n = ceil_div(a.n, info.tile_n);
  uint32_t const k_blocks = ceil_div(a.k, info.tile_k);
  if (!valid_order(a.order, grid_m, grid_n)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (uint64_t(grid_m) * grid_n > max_size || a.grid > max_size) return CUSYNC_ERROR_BAD_ARGUMENT;

  bool const coupled = a.wait_count || a.post_count;
  if ((coupled || a.schedule == CUSYNC_SCHEDULE_TICKET) && (!a.tickets || !aligned(a.tickets, 8)))
    return CUSYNC_ERROR_BAD_ARGUMENT;
  if (coupled && (!a.semaphores || !aligned(a.semaphores, 4))) return CUSYNC_ERROR_BAD_ARGUMENT;
  for (uint32_t i = 0; i < a.wait_count; ++i) {
    cusync_edge const& e = a.waits[i];
    if (!valid_edge(e, k_blocks)) return CUSYNC_ERROR_BAD_ARGUMENT;
    if (e.operand == CUSYNC_OPERAND_BIAS && !a.bias) return CUSYNC_ERROR_BAD_ARGUMENT;
    if (e.operand == CUSYNC_OPERAND_RESIDUAL && !a.residual) return CUSYNC_ERROR_BAD_ARGUMENT;
  }
  for (uint32_t i = 0; i < a.post_count; ++i) {
    cusync_policy const& p = a.posts[i];
    if (!valid_policy(p) || p.grid_m != grid_m || p.grid_n != grid_n) return CUSYNC_ERROR_BAD_ARGUMENT;
  }
  return CUSYNC_OK;
}

}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" uint32_t cusync_kernels(cusync_kernel_info* out, uint32_t capacity) {
  KernelTable const tables[] = {
#if CUSYNC_BUILD_SM80
      sm80_kernels(),
#endif
#if CUSYNC_BUILD_SM90A
      sm90_kernels(),
#endif
  };
  uint32_t count = 0;
  for (KernelTable const& table : tables)
    for (uint32_t i = 0; i < table.count; ++i, ++count)
      if (out && count < capacity) {
        out[count] = table.entries[i].info;
        out[count].registers = table.entries[i].registers();
      }
  return count;
}

extern "C" int32_t cusync_gemm_create(cusync_gemm_args const* args, cusync_gemm** out) {
  if (!args || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  *out = nullptr;
  KernelFamily const* family = find(*args);
  if (!family) return CUSYNC_ERROR_NOT_BUILT;
  int32_t const status = validate(*args, family->info);
  return status == CUSYNC_OK ? family->create(*args, out) : status;
}

extern "C" int32_t cusync_gemm_launch(cusync_gemm const* gemm, cusync_launch const* launch) {
  return gemm && launch ? gemm->launch(*launch) : CUSYNC_ERROR_BAD_ARGUMENT;
}

extern "C" int32_t cusync_gemm_grid(cusync_gemm const* gemm, uint32_t* ctas, uint32_t* ctas_per_sm) {
  if (!gemm || !ctas || !ctas_per_sm) return CUSYNC_ERROR_BAD_ARGUMENT;
  *ctas = gemm->ctas;
  *ctas_per_sm = gemm->ctas_per_sm;
  return CUSYNC_OK;
}

extern "C" void cusync_gemm_destroy(cusync_gemm* gemm) { delete gemm; }
