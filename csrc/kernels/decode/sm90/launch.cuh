// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code of the decode kernels: the layout of shared memory, attributes, launch.
#pragma once
#include <algorithm>
#include <cmath>

#include "cutlass/cuda_host_adapter.hpp"

#include "kernels/common/host.h"
#include "kernels/common/number.h"
#include "kernels/decode/sm90/kernel.cuh"

namespace cusync::kernels::decode {

inline constexpr uint32_t kSharedLimit = 227 * 1024;

/// Default tuning, measured on an H200: enough activation slots to hide the L2 latency, and enough weights in flight to
/// saturate device memory.
struct Defaults {
  uint32_t slots, chunk, in_flight, ahead;
};

constexpr Defaults defaults(uint32_t width, bool attends) {
  constexpr uint32_t kKiB = 1024;
  if (width <= 16) return {width > 8 ? 16u : attends ? 32u : 12u, 32 * kKiB, 96 * kKiB, (attends ? 32 : 96) * kKiB};
  return {width == 32 ? 16u : 12u, 32 * kKiB, 96 * kKiB, 48 * kKiB};
}

inline uint32_t or_default(uint32_t value, uint32_t otherwise) { return value ? value : otherwise; }

/// The data of a role; kernels only read it unless the operation says otherwise.
template <class T>
T* data_as(cusync_stage const& stage, uint32_t role) {
  return static_cast<T*>(const_cast<void*>(data_of(stage, role)));
}

/// Fills in the fields common to all operations.
inline void plan_edges(Stage& stage, cusync_stage const& from, Request const& request) {
  cusync_sync const& sync = request.sync;
  stage.index = from.index, stage.a = data_of(from, CUSYNC_OPERAND_A), stage.d = from.out;
  if (from.wait_count) {
    cusync_policy const& policy = from.waits[0].policy;
    stage.edge = from.waits[0].id, stage.wait_base = policy.slot_base;
    stage.produced_features = policy.columns, stage.produced_parts = policy.grid_n;
    if (!sync.test.skip_waits) stage.waits = sync.semaphores;
  }
  if (from.post_count && !sync.test.starve) stage.posts = sync.semaphores + from.posts[0].slot_base;
}

/// The tensors of a product.
inline Tensors tensors_of(cusync_stage const& from) {
  return {data_as<char const>(from, CUSYNC_OPERAND_B), data_of(from, CUSYNC_OPERAND_A), data_of(from, CUSYNC_OPERAND_BIAS),
          data_of(from, CUSYNC_OPERAND_RESIDUAL), from.out};
}

/// Fills in the state shared by all jobs, and the tensors of each set.
inline void plan_session(SessionParams& p, Request const& request) {
  p.jobs = request.work.jobs;
  // Other workers wait as long as the relay waits for the host.
  p.limit_ns += p.jobs.idle_ns;
  for (uint32_t i = 0; i < request.count * p.jobs.sets; ++i) p.sets[i] = tensors_of(request.stages[i]);
}

/// Fills in a product, in pairs or not; false if a part has more rows than the kernel has accumulators for.
inline bool plan_product(Stage& stage, cusync_stage const& from, Request const& request, uint32_t chunk_bytes,
                         uint32_t most_shift, bool paired) {
  bool const gated = from.operation == CUSYNC_GATED_GEMM;
  static_cast<Geometry&>(stage) = geometry(from.k, from.n, gated, request.work.workers, chunk_bytes, most_shift, paired,
                                            {from.round, from.rounds});
  stage.activation = uint16_t(from.activation), stage.residual_first = uint16_t(from.residual_first);
  static_cast<Tensors&>(stage) = tensors_of(from);
  stage.epsilon = from.shape.norm.epsilon;
  plan_edges(stage, from, request);
  return stage.row_tiles <= kMaxRowTiles;
}

/// Fills in the group, and sets aside what sums over GPUs need when they are complete.
template <class AnyParams>
void plan_group(AnyParams& p, cusync_group const& group) {
  p.devices = group.devices, p.device = group.device, p.runs = group.epochs;
  std::copy_n(group.areas, CUSYNC_MAX_DEVICES, p.areas);
  p.own = p.areas[p.device], p.next = p.areas[(p.device + 1) % p.devices];
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    Stage& stage = p.stages[s];
    p.sums[s].received = group.received[s];
    if (group.received[s] == CUSYNC_NOT_SUMMED) continue;
    p.sums[s] = {group.received[s], stage.activation, stage.bias, stage.residual};
    stage.activation = CUSYNC_IDENTITY, stage.bias = nullptr, stage.residual = nullptr;
  }
}

/// Whether a product is computed in pairs; reserves memory for it.
template <class AnyParams>
bool plan_pairs(AnyParams& p, uint32_t s, cusync_stage const& from, uint32_t width) {
  static_assert(is_narrow(kPairRows, kPairWidth));
  uint32_t const workers = p.workers.value;
  // A worker of a pair has the squares of half a row.
  if (from.shape.norm.epsilon > 0.f) return false;
  if (!in_pairs(from.k, from.n, from.operation == CUSYNC_GATED_GEMM, workers, width)) return false;
  p.pair_of[s] = uint8_t(++p.pairs);
  p.pair_bytes = std::max(p.pair_bytes, round_up(ceil_div(from.n, workers) * width * 4, 16));
  return true;
}

/// A tensor map of the keys or values of `rows` tokens, with boxes of a chunk's tokens by all columns, in groups of 64
/// columns; or by 64 columns, with zeros behind a row's end, if heads end within a group.
template <class Element>
bool map_tiles(CUtensorMap& map, void* data, uint32_t head_dim, uint64_t rows) {
  constexpr bool kHalf = kElementOf<Element> == CUSYNC_F16;
  uint32_t const groups = head_dim % kBlock ? 1 : head_dim / kBlock;
  cuuint64_t const sizes[] = {head_dim / groups, rows, groups}, strides[] = {head_dim * 2ull, kRowBytes};
  cuuint32_t const box[] = {kBlock, chunk_tokens(head_dim), groups}, steps[] = {1, 1, 1};
  return CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
             &map, kHalf ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// A tensor map of a stage's activations, with boxes of 64 columns by all tokens.
template <class Element>
bool map_activations(CUtensorMap& map, Stage const& stage, uint32_t tokens) {
  constexpr bool kHalf = kElementOf<Element> == CUSYNC_F16;
  cuuint64_t const sizes[] = {stage.k, tokens}, strides[] = {stage.k * 2ull};
  cuuint32_t const box[] = {kBlock, tokens}, steps[] = {1, 1};
  return CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
             &map, kHalf ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(stage.a), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Fills in attention stage number `index` of the kernel; `counters`: number of counters of earlier attention stages.
template <class Element, class AnyParams>
bool plan_attend(AnyParams& p, uint32_t s, uint32_t index, uint32_t counters, Request const& request) {
  cusync_stage const& from = request.stages[s];
  cusync_heads const& heads = from.shape.heads;
  Attend& attend = p.attends[index];
  p.attend_of[s] = uint8_t(index + 1), p.capacity = heads.capacity;
  p.lengths = data_as<int32_t const>(from, CUSYNC_OPERAND_LENGTHS);
  p.stages[s].chunk_bytes = cache_bytes(heads.head_dim);
  plan_edges(p.stages[s], from, request);
  attend.kv_heads = heads.kv_heads, attend.group = heads.query_heads / heads.kv_heads;
  attend.head_dim = heads.head_dim, attend.pages = heads.pages;
  attend.page_row = ceil_div(heads.capacity, kUnitTokens);
  bool const capped = heads.softcap > 0.f;
  attend.capped = capped ? heads.scale / heads.softcap : 0.f, attend.window = heads.window;
  attend.scale = 1.4426950408889634f * (capped ? heads.softcap : heads.scale);
  attend.page_table = data_as<int32_t const>(from, CUSYNC_OPERAND_PAGES);
  attend.rotary = data_as<char const>(from, CUSYNC_OPERAND_ROTARY);
  attend.query_gain = data_as<char const>(from, CUSYNC_OPERAND_QUERY_GAIN);
  attend.key_gain = data_as<char const>(from, CUSYNC_OPERAND_KEY_GAIN);
  attend.epsilon = heads.norm_epsilon;
  attend.key_rows = data_as<char>(from, CUSYNC_OPERAND_KEYS);
  attend.value_rows = data_as<char>(from, CUSYNC_OPERAND_VALUES);
  attend.slabs = request.work.slabs + uint64_t(index) * 2 * request.work.workers * CUSYNC_ATTEND_SLAB;
  attend.arrived = request.work.slab_flags + counters;
  uint64_t const tokens = heads.pages ? uint64_t(heads.pages) * kUnitTokens : uint64_t(p.m) * heads.capacity;
  return map_tiles<Element>(attend.keys, attend.key_rows, heads.head_dim, tokens * heads.kv_heads) &&
         map_tiles<Element>(attend.values, attend.value_rows, heads.head_dim, tokens * heads.kv_heads);
}

/// Fills in a normalization.
template <class AnyParams>
void plan_norm(AnyParams& p, uint32_t s, cusync_stage const& from, Request const& request) {
  p.stages[s].k = from.n, p.stages[s].chunk_bytes = kSwizzleBytes;
  plan_edges(p.stages[s], from, request);
  cusync_norm const& norm = from.shape.norm;
  p.norms[s] = {norm.epsilon,
                uint16_t(norm.centred),
                uint16_t(norm.one_plus_gain),
                data_as<char const>(from, CUSYNC_OPERAND_GAIN),
                data_as<char const>(from, CUSYNC_OPERAND_BIAS),
                data_as<char const>(from, CUSYNC_OPERAND_RESIDUAL)};
}

inline uint32_t attentions(Request const& request) {
  auto const attends = [](cusync_stage const& stage) { return stage.operation == CUSYNC_ATTEND; };
  return uint32_t(std::count_if(request.stages, request.stages + request.count, attends));
}

/// Fills in all attention stages and normalizations, and the waits of the stages that read them.
template <class Element, class AnyParams>
bool plan_attends(AnyParams& p, Request const& request) {
  uint32_t count = 0, counters = 0, segment = 0;
  for (uint32_t s = 0; s < request.count; ++s) {
    cusync_stage const& from = request.stages[s];
    if (from.wait_count && !from.waits[0].policy.width)
      p.produced[s] = {Divisor::of(from.waits[0].tile_cols), from.waits[0].policy.block_m};
    if (from.operation == CUSYNC_NORM) plan_norm(p, s, from, request);
    if (from.operation != CUSYNC_ATTEND) continue;
    if (count == AnyParams::kMostAttends || !plan_attend<Element>(p, s, count, counters, request)) return false;
    Attend const& attend = p.attends[count++];
    counters += p.m * attend.kv_heads;
    segment = std::max(segment, segment_bytes<Element>(attend.group, attend.head_dim, attend.epsilon > 0.f));
  }
  // Segment slots are passed from one attention stage to the next, so they have the same address in all of them.
  for (uint32_t i = 0; i < count; ++i) p.attends[i].segment_bytes = segment;
  p.attend_bytes = attend_bytes(segment);
  return true;
}

/// Bytes of the buffer through which sums are exchanged.
template <class AnyParams>
uint32_t exchange_bytes(AnyParams const& p, uint32_t width) {
  uint32_t most = 0;
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    if (!takes_turns(p.stages[s].row_tiles, width)) continue;
    uint32_t crossing = 2 * exchange_units(p.stages[s].row_tiles * width / 8) * kUnitBytes;  // both directions
    if (AnyParams::kAttends && is_narrow(p.stages[s].rows, width)) crossing = std::max(crossing, narrow_exchange_bytes(p.stages[s].rows, width));
    most = std::max(crossing, most);
  }
  return most;
}

/// Lays out shared memory; false if the sizes do not fit.
template <class AnyParams>
bool plan_shared(AnyParams& p, cusync_tuning const& tuning, uint32_t width) {
  uint32_t largest = 0, reach = 0;
  for (uint32_t s = 0; s < p.stage_count; ++s) {
    Stage const& stage = p.stages[s];
    if (stage.chunk_bytes > largest) largest = stage.chunk_bytes;
    // The last row tile of a chunk at the ring's end reads beyond it, at most this far.
    uint32_t const past = (stage.row_tiles * 64 - stage.rows) * kRowBytes;
    if (past > reach) reach = past;
  }
  uint32_t const slots = p.activation_slots * width * kRowBytes, exchange = exchange_bytes(p, width);
  uint32_t const barriers = Shared::barriers(p.activation_slots) * 8, shares = Shared::share_bytes(p.stage_count);
  uint32_t rest = round_up(slots + exchange + barriers + shares, 16);
  if constexpr (AnyParams::kAttends) rest += p.attend_bytes + 2 * p.pair_bytes;
  if constexpr (AnyParams::kSession) rest += sizeof(JobSlots);
  if constexpr (AnyParams::kGroup) rest += 16 + sizeof(GroupRun);
  if (rest >= kSharedLimit || rest < reach) return false;
  uint32_t ring = (kSharedLimit - rest) / kSwizzleBytes * kSwizzleBytes;
  if (tuning.ring_bytes) ring = min_u32(ring, tuning.ring_bytes / kSwizzleBytes * kSwizzleBytes);
  if (ring < 2 * largest) return false;
  p.ring_bytes = ring;
  p.shared.ring = 0;
  p.shared.activations = ring;
  p.shared.exchange = p.shared.activations + slots;
  p.shared.barriers = p.shared.exchange + exchange;
  p.shared.shares = p.shared.barriers + barriers;
  p.shared.bytes = p.shared.shares + shares;
  if constexpr (AnyParams::kAttends) {
    p.attend = round_up(p.shared.bytes, 16);
    p.shared.bytes = p.attend + p.attend_bytes;
    p.pair = p.shared.bytes, p.shared.bytes += 2 * p.pair_bytes;
  }
  if constexpr (AnyParams::kSession) {
    p.slots = round_up(p.shared.bytes, 16);
    p.shared.bytes = p.slots + sizeof(JobSlots);
  }
  if constexpr (AnyParams::kGroup) {
    p.run = round_up(p.shared.bytes, 16);
    p.shared.bytes = p.run + sizeof(GroupRun);
  }
  return true;
}

template <class Element, int Width, uint32_t Operations>
struct DecodeHost {
  static constexpr bool kAttends = Operations >> CUSYNC_ATTEND & 1;
  /// Sessions have no kernel for 16 tokens: using the one for 32 costs little.
  static constexpr bool kSessions = !kAttends && Width != 16;
  /// Above 32 tokens activations are as many bytes as weights, so TMA loads them.
  static constexpr bool kMaps = !kAttends && Width > 32;
  using LaunchParams = std::conditional_t<kAttends, AttendParams, Params>;
  /// The parameters of short chains.
  using FewParams = std::conditional_t<kAttends, ShortAttendParams, std::conditional_t<kMaps, MappedParams, ShortParams>>;

  template <class KernelParams = LaunchParams>
  static Code code(uint32_t shared_bytes, uint32_t cluster = 1) {
    return {reinterpret_cast<void const*>(decode<Element, Width, KernelParams>), CUSYNC_SM90A, kThreads, shared_bytes, cluster, 1, true};
  }

  static uint32_t registers() { return registers_of(code(0).kernel, CUSYNC_SM90A); }
  /// Resident workers of chains that use all shared memory, which is the default.
  static int32_t resident(uint32_t* workers) { return kernels::resident(code(kSharedLimit), kSharedLimit, workers); }

  static int32_t create(Request const& request, cusync_kernel** out) {
    if (request.work.jobs.sets) {
      if constexpr (kSessions) return create_as<SessionParams>(request, out);
      return CUSYNC_ERROR_NOT_BUILT;
    }
    if (request.sync.group.devices) return create_as<GroupParams<LaunchParams>>(request, out);
    bool const is_short = request.count <= ShortParams::kMostStages && attentions(request) <= ShortAttendParams::kMostAttends;
    return is_short ? create_as<FewParams>(request, out) : create_as<LaunchParams>(request, out);
  }

  template <class KernelParams>
  static int32_t create_as(Request const& request, cusync_kernel** out) {
    if (int32_t const status = require(CUSYNC_SM90A); status != CUSYNC_OK) return status;
    cusync_tuning const& tuning = request.work.tuning;
    cusync_sync const& sync = request.sync;
    KernelParams p{};
    p.stage_count = request.count, p.m = request.stages[0].m, p.workers = Divisor::of(request.work.workers);
    constexpr Defaults kOtherwise = defaults(Width, kAttends);
    p.activation_slots = or_default(tuning.activation_slots, kOtherwise.slots);
    if (p.activation_slots % (kLoadThreads / tile_lanes(kAttends, Width))) return CUSYNC_ERROR_BAD_ARGUMENT;
    p.in_flight_bytes = or_default(tuning.in_flight_bytes, kOtherwise.in_flight);
    p.ahead_bytes = or_default(tuning.ahead_bytes, kOtherwise.ahead);
    p.stream_only = sync.test.stream_only;
    p.epochs = sync.epochs, p.timeout_ns = sync.timeout_ns, p.report = sync.report, p.trace = sync.trace;
    p.delays = sync.test.delays, p.notes = sync.test.notes;
    p.limit_ns = 4 * (sync.timeout_ns ? sync.timeout_ns : kDefaultTimeoutNs);
    uint32_t const chunk_bytes = or_default(tuning.chunk_bytes, kOtherwise.chunk);
    // With few rows, use longer chunks, because one thread issues them all. The slots must hold the chunks of both
    // warpgroups and the start of the next one.
    uint32_t const most_shift = kAttends && p.activation_slots >= 24 ? 3 : 2;
    for (uint32_t s = 0; s < request.count; ++s) {
      bool const product = request.stages[s].operation <= CUSYNC_GATED_GEMM, gated = request.stages[s].operation == CUSYNC_GATED_GEMM;
      if (product && !takes_curves(kAttends, Width) && is_curved(request.stages[s].activation, gated)) return CUSYNC_ERROR_NOT_BUILT;
      bool paired = false;
      if constexpr (kAttends) paired = product && plan_pairs(p, s, request.stages[s], Width);
      if (product && !plan_product(p.stages[s], request.stages[s], request, chunk_bytes, most_shift, paired))
        return CUSYNC_ERROR_NOT_BUILT;
    }
    if constexpr (KernelParams::kGroup) plan_group(p, sync.group);
    if constexpr (kAttends) {
      if (!plan_attends<Element>(p, request)) return CUSYNC_ERROR_BAD_ARGUMENT;
    }
    if constexpr (KernelParams::kMaps) {
      for (uint32_t s = 0; s < p.stage_count; ++s)
        if (!map_activations<Element>(p.activations[s], p.stages[s], p.m)) return CUSYNC_ERROR_BAD_ARGUMENT;
    }
    if constexpr (KernelParams::kSession) plan_session(p, request);
    if (!plan_shared(p, tuning, Width)) return CUSYNC_ERROR_BAD_ARGUMENT;

    // Chains share one kernel and hence its limit, so set it to the maximum of all of them.
    uint32_t most = 0;
    uint32_t cluster = 1;
    if constexpr (kAttends) cluster = p.pairs ? 2 : 1;
    int32_t const status = kernels::resident(code<KernelParams>(p.shared.bytes, cluster), kSharedLimit, &most);
    if (status != CUSYNC_OK) return status;
    // Workers wait for each other, so all must be co-resident.
    if (request.work.workers / cluster > most) return CUSYNC_ERROR_BAD_ARGUMENT;
    return ready(code<KernelParams>(p.shared.bytes, cluster), request.work.workers / cluster, p, out);
  }

  static Kernel kernel() {
    cusync_kernel_info info{};
    info.id = {CUSYNC_FAMILY_DECODE, CUSYNC_SM90A, Operations, kElementOf<Element>, 64, 0, 1, 1, uint32_t(Width)};
    info.tile_k = kBlock, info.stages = CUSYNC_MAX_STAGES, info.row_tiles = kMaxRowTiles;
    info.threads = kThreads, info.shared_bytes = kSharedLimit;
    return {info, registers, resident, create};
  }
};

}  // namespace cusync::kernels::decode

namespace cusync::kernels {

/// One kernel for all operations, of `Width` tokens.
template <cusync_element Element, int TileM, int Width, int Ring, int ClusterM, int ClusterN, cusync_operation... Operations>
KernelTable decode_sm90() {
  static_assert(TileM == 64 && Ring == 0 && ClusterM == 1 && ClusterN == 1);
  static Kernel const table[] = {
      decode::DecodeHost<Number<Element>, Width, kOperationSet<Operations...>>::kernel()};
  return {table, 1};
}

}  // namespace cusync::kernels
