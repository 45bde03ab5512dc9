// SPDX-License-Identifier: MIT OR Apache-2.0
// Standalone prompt attention: one CTA per 64 queries of a head. Its two consumer warpgroups take alternate steps of
// the same queries and combine their sums at the end, so a tile takes half as long, and twice as many SMs have one. The
// tiles with the most steps come first; the GPU assigns the others to CTAs as they become free.
//
//   warpgroup 0:  warp 0 loads the queries, then keys and values of each step; if there is a cache, warp 1 copies keys
//                 and values of the tile's own tokens there from the ring
//   warpgroups 1, 2: steps 0, 2, 4, ... and 1, 3, 5, ...
//
// With lengths, the first steps read the cached tokens of a sequence. Later steps take keys and values of the prompt from
// QKV, so no tile depends on rows of the cache that another one is writing.
#include "cute/arch/copy_sm90_tma.hpp"
#include "cusync/semaphore.cuh"
#include "cutlass/arch/reg_reconfig.h"
#include "kernels/attention/sm90/steps.cuh"
#include "kernels/common/delays.cuh"
#include "kernels/common/number.h"
#include "kernels/common/sm90/host.h"

namespace cusync::kernels::sm90 {
namespace {

constexpr uint32_t kQueries = 64, kGroups = 2, kThreads = 128 * (1 + kGroups);
constexpr uint32_t kReleases = 128 + 1;  ///< threads that release a ring stage: a warpgroup, and the appending thread
constexpr uint32_t kBarrier = 1;  ///< named barrier of both consumer warpgroups
/// Stages of the ring: a multiple of those of a step, so that a step's are contiguous.
template <int Dim>
constexpr uint32_t kSlots = Dim > 128 ? 8 : 6;

struct Alone {
  CUtensorMap queries, qkv, out;
  CUtensorMap cache[2];   ///< keys, values, to append; without lengths, as many rows per head as a sequence has tokens
  CUtensorMap cached[2];  ///< keys, values, to read
  Prompt prompt;          ///< with tiles of 64 queries
  uint32_t heads, heads_of_all;  ///< query heads of a sequence, and of all sequences
  uint32_t capacity;             ///< tokens that a sequence's cache has room for
  int32_t const* lengths;        ///< cached tokens of each sequence; nullptr: none
  cusync_report* report;
  cusync_delays delays;
};

template <int Dim>
struct alignas(1024) Memory {
  char units[Dim / 64][kUnitBytes];  ///< 64 columns of the queries each, later of the outputs
  char ring[kSlots<Dim>][2][kPieceBytes<Dim>];
  uint64_t queries, full[kSlots<Dim>], empty[kSlots<Dim>];
  float2 rows[kGroups][128][2];  ///< each thread's maximum and sum for each of its two rows
};

/// Ring stages per step: those of keys, then those of values, or one for both.
template <int Dim>
constexpr uint32_t kSlotsOfStep = Dim / 64;

/// What piece `piece` of ring stage `slot` of a step holds.
template <int Dim>
struct Piece {
  bool values;      ///< otherwise keys
  uint32_t column;  ///< the first, of the head

  CUSYNC_DEVICE Piece(uint32_t slot, uint32_t piece) {
    uint32_t const at = slot % kSlotsOfStep<Dim> * 2 + piece;
    values = at >= Dim / 64, column = at % (Dim / 64) * 64;
  }
};

/// A warpgroup's position in the ring: it skips the other warpgroup's steps.
template <int Dim>
struct StepRing {
  Memory<Dim>& memory;
  uint32_t next;     ///< stages before it, counted from the first of the tile
  uint32_t barrier;  ///< named barrier of the warpgroup

  CUSYNC_DEVICE char* piece(uint32_t i) const { return memory.ring[(next + i / 2) % kSlots<Dim>][i % 2]; }
  CUSYNC_DEVICE void wait(uint32_t stages) const {
#pragma unroll
    for (uint32_t i = 0; i < stages; ++i)
      while (!ptx::mbarrier_test_parity(&memory.full[(next + i) % kSlots<Dim>], (next + i) / kSlots<Dim> % 2)) {
      }
  }
  CUSYNC_DEVICE void leave(uint32_t stages) {
#pragma unroll
    for (uint32_t i = 0; i < stages; ++i) {
      ptx::mbarrier_arrive(&memory.empty[next % kSlots<Dim>]);
      next += next % kSlotsOfStep<Dim> + 1 == kSlotsOfStep<Dim> ? kSlotsOfStep<Dim> * (kGroups - 1) + 1 : 1;
    }
  }
};

template <int Dim>
struct Tile {
  uint32_t sequence, head, row;  ///< row: the first query's token of the prompt, within the sequence
  Steps steps;
  bool left_out = false;  ///< the cache has no room for the prompt: the output is zero, and nothing is appended

  CUSYNC_DEVICE explicit Tile(Alone const& alone) {
    uint32_t const tile = alone.prompt.tiles - 1 - blockIdx.x / alone.heads_of_all, of_all = blockIdx.x % alone.heads_of_all;
    sequence = of_all / alone.heads, head = of_all % alone.heads, row = tile * kQueries;
    uint32_t const seen = alone.prompt.causal ? min_u32(row + kQueries, alone.prompt.tokens) : alone.prompt.tokens;
    if (alone.lengths) {
      int32_t const said = __ldcg(alone.lengths + sequence);
      left_out = said < 0 || uint32_t(said) + alone.prompt.tokens > alone.capacity;
      steps.past = left_out ? 0 : uint32_t(said);
      if (left_out && head == 0 && row == 0 && threadIdx.x == 0)
        report_only(alone.report, CUSYNC_REPORT_BAD_LENGTH, sequence, 0, uint32_t(said), alone.capacity);
    }
    uint32_t const window = alone.prompt.window, at = steps.past + row, hidden = window && at + 1 > window ? at + 1 - window : 0;
    auto const step_of = [](uint32_t token) { return token / kStepTokens<Dim> * kStepTokens<Dim>; };
    steps.first_cached = step_of(min_u32(hidden, steps.past));
    steps.cached = hidden < steps.past ? ceil_div(steps.past - steps.first_cached, kStepTokens<Dim>) : 0;
    steps.first_own = hidden < steps.past ? 0 : step_of(hidden - steps.past);
    steps.all = steps.cached + ceil_div(seen - steps.first_own, kStepTokens<Dim>);
  }
};

/// Called by one thread.
template <int Dim>
CUSYNC_DEVICE void load(Alone const& alone, Tile<Dim> const& tile, Memory<Dim>& memory) {
  uint32_t const keys = alone.heads + tile.head / alone.prompt.group, values = keys + alone.heads / alone.prompt.group;
  auto const bring = [&](CUtensorMap const& map, uint64_t* barrier, char* to, uint32_t column, uint32_t head, uint32_t token) {
    cute::SM90_TMA_LOAD_4D::copy(&map, barrier, static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL), to, int(column), int(head),
                                 int(token), int(tile.sequence));
  };
  ptx::mbarrier_arrive_expect_tx(&memory.queries, sizeof memory.units);
#pragma unroll
  for (uint32_t unit = 0; unit < Dim / 64; ++unit)
    bring(alone.queries, &memory.queries, memory.units[unit], unit * 64, tile.head, tile.row);
#pragma unroll 1
  for (uint32_t next = 0; next < tile.steps.all * kSlotsOfStep<Dim>; ++next) {
    uint32_t const slot = next % kSlots<Dim>, step = next / kSlotsOfStep<Dim>, position = tile.steps.template position<Dim>(step);
    while (!ptx::mbarrier_test_parity(&memory.empty[slot], next / kSlots<Dim> % 2 ^ 1)) {
    }
    ptx::mbarrier_arrive_expect_tx(&memory.full[slot], sizeof memory.ring[slot]);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      Piece<Dim> const piece(next, i);
      if (step < tile.steps.cached)
        cute::SM90_TMA_LOAD_4D::copy(&alone.cached[piece.values], &memory.full[slot], static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                     memory.ring[slot][i], int(piece.column), int(position), int(tile.head / alone.prompt.group),
                                     int(tile.sequence));
      else
        bring(alone.qkv, &memory.full[slot], memory.ring[slot][i], piece.column, piece.values ? values : keys, position - tile.steps.past);
    }
  }
}

/// Copies the keys and values of the tile's own tokens from the ring to their caches; one thread.
template <int Dim>
CUSYNC_DEVICE void append(Alone const& alone, Tile<Dim> const& tile, Memory<Dim>& memory) {
  uint32_t const head = tile.head / alone.prompt.group, heads = alone.heads / alone.prompt.group;
  bool const appends = alone.prompt.appends && tile.head % alone.prompt.group == 0 && !tile.left_out;
  uint32_t const own = tile.steps.cached + (tile.row - tile.steps.first_own) / kStepTokens<Dim>;
#pragma unroll 1
  for (uint32_t next = 0; next < tile.steps.all * kSlotsOfStep<Dim>; ++next) {
    uint32_t const slot = next % kSlots<Dim>;
    while (!ptx::mbarrier_test_parity(&memory.full[slot], next / kSlots<Dim> % 2)) {
    }
    if (appends && next / kSlotsOfStep<Dim> == own) {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        Piece<Dim> const piece(next, i);
        cute::SM90_TMA_STORE_3D::copy(&alone.cache[piece.values], memory.ring[slot][i] + tile.row % kStepTokens<Dim> * 128,
                                      int(piece.column), int(tile.steps.past + tile.row), int(tile.sequence * heads + head));
      }
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read<0>();
    }
    ptx::mbarrier_arrive(&memory.empty[slot]);
  }
}

/// Called by both consumer warpgroups.
template <class Element, int Dim, bool Usual>
CUSYNC_DEVICE void attend(Alone const& alone, Tile<Dim> const& tile, Memory<Dim>& memory) {
  constexpr int kSums = Dim / 2, kHalf = kSums / 2;  // sums per thread; those of them that it finishes
  int const thread = int(threadIdx.x % 128);
  uint32_t const group = uint32_t(cutlass::canonical_warp_group_idx()) - 1;
  cute::Tensor sums = cute::make_tensor<float>(cute::Int<kSums>{});
  Softmax softmax;
  StepRing<Dim> ring{memory, group * kSlotsOfStep<Dim>, kBarrier + 1 + group};
  while (!ptx::mbarrier_test_parity(&memory.queries, 0)) {
  }
  uint32_t const steps = tile.steps.all;
  if (group < steps)
    attend_steps<Element, Dim, Usual>(alone.prompt, tile.steps.past + tile.row, tile.steps, memory.units[0], group, kGroups, ring, softmax,
                                      sums, thread);
  else
    cute::clear(sums);

  // Each warpgroup finishes half of the columns, and passes its sums of the other half through the ring stages of its
  // last step's keys, which are no longer loaded.
  uint32_t const last = group < steps ? steps - 1 - (steps - 1 - group) % kGroups : group;
  auto const of_step = [&](uint32_t step) { return reinterpret_cast<float*>(memory.ring[step * kSlotsOfStep<Dim> % kSlots<Dim>]); };
  static_assert(kHalf * 128 * sizeof(float) <= ceil_div(Dim, 128) * sizeof memory.ring[0] && kSlots<Dim> % kSlotsOfStep<Dim> == 0);
  float* const given = of_step(last);
  // The appending thread may still read there.
  uint32_t const before = last * kSlotsOfStep<Dim> + ceil_div(Dim, 128) - 1;
  while (group < steps && !ptx::mbarrier_test_parity(&memory.empty[before % kSlots<Dim>], before / kSlots<Dim> % 2)) {
  }
  float whole[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    whole[half] = softmax.whole(half);
    memory.rows[group][thread][half] = {softmax.most[half], whole[half]};
  }
  float kept[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    float const low = sums(i), high = sums(kHalf + i);
    given[i * 128 + thread] = group ? low : high;
    kept[i] = group ? high : low;
  }
  ptx::bar_sync(kBarrier, 128 * kGroups);
  uint32_t const other = 1 - group;
  uint32_t const others_last = other < steps ? steps - 1 - (steps - 1 - other) % kGroups : other;
  float const* const taken = of_step(others_last);
  float mine[2], theirs[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float2 const row = memory.rows[other][thread][half];
    float const most = fmaxf(softmax.most[half], row.x);
    mine[half] = ptx::ex2_approx_ftz((softmax.most[half] - most) * alone.prompt.scale);
    theirs[half] = ptx::ex2_approx_ftz((row.x - most) * alone.prompt.scale);
    float const share = 1.f / (mine[half] * whole[half] + theirs[half] * row.y);
    mine[half] *= share, theirs[half] *= share;
  }
  // Both warpgroups are done with the queries: the outputs replace them.
  Fragment const at(thread);
#pragma unroll
  for (int i = 0; i < kHalf; i += 2) {
    int const half = i / 2 % 2, piece = i / 4 + int(group) * kHalf / 4;
    uint32_t word = pack<Element>(kept[i] * mine[half] + taken[i * 128 + thread] * theirs[half],
                                        kept[i + 1] * mine[half] + taken[(i + 1) * 128 + thread] * theirs[half]);
    if (!Usual && tile.left_out) word = 0;
    reinterpret_cast<uint32_t*>(memory.units[piece / 8])[chunk_word<8>(at, piece % 8, half)] = word;
  }
  ptx::fence_proxy_async_shared_cta();
  ptx::bar_sync(kBarrier, 128 * kGroups);
  if (threadIdx.x != 128) return;
  delay_at_any_time(alone.delays, DelayAt::kStore, blockIdx.x, 0);
#pragma unroll
  for (int unit = 0; unit < Dim / 64; ++unit)
    cute::SM90_TMA_STORE_4D::copy(&alone.out, memory.units[unit], unit * 64, int(tile.head), int(tile.row), int(tile.sequence));
  ptx::cp_async_bulk_commit_group();
  ptx::cp_async_bulk_wait_group_read<0>();
}

template <class Element, int Dim, bool Usual>
__global__ void __launch_bounds__(kThreads, 1) attention(CUTE_GRID_CONSTANT Alone const alone) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<Memory<Dim>*>(bytes);
  // The next kernel waits for this launch to complete, so it may take an SM as soon as there is room.
  if (threadIdx.x == 0) {
    ptx::griddepcontrol_launch_dependents();
    cute::prefetch_tma_descriptor(reinterpret_cast<cute::TmaDescriptor const*>(&alone.queries));
    cute::prefetch_tma_descriptor(reinterpret_cast<cute::TmaDescriptor const*>(&alone.qkv));
    cute::prefetch_tma_descriptor(reinterpret_cast<cute::TmaDescriptor const*>(&alone.out));
    ptx::mbarrier_init(&memory.queries, 1);
    for (uint32_t slot = 0; slot < kSlots<Dim>; ++slot) ptx::mbarrier_init(&memory.full[slot], 1), ptx::mbarrier_init(&memory.empty[slot], kReleases);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // The run before may have appended tokens, or changed lengths.
  if (!Usual && alone.lengths) ptx::griddepcontrol_wait();
  Tile<Dim> const tile(alone);
  if (threadIdx.x >= 128) {
    cutlass::arch::warpgroup_reg_alloc<232>();
    attend<Element, Dim, Usual>(alone, tile, memory);
    return;
  }
  cutlass::arch::warpgroup_reg_dealloc<40>();
  if (threadIdx.x == 0) {
    ptx::griddepcontrol_wait();
    delay_at_any_time(alone.delays, DelayAt::kLoads, blockIdx.x, 0);
    load<Dim>(alone, tile, memory);
  } else if (threadIdx.x == 32) {
    delay_at_any_time(alone.delays, DelayAt::kItem, blockIdx.x, 0);
    append<Dim>(alone, tile, memory);
  }
}

template <class Element, int Dim>
Code code(bool usual) {
  auto const kernel = usual ? attention<Element, Dim, true> : attention<Element, Dim, false>;
  return {reinterpret_cast<void const*>(kernel), CUSYNC_SM90A, kThreads, uint32_t(sizeof(Memory<Dim>))};
}

template <class Element, int Dim>
int32_t create(Request const& request, cusync_kernel** out) {
  cusync_stage const& stage = request.stages[0];
  cusync_heads const& heads = stage.shape.heads;
  uint64_t const tokens = heads.tokens, sequences = stage.m / tokens, dim = heads.head_dim;
  uint64_t const all_heads = heads.query_heads + 2 * heads.kv_heads;
  void* const keys = const_cast<void*>(data_of(stage, CUSYNC_OPERAND_KEYS));
  void* const values = const_cast<void*>(data_of(stage, CUSYNC_OPERAND_VALUES));
  void const* const qkv = data_of(stage, CUSYNC_OPERAND_A);
  bool const capped = heads.softcap > 0.f;
  Alone alone{};
  alone.prompt = {heads.tokens, uint16_t(ceil_div(heads.tokens, kQueries)), uint16_t(heads.query_heads / heads.kv_heads),
                  uint8_t(heads.causal), uint8_t(keys != nullptr), heads.window,
                  // Weights are powers of two.
                  capped ? heads.scale / heads.softcap : 0.f, 1.4426950409f * (capped ? heads.softcap : heads.scale)};
  alone.delays = request.sync.test.delays;
  alone.heads = heads.query_heads, alone.heads_of_all = uint32_t(alone.heads * sequences);
  alone.capacity = heads.capacity;
  alone.lengths = static_cast<int32_t const*>(data_of(stage, CUSYNC_OPERAND_LENGTHS));
  alone.report = request.sync.report;
  auto const map_cache = [&](CUtensorMap& map, CUtensorMap& read, void* cache) {
    if (!cache) return true;
    uint64_t const rows = alone.lengths ? heads.capacity : tokens;
    return map_box<Element, 3>(map, cache, {dim, rows, sequences * heads.kv_heads}, {64, kQueries, 1}, heads.capacity * dim) &&
           map_box<Element, 4>(read, cache, {dim, heads.capacity, heads.kv_heads, sequences}, {64, kStepTokens<Dim>, 1, 1});
  };
  // Heads and sequences are separate tensor axes, so copies end at their boundaries, and pad the columns with zeros.
  bool const mapped = map_box<Element, 4>(alone.queries, qkv, {dim, all_heads, tokens, sequences}, {64, 1, kQueries, 1}) &&
                      map_box<Element, 4>(alone.qkv, qkv, {dim, all_heads, tokens, sequences}, {64, 1, kStepTokens<Dim>, 1}) &&
                      map_box<Element, 4>(alone.out, stage.out, {dim, heads.query_heads, tokens, sequences}, {64, 1, kQueries, 1}) &&
                      map_cache(alone.cache[0], alone.cached[0], keys) && map_cache(alone.cache[1], alone.cached[1], values);
  if (!mapped) return status_of(cudaErrorInvalidValue);
  Code const own = code<Element, Dim>(!capped && !heads.window && !alone.lengths);
  uint32_t resident = 0;
  if (int32_t const status = kernels::resident(own, sizeof(Memory<Dim>), &resident); status != CUSYNC_OK) return status;
  return ready(own, alone.prompt.tiles * alone.heads_of_all, alone, out);
}

template <class Element>
struct Attention {
  static constexpr cusync_operation kOperation = CUSYNC_ATTENTION;
  static constexpr uint32_t kElement = kElementOf<Element>;

  static Code code() { return sm90::code<Element, 128>(true); }
  static int32_t create(Request const& request, cusync_kernel** out) {
    uint32_t const dim = request.stages[0].shape.heads.head_dim;
    if (dim > 128) return sm90::create<Element, 256>(request, out);
    return dim > 64 ? sm90::create<Element, 128>(request, out) : sm90::create<Element, 64>(request, out);
  }
};

}  // namespace
}  // namespace cusync::kernels::sm90

namespace cusync::kernels {

KernelTable alone_sm90_attention_f16() { return alone<sm90::Attention<cutlass::half_t>>(); }
KernelTable alone_sm90_attention_bf16() { return alone<sm90::Attention<cutlass::bfloat16_t>>(); }

}  // namespace cusync::kernels
