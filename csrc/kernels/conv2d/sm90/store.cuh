// SPDX-License-Identifier: MIT OR Apache-2.0
// From a convolution's slots to its pixels: only slots within the image have one.
#pragma once
#include "kernels/common/delays.cuh"
#include "kernels/common/sm90/window.cuh"

namespace cusync::kernels::sm90 {

/// The output pixels of a chunk of slots that begins at slot `slot` of a tile.
struct PixelRows {
  Window const& window;
  uint32_t first, slot;  ///< the tile's first pixel; the chunk's first slot

  CUSYNC_DEVICE uint32_t operator()(uint32_t row) const {
    uint32_t const at = slot + row, image = at / window.image_slots, in_image = at - image * window.image_slots;
    uint32_t const p = in_image / window.pitch, q = in_image - p * window.pitch;
    bool const inside = q < window.width && p < window.rows && image < window.images;
    return inside ? first + (image * window.rows + p) * window.width + q : ~0u;
  }
  /// Whether the chunk may have any.
  CUSYNC_DEVICE bool any(Stage const&) const { return slot < window.images * window.image_slots; }
};

/// Only rows that are pixels, by the threads of a store warp.
struct PixelStore {
  template <class C, class Item>
  CUSYNC_DEVICE static PixelRows rows(typename C::Params const& params, Item const& item, uint32_t row) {
    Window const& window = params.windows[item.stage];
    return {window, item.range.m * window.tile_pixels(), row};
  }

  /// Sends one warpgroup's units of a tile to global memory; by a whole warp, whose leader has the ring.
  template <class C, class Item, class Parts, class Ring>
  CUSYNC_DEVICE static void send(typename C::Params const& params, Item const& item, Parts const& parts,
                                 typename C::SharedStorage& shared, Ring& ring, uint32_t group, bool leader) {
    using Element = typename C::Element;
    constexpr uint32_t kPieces = 8;  // of 16 bytes, in a row of a unit
    Stage const& stage = params.stages[item.stage];
    Element* const out = static_cast<Element*>(params.table[item.stage].out);
    uint32_t const lane = threadIdx.x % 32, from = __ffs(int(__ballot_sync(~0u, leader))) - 1, piece = lane % kPieces;
#pragma unroll 1
    for (uint32_t u = 0; u < C::kUnits; ++u) {
      if (!parts.owns(u)) continue;
      PixelRows const to = rows<C>(params, item, (u / C::kColUnits * C::kConsumerGroups + group) * C::kUnitRows);
      uint32_t const col = item.range.n * C::kTileN + u % C::kColUnits * C::kUnitCols;
      if (!to.any(stage) || col >= stage.columns) continue;
      uint32_t index = 0;
      if (leader) index = ring.wait();
      index = __shfl_sync(~0u, index, int(from));
      __syncwarp();  // what the leader has waited for is there for all
      delay(params.coupling.delays, DelayAt::kStore, shared.epoch, item.stage, item.index, group * C::kUnits + u);
      uint4 const* const buffer = reinterpret_cast<uint4 const*>(shared.staging[group][index]);
#pragma unroll 4
      for (uint32_t row = lane / kPieces; row < C::kUnitRows; row += 32 / kPieces) {
        uint32_t const pixel = to(row);
        if (pixel < stage.m && col + piece * 8 < stage.columns)
          *reinterpret_cast<uint4*>(out + uint64_t(pixel) * stage.columns + col + piece * 8) =
              buffer[row * kPieces + (piece ^ row % 8)];
      }
      __syncwarp();
      if (leader) ring.read();
    }
  }
};

}  // namespace cusync::kernels::sm90
