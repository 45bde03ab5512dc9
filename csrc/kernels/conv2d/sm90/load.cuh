// SPDX-License-Identifier: MIT OR Apache-2.0
// Convolutions in a chain kernel. Load: for each block of 64 channels and class of taps one window of pixels, loaded
// once, after warp 1's signal; for each tap of the class a filter block through the ring, ahead of the signal.
// Arithmetic: WGMMA with operand A shifted by the tap.
#pragma once
#include "kernels/common/sm90/product.cuh"
#include "kernels/common/sm90/window.cuh"
#include "kernels/conv2d/sm90/turned.cuh"

namespace cusync::kernels::sm90 {

/// A k-block of a convolution: one tap of one class of a channel block. Advances without divisions, because one thread
/// does it for every k-block in addition to the copies.
struct Tap {
  uint32_t channels, index;  ///< block of channels, tap of the filter
  uint32_t place, count;     ///< among the taps of its class, which share a window
  uint32_t of_row, of_col;   ///< the class

  CUSYNC_DEVICE Tap(Window const& window, uint32_t k)
      : channels(k / window.taps), index(0), place(0), count(window.taps), of_row(0), of_col(0), col(0) {
    uint32_t const taps = k - channels * window.taps;
    if (window.classes() == 1)
      index = place = taps;
    else if (begin_class(window); taps)
      advance(window, taps);
  }
  /// Must not advance beyond the end of the class.
  CUSYNC_DEVICE void advance(Window const& window, uint32_t by = 1) {
    if (window.classes() > 1) {
#pragma unroll 1
      for (; by; --by) step(window);
    } else if (index += by, place = index; index == count) {
      index = place = 0, ++channels;
    }
  }

 private:
  uint32_t col;  ///< filter column

  CUSYNC_DEVICE void step(Window const& w) {
    index += w.stride_cols, col += w.stride_cols;
    if (++place == count) {
      if (++of_col == w.class_cols) {
        of_col = 0;
        if (++of_row == w.class_rows) of_row = 0, ++channels;
      }
      begin_class(w);
    } else if (col >= w.filter_cols) {
      index += w.stride_rows * w.filter_cols + of_col - col, col = of_col;
    }
  }
  CUSYNC_DEVICE void begin_class(Window const& w) {
    uint32_t rows = 0, cols = 0;
#pragma unroll 1
    for (uint32_t tap = of_row * w.filter_cols; tap < w.taps; tap += w.stride_rows * w.filter_cols) ++rows;
#pragma unroll 1
    for (uint32_t tap = of_col; tap < w.filter_cols; tap += w.stride_cols) ++cols;
    index = of_row * w.filter_cols + of_col, col = of_col, place = 0, count = rows * cols;
  }
};

/// The window row to which a tap shifts operand A. Also advances without divisions: two of them take the math warps
/// longer than a k-block takes the tensor cores.
struct Shift {
  uint32_t index;  ///< tap index among the taps that share the window
  uint32_t col, row, rows;

  CUSYNC_DEVICE Shift(Window const& window, uint32_t k) : index(0), col(0), row(0), rows(0), of_col(0), of_row(0), line(0) {
    if (!k) return;
    if (window.classes() > 1) {
#pragma unroll 1
      for (uint32_t taps = k % window.taps; taps; --taps) step(window);
    } else {
      index = k % window.taps, row = index / window.filter_cols, col = index - row * window.filter_cols;
      rows = row * window.pitch + col;
    }
  }
  /// Advances by taps of one filter row; by one tap if there is one window per class.
  template <bool Strided>
  CUSYNC_DEVICE void advance(Window const& window, uint32_t taps) {
    if (Strided && window.classes() > 1) return step(window);
    index += taps, col += taps, rows += taps;
    if (col == window.filter_cols) col = 0, ++row, rows += window.pitch - window.filter_cols;
    if (index == window.taps) index = row = rows = 0;
  }

 private:
  uint32_t of_col, of_row;  ///< the tap's class
  uint32_t line;            ///< `rows` of the first tap of its row

  /// The next tap is one pixel or one row of pixels further, or the first of the next class. Here `row` is the row's
  /// first tap.
  CUSYNC_DEVICE void step(Window const& w) {
    ++index, ++rows, col += w.stride_cols;
    if (col < w.filter_cols) return;
    rows = line += w.pitch, row += w.stride_rows * w.filter_cols;
    if (row >= w.taps) {
      if (++of_col == w.class_cols) {
        of_col = 0;
        if (++of_row == w.class_rows) of_row = 0;
      }
      row = of_row * w.filter_cols, index = rows = line = 0;
    }
    col = of_col;
  }
};

/// Loads the k-range of one item, in one thread. The barrier of a ring stage expects its filter block and, for the
/// first k-block of a window, the window.
struct WindowLoad {
  template <class C, class Item, class Place>
  CUSYNC_DEVICE static void load(typename C::Params const& params, typename C::SharedStorage& shared,
                                 typename C::LoadPipeline& pipeline, typename C::LoadState& state, Item const& item,
                                 ReadyReader& ready, Place const&) {
    using namespace cute;
    typename C::StageTable const& at = params.table[item.stage];
    auto& ring = shared.windows;
    // Windows of another stage have a different layout: wait until all of them have been used.
    if (ring.stage != item.stage) {
      ring.stage = item.stage, ring.next = 0, ring.window = params.windows[item.stage];
      for (uint32_t i = 0; i < ring.window.buffers; ++i) ring.free_at[i] = state.count();
    }
    // In registers: the compiler would read constant memory again for every k-block, which takes longer than the math.
    Window const window = ring.window;

    typename C::Mainloop mainloop;
    auto const views = mainloop.load_init(make_shape(kAnySize, kAnySize, kAnySize, kAnySize), at.mainloop);
    auto const slice_b = at.mainloop.tma_load_b.get_slice(0);
    Tensor const from_b = slice_b.partition_S(get<1>(views)(_, _, int(item.range.n), _, _));  // (TMA, TMA_N, TMA_K, k, tap)
    Tensor ring_b = make_tensor(make_smem_ptr(shared.operands.smem_B.data()), typename C::Mainloop::SmemLayoutB{});
    Tensor const to_b = slice_b.partition_D(ring_b);  // (TMA, TMA_N, TMA_K, stage)
    constexpr uint32_t kFilterBytes = C::kTileN * C::kTileK * sizeof(typename C::Element);

    bool const waits_b = params.stages[item.stage].produced & kProducedB;
    uint32_t const begin = item.range.k_begin, end = item.range.k_end, window_bytes = window.bytes();
    uint32_t const image = item.range.m / window.row_tiles;
    int const first_row = int((item.range.m - image * window.row_tiles) * window.rows * window.stride_rows);
    auto const next_buffer = [&](uint32_t buffer) { return buffer + 1 == window.buffers ? 0 : buffer + 1; };

    auto const copy_filter = [&](Tap const& tap, uint32_t slot, uint64_t* barrier) {
      copy(at.mainloop.tma_load_b.with(*barrier),
           from_b(_, _, _, tap.channels, tap.index), to_b(_, _, _, slot));
    };
    auto const left = [&](Tap const& tap, uint32_t k) { return min_u32(end - k, tap.count - tap.place); };
    uint32_t next = ring.next, buffer = next;  // next window to announce, next to fill
    auto const note_load = [&](uint32_t k, uint32_t operand) {
      note(params.coupling.notes, CUSYNC_EVENT_LOAD, {params.stages[item.stage].index, item.range.m, item.range.n, begin}, operand, k);
    };
    // Loads the window of k-block k's tap and of the later taps of its class: operand A of all of them. Their filter
    // blocks may have arrived already.
    auto const fill = [&](Tap const& tap, uint32_t k, typename C::LoadState const& slot) {
      uint32_t const blocks = left(tap, k);
      wait_multiplied<C>(shared, ring.free_at[buffer], slot.count());
      ring.free_at[buffer] = slot.count() + blocks;
      for (uint32_t i = 0; i < blocks; ++i) note_load(k + i, CUSYNC_OPERAND_A);
      char* const to = reinterpret_cast<char*>(shared.operands.smem_A.data()) + buffer * window.buffer_rows * 128;
      copy_window(at, window, pipeline.producer_get_barrier(slot), to, int(tap.channels * C::kTileK),
                  first_row + int(tap.of_row), int(tap.of_col), int(image * window.images));
      buffer = next_buffer(buffer);
    };

    // With tickets, request the next item while the ring still holds enough of this one to hide the latency.
    uint32_t const ask_at = !params.drawn ? end : end - begin > 4 ? end - 4 : begin;
    // Called after k-blocks [k, k + blocks).
    auto const done = [&](uint32_t k, uint32_t blocks) {
      if (ask_at - k < blocks) shared.more_work.arrive();
    };
    Tap begun(window, begin), ended = begun;
    typename C::LoadState ahead = state;
    uint32_t k = begin, ahead_k = begin;
    // Until everything may be loaded: filters as far ahead as the ring has room, windows one by one.
    bool all = ready.is_ready(end - begin - 1);
    while (!all && k < end) {
      if (ahead_k < min_u32(end, waits_b ? k + 1 : k + C::kStages) &&
          pipeline.producer_try_acquire(ahead) == cutlass::BarrierStatus::WaitDone) {
        // The first k-block that uses a window determines its place.
        bool const first = ahead_k == begin || begun.place == 0;
        if (first) ring.first_row[ahead.index()] = next * window.buffer_rows, next = next_buffer(next);
        shared.load.full_barrier_[ahead.index()].arrive_and_expect_tx(kFilterBytes + (first ? window_bytes : 0));
        if (!waits_b) copy_filter(begun, ahead.index(), pipeline.producer_get_barrier(ahead));
        begun.advance(window), ++ahead, ++ahead_k;
      }
      all = ready.is_ready(end - begin - 1);
      if (all || k == ahead_k || !ready.is_ready(k - begin)) continue;
      if (k == begin || ended.place == 0) fill(ended, k, state);
      if (waits_b) note_load(k, CUSYNC_OPERAND_B), copy_filter(ended, state.index(), pipeline.producer_get_barrier(state));
      done(k, 1);
      ended.advance(window), ++state, ++k;
    }
    // Load the windows for filters that have already been issued, at most one ring of them: one iteration per window.
#pragma unroll 1
    while (k < ahead_k) {
      uint32_t const blocks = min_u32(ahead_k - k, ended.count - ended.place);
      if (waits_b) note_load(k, CUSYNC_OPERAND_B), copy_filter(ended, state.index(), pipeline.producer_get_barrier(state));
      if (k == begin || ended.place == 0) fill(ended, k, state);
      done(k, blocks);
      ended.advance(window, blocks), state.advance(blocks), k += blocks;
    }
    // One thread does this for every k-block, so it is kept short: if possible, one wait and one copy load the filter
    // blocks of a group of taps, expected on the first one's barrier. The other barriers expect no bytes, because their
    // readers have waited for the first.
    constexpr uint32_t kStages = C::kStages;
    uint32_t slot = state.index(), phase = state.phase();
    uint32_t const before = state.count() - k;  // k-blocks of other items
    uint32_t const classes = window.classes();
    auto const barrier_of = [&](uint32_t index) { return reinterpret_cast<uint64_t*>(&shared.load.full_barrier_[index]); };
#pragma unroll 1
    while (k < end) {
      uint32_t rest = left(begun, k);  // k-blocks of the window
      if (k == begin || begun.place == 0) {
        shared.load.empty_barrier_[slot].wait(phase);
        ring.first_row[slot] = buffer * window.buffer_rows;
        shared.load.full_barrier_[slot].expect_transaction(window_bytes);
        fill(begun, k, {int(slot), phase, before + k});
      }
      for (uint32_t i = 0; waits_b && i < rest; ++i) note_load(k + i, CUSYNC_OPERAND_B);
      done(k, rest);
      k += rest;
      // Ring stages are released in order, so waiting for the last of a group covers all of it.
#pragma unroll 1
      for (; window.filter_group > 1 && rest >= kFilterGroup; rest -= kFilterGroup) {
        static_assert(kFilterGroup == 3);
        uint32_t const second = slot + 1 < kStages ? slot + 1 : 0;
        uint32_t const last = second + 1 < kStages ? second + 1 : 0, last_phase = last < slot ? phase ^ 1 : phase;
        shared.load.empty_barrier_[last].wait(last_phase);
        shared.load.full_barrier_[slot].arrive_and_expect_tx(kFilterGroup * kFilterBytes);
        if (last > slot) {
          SM90_TMA_LOAD_4D::copy(&at.filters, barrier_of(slot), static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL),
                                 raw_pointer_cast(ring_b(_, _, slot).data()), 0, int(begun.channels * C::kTileK),
                                 int(item.range.n * (C::kTileN / 64)), int(begun.index));
        } else {
          // At the ring's wrap-around, copy one by one.
          Tap tap = begun;
#pragma unroll 1
          for (uint32_t to = slot;; to = to == slot ? second : last, ++tap.index) {
            copy_filter(tap, to, barrier_of(slot));
            if (to == last) break;
          }
        }
        shared.load.full_barrier_[second].arrive();
        shared.load.full_barrier_[last].arrive();
        begun.index += kFilterGroup;
        slot = last + 1 < kStages ? last + 1 : 0, phase = slot ? last_phase : last_phase ^ 1;
      }
#pragma unroll 1
      for (; rest; --rest) {
        shared.load.empty_barrier_[slot].wait(phase);
        shared.load.full_barrier_[slot].arrive_and_expect_tx(kFilterBytes);
        copy_filter(begun, slot, barrier_of(slot));
        slot = slot + 1 < kStages ? slot + 1 : 0, phase = slot ? phase : phase ^ 1;
        if (classes > 1)
          begun.advance(window);
        else
          ++begun.index;
      }
      if (classes == 1) begun.index = begun.place = 0, ++begun.channels;
    }
    ring.next = buffer;
    state = {int(slot), phase, before + end};
    ready.finish_tile(end - begin);
  }

 private:
  /// Copies a window, starting at a pixel of the padded image.
  CUSYNC_DEVICE static void copy_window(WindowTable const& at, Window const& window, uint64_t* barrier, char* to,
                                        int channel, int row, int col, int image) {
    auto const hint = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
    cute::SM90_TMA_LOAD_4D::copy(&at.pixels, barrier, hint, to, channel, col - window.padding_cols, row - window.padding_rows, image);
    if (window.tail)
      cute::SM90_TMA_LOAD_4D::copy(&at.zeros, barrier, hint, to + window.images * window.image_slots * 128, 0,
                                   -int(window.tail), 0, 0);
  }
};

/// Products of windows and filter blocks. The tensor cores multiply a k-block of 64 x 64 in 130 cycles, in which a warp
/// executes about 30 dependent instructions; a branch takes 20 to 50 cycles, a barrier test about as many. So with
/// narrow tiles and a deep ring, three k-blocks that have arrived are multiplied together, without branches, and the
/// barriers of the next three are tested while the previous ones are multiplied.
struct WindowArithmetic {
  /// All consumer threads; `read` is the ring stage of the first k-block, and is advanced past the last.
  template <class C, class Item, class Accumulators>
  CUSYNC_DEVICE static void accumulate(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                                       typename C::LoadPipeline& loaded, typename C::LoadState& read, Accumulators& acc, int thread) {
    if constexpr (C::kTurned)
      TurnedArithmetic::accumulate<C, Shift>(params, item, shared, loaded, read, acc, thread);
    else
      multiply<C>(params, item, shared, loaded, read, acc, thread);
  }

 private:
  template <class C, class Item, class Accumulators>
  CUSYNC_DEVICE static void multiply(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                                     typename C::LoadPipeline& loaded, typename C::LoadState& read, Accumulators& acc, int thread) {
    using namespace cute;
    Window const window = params.windows[item.stage];
    typename C::TiledMma mma;
    auto const slice = mma.get_slice(__shfl_sync(~0u, thread / 128, 0) * 128);
    Tensor const shared_a = make_tensor(make_smem_ptr(shared.operands.smem_A.data()), typename C::ShiftedLayout{});
    Tensor const shared_b = make_tensor(make_smem_ptr(shared.operands.smem_B.data()), typename C::Mainloop::SmemLayoutB{});
    Tensor const a = slice.partition_fragment_A(shared_a)(_, _, _, 0);  // (MMA, MMA_M, MMA_K)
    Tensor const b = slice.partition_fragment_B(shared_b);              // (MMA, MMA_N, MMA_K, stage)
    // Descriptors are in uniform registers, and are computed there if the compiler knows that they are warp-uniform.
    auto const descriptor = [](auto const& like, uint32_t low) {
      auto to = like.data();
      to.desc_.reg32_[0] = low;
      return make_tensor(to, like.layout());
    };
    typename C::LoadState release = read;
    bool held = false;  // whether the ring stage of a multiplied k-block has yet to be released
    auto const give_back = [&] {
      if (held) {
        loaded.consumer_release(release);
        ++release;
      }
      held = false;
    };
    constexpr uint32_t kTogether = C::kStages >= 2 * kFilterGroup + 2 ? kFilterGroup : 1;
    bool there = false;  // whether the next kTogether k-blocks are known to have arrived
    auto const look = [&] {
      if constexpr (kTogether > 1) {
        bool all = true;
        typename C::LoadState ahead = read;
        // A test does not suspend the warp, unlike try_wait. Beyond an item's last k-block it tests the next item's.
#pragma unroll
        for (uint32_t i = 0; i < kTogether; ++i, ++ahead) all &= loaded.consumer_test_wait(ahead) == cutlass::BarrierStatus::WaitDone;
        there = __all_sync(~0u, all);
      }
    };
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(acc);
    Shift shift(window, item.range.k_begin);
    uint32_t first_row = 0;  // of the current window
    // Multiplies the next `Blocks` k-blocks, taps of one filter row, which have arrived.
    auto const multiply = [&](auto blocks, bool first) __attribute__((always_inline)) {
      constexpr uint32_t kBlocks = decltype(blocks)::value;
      if (first) first_row = shared.windows.first_row[read.index()];
      // 128-byte rows are contiguous, and the swizzle depends on addresses: any row may be the first. In units of 16
      // bytes.
      uint32_t const of_a = __shfl_sync(~0u, a.data().desc_.reg32_[0] + (first_row + shift.rows) * (128 / 16), 0);
      uint32_t of_b[kBlocks];
#pragma unroll
      for (uint32_t i = 0; i < kBlocks; ++i, ++read) of_b[i] = __shfl_sync(~0u, b(_, _, _, read.index()).data().desc_.reg32_[0], 0);
#pragma unroll
      for (uint32_t i = 0; i < kBlocks; ++i) {
        warpgroup_fence_operand(acc);
        warpgroup_arrive();
        Tensor const shifted = descriptor(a, of_a + i * (128 / 16));
        Tensor const filter = descriptor(b(_, _, _, 0), of_b[i]);
#pragma unroll
        for (int j = 0; j < size<2>(a); ++j) {
          cute::gemm(mma, shifted(_, _, j), filter(_, _, j), acc);
          mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        if (i + 1 == kBlocks) look(), shift.advance<kBlocks == 1>(window, kBlocks);
        warpgroup_wait<1>();
        warpgroup_fence_operand(acc);
        give_back();
        held = true;
      }
    };
    bool const in_rows = window.classes() == 1 && window.filter_cols % kTogether == 0;
#pragma unroll 1
    for (uint32_t k = item.range.k_begin, end = item.range.k_end; k < end;) {
      bool const first = k == item.range.k_begin || shift.index == 0;
      if constexpr (kTogether > 1)
        if (in_rows && shift.col % kTogether == 0 && end - k >= kTogether) {
          if (!there) loaded.consumer_wait(read), look();
          if (there) {
            multiply(std::integral_constant<uint32_t, kTogether>{}, first);
            k += kTogether;
            continue;
          }
        }
      loaded.consumer_wait(read);
      multiply(std::integral_constant<uint32_t, 1>{}, first);
      ++k;
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(acc);
    give_back();
  }
};

}  // namespace cusync::kernels::sm90
