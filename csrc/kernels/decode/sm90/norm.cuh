// SPDX-License-Identifier: MIT OR Apache-2.0
// Normalization in a decode kernel: its tiles are rows, one per token, and few. A worker's math threads wait for the
// whole row, keep it in registers, reduce it and store it; workers without a row go on to the next stage, whose weights
// stream meanwhile.
#pragma once
#include "kernels/common/activation.cuh"
#include "kernels/decode/sm90/attend_config.cuh"
#include "kernels/decode/sm90/mma.cuh"
#include "kernels/decode/sm90/packed.cuh"

namespace cusync::kernels::decode {

/// This worker's rows of a normalization. All math threads.
template <class Element, class AnyParams>
class Normalising {
 public:
  CUSYNC_DEVICE Normalising(AnyParams const& p, Shared const& shared, uint32_t s)
      : p_(p), own_(attend_shared(p, shared)), stage_(p.stages[s]), norm_(p.norms[s]), s_(s), pieces_(stage_.k / 8),
        thread_(ptx::thread_id()) {}

  CUSYNC_DEVICE void run() const {
    uint32_t row = p_.workers.divide(blockIdx.x * p_.m);
    uint32_t const end = p_.workers.divide((blockIdx.x + 1) * p_.m);
    if (row == end) return;
    prefetch();
    if (stage_.waits) await(row, end);
#pragma unroll 1
    for (; row < end; ++row) normalise(row);
  }

 private:
  static constexpr uint32_t kHeld = CUSYNC_MAX_NORMED / 8 / kMathThreads;  ///< 16-byte pieces of a row per thread

  /// Prefetches gain and bias into L2: unlike the row, they come from device memory and queue behind the weights in
  /// flight.
  CUSYNC_DEVICE void prefetch() const {
    for (uint32_t piece = thread_ * (kLine / 16); piece < pieces_; piece += kMathThreads * (kLine / 16)) {
      ptx::prefetch_global_l2(reinterpret_cast<uint4 const*>(norm_.gain) + piece);
      if (norm_.bias) ptx::prefetch_global_l2(reinterpret_cast<uint4 const*>(norm_.bias) + piece);
    }
  }

  CUSYNC_DEVICE NoteOf note_of(uint32_t row) const { return {stage_.index, row, 0, 0}; }

  /// Waits for all column tiles of rows [row, end), one per thread.
  CUSYNC_DEVICE void await(uint32_t row, uint32_t end) const {
    ptx::mbarrier_wait_parity_or_trap(&own_.begun, 0, p_.limit_ns);
    uint32_t const epoch = own_.epoch;
    delay(p_.delays, DelayAt::kItem, epoch, s_, blockIdx.x, 0);
    Produced const produced = p_.produced[s_];
    Watch const watch{p_.report, p_.timeout_ns, stage_.index};
    for (uint32_t tile = thread_; tile < k_blocks(stage_.k); tile += kMathThreads) {
      uint32_t posts = stage_.posts_of(tile), slot = tile, last = tile;
      if (produced.posts) posts = produced.posts, slot = produced.first(tile), last = produced.last(tile, stage_.k);
#pragma unroll 1
      for (; slot <= last; ++slot) {
        wait_reached(stage_.waits, stage_.wait_base + slot, wait_value(epoch, posts), {stage_.edge, 0, blockIdx.x, tile}, watch);
        if (CUSYNC_DELAYS)
          for (uint32_t r = row; r < end; ++r) note(p_.notes, CUSYNC_EVENT_WAIT, note_of(r), slot, wait_value(epoch, posts));
      }
    }
    delay(p_.delays, DelayAt::kLoads, epoch, s_, blockIdx.x, 0);
    ptx::bar_sync(1, kMathThreads);
  }

  CUSYNC_DEVICE void load(char const* row, uint4 (&to)[kHeld]) const {
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      uint32_t const piece = thread_ + i * kMathThreads;
      to[i] = piece < pieces_ ? __ldcg(reinterpret_cast<uint4 const*>(row) + piece) : uint4{};
    }
  }

  /// Calls f for each piece that the thread holds.
  template <class F>
  CUSYNC_DEVICE void each(F&& f) const {
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i)
      if (uint32_t const piece = thread_ + i * kMathThreads; piece < pieces_) f(i, piece);
  }

  /// The sum over all threads, bitwise identical in each. `scratch` has one float per warp; it must not be rewritten
  /// before another barrier.
  CUSYNC_DEVICE float sum_of(float value, float* scratch) const {
#pragma unroll
    for (uint32_t step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    if (thread_ % 32 == 0) scratch[thread_ / 32] = value;
    ptx::bar_sync(1, kMathThreads);
    float sum = 0.f;
#pragma unroll
    for (uint32_t warp = 0; warp < kMathWarps; ++warp) sum += scratch[warp];
    return sum;
  }

  CUSYNC_DEVICE void trace(unsigned long long cusync_trace::* what) const {
    if (p_.trace && thread_ == 0) p_.trace[blockIdx.x * p_.stage_count + s_].*what = ptx::globaltimer();
  }

  CUSYNC_DEVICE void normalise(uint32_t row) const {
    using P = Packed<Element>;
    trace(&cusync_trace::ready);
    uint64_t const at = uint64_t(row) * stage_.k * 2;
    uint4 x[kHeld];
    if (thread_ == 0 && stage_.waits) note(p_.notes, CUSYNC_EVENT_LOAD, note_of(row), CUSYNC_OPERAND_A, 0);
    load(static_cast<char const*>(stage_.a) + at, x);
    auto const pairs = [](uint4 const& piece) { return reinterpret_cast<uint32_t const*>(&piece); };
    float mean = 0.f, squares = 0.f;
    if (norm_.centred) {
      each([&](uint32_t i, uint32_t) {
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
          float2 const two = P::values(pairs(x[i])[j]);
          mean += two.x + two.y;
        }
      });
      mean = sum_of(mean, own_.row_sums[0]) / float(stage_.k);
    }
    each([&](uint32_t i, uint32_t) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        float2 const two = P::values(pairs(x[i])[j]);
        squares += (two.x - mean) * (two.x - mean) + (two.y - mean) * (two.y - mean);
      }
    });
    trace(&cusync_trace::loaded);
    float const scale = rsqrtf(sum_of(squares, own_.row_sums[1]) / float(stage_.k) + norm_.epsilon);
    trace(&cusync_trace::math_end);
    float const one = norm_.one_plus_gain;
    each([&](uint32_t i, uint32_t piece) {
      uint4 const gain = __ldcg(reinterpret_cast<uint4 const*>(norm_.gain) + piece);
      uint4 bias{}, residual{}, y;
      // Rows of an earlier normalization are this worker's, and their pieces this thread's.
      if (norm_.residual) residual = __ldcg(reinterpret_cast<uint4 const*>(norm_.residual + at) + piece);
      if (norm_.bias) bias = __ldcg(reinterpret_cast<uint4 const*>(norm_.bias) + piece);
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        float2 const two = P::values(pairs(x[i])[j]), g = P::values(pairs(gain)[j]), b = P::values(pairs(bias)[j]);
        float2 const r = P::values(pairs(residual)[j]);
        reinterpret_cast<uint32_t*>(&y)[j] =
            P::of((two.x - mean) * scale * (g.x + one) + b.x + r.x, (two.y - mean) * scale * (g.y + one) + b.y + r.y);
      }
      *reinterpret_cast<uint4*>(static_cast<char*>(stage_.d) + at + piece * 16) = y;
    });
    if (thread_ == 0) note(p_.notes, CUSYNC_EVENT_STORE, note_of(row), 0, 0);
    ptx::bar_sync(1, kMathThreads);
    if (thread_ != 0 || !stage_.posts) return;
    if (CUSYNC_DELAYS && p_.delays.limit_ns)
      delay(p_.delays, DelayAt::kPost, ptx::ld_acquire_gpu(p_.epochs + blockIdx.x), stage_.index, row, 0);
    note(p_.notes, CUSYNC_EVENT_POST, note_of(row), 0, 1);
    post(stage_.posts, 0);
  }

  AnyParams const& p_;
  AttendShared& own_;
  Stage const& stage_;
  Normalised const& norm_;
  uint32_t s_, pieces_, thread_;
};

}  // namespace cusync::kernels::decode
