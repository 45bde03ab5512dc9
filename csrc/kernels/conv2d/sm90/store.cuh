// SPDX-License-Identifier: MIT OR Apache-2.0
// From a convolution's slots to its pixels: only slots inside the image have one.
#pragma once
#include "kernels/common/notes.cuh"
#include "cute/arch/copy_sm80.hpp"
#include "kernels/common/sm90/wait.cuh"
#include "kernels/common/sm90/window.cuh"
#include "kernels/conv2d/sm90/turned.cuh"

namespace cusync::kernels::sm90 {

/// The pixel of a slot, relative to the first of its tile; kNoPixel if it has none. Quotients of small numbers, which
/// are exact in float: integer divisions take three times as long.
CUSYNC_DEVICE uint16_t pixel_of(Window const& window, uint32_t slot) {
  auto const over = [](uint32_t n, uint32_t by) { return uint32_t((float(n) + 0.5f) * ptx::rcp_approx_ftz(float(by))); };
  uint32_t const image = over(slot, window.image_slots), in_image = slot - image * window.image_slots;
  uint32_t const row = over(in_image, window.pitch), col = in_image - row * window.pitch;
  bool const inside = col < window.width && row < window.rows && image < window.images;
  return uint16_t(inside ? (image * window.rows + row) * window.width + col : kNoPixel);
}

/// The output pixels of a unit's rows, which are slots of a tile.
struct PixelRows {
  uint16_t const* pixels;  ///< pixel per row, for consumers
  uint32_t first;          ///< the tile's first pixel
  bool some;               ///< whether any row may have a pixel
  void* const* out;        ///< the stage's output, per consumer warp

  CUSYNC_DEVICE uint32_t operator()(uint32_t row) const { return pixels[row] == kNoPixel ? ~0u : first + pixels[row]; }
  CUSYNC_DEVICE bool any(Stage const&) const { return some; }
};

/// Stores only rows that are pixels, from the warps that compute them: one store warp per warpgroup took as long for a
/// tile as the math. The store warp only posts.
struct PixelStore {
  template <class C, class Item>
  CUSYNC_DEVICE static PixelRows rows(typename C::Params const& params, Item const& item, uint32_t row,
                                      typename C::SharedStorage const& shared) {
    Window const& window = params.windows[item.stage];
    TurnedUnit const unit = slots<C>(window, row);
    return {shared.windows.pixels + row, item.range.m * window.tile_pixels(),
            unit.count && unit.slot < window.images * window.image_slots, shared.windows.out};
  }

  /// Computes the destinations of the rows that a warp stores, which are the same for all tiles of a stage: loading or
  /// computing them per tile would take as long as 64 channels of the tile's products. One warpgroup.
  template <class C, class Item>
  CUSYNC_DEVICE static void find(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared, uint32_t group,
                                 int thread) {
    uint32_t const lane = uint32_t(thread) % 32, warp = uint32_t(thread) / 32;
    uint8_t& found = shared.windows.pixels_of[4 * group + warp];
    if (found == item.stage) return;
    __syncwarp();  // lanes may still read the previous stage's entries
    Window const window = params.windows[item.stage];
    static_assert(C::kRowUnits * kBatchRows <= 32 && C::kUnitRows == 4 * kBatchRows);
    if (lane < C::kRowUnits * kBatchRows) {
      uint32_t const in_unit = warp * kBatchRows + lane % kBatchRows, row = row_of_unit<C>(group, int(lane / kBatchRows * C::kColUnits));
      TurnedUnit const unit = slots<C>(window, row);
      shared.windows.pixels[row + in_unit] = in_unit < unit.count ? pixel_of(window, unit.slot + in_unit) : uint16_t(kNoPixel);
    }
    __syncwarp();
    if (lane == 0) found = uint8_t(item.stage), shared.windows.out[4 * group + warp] = params.table[item.stage].out;
    __syncwarp();
  }

  /// Starts copying the residual of the units that this part owns to the buffers of these units, while the item is
  /// multiplied; one warpgroup. The item's loads wait for the tiles of the residual, too, at their start.
  template <class C, class Item, class Parts>
  CUSYNC_DEVICE static void bring(typename C::Params const& params, Item const& item, Parts const& parts, typename C::SharedStorage& shared,
                                  typename C::StagingPipeline& staged, cutlass::PipelineState<C::kStagingDepth> next, uint32_t group,
                                  int thread) {
    using Element = typename C::Element;
    static_assert(C::kUnits <= C::kStagingDepth);
    Stage const& stage = params.stages[item.stage];
    if (thread == 0) {
      ReadyReader ready(&shared.ready, item.done);
      while (!ready.is_ready(0)) ptx::nanosleep(20);
      if (stage.produced & kProducedResidual) note(params.coupling.notes, CUSYNC_EVENT_LOAD, note_of(params, item), CUSYNC_OPERAND_RESIDUAL, group);
    }
    ptx::bar_sync(8 + group, 128);
    uint32_t const piece = uint32_t(thread) % kPieces;
#pragma unroll 1
    for (uint32_t u = 0; u < C::kUnits; ++u) {
      uint32_t const row_begin = row_of_unit<C>(group, int(u));
      uint32_t const col = item.range.n * C::kTileN + u % C::kColUnits * C::kUnitCols, channel = col + piece * 8;
      PixelRows const to = rows<C>(params, item, row_begin, shared);
      if (!parts.owns(u) || !to.any(stage) || col >= stage.columns) continue;
      staged.producer_acquire(next);
      uint4* const buffer = reinterpret_cast<uint4*>(shared.staging[group][next.index()]);
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
        uint32_t const row = row_of(thread, i), pixel = to(row);
        if (pixel < stage.m && channel < stage.columns)
          cute::SM80_CP_ASYNC_CACHEGLOBAL<uint4>::copy(
              *reinterpret_cast<uint4 const*>(static_cast<Element const*>(stage.residual) + uint64_t(pixel) * stage.columns + channel),
              buffer[row * kPieces + (piece ^ row % 8)]);
      }
      ++next;
    }
  }

  /// In a turned kernel, stores the sums of the units that this part owns to global memory; one warpgroup.
  template <class C, class Item, class Parts, class Sums>
  CUSYNC_DEVICE static void finish(typename C::Params const& params, Item const& item, Parts const& parts, uint32_t epoch, Sums& sums,
                                   typename C::SharedStorage& shared, typename C::StagingPipeline& staged,
                                   cutlass::PipelineState<C::kStagingDepth>& state, uint32_t group, int thread) {
    using Element = typename C::Element;
    static_assert(C::kUnits <= C::kStagingDepth && C::kColUnits == 1);
    Stage const& stage = params.stages[item.stage];
    Fragment const at(thread);
    uint32_t const col = item.range.n * C::kTileN;
    bool mine[C::kUnits];
    Element* buffers[C::kUnits];
    auto next = state;
    auto const each = [&](auto&& f) {
#pragma unroll
      for (uint32_t u = 0; u < C::kUnits; ++u)
        if (mine[u]) f(u, rows<C>(params, item, row_of_unit<C>(group, int(u)), shared), buffers[u]);
    };
#pragma unroll
    for (uint32_t u = 0; u < C::kUnits; ++u) {
      mine[u] = parts.owns(u) && rows<C>(params, item, row_of_unit<C>(group, int(u)), shared).any(stage);
      if (!mine[u]) continue;
      staged.producer_acquire(next);
      buffers[u] = shared.staging[group][next.index()];
      ++next;
    }
    if (stage.residual) {
      cute::cp_async_wait<0>();
      ptx::bar_sync(8 + group, 128);
    }
#pragma unroll
    for (uint32_t u = 0; u < C::kUnits; ++u)
      if (mine[u]) finish_turned<Element>(stage, col, sums.values[u], at, buffers[u]);
    ptx::bar_sync(8 + group, 128);  // each warp has staged 16 columns of all rows
    each([&](uint32_t u, PixelRows const& to, Element* buffer) {
      write<C>(params, item, parts, to, col, buffer, epoch, group, u, thread);
    });
    each([&](uint32_t, PixelRows const&, Element*) {
      staged.producer_commit(state);
      ++state;
    });
  }

  /// Stores a staged unit to global memory; one warpgroup, 16 staged rows per warp.
  template <class C, class Item, class Parts>
  CUSYNC_DEVICE static void write(typename C::Params const& params, Item const& item, Parts const& parts, PixelRows const& to, uint32_t col,
                                  typename C::Element const* staged, uint32_t epoch, uint32_t group, uint32_t unit, int thread) {
    static_assert(C::kUnitCols * sizeof(typename C::Element) == 16 * kPieces);
    delay(params.coupling.delays, DelayAt::kStore, epoch, item.stage, item.index, group * C::kUnits + unit);
    if (thread == 0) note(params.coupling.notes, CUSYNC_EVENT_STORE, note_of(params, item), C::kUnitShares > 1 ? parts.begin : unit, group);
    Stage const& stage = params.stages[item.stage];
    uint32_t const piece = uint32_t(thread) % kPieces, channel = col + piece * 8;
    uint32_t const rows_left = channel < stage.columns ? min_u32(stage.m - min_u32(stage.m, to.first), kNoPixel) : 0;
    uint4 const* const buffer = reinterpret_cast<uint4 const*>(staged);
    auto* const to_tile = static_cast<typename C::Element*>(to.out[4 * group + uint32_t(thread) / 32]) + uint64_t(to.first) * stage.columns + channel;
    uint4 values[kBatch];
    uint32_t pixels[kBatch];
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      uint32_t const row = row_of(thread, i);
      values[i] = buffer[row * kPieces + (piece ^ row % 8)], pixels[i] = to.pixels[row];
      // Skip shares that other parts finish.
      if (C::kUnitShares > 1 && parts.shares && !parts.owns_share(row, piece)) pixels[i] = kNoPixel;
    }
    // One instruction each: the compiler splits plain stores into four, and the tile waits for them.
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i)
      if (pixels[i] < rows_left) __stwb(reinterpret_cast<uint4*>(to_tile + uint64_t(pixels[i]) * stage.columns), values[i]);
  }

  /// Waits until a warpgroup has stored its units of a tile, before the tile is posted.
  template <class C, class Item, class Parts, class Ring>
  CUSYNC_DEVICE static void send(typename C::Params const& params, Item const& item, Parts const& parts,
                                 typename C::SharedStorage& shared, Ring& ring, uint32_t group, bool leader) {
    if (!leader) return;
    Stage const& stage = params.stages[item.stage];
#pragma unroll 1
    for (uint32_t u = 0; u < C::kUnits; ++u) {
      if (!parts.owns(u) || !rows<C>(params, item, row_of_unit<C>(group, int(u)), shared).any(stage)) continue;
      if (item.range.n * C::kTileN + u % C::kColUnits * C::kUnitCols >= stage.columns) continue;
      ring.wait();
      ring.read();
    }
  }

 private:
  static constexpr uint32_t kPieces = 8;  ///< 16-byte pieces per row of a unit
  static constexpr uint32_t kBatchRows = 16, kStep = 32 / kPieces, kBatch = kBatchRows / kStep;

  /// The unit row of a thread's i-th piece.
  CUSYNC_DEVICE static uint32_t row_of(int thread, uint32_t i) {
    return uint32_t(thread) / 32 * kBatchRows + uint32_t(thread) % 32 / kPieces + i * kStep;
  }

  /// The slots of the unit at row `row` of a tile.
  template <class C>
  CUSYNC_DEVICE static TurnedUnit slots(Window const& window, uint32_t row) {
    if constexpr (C::kTurned)
      return {window, C::kConsumerGroups, row / C::kUnitRows};
    else
      return {row, C::kUnitRows};
  }
};

}  // namespace cusync::kernels::sm90
