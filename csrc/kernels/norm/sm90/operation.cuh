// SPDX-License-Identifier: MIT OR Apache-2.0
// Row normalisation in a chain kernel: out = (x - mean) / sqrt(variance + epsilon) * gain + bias, or without a mean. A tile is
// a block of whole rows, from global memory to global memory; all consumer threads share each of them.
#pragma once
#include "kernels/common/sm90/rows.cuh"

namespace cusync::kernels::sm90 {

/// A normalisation's operands and numbers.
struct NormTable {
  void const* x;
  void const* gain;
  void const* bias;  ///< or null
  void* out;
  uint32_t tile_rows, centred;
  float epsilon;
};

/// The sum over `Threads` threads of a value of each, the same bits in every thread and in every run: lanes by a butterfly,
/// then warps in order. `scratch` holds a float for each warp. Sums take two of them in turn: whoever writes to one has
/// passed the barrier of the other, which nobody reaches before he has read the first.
template <int Threads>
CUSYNC_DEVICE float sum_of(float value, float* scratch, int thread) {
#pragma unroll
  for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
  if (thread % 32 == 0) scratch[thread / 32] = value;
  ptx::bar_sync(kConsumerBarrier, Threads);
  float sum = 0.f;
#pragma unroll
  for (int warp = 0; warp < Threads / 32; ++warp) sum += scratch[warp];
  return sum;
}

template <>
struct Operation<CUSYNC_NORM> {
  static constexpr cusync_operation kOperation = CUSYNC_NORM;
  static constexpr bool kProduct = false;
  using Load = RowLoad;
  using Store = RowStore;
  using Table = NormTable;

  static Table table(cusync_stage const& stage) {
    return {data_of(stage, CUSYNC_OPERAND_A),    data_of(stage, CUSYNC_OPERAND_GAIN),
            data_of(stage, CUSYNC_OPERAND_BIAS), stage.out,
            stage.norm.tile_rows,                stage.norm.centred,
            stage.norm.epsilon};
  }

  template <class C>
  class Rows {
    using Element = typename C::Element;
    static constexpr int kThreads = C::kConsumerThreads, kElements = kRowElements;
    /// Vectors of a row that a thread keeps in registers: rows of up to 8192 elements are read once, by two warpgroups. What
    /// is longer is read again.
    static constexpr int kHeld = 4;

   public:
    CUSYNC_DEVICE Rows(typename C::Params const& params, uint32_t stage, uint32_t tile, int thread)
        : table_(static_cast<typename C::template RowTable<kOperation> const&>(params.table[stage]).table),
          vectors_(params.stages[stage].columns / kElements), thread_(thread) {
      begin_ = tile * table_.tile_rows;
      end_ = min_u32((tile + 1) * table_.tile_rows, params.stages[stage].m);
    }

    /// `scratch`: three floats a warp. A row is loaded while the one before it is summed up.
    CUSYNC_DEVICE void run(float* scratch) {
      uint4 next[kHeld];
      if (begin_ < end_) load(begin_, next);
#pragma unroll 1
      for (uint32_t row = begin_; row < end_; ++row) {
        uint4 held[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; ++i) held[i] = next[i];
        if (row + 1 < end_) load(row + 1, next);
        normalise(row, held, scratch);
      }
      ptx::fence_proxy_async_global();
    }

   private:
    /// Number of the i-th vector of the thread in a row.
    CUSYNC_DEVICE uint32_t at(int i) const { return uint32_t(thread_ + i * kThreads); }
    CUSYNC_DEVICE uint4 const* row_of(void const* matrix, uint32_t row) const {
      return static_cast<uint4 const*>(matrix) + uint64_t(row) * vectors_;
    }

    CUSYNC_DEVICE void load(uint32_t row, uint4 (&to)[kHeld]) const {
      uint4 const* const from = row_of(table_.x, row);
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (at(i) < vectors_) to[i] = __ldcg(from + at(i));
    }

    /// Calls f(vector, its number) with every vector of the thread in a row.
    template <class F>
    CUSYNC_DEVICE void each(uint32_t row, uint4 const (&held)[kHeld], F&& f) const {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (at(i) < vectors_) f(held[i], at(i));
      uint4 const* const from = row_of(table_.x, row);
#pragma unroll 1
      for (uint32_t i = at(kHeld); i < vectors_; i += kThreads) f(__ldcg(from + i), i);
    }

    CUSYNC_DEVICE void normalise(uint32_t row, uint4 const (&held)[kHeld], float* scratch) const {
      float const share = 1.f / float(vectors_ * kElements);
      float mean = 0.f, squares = 0.f;
      if (table_.centred) {
        each(row, held, [&](uint4 const& vector, uint32_t) {
          RowFloats const x = widen<Element>(vector);
#pragma unroll
          for (int e = 0; e < kElements; ++e) mean += x[e];
        });
        mean = sum_of<kThreads>(mean, scratch, thread_) * share;
      }
      // From the mean, and not from two sums: their difference would lose what a large mean leaves of it.
      each(row, held, [&](uint4 const& vector, uint32_t) {
        RowFloats const x = widen<Element>(vector);
#pragma unroll
        for (int e = 0; e < kElements; ++e) squares += (x[e] - mean) * (x[e] - mean);
      });
      // Rows that are not centred have no other sum between, so rows take turns.
      float* const turn = scratch + kThreads / 32 * (1 + row % 2);
      float const scale = rsqrtf(sum_of<kThreads>(squares, turn, thread_) * share + table_.epsilon);
      auto const to = const_cast<uint4*>(row_of(table_.out, row));
      each(row, held, [&](uint4 const& vector, uint32_t i) {
        RowFloats x = widen<Element>(vector);
        RowFloats const gain = widen<Element>(__ldg(static_cast<uint4 const*>(table_.gain) + i));
#pragma unroll
        for (int e = 0; e < kElements; ++e) x[e] = (x[e] - mean) * scale * gain[e];
        if (table_.bias) {
          RowFloats const bias = widen<Element>(__ldg(static_cast<uint4 const*>(table_.bias) + i));
#pragma unroll
          for (int e = 0; e < kElements; ++e) x[e] += bias[e];
        }
        to[i] = narrow<Element>(x);
      });
    }

    Table table_;
    uint32_t vectors_, begin_, end_;
    int thread_;
  };
};

}  // namespace cusync::kernels::sm90
