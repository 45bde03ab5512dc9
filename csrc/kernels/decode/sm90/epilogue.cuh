// SPDX-License-Identifier: MIT OR Apache-2.0
// The end of a stage: adds sums held by other threads, finishes outputs in registers, stores and posts them.
//
// A unit is one thread's part of a 64-row by 8-token block: rows r and r + 8, two tokens each, in this order: (r, t),
// (r, t + 1), (r + 8, t), (r + 8, t + 1). The same thread number holds the same part everywhere, so units are exchanged
// without rearrangement.
#pragma once
#include "cute/arch/cluster_sm90.hpp"

#include "kernels/decode/sm90/devices.cuh"
#include "kernels/decode/sm90/mma.cuh"

namespace cusync::kernels::decode {

/// The other worker of a pair. Stages alternate between two buffers. A worker that sends for the stage after the next
/// has already received the neighbor's sums for the next stage, and the neighbor sent those after it had read the
/// buffer.
struct Neighbour {
  char* sums;       ///< incoming sums, row by row for all tokens; at the same offset in the neighbor's memory
  uint64_t* there;  ///< completes when all of them have arrived
  uint32_t parity, rank;
  unsigned long long limit_ns;

  /// Sends two sums to index `at`, and counts their bytes on the receiving barrier.
  CUSYNC_DEVICE void send(uint32_t at, float x, float y) const {
    uint32_t const to = cute::cast_smem_ptr_to_uint(sums) + at * 4, barrier = cute::cast_smem_ptr_to_uint(there);
    cute::store_shared_remote(__float_as_uint(x), to, barrier, rank);
    cute::store_shared_remote(__float_as_uint(y), to + 4, barrier, rank);
  }
};

/// The biases of a thread's rows.
template <class Element, int Tiles>
struct Biases {
  Element upper[Tiles], lower[Tiles];  ///< for its two rows in each row tile
};

/// `Curved`: the activation has no code of its own, as SiLU of gates and GELU and ReLU of sums have. Such stages have a
/// copy of this code: what they need besides would otherwise be fetched by all.
template <class Element, int Width, int Tiles, Sharing By, bool Curved, class AnyParams>
class Epilogue {
 public:
  using Sum = Sums<Element, Width, Tiles, By>;
  using Biases = decode::Biases<Element, Tiles>;
  static constexpr uint32_t kBlocks = Width / 8, kUnits = Tiles * kBlocks;  ///< units per row tile, and in total

  /// Loads the biases before the main loop; they are used only after it, so nothing waits for them. `lead`: rows before
  /// the worker's own.
  CUSYNC_DEVICE static Biases biases(Tensors const& tensors, Share const& share, uint32_t group, uint32_t lead) {
    Element const* const from = static_cast<Element const*>(tensors.bias);
    auto const bias = [&](uint32_t feature) {
      return from && feature < share.count ? from[share.first + feature] : Element(0.f);
    };
    Biases found;
#pragma unroll
    for (int i = 0; i < Tiles; ++i) found.upper[i] = bias(row(i, group) - lead), found.lower[i] = bias(row(i, group) + 8 - lead);
    return found;
  }

  /// The epilogue of a run of `m` tokens.
  CUSYNC_DEVICE Epilogue(AnyParams const& p, Tensors const& tensors, uint32_t m, Shared const& shared, uint32_t s,
                         uint32_t group, Biases const& biases)
      : p_(p), s_(s), stage_(p.stages[s]), tensors_(tensors), m_(m), share_(shared.share(s)), shared_(shared), group_(group),
        biases_(biases) {}

  /// For warpgroups that have the complete sums of their rows.
  CUSYNC_DEVICE void finish_alone(Sum const& sums) const {
#pragma unroll
    for (uint32_t i = 0; i < Tiles; ++i)
#pragma unroll
      for (uint32_t b = 0; b < kBlocks; ++b) {
        float const* const v = &sums.v[i][b * 4];
        store(make_float4(v[0], v[1], v[2], v[3]), row(i, group_), b, bias(i));
      }
  }

  /// For warpgroups that have partial sums of the same rows: each finishes every other unit. All math threads.
  CUSYNC_DEVICE void finish_with_warpgroup(Sum const& sums) const {
    constexpr uint32_t kGiven = exchange_units(kUnits);
    uint32_t const thread = threadIdx.x % 128;
    float4* const given = shared_.exchange() + (1 - group_) * kGiven * 128 + thread;
    float4 const* const taken = shared_.exchange() + group_ * kGiven * 128 + thread;
#pragma unroll
    for (uint32_t first = 0; first < kUnits; first += 2 * kGiven) {
      if (first) ptx::bar_sync(1, kMathThreads);  // the exchange buffer has been read
#pragma unroll
      for (uint32_t i = 0; i < kGiven; ++i)
        if (Pair const pair = pair_of(sums, first / 2 + i, group_); pair.has_given) given[i * 128] = pair.given;
      ptx::bar_sync(1, kMathThreads);
#pragma unroll
      for (uint32_t i = 0; i < kGiven; ++i)
        if (Pair const pair = pair_of(sums, first / 2 + i, group_); pair.has_kept) add_and_store(pair, taken[i * 128]);
    }
  }

  /// For pairs of workers, which have different k-blocks of the same rows: each sends the neighbor the sums of the
  /// neighbor's rows, and finishes its own.
  CUSYNC_DEVICE void finish_with_neighbour(Sum const& sums, Neighbour const& neighbour) const {
    constexpr uint32_t kGiven = exchange_units(kUnits), kKept = ceil_div(kUnits, 2);
    static_assert(Tiles == 1 && ceil_div(kKept, kGiven) == 1, "one exchange with the other warpgroup");
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(neighbour.there, share_.count * Width * 4);
    uint32_t const thread = threadIdx.x % 128;
    float4* const given = shared_.exchange() + (1 - group_) * kGiven * 128 + thread;
    float4 const* const taken = shared_.exchange() + group_ * kGiven * 128 + thread;
#pragma unroll
    for (uint32_t i = 0; i < kGiven; ++i)
      if (Pair const pair = pair_of(sums, i, group_); pair.has_given) given[i * 128] = pair.given;
    ptx::bar_sync(1, kMathThreads);
    float4 all[kKept];
#pragma unroll
    for (uint32_t i = 0; i < kKept; ++i) {
      float4 const kept = pair_of(sums, i, group_).kept, more = taken[i * 128];
      all[i] = make_float4(kept.x + more.x, kept.y + more.y, kept.z + more.z, kept.w + more.w);
    }
    uint32_t const upper = row(0, group_), token = threadIdx.x % 4 * 2;
    uint32_t const its_first = share_.lead ? 0 : share_.count, its_count = share_.rows - share_.count;
#pragma unroll
    for (uint32_t i = 0; i < kKept; ++i) {
      uint32_t const block = 2 * i + group_, at = block * 8 + token;
      if (block >= kUnits) continue;
      if (upper - its_first < its_count) neighbour.send((upper - its_first) * Width + at, all[i].x, all[i].y);
      if (upper + 8 - its_first < its_count) neighbour.send((upper + 8 - its_first) * Width + at, all[i].z, all[i].w);
    }
    ptx::mbarrier_wait_parity_or_trap(neighbour.there, neighbour.parity, neighbour.limit_ns);
    uint32_t const mine = upper - share_.lead;
#pragma unroll
    for (uint32_t i = 0; i < kKept; ++i) {
      uint32_t const block = 2 * i + group_, at = block * 8 + token;
      auto const finish = [&](uint32_t feature, float x, float y, Element bias) {
        if (block >= kUnits || feature >= share_.count) return;
        float2 const more = *reinterpret_cast<float2 const*>(neighbour.sums + (feature * Width + at) * 4);
        put(x + more.x + float(bias), feature, at);
        put(y + more.y + float(bias), feature, at + 1);
      };
      finish(mine, all[i].x, all[i].y, biases_.upper[0]);
      finish(mine + 8, all[i].z, all[i].w, biases_.lower[0]);
    }
  }

 private:
  struct Bias {
    Element upper, lower;
  };
  CUSYNC_DEVICE Bias bias(uint32_t i) const { return {biases_.upper[i], biases_.lower[i]}; }

  /// Two adjacent units: one party keeps one and gives the other away.
  struct Pair {
    float4 kept, given;
    uint32_t row, block;  ///< position of the kept unit
    Bias bias;
    bool has_kept, has_given;
  };

  /// Unit numbers are compile-time constants, so sums stay in registers; the party is not.
  CUSYNC_DEVICE Pair pair_of(Sum const& sums, uint32_t pair, uint32_t party) const {
    auto const unit = [&](uint32_t u) {
      if (u >= kUnits) return float4{};
      float const* const v = &sums.v[u / kBlocks][u % kBlocks * 4];
      return make_float4(v[0], v[1], v[2], v[3]);
    };
    uint32_t const even = 2 * pair, odd = even + 1, odd_tile = odd < kUnits ? odd / kBlocks : 0, kept = even + party;
    Pair p;
    p.kept = party ? unit(odd) : unit(even);
    p.given = party ? unit(even) : unit(odd);
    p.row = row(party ? odd_tile : even / kBlocks, group_);
    p.block = party ? odd % kBlocks : even % kBlocks;
    p.bias = party ? bias(odd_tile) : bias(even / kBlocks);
    p.has_kept = kept < kUnits;
    p.has_given = (kept ^ 1) < kUnits;
    return p;
  }

  /// The thread's first row in its i-th row tile; the second is 8 below.
  CUSYNC_DEVICE static uint32_t row(uint32_t i, uint32_t group) {
    return Sum::row_tile(i, group) * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  }

  CUSYNC_DEVICE void add_and_store(Pair const& pair, float4 other) const {
    float4 const sum =
        make_float4(pair.kept.x + other.x, pair.kept.y + other.y, pair.kept.z + other.z, pair.kept.w + other.w);
    store(sum, pair.row, pair.block, pair.bias);
  }

  CUSYNC_DEVICE void store(float4 v, uint32_t row, uint32_t block, Bias bias) const {
    uint32_t const token = block * 8 + threadIdx.x % 4 * 2;
    if (stage_.gated) {
      uint32_t const feature = row / 16 * 8 + threadIdx.x % 32 / 4;
      if (uint32_t const rest = share_.count - row / 16 * 8; rest < 8) v = with_up_of_short_group(v, rest);
      store(gate(v.x) * v.z, feature, token);
      store(gate(v.y) * v.w, feature, token + 1);
    } else {
      put(v.x + float(bias.upper), row, token);
      put(v.y + float(bias.upper), row, token + 1);
      put(v.z + float(bias.lower), row + 8, token);
      put(v.w + float(bias.lower), row + 8, token + 1);
    }
  }

  /// The up rows of a last group of `features` features directly follow its gate rows, so another lane holds them.
  CUSYNC_DEVICE static float4 with_up_of_short_group(float4 v, uint32_t features) {
    uint32_t const lane = threadIdx.x % 32, row = lane / 4 + features, from = row % 8 * 4 + lane % 4;
    float const x = __shfl_sync(~0u, v.x, from), y = __shfl_sync(~0u, v.y, from);
    float const z = __shfl_sync(~0u, v.z, from), w = __shfl_sync(~0u, v.w, from);
    return row < 8 ? make_float4(v.x, v.y, x, y) : make_float4(v.x, v.y, z, w);
  }

  CUSYNC_DEVICE float gate(float x) const {
    return Curved ? on_curve(kCurves[stage_.activation], x) : silu(x);
  }
  CUSYNC_DEVICE float activated(float x) const {
    if (Curved) return on_curve(kCurves[stage_.activation], x);
    return stage_.activation == CUSYNC_GELU_TANH ? gelu_tanh(x) : stage_.activation == CUSYNC_RELU ? relu(x) : x;
  }

  CUSYNC_DEVICE bool has(uint32_t feature, uint32_t token) const { return feature < share_.count && token < m_; }
  CUSYNC_DEVICE uint64_t index(uint32_t feature, uint32_t token) const {
    return uint64_t(token) * stage_.features + share_.first + feature;
  }

  /// Gated stages have neither bias nor residual.
  CUSYNC_DEVICE void store(float value, uint32_t feature, uint32_t token) const {
    if (has(feature, token)) static_cast<Element*>(tensors_.d)[index(feature, token)] = Element(value);
  }

  CUSYNC_DEVICE void put(float value, uint32_t feature, uint32_t token) const {
    if (!has(feature, token)) return;
    uint64_t const at = index(feature, token);
    float const residual = tensors_.residual ? float(static_cast<Element const*>(tensors_.residual)[at]) : 0.f;
    if (stage_.residual_first) value += residual;
    value = activated(value);
    if (!stage_.residual_first) value += residual;
    if constexpr (AnyParams::kGroup) {
      if (is_summed(p_, s_)) return send(p_, shared_, uint32_t(at), value);
    }
    static_cast<Element*>(tensors_.d)[at] = Element(value);
  }

  AnyParams const& p_;
  uint32_t s_;
  Stage const& stage_;
  Tensors const& tensors_;
  uint32_t m_;
  Share const& share_;
  Shared const& shared_;
  uint32_t group_;
  Biases const& biases_;
};

/// Call after all stores of the stage, or of one round: posts once to every 64-wide column tile that they touch. All
/// math threads.
CUSYNC_DEVICE void post_stage(Common const& p, Stage const& stage, Share const& share) {
  // The barrier also keeps the next stage from overwriting the exchange buffer while it is read.
  if (threadIdx.x == 0 && share.count) note(p.notes, CUSYNC_EVENT_STORE, {stage.index, 0, stage.part_of(blockIdx.x), 0}, 0, 0);
  ptx::bar_sync(1, kMathThreads);
  if (!stage.posts || !share.count) return;
  uint32_t const tile = share.first / kBlock + threadIdx.x;
  if (tile > (share.first + share.count - 1) / kBlock) return;
  // The word already changes when the last activations are in flight; only the length of a delay depends on it.
  if (CUSYNC_DELAYS && p.delays.limit_ns)
    delay(p.delays, DelayAt::kPost, ptx::ld_acquire_gpu(p.epochs + blockIdx.x), stage.index, blockIdx.x, 0);
  note(p.notes, CUSYNC_EVENT_POST, {stage.index, 0, stage.part_of(blockIdx.x), 0}, tile, 1);
  post(stage.posts, tile);
}

}  // namespace cusync::kernels::decode
