// SPDX-License-Identifier: MIT OR Apache-2.0
// The host half of the decode kernels: the plan of shared memory, attributes, launch.
#pragma once
#include <new>

#include "kernels/decode/sm90/kernel.cuh"
#include "kernels/decode/sm90/family.h"

namespace cusync::kernels::decode {

inline constexpr uint32_t kSharedLimit = 227 * 1024;

/// What suits a kernel unless a caller says otherwise, as measured on an H200: slots of activations enough to hide the
/// L2's latency, weights in flight enough to fill the memory's.
struct Defaults {
  uint32_t slots, chunk, in_flight, ahead;
};

constexpr Defaults defaults(uint32_t width) {
  constexpr uint32_t kKiB = 1024;
  if (width <= 16) return {width == 8 ? 12u : 16u, 32 * kKiB, 96 * kKiB, 96 * kKiB};
  return {width == 32 ? 16u : 12u, 32 * kKiB, 96 * kKiB, 48 * kKiB};
}

inline uint32_t or_default(uint32_t value, uint32_t otherwise) { return value ? value : otherwise; }

/// Fills in a stage; false when a worker would own more rows than the kernel has accumulators for.
inline bool plan_stage(Stage& stage, cusync_decode_stage const& from, uint32_t workers, uint32_t chunk_bytes) {
  bool const gated = from.operation == CUSYNC_GATED_GEMM;
  static_cast<Geometry&>(stage) = geometry(from.k, from.n, gated, workers, chunk_bytes);
  stage.activation = from.activation, stage.index = from.stage, stage.edge = from.edge;
  stage.weights = static_cast<char const*>(from.weights);
  stage.a = from.a, stage.d = from.d, stage.bias = from.bias, stage.residual = from.residual;
  return stage.row_tiles <= kMaxRowTiles;
}

/// Bytes through which sums change hands.
inline uint32_t exchange_bytes(Params const& p, uint32_t width) {
  uint32_t most = 0;
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    if (!takes_turns(p.stages[s].row_tiles, width)) continue;
    uint32_t const crossing = 2 * exchange_units(p.stages[s].row_tiles * width / 8);  // both directions
    if (crossing > most) most = crossing;
  }
  return most * kUnitBytes;
}

/// Lays out shared memory; false when nothing sensible fits.
inline bool plan_shared(Params& p, cusync_decode_args const& args, uint32_t width) {
  uint32_t largest = 0, reach = 0;
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    Stage const& stage = p.stages[s];
    if (stage.chunk_bytes > largest) largest = stage.chunk_bytes;
    // The last row tile of a chunk at the ring's end reads past it, no farther than this.
    uint32_t const past = (stage.row_tiles * 64 - stage.rows) * kRowBytes;
    if (past > reach) reach = past;
  }
  uint32_t const slots = p.activation_slots * width * kRowBytes, exchange = exchange_bytes(p, width);
  uint32_t const barriers = Shared::barriers(p.activation_slots) * 8;
  uint32_t const rest = slots + exchange + barriers + Shared::kShareBytes;
  if (rest >= kSharedLimit || rest < reach) return false;
  uint32_t ring = (kSharedLimit - rest) / kSwizzleBytes * kSwizzleBytes;
  if (args.ring_bytes) ring = min_u32(ring, args.ring_bytes / kSwizzleBytes * kSwizzleBytes);
  if (ring < 2 * largest) return false;
  p.ring_bytes = ring;
  p.shared.ring = 0;
  p.shared.activations = ring;
  p.shared.exchange = p.shared.activations + slots;
  p.shared.barriers = p.shared.exchange + exchange;
  p.shared.shares = p.shared.barriers + barriers;
  p.shared.bytes = p.shared.shares + Shared::kShareBytes;
  return true;
}

/// Who waits for whom: a stage posts only when a later one reads what it writes.
inline void couple(Params& p, cusync_decode_args const& args) {
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    uint32_t const producer = args.stages[s].producer;
    if (producer == CUSYNC_DECODE_INPUT) continue;
    uint32_t const slots = args.stages[producer].slot_base;
    p.stages[s].produced_features = args.stages[producer].n;
    p.stages[s].wait_base = slots;
    if (!args.skip_waits) p.stages[s].waits = args.semaphores;
    if (!args.starve) p.stages[producer].posts = args.semaphores + slots;
  }
}

template <class Element, int Width>
struct Chain final : cusync_decode {
  Params params;

  /// `attributes` has room for two.
  static cudaLaunchConfig_t configure(Params const& p, cudaLaunchAttribute* attributes) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(p.workers.value);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = p.shared.bytes;
    config.attrs = attributes;
    return config;
  }

  int32_t launch(cusync_launch const& launch) const override {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = configure(params, attributes);
    config.stream = static_cast<cudaStream_t>(launch.stream);
    if (launch.programmatic) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      a.val.programmaticStreamSerializationAllowed = 1;
    }
    if (launch.completion_event) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeLaunchCompletionEvent;
      a.val.launchCompletionEvent.event = static_cast<cudaEvent_t>(launch.completion_event);
      a.val.launchCompletionEvent.flags = 0;
    }
    void* arguments[] = {const_cast<Params*>(&params)};
    auto* const kernel = decode<Element, Width>;
    return status_of(cudaLaunchKernelExC(&config, reinterpret_cast<void const*>(kernel), arguments));
  }
};

template <class Element, int Width>
uint32_t registers() {
  cudaFuncAttributes attributes{};
  bool const known = cudaFuncGetAttributes(&attributes, decode<Element, Width>) == cudaSuccess;
  if (!known) cudaGetLastError();  // no device to ask is not an error of this call
  return known ? uint32_t(attributes.numRegs) : 0;
}

/// Workers of the planned shared memory that are resident at once.
template <class Element, int Width>
cudaError_t resident(Params const& p, uint32_t* workers) {
  auto* const kernel = decode<Element, Width>;
  // Asking for the attributes loads the module now: loading it lazily, at a launch beside a kernel that spins, could
  // wait for that kernel.
  cudaFuncAttributes unused{};
  cudaError_t error = cudaFuncGetAttributes(&unused, kernel);
  // The most that any chain asks for: chains of one kernel share the attribute.
  if (!error) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedLimit);
  int device = 0, sms = 0, count = 0;
  if (!error) error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (!error) error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, kThreads, p.shared.bytes);
  count *= sms;
  *workers = uint32_t(count);
  return error;
}

template <class Element, int Width>
int32_t create(cusync_decode_args const& args, cusync_decode** out) {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error) return status_of(error);
  if (major != 9 || minor != 0) return CUSYNC_ERROR_NOT_BUILT;

  Params p{};
  p.stage_count = args.stage_count, p.m = args.m, p.workers = Divisor::of(args.workers);
  constexpr Defaults kOtherwise = defaults(Width);
  p.activation_slots = or_default(args.activation_slots, kOtherwise.slots);
  p.in_flight_bytes = or_default(args.in_flight_bytes, kOtherwise.in_flight);
  p.ahead_bytes = or_default(args.ahead_bytes, kOtherwise.ahead);
  p.stream_only = args.stream_only;
  p.epochs = args.epochs, p.timeout_ns = args.timeout_ns, p.report = args.report, p.trace = args.trace;
  p.delays = args.delays;
  p.limit_ns = 4 * (args.timeout_ns ? args.timeout_ns : kDefaultTimeoutNs);
  for (uint32_t s = 0; s < args.stage_count; ++s)
    if (!plan_stage(p.stages[s], args.stages[s], args.workers, or_default(args.chunk_bytes, kOtherwise.chunk)))
      return CUSYNC_ERROR_NOT_BUILT;
  if (!plan_shared(p, args, Width)) return CUSYNC_ERROR_BAD_ARGUMENT;
  couple(p, args);

  uint32_t workers = 0;
  error = resident<Element, Width>(p, &workers);
  if (error) return status_of(error);
  // Workers wait for each other, so all must be resident.
  if (args.workers > workers) return CUSYNC_ERROR_BAD_ARGUMENT;

  auto* chain = new (std::nothrow) Chain<Element, Width>;
  if (!chain) return CUSYNC_ERROR_NO_MEMORY;
  chain->params = p;
  *out = chain;
  return CUSYNC_OK;
}

}  // namespace cusync::kernels::decode

namespace cusync::kernels {

template <cusync_element Element, int Width>
DecodeFamily decode_sm90_family() {
  using Number = std::conditional_t<Element == CUSYNC_F16, cutlass::half_t, cutlass::bfloat16_t>;
  return {{Element, uint32_t(Width), decode::kMaxRowTiles, decode::kThreads, decode::kSharedLimit, 0},
          decode::registers<Number, Width>,
          decode::create<Number, Width>};
}

}  // namespace cusync::kernels
