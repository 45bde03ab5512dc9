// SPDX-License-Identifier: MIT OR Apache-2.0
// The decode half of the C ABI: finds the kernel, checks the request, hands it over.
#include "kernels/decode/layout.h"
#include "kernels/decode/sm90/family.h"
#include "kernels/common/delays.cuh"

namespace cusync::kernels {
namespace {

struct DecodeTable {
  DecodeFamily const* entries;
  uint32_t count;
};

DecodeTable decode_kernels() {
#if CUSYNC_BUILD_SM90A
#define CUSYNC_WIDTHS(E) \
  decode_sm90_family<E, 8>(), decode_sm90_family<E, 16>(), decode_sm90_family<E, 32>(), decode_sm90_family<E, 64>()
  static DecodeFamily const table[] = {CUSYNC_WIDTHS(CUSYNC_F16), CUSYNC_WIDTHS(CUSYNC_BF16)};
#undef CUSYNC_WIDTHS
  return {table, sizeof(table) / sizeof(table[0])};
#else
  return {nullptr, 0};
#endif
}

constexpr uint32_t kMaxSlots = 64, kMaxWorkers = 1024;

bool aligned(void const* pointer, uintptr_t to) { return (reinterpret_cast<uintptr_t>(pointer) & (to - 1)) == 0; }

bool valid_stage(cusync_decode_args const& args, uint32_t s) {
  cusync_decode_stage const& stage = args.stages[s];
  constexpr uint32_t max_size = 1u << 24;
  if (!stage.k || !stage.n || stage.k > max_size || stage.n > max_size || stage.k % 8) return false;
  // The index arithmetic of decode/layout.h and decode_share.h is of 32 bits.
  if (uint64_t(stage.n + 1) * args.workers >> 32) return false;
  if (uint64_t(decode::k_blocks(stage.k)) * args.workers * args.workers >> 32) return false;
  if (stage.operation > CUSYNC_GATED_GEMM || stage.activation > CUSYNC_RELU) return false;
  if (stage.operation == CUSYNC_GATED_GEMM && (stage.bias || stage.activation != CUSYNC_IDENTITY)) return false;
  if (!stage.weights || !stage.a || !stage.d || stage.a == stage.d) return false;
  if (!aligned(stage.weights, 16) || !aligned(stage.a, 16) || !aligned(stage.d, 2) || !aligned(stage.bias, 2) ||
      !aligned(stage.residual, 2))
    return false;
  if (stage.producer == CUSYNC_DECODE_INPUT) return true;
  if (stage.producer >= s) return false;
  cusync_decode_stage const& producer = args.stages[stage.producer];
  return producer.n == stage.k && producer.d == stage.a;
}

bool valid(cusync_decode_args const& args) {
  if (!args.stage_count || args.stage_count > CUSYNC_MAX_DECODE_STAGES || !args.stages) return false;
  if (!args.m || args.m > 64 || (args.width && args.m > args.width) || !args.workers || args.workers > kMaxWorkers)
    return false;
  if (!args.semaphores || !args.epochs || !aligned(args.semaphores, 4) || !aligned(args.epochs, 4)) return false;
  if (args.activation_slots % 4 || args.activation_slots > kMaxSlots) return false;
  if (args.starve > 1 || args.skip_waits > 1 || args.stream_only > 1) return false;
  if (args.delays.limit_ns > CUSYNC_MAX_DELAY_NS) return false;
  for (uint32_t s = 0; s < args.stage_count; ++s)
    if (!valid_stage(args, s)) return false;
  return true;
}

/// The least width that holds so many tokens.
uint32_t width_for(uint32_t m) { return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64; }

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" uint32_t cusync_decode_kernels(cusync_decode_info* out, uint32_t capacity) {
  DecodeTable const table = decode_kernels();
  for (uint32_t i = 0; i < table.count && i < capacity && out; ++i) {
    out[i] = table.entries[i].info;
    out[i].registers = table.entries[i].registers();
  }
  return table.count;
}

extern "C" int32_t cusync_decode_workers(uint32_t* workers) {
  if (!workers) return CUSYNC_ERROR_BAD_ARGUMENT;
  *workers = 0;
  int device = 0, sms = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error) return status_of(error);
  *workers = uint32_t(sms);
  return CUSYNC_OK;
}

extern "C" int32_t cusync_decode_create(cusync_decode_args const* args, cusync_decode** out) {
  if (!args || !out) return CUSYNC_ERROR_BAD_ARGUMENT;
  *out = nullptr;
  if (!valid(*args)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (!has_delays(args->delays)) return CUSYNC_ERROR_NOT_BUILT;
  uint32_t const width = args->width ? args->width : width_for(args->m);
  DecodeTable const table = decode_kernels();
  for (uint32_t i = 0; i < table.count; ++i) {
    cusync_decode_info const& info = table.entries[i].info;
    if (info.element == args->element && info.width == width)
      return table.entries[i].create(*args, out);
  }
  return CUSYNC_ERROR_NOT_BUILT;
}

extern "C" int32_t cusync_decode_launch(cusync_decode const* decode, cusync_launch const* launch) {
  return decode && launch ? decode->launch(*launch) : CUSYNC_ERROR_BAD_ARGUMENT;
}

extern "C" void cusync_decode_destroy(cusync_decode* decode) { delete decode; }
