// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `gpt3_mlp`, inputs 0a1470caba566862. Do not edit: change the
// spec and run `cargo xtask render`.
// fp16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::gpt3_mlp {

inline constexpr uint32_t slot_count = 2;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_M = 512;
inline constexpr uint32_t dim_H = 12288;
inline constexpr uint32_t dim_I = 6144;

struct tensor_X {  // an input
  static constexpr uint32_t rows = 512, cols = 12288;
};
struct tensor_W1 {  // an input
  static constexpr uint32_t rows = 12288, cols = 6144;
};
struct tensor_Y {  // written by up
  static constexpr uint32_t rows = 512, cols = 6144;
};
struct tensor_W2 {  // an input
  static constexpr uint32_t rows = 6144, cols = 12288;
};
struct tensor_Z {  // written by down
  static constexpr uint32_t rows = 512, cols = 12288;
};

struct stage_up {  // Y = gemm, gelu of X, W1
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 512, n = 6144, k = 12288;
  static constexpr uint32_t mma_tile_m = 256, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 256, tile_cols = 128;
  static constexpr uint32_t grid_m = 2, grid_n = 48, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 192, split_k = 1;

  struct OrderDesc {  // column-major
    static constexpr cusync_order value{CUSYNC_ORDER_COLUMN_MAJOR, grid_m, grid_n, 1, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_up::OrderDesc>()), "order of up");

struct stage_down {  // Z = gemm of Y, W2
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 512, n = 12288, k = 6144;
  static constexpr uint32_t mma_tile_m = 128, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 128, tile_cols = 128;
  static constexpr uint32_t grid_m = 4, grid_n = 96, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 96, split_k = 1;

  struct OrderDesc {  // column-major
    static constexpr cusync_order value{CUSYNC_ORDER_COLUMN_MAJOR, grid_m, grid_n, 1, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_down::OrderDesc>()), "order of down");

namespace edge_descs {

struct up_to_down {
  static constexpr cusync_edge value{
        {/*grid*/ 2, 48, /*block*/ 1, 48, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 2, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 256, 128, /*tensor*/ 512, 6144, /*k_blocks*/ 96,
        /*rows: m, n, k, offset, extent*/ {128, 0, 0, 0, 128}, /*cols*/ {0, 0, 64, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// up -> down, operand a (Y): policy Row, 2 slots from 0.
using up_to_down = ::cusync::Edge<edge_descs::up_to_down>;
static_assert(0 + 2 <= slot_count, "slots of up_to_down");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::up_to_down>().policy), "slots of up_to_down");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::up_to_down>().policy), "posts of up_to_down");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::up_to_down>(), 0, 0), "waits of up_to_down");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::up_to_down>(), 3, 95), "waits of up_to_down");

}  // namespace edges

}  // namespace cusync::plans::gpt3_mlp
