// SPDX-License-Identifier: MIT OR Apache-2.0
// Row normalization in a chain kernel: out = (x - mean) / sqrt(variance + epsilon) * gain + bias, or without a mean. A
// tile is a block of whole rows, which teams of two consumer warps take in turn: the latency of the sums dominates the
// cost of a row, and several rows overlap. Rows come through the ring, so that as many are in flight as it holds, and
// leave as ordinary stores.
#pragma once
#include "cute/arch/copy_sm80.hpp"
#include "cute/arch/copy_sm90_tma.hpp"
#include "kernels/common/sm90/rows.cuh"

namespace cusync::kernels::sm90 {

/// A normalization's operands and constants.
struct NormTable {
  void const* x;
  void const* gain;
  void const* bias;  ///< optional
  void* out;
  uint32_t tile_rows, centred;
  float epsilon;
};

/// Layout of a stage's rows in the ring: several short rows per ring stage, so that copies are not too small; of rows
/// longer than a ring stage only the beginning. A ring stage consists of its part of operand A followed by its part of
/// operand B.
template <class C>
struct RowRing {
  static constexpr uint32_t kFirst = C::kTileM * C::kTileK * sizeof(typename C::Element),
                            kBytes = kFirst + C::kTileN * C::kTileK * sizeof(typename C::Element);
  uint32_t row_bytes, rows;  ///< bytes of a row in the ring; rows per ring stage

  CUSYNC_DEVICE explicit RowRing(uint32_t columns)
      : row_bytes(min_u32(columns * sizeof(typename C::Element), kBytes)),
        rows(row_bytes < kFirst ? kFirst / row_bytes : 1) {}

  /// Address of byte `at` of ring stage `stage`.
  CUSYNC_DEVICE static char* byte(typename C::SharedStorage& shared, uint32_t stage, uint32_t at) {
    char* const a = reinterpret_cast<char*>(shared.operands.smem_A.data()) + stage * kFirst;
    char* const b = reinterpret_cast<char*>(shared.operands.smem_B.data()) + stage * (kBytes - kFirst);
    return at < kFirst ? a + at : b + (at - kFirst);
  }
};

/// Threads per team, and the named barrier of the first team: lower numbers belong to the warpgroups and
/// `kConsumerBarrier`.
inline constexpr int kTeamThreads = 64;
inline constexpr uint32_t kTeamBarrier = kConsumerBarrier + 1;

/// Copies a tile's rows to the ring.
struct NormLoad {
  template <class C, class Item, class Place>
  CUSYNC_DEVICE static void load(typename C::Params const& params, typename C::SharedStorage& shared,
                                 typename C::LoadPipeline& pipeline, typename C::LoadState& state, Item const& item,
                                 ReadyReader& ready, Place const&) {
    Stage const& stage = params.stages[item.stage];
    NormTable const& table = static_cast<typename C::template RowTable<CUSYNC_NORM> const&>(params.table[item.stage]).table;
    RowRing<C> const ring(stage.columns);
    uint32_t const end = min_u32((item.range.m + 1) * table.tile_rows, stage.m);
    uint64_t const stride = uint64_t(stage.columns) * sizeof(typename C::Element);
    while (!ready.is_ready(0)) {
    }
    note(params.coupling.notes, CUSYNC_EVENT_LOAD, {stage.index, item.range.m, item.range.n, item.range.k_begin},
         CUSYNC_OPERAND_A, 0);
#pragma unroll 1
    for (uint32_t row = item.range.m * table.tile_rows; row < end; row += ring.rows, ++state) {
      char const* const from = static_cast<char const*>(table.x) + row * stride;
      uint32_t const bytes = min_u32(ring.rows, end - row) * ring.row_bytes, first = min_u32(bytes, RowRing<C>::kFirst);
      shared.load.empty_barrier_[state.index()].wait(state.phase());
      shared.load.full_barrier_[state.index()].arrive_and_expect_tx(bytes);
      auto* const barrier = pipeline.producer_get_barrier(state);
      cute::SM90_BULK_COPY_G2S::copy(from, barrier, RowRing<C>::byte(shared, state.index(), 0), int(first));
      if (bytes > first)
        cute::SM90_BULK_COPY_G2S::copy(from + first, barrier, RowRing<C>::byte(shared, state.index(), first), int(bytes - first));
    }
    if (params.drawn) shared.more_work.arrive();
    ready.finish_tile(item.range.k_end - item.range.k_begin);
  }
};

template <>
struct Operation<CUSYNC_NORM> {
  static constexpr cusync_operation kOperation = CUSYNC_NORM;
  static constexpr bool kProduct = false;
  using Load = NormLoad;
  using Store = RowStore;
  using Table = NormTable;

  static Table table(cusync_stage const& stage) {
    return {data_of(stage, CUSYNC_OPERAND_A),    data_of(stage, CUSYNC_OPERAND_GAIN),
            data_of(stage, CUSYNC_OPERAND_BIAS), stage.out,
            stage.tiles.rows,                    stage.shape.norm.centred,
            stage.shape.norm.epsilon};
  }

  template <class C>
  class Rows {
    using Element = typename C::Element;
    static constexpr int kThreads = C::kConsumerThreads, kElements = kRowElements, kTeams = kThreads / kTeamThreads;
    static_assert(kTeamBarrier + kTeams <= 16, "an SM has 16 barriers for a CTA");
    static constexpr uint32_t kBytes = kElements * sizeof(Element);  ///< per vector
    /// Vectors of gain and bias kept across rows, in the staging buffers, which hold no outputs then: this many per
    /// thread. L1 would not keep them: the polls of the warp that waits for the next item invalidate it.
    static constexpr uint32_t kKept = C::kStagingDepth * C::kUnitElements / kElements / 128;

   public:
    template <class Item>
    CUSYNC_DEVICE Rows(typename C::Params const& params, Item const& item, int thread)
        : table_(static_cast<typename C::template RowTable<kOperation> const&>(params.table[item.stage]).table),
          vectors_(params.stages[item.stage].columns / kElements), thread_(thread) {
      begin_ = item.range.m * table_.tile_rows;
      end_ = min_u32(begin_ + table_.tile_rows, params.stages[item.stage].m);
    }

    /// `mark` is called when the first rows have arrived.
    template <class Item, class Mark>
    CUSYNC_DEVICE void run(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                           typename C::LoadPipeline& loaded, typename C::LoadState& state, Mark&& mark) {
      keep(shared);
      ptx::bar_sync(kConsumerBarrier, kThreads);
      RowRing<C> const ring(params.stages[item.stage].columns);
      uint32_t const team = uint32_t(thread_) / kTeamThreads;
      uint32_t sums = 0;
#pragma unroll 1
      for (uint32_t row = begin_, next = 0; row < end_; ++row) {
        // Wait for other teams' rows too: a consumer that releases a ring stage in every phase must release it exactly
        // once per phase.
        if (next == 0) loaded.consumer_wait(state);
        if (row == begin_) mark();
        if ((row - begin_) % kTeams == team)
          normalise({shared, uint32_t(state.index()), next * ring.row_bytes, ring.row_bytes / kBytes, row}, sums);
        if (++next == ring.rows || row + 1 == end_) {
          loaded.consumer_release(state);
          ++state, next = 0;
        }
      }
      ptx::fence_proxy_async_global();
      ptx::fence_proxy_async_shared_cta();  // order the kept vectors before bulk copies of residuals
      // Without this barrier a warp could run items ahead of another: its next sums, queries or outputs would overwrite
      // data that the slower warp still reads, such as the sums of this item's last row or the kept vectors.
      ptx::bar_sync(kConsumerBarrier, kThreads);
    }

   private:
    /// A row, its position in the ring, and the number of its vectors there. They are re-read from shared memory each
    /// time: registers are reserved for products.
    struct Row {
      typename C::SharedStorage& shared;
      uint32_t slot, first, vectors, number;
    };
    CUSYNC_DEVICE uint4 const* row_of(void const* matrix, uint32_t row) const {
      return static_cast<uint4 const*>(matrix) + uint64_t(row) * vectors_;
    }

    /// Address of the kept vector `i`, in the array that begins at the `first`th vector of each thread. A warpgroup
    /// fills its own buffers, after acquiring them.
    CUSYNC_DEVICE static uint4* kept(typename C::SharedStorage& shared, uint32_t first, uint32_t i) {
      uint32_t const thread = i % kThreads;
      return reinterpret_cast<uint4*>(shared.staging[thread / 128][0]) + (first + i / kThreads) * 128 + thread % 128;
    }

    // An item's code runs about once per launch, and weights have evicted it from L2 since it ran last. Instruction
    // fetch therefore dominates, and loops that are not unrolled are faster.

    CUSYNC_DEVICE void keep(typename C::SharedStorage& shared) const {
      uint32_t const some = table_.bias ? kKept / 2 : kKept;
#pragma unroll 1
      for (uint32_t j = 0; j < kKept; ++j) {
        uint32_t const i = thread_ + j % some * kThreads;
        void const* const from = j < some ? table_.gain : table_.bias;
        uint32_t const to = cute::cast_smem_ptr_to_uint(kept(shared, j - j % some, i));
        ptx::cp_async_16_or_zero(to, static_cast<uint4 const*>(from) + i, i < vectors_);
      }
      for (uint32_t i = some * kThreads + thread_; i < vectors_; i += kThreads) {
        ptx::prefetch_global_l2(static_cast<uint4 const*>(table_.gain) + i);
        if (table_.bias) ptx::prefetch_global_l2(static_cast<uint4 const*>(table_.bias) + i);
      }
      cute::cp_async_fence();
      cute::cp_async_wait<0>();
    }

    CUSYNC_DEVICE uint4 vector_of(Row const& row, uint32_t i) const {
      if (i < row.vectors) return ptx::ld_shared_v4(RowRing<C>::byte(row.shared, row.slot, row.first + i * kBytes));
      return __ldcg(row_of(table_.x, row.number) + i);
    }

    /// Calls f(vector, index) for each of the thread's vectors among the first `count` of a row.
    template <class F>
    CUSYNC_DEVICE void each(Row const& row, uint32_t count, F&& f) const {
#pragma unroll 1
      for (uint32_t i = uint32_t(thread_) % kTeamThreads; i < count; i += kTeamThreads) f(vector_of(row, i), i);
    }

    /// Sums one value per thread over the team; bitwise identical in all threads and runs: a butterfly over lanes, then
    /// warps in order. A team's sums alternate between two places: a thread that writes to one has passed the barrier
    /// of the other, which no thread reaches before it has read the first. Every item ends with a barrier of all
    /// consumer threads.
    CUSYNC_DEVICE float sum_of_team(float value, typename C::SharedStorage& shared, uint32_t& sums) const {
      constexpr int warps = kTeamThreads / 32;
      uint32_t const team = uint32_t(thread_) / kTeamThreads;
      float* const scratch = shared.row_sums + (sums++ % 2 * kTeams + team) * warps;
#pragma unroll
      for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
      if (thread_ % 32 == 0) scratch[thread_ % kTeamThreads / 32] = value;
      ptx::bar_sync(kTeamBarrier + team, kTeamThreads);
      float sum = 0.f;
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) sum += scratch[warp];
      return sum;
    }

    /// The mean, over the elements x of a row, of x - from or, if `squared`, of its square. Each position of a vector
    /// has its own sum, so that additions do not depend on each other.
    CUSYNC_DEVICE float mean_of(Row const& row, uint32_t& sums, float from, bool squared) const {
      RowFloats by_place;
      by_place.clear();
      each(row, vectors_, [&](uint4 const& vector, uint32_t) {
        RowFloats const x = widen<Element>(vector);
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          float const apart = x[e] - from;
          by_place[e] += squared ? apart * apart : apart;
        }
      });
      float sum = 0.f;
#pragma unroll
      for (int e = 0; e < kElements; ++e) sum += by_place[e];
      return sum_of_team(sum, row.shared, sums) / float(vectors_ * kElements);
    }

    CUSYNC_DEVICE void normalise(Row const& row, uint32_t& sums) const {
      // Two passes, because the difference of two sums would lose precision if the mean is large.
      float mean = 0.f, variance;
#pragma unroll 1
      for (bool squared = !table_.centred;; squared = true) {
        float const found = mean_of(row, sums, mean, squared);
        if (squared) {
          variance = found;
          break;
        }
        mean = found;
      }
      float const scale = rsqrtf(variance + table_.epsilon);
      auto const to = const_cast<uint4*>(row_of(table_.out, row.number));
      auto const finish = [&](uint4 const& vector, uint4 const& gains, uint4 const& biases, uint32_t i) {
        RowFloats x = widen<Element>(vector);
        RowFloats const gain = widen<Element>(gains), bias = widen<Element>(biases);
#pragma unroll
        for (int e = 0; e < kElements; ++e) x[e] = (x[e] - mean) * scale * gain[e] + bias[e];
        to[i] = narrow<Element>(x);
      };
      uint32_t const some = table_.bias ? kKept / 2 : kKept, kept_vectors = min_u32(vectors_, some * kThreads);
      each(row, kept_vectors, [&](uint4 const& vector, uint32_t i) {
        uint4 const gains = ptx::ld_shared_v4(kept(row.shared, 0, i));
        finish(vector, gains, table_.bias ? ptx::ld_shared_v4(kept(row.shared, some, i)) : uint4{}, i);
      });
      // The rest comes from far away, so keep several loads in flight.
      constexpr uint32_t kTogether = 4;
#pragma unroll 1
      for (uint32_t begin = kept_vectors + uint32_t(thread_) % kTeamThreads; begin < vectors_; begin += kTogether * kTeamThreads) {
        uint4 gains[kTogether], biases[kTogether];
#pragma unroll
        for (uint32_t j = 0; j < kTogether; ++j) {
          uint32_t const i = min_u32(begin + j * kTeamThreads, vectors_ - 1);
          gains[j] = __ldg(static_cast<uint4 const*>(table_.gain) + i);
          biases[j] = table_.bias ? __ldg(static_cast<uint4 const*>(table_.bias) + i) : uint4{};
        }
#pragma unroll
        for (uint32_t j = 0; j < kTogether; ++j)
          if (uint32_t const i = begin + j * kTeamThreads; i < vectors_) finish(vector_of(row, i), gains[j], biases[j], i);
      }
    }

    Table table_;
    uint32_t vectors_, begin_, end_;
    int thread_;
  };
};

}  // namespace cusync::kernels::sm90
