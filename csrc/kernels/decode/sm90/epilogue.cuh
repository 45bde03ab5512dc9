// SPDX-License-Identifier: MIT OR Apache-2.0
// The end of a stage whose warpgroups multiply by WGMMA: adds the sums that the other warpgroup holds, and finishes the
// outputs. Also the end of every stage: its posts.
#pragma once
#include "cute/arch/cluster_sm90.hpp"

#include "kernels/decode/sm90/mma.cuh"
#include "kernels/decode/sm90/outputs.cuh"

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

template <class Element, int Width, int Tiles, Sharing By, bool Curved, class AnyParams>
class Epilogue : Outputs<Element, Width, Curved, AnyParams> {
  using Base = Outputs<Element, Width, Curved, AnyParams>;

 public:
  using Sum = Sums<Element, Width, Tiles, By>;
  static constexpr uint32_t kBlocks = Width / 8, kUnits = Tiles * kBlocks;  ///< units per row tile, and in total

  using Biases = decode::Biases<Element, Tiles>;

  /// The biases of the thread's rows in each row tile. `lead`: rows before the worker's own.
  CUSYNC_DEVICE static Biases biases(Tensors const& tensors, Share const& share, uint32_t group, uint32_t lead) {
    Biases found;
    uint32_t const thread = ptx::thread_id();
#pragma unroll
    for (int i = 0; i < Tiles; ++i) found.tiles[i] = Base::bias_of(tensors, share, row(i, group, thread), lead);
    return found;
  }

  CUSYNC_DEVICE Epilogue(AnyParams const& p, Tensors const& tensors, uint32_t m, Shared const& shared, uint32_t s,
                         uint32_t group, Biases const& biases)
      : Base(p, tensors, m, shared, s), group_(group), biases_(biases) {}

  CUSYNC_DEVICE void finish(Sum const& sums) const {
    if constexpr (By == Sharing::kChunks) finish_with_warpgroup(sums);
    else finish_alone(sums);
  }

  /// For pairs of workers, which have different k-blocks of the same rows: each sends the neighbor the sums of the
  /// neighbor's rows, and finishes its own.
  CUSYNC_DEVICE void finish_with_neighbour(Sum const& sums, Neighbour const& neighbour) const {
    constexpr uint32_t kGiven = exchange_units(kUnits), kKept = ceil_div(kUnits, 2);
    static_assert(Tiles == 1 && ceil_div(kKept, kGiven) == 1, "one exchange with the other warpgroup");
    if (this->thread_ == 0) ptx::mbarrier_arrive_expect_tx(neighbour.there, this->share_.count * Width * 4);
    uint32_t const thread = this->thread_ % 128;
    float4* const given = this->shared_.exchange() + (1 - group_) * kGiven * 128 + thread;
    float4 const* const taken = this->shared_.exchange() + group_ * kGiven * 128 + thread;
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
    uint32_t const upper = row(0, group_, this->thread_), token = this->thread_ % 4 * 2;
    uint32_t const neighbor_first = this->share_.lead ? 0 : this->share_.count, neighbor_count = this->share_.rows - this->share_.count;
#pragma unroll
    for (uint32_t i = 0; i < kKept; ++i) {
      uint32_t const block = 2 * i + group_, at = block * 8 + token;
      if (block >= kUnits) continue;
      if (upper - neighbor_first < neighbor_count) neighbour.send((upper - neighbor_first) * Width + at, all[i].x, all[i].y);
      if (upper + 8 - neighbor_first < neighbor_count) neighbour.send((upper + 8 - neighbor_first) * Width + at, all[i].z, all[i].w);
    }
    ptx::mbarrier_wait_parity_or_trap(neighbour.there, neighbour.parity, neighbour.limit_ns);
    uint32_t const own_row = upper - this->share_.lead;
#pragma unroll
    for (uint32_t i = 0; i < kKept; ++i) {
      uint32_t const block = 2 * i + group_, at = block * 8 + token;
      auto const finish = [&](uint32_t feature, float x, float y, Element bias) {
        if (block >= kUnits || feature >= this->share_.count) return;
        float2 const more = *reinterpret_cast<float2 const*>(neighbour.sums + (feature * Width + at) * 4);
        this->put(x + more.x + float(bias), feature, at);
        this->put(y + more.y + float(bias), feature, at + 1);
      };
      finish(own_row, all[i].x, all[i].y, biases_.tiles[0].upper);
      finish(own_row + 8, all[i].z, all[i].w, biases_.tiles[0].lower);
    }
  }

 private:
  /// For warpgroups that have the complete sums of their rows.
  CUSYNC_DEVICE void finish_alone(Sum const& sums) const {
    static_assert(!AnyParams::kAttends, "no barrier follows the squares");
#pragma unroll
    for (uint32_t i = 0; i < Tiles; ++i)
#pragma unroll
      for (uint32_t b = 0; b < kBlocks; ++b) {
        float const* const v = &sums.v[i][b * 4];
        this->store(make_float4(v[0], v[1], v[2], v[3]), row(i, group_, this->thread_), b, biases_.tiles[i]);
      }
  }

  /// For warpgroups that have partial sums of the same rows: each finishes every other unit. All math threads.
  CUSYNC_DEVICE void finish_with_warpgroup(Sum const& sums) const {
    constexpr uint32_t kGiven = exchange_units(kUnits);
    uint32_t const thread = this->thread_ % 128;
    float4* const given = this->shared_.exchange() + (1 - group_) * kGiven * 128 + thread;
    float4 const* const taken = this->shared_.exchange() + group_ * kGiven * 128 + thread;
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

  /// Two adjacent units: one party keeps one and gives the other away.
  struct Pair {
    float4 kept, given;
    uint32_t row, block;  ///< position of the kept unit
    Bias<Element> bias;
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
    p.row = row(party ? odd_tile : even / kBlocks, group_, this->thread_);
    p.block = party ? odd % kBlocks : even % kBlocks;
    p.bias = party ? biases_.tiles[odd_tile] : biases_.tiles[even / kBlocks];
    p.has_kept = kept < kUnits;
    p.has_given = (kept ^ 1) < kUnits;
    return p;
  }

  /// The thread's first row in its i-th row tile; the second is 8 below.
  CUSYNC_DEVICE static uint32_t row(uint32_t i, uint32_t group, uint32_t thread) {
    return Sum::row_tile(i, group) * 64 + thread % 128 / 32 * 16 + thread % 32 / 4;
  }

  CUSYNC_DEVICE void add_and_store(Pair const& pair, float4 other) const {
    float4 const sum =
        make_float4(pair.kept.x + other.x, pair.kept.y + other.y, pair.kept.z + other.z, pair.kept.w + other.w);
    this->store(this->scaled(sum, pair.block), pair.row, pair.block, pair.bias);
  }

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
