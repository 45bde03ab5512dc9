// SPDX-License-Identifier: MIT OR Apache-2.0
// From a convolution's slots to its pixels: only slots within the image have one.
#pragma once
#include "kernels/common/notes.cuh"
#include "kernels/common/sm90/window.cuh"
#include "kernels/conv2d/sm90/turned.cuh"

namespace cusync::kernels::sm90 {

/// Where a slot of a tile lies in its images.
struct Slot {
  uint32_t image, row, col;

  CUSYNC_DEVICE Slot(Window const& window, uint32_t slot) : image(slot / window.image_slots) {
    uint32_t const in_image = slot - image * window.image_slots;
    row = in_image / window.pitch, col = in_image - row * window.pitch;
  }
  CUSYNC_DEVICE void advance(Window const& window, uint32_t loaded_rows, uint32_t slots) {
    for (col += slots; col >= window.pitch; col -= window.pitch) ++row;
    for (; row >= loaded_rows; row -= loaded_rows) ++image;
  }
  /// Its pixel, counted from the tile's first one; ~0 where it has none.
  CUSYNC_DEVICE uint32_t pixel(Window const& window) const {
    bool const inside = col < window.width && row < window.rows && image < window.images;
    return inside ? (image * window.rows + row) * window.width + col : ~0u;
  }
};

/// The output pixels of a chunk of slots that begins at slot `slot` of a tile.
struct PixelRows {
  Window const& window;
  uint32_t first, slot;  ///< the tile's first pixel; the chunk's first slot
  uint32_t count;        ///< slots of the chunk

  CUSYNC_DEVICE uint32_t operator()(uint32_t row) const {
    uint32_t const pixel = row < count ? Slot(window, slot + row).pixel(window) : ~0u;
    return pixel == ~0u ? pixel : first + pixel;
  }
  /// Whether the chunk may have any.
  CUSYNC_DEVICE bool any(Stage const&) const { return count && slot < window.images * window.image_slots; }
};

/// Only rows that are pixels. Where a worker has no other tile of the stage, each warp that has made 16 rows sends them, which is sooner done
/// than by one warp; else a store warp, while the others go on.
struct PixelStore {
  template <class C, class Item>
  CUSYNC_DEVICE static PixelRows rows(typename C::Params const& params, Item const& item, uint32_t row) {
    Window const& window = params.windows[item.stage];
    uint32_t const first = item.range.m * window.tile_pixels();
    if constexpr (C::kTurned) {
      TurnedUnit const unit(window, C::kConsumerGroups, row / C::kUnitRows);
      return {window, first, unit.slot, unit.count};
    } else {
      return {window, first, row, C::kUnitRows};
    }
  }

  template <class C, class Item>
  CUSYNC_DEVICE static uint32_t columns(typename C::Params const&, Item const&) {
    return C::kTileN;
  }

  /// In a turned kernel, from a unit's sums to its staging buffer; by a warpgroup.
  template <class C>
  CUSYNC_DEVICE static void finish(Stage const& stage, PixelRows const& rows, uint32_t col, float* v, Fragment const& at,
                                   typename C::Element* buffer, uint32_t group, int thread) {
    finish_turned<typename C::Element>(stage, rows, col, v, at, buffer, group, thread);
  }

  /// Sends a staged unit to global memory; by a warpgroup, each of whose warps has staged its rows.
  template <class C, class Item, class Parts>
  CUSYNC_DEVICE static void write(typename C::Params const& params, Item const& item, Parts const& parts, PixelRows const& to, uint32_t col,
                                  typename C::Element const* staged, uint32_t epoch, uint32_t group, uint32_t unit,
                                  int thread) {
    static_assert(C::kUnitRows == 4 * kBatchRows);
    Window const window = to.window;  // in registers
    uint32_t const lane = uint32_t(thread) % 32, row = uint32_t(thread) / 32 * kBatchRows;
    Slot slot(window, to.slot + row + lane / kPieces);
    uint32_t pixels[kBatch];
    find<C>(window, slot, row + lane / kPieces, to.count, pixels);
    keep<C>(parts, row, lane, pixels);
    __syncwarp();
    mark<C>(params, item, parts, epoch, group, unit, thread == 0);
    copy<C>(params, item, to, col, staged, row, lane, pixels);
  }

  /// Sends one warpgroup's units of a tile to global memory, or follows the warpgroup that does so itself; by a whole warp, whose
  /// leader has the ring.
  template <class C, class Item, class Parts, class Ring>
  CUSYNC_DEVICE static void send(typename C::Params const& params, Item const& item, Parts const& parts,
                                 typename C::SharedStorage& shared, Ring& ring, uint32_t group, bool leader) {
    Stage const& stage = params.stages[item.stage];
    uint32_t const lane = threadIdx.x % 32, from = __ffs(int(__ballot_sync(~0u, leader))) - 1;
#pragma unroll 1
    for (uint32_t u = 0; u < C::kUnits; ++u) {
      if (!parts.owns(u)) continue;
      PixelRows const to = rows<C>(params, item, row_of_unit<C>(group, int(u)));
      uint32_t const col = item.range.n * C::kTileN + u % C::kColUnits * C::kUnitCols;
      if (!to.any(stage) || col >= stage.columns) continue;
      uint32_t index = 0;
      if (leader) index = ring.wait();
      if (!to.window.at_once) {
        Window const window = to.window;
        Slot slot(window, to.slot + lane / kPieces);
        index = __shfl_sync(~0u, index, int(from));
        __syncwarp();  // what the leader has waited for is there for all
        mark<C>(params, item, parts, shared.epoch, group, u, leader);
#pragma unroll 1
        for (uint32_t row = 0; row < C::kUnitRows; row += kBatchRows) {
          uint32_t pixels[kBatch];
          find<C>(window, slot, row + lane / kPieces, to.count, pixels);
          keep<C>(parts, row, lane, pixels);
          copy<C>(params, item, to, col, shared.staging[group][index], row, lane, pixels);
        }
        __syncwarp();
      }
      if (leader) ring.read();
    }
  }

 private:
  static constexpr uint32_t kPieces = 8;  ///< of 16 bytes, in a row of a unit
  static constexpr uint32_t kBatchRows = 16, kStep = 32 / kPieces, kBatch = kBatchRows / kStep;

  /// The pixels of a lane's rows of a batch, the first of which is row `row` of a chunk of `count`; `slot` becomes that of its first row in
  /// the next one.
  template <class C>
  CUSYNC_DEVICE static void find(Window const& window, Slot& slot, uint32_t row, uint32_t count, uint32_t (&pixels)[kBatch]) {
    uint32_t const loaded_rows = window.image_slots / window.pitch;
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      pixels[i] = row + i * kStep < count ? slot.pixel(window) : ~0u;
      slot.advance(window, loaded_rows, kStep);
    }
  }

  /// Leaves out what other parts finish of a lane's pieces.
  template <class C, class Parts>
  CUSYNC_DEVICE static void keep(Parts const& parts, uint32_t row, uint32_t lane, uint32_t (&pixels)[kBatch]) {
    if (C::kUnitShares == 1 || !parts.shares) return;
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i)
      if (!parts.owns_share(row + lane / kPieces + i * kStep, lane % kPieces)) pixels[i] = ~0u;
  }

  template <class C, class Item, class Parts>
  CUSYNC_DEVICE static void mark(typename C::Params const& params, Item const& item, Parts const& parts, uint32_t epoch, uint32_t group,
                                 uint32_t unit, bool notes) {
    delay(params.coupling.delays, DelayAt::kStore, epoch, item.stage, item.index, group * C::kUnits + unit);
    if (notes) note(params.coupling.notes, CUSYNC_EVENT_STORE, note_of(params, item), C::kUnitShares > 1 ? parts.begin : unit, group);
  }

  /// 16 rows of a unit, from row `row` on, by a warp.
  template <class C, class Item>
  CUSYNC_DEVICE static void copy(typename C::Params const& params, Item const& item, PixelRows const& to, uint32_t col,
                                 typename C::Element const* staged, uint32_t row, uint32_t lane,
                                 uint32_t const (&pixels)[kBatch]) {
    static_assert(C::kUnitCols * sizeof(typename C::Element) == 16 * kPieces);
    Stage const& stage = params.stages[item.stage];
    uint32_t const piece = lane % kPieces, rows_left = stage.m - min_u32(stage.m, to.first);
    uint4 const* const buffer = reinterpret_cast<uint4 const*>(staged);
    auto* const to_tile = static_cast<typename C::Element*>(params.table[item.stage].out) +
                          uint64_t(to.first) * stage.columns + col + piece * 8;
    uint4 values[kBatch];
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      uint32_t const at = row + lane / kPieces + i * kStep;
      values[i] = buffer[at * kPieces + (piece ^ at % 8)];
    }
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i)
      if (col + piece * 8 < stage.columns && pixels[i] < rows_left)
        *reinterpret_cast<uint4*>(to_tile + uint64_t(pixels[i]) * stage.columns) = values[i];
  }
};

}  // namespace cusync::kernels::sm90
