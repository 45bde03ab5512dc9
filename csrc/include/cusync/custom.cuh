// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel of a Custom stage: tiles in the plan's order, waits, posts, and access to the operands. nvcc and NVRTC
// compile it. It is launched with one-dimensional CTAs of whole warps, as large as its __launch_bounds__:
//
//   extern "C" __global__ void __launch_bounds__(256) normalize(const __grid_constant__ cusync_custom parameters) {
//     cusync::CustomStage stage(parameters);
//     while (stage.next_tile()) {
//       stage.wait(0);                    // for the box of read 0
//       ...                               // loads it, and stores the tile
//       stage.post();
//     }
//   }
//
// All threads of a CTA call next_tile, wait and post together. A CTA takes tiles until next_tile returns false. Every
// tile waits before it loads, and posts once.
#pragma once
#include "cusync/custom.h"
#include "cusync/edge.cuh"
#include "cusync/epoch.cuh"
#include "cusync/order.hpp"

// Conversions of libdevice, which every compilation links.
extern "C" __device__ float __nv_half2float(short);
extern "C" __device__ short __nv_float2half_rn(float);

namespace cusync {

/// The elements of a matrix that a tile reads or writes.
struct CustomBox {
  Range rows, cols;
};

class CustomStage {
 public:
  /// Lets kernels that wait for this one start: their tiles wait for its tiles.
  CUSYNC_DEVICE explicit CustomStage(cusync_custom const& parameters)
      : p_(parameters),
        tiles_(parameters.order.grid_m * parameters.order.grid_n),
        schedule_(parameters.tickets, tiles_, gridDim.x) {
#if CUSYNC_HAS_SM90
    if (threadIdx.x == 0) ptx::griddepcontrol_launch_dependents();
#endif
  }

  /// Takes the next tile; false if none is left. All threads are done with the previous tile when it returns.
  CUSYNC_DEVICE bool next_tile() {
    __shared__ Ticket shared;
    __syncthreads();
    if (threadIdx.x == 0) shared = p_.tickets ? schedule_.next() : Ticket{next_, 0, next_ < tiles_};
    __syncthreads();
    Ticket const ticket = shared;
    next_ += gridDim.x;
    if (!ticket.valid) {
#if CUSYNC_HAS_SM90
      // The end of this kernel may be the end of the run, so the kernels that it overlaps must have ended.
      ptx::griddepcontrol_wait();
#endif
      return false;
    }
    tile_ = tile_at(p_.order, ticket.index);
    epoch_ = ticket.epoch;
    return true;
  }

  /// Row and column of the tile in the grid.
  CUSYNC_DEVICE TileCoord tile() const { return tile_; }

  CUSYNC_DEVICE uint32_t k_blocks() const { return p_.k_blocks; }

  /// The elements of `out` in this tile.
  CUSYNC_DEVICE CustomBox box() const {
    uint32_t const row = tile_.m * p_.tile_rows, col = tile_.n * p_.tile_cols;
    return {{row, min_u32(row + p_.tile_rows, p_.rows)}, {col, min_u32(col + p_.tile_cols, p_.cols)}};
  }

  /// The elements of read number `read` that this tile reads at k-block `k`.
  CUSYNC_DEVICE CustomBox box(uint32_t read, uint32_t k = 0) const {
    cusync_edge const& e = p_.reads[read];
    return {footprint(e.rows, e.tensor_rows, tile_.m, tile_.n, k), footprint(e.cols, e.tensor_cols, tile_.m, tile_.n, k)};
  }

  /// Waits until the box of read number `read` at k-block `k` is written; call it for every k-block, in order. Its
  /// elements are then visible to all threads, but not to loads from the read-only cache (__ldg). TMA loads need
  /// ReadBy::kTma.
  template <ReadBy By = ReadBy::kLoads>
  CUSYNC_DEVICE void wait(uint32_t read, uint32_t k = 0) const {
    if (!(p_.waits >> read & 1)) return;
    if (threadIdx.x < 32) {
      WaitContext const context{p_.semaphores, epoch_, {p_.report, p_.timeout_ns, p_.index}};
      warp_wait_side_by_side<By>(p_.reads[read], tile_.m, tile_.n, k, k == 0, p_.k_blocks, context);
    }
    __syncthreads();
  }

  /// Tells the consumers that the tile is stored. A thread that stored by TMA first waits with
  /// ptx::cp_async_bulk_wait_group<0>.
  CUSYNC_DEVICE void post() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (uint32_t i = 0; i < p_.post_count; ++i) post_tile(p_.posts[i], p_.semaphores, tile_.m, tile_.n);
  }

  /// The matrix of read number `read`, for kernels that convert elements themselves.
  template <class Element>
  CUSYNC_DEVICE Element const* data(uint32_t read) const {
    return static_cast<Element const*>(p_.data[read]);
  }
  template <class Element>
  CUSYNC_DEVICE Element* out() const {
    return static_cast<Element*>(p_.out);
  }

  /// An element of read number `read`.
  CUSYNC_DEVICE float load(uint32_t read, uint32_t row, uint32_t col) const {
    uint32_t const bits = data<uint16_t>(read)[uint64_t(row) * p_.reads[read].tensor_cols + col];
    return p_.bf16 ? __uint_as_float(bits << 16) : __nv_half2float(short(bits));
  }

  /// Stores an element of `out`, rounded to nearest.
  CUSYNC_DEVICE void store(uint32_t row, uint32_t col, float value) const {
    uint16_t& to = out<uint16_t>()[uint64_t(row) * p_.cols + col];
    if (!p_.bf16) {
      to = uint16_t(__nv_float2half_rn(value));
      return;
    }
    uint32_t const bits = __float_as_uint(value);
    to = uint16_t(value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }

 private:
  cusync_custom const& p_;
  uint32_t tiles_;
  TicketSchedule schedule_;
  uint32_t next_ = blockIdx.x;
  uint32_t epoch_ = 0;
  TileCoord tile_;
};

}  // namespace cusync
