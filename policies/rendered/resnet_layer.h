// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `resnet_layer`, inputs 5284f56f63902195. Do not edit: change the
// spec and run `cargo xtask render`.
// fp16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::resnet_layer {

inline constexpr uint32_t slot_count = 196;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_B = 8;
inline constexpr uint32_t dim_HW = 56;
inline constexpr uint32_t dim_C = 64;

struct tensor_X {  // an input
  static constexpr uint32_t rows = 25088, cols = 64;
};
struct tensor_F1 {  // an input
  static constexpr uint32_t rows = 576, cols = 64;
};
struct tensor_Y {  // written by first
  static constexpr uint32_t rows = 25088, cols = 64;
};
struct tensor_F2 {  // an input
  static constexpr uint32_t rows = 576, cols = 64;
};
struct tensor_Z {  // written by second
  static constexpr uint32_t rows = 25088, cols = 64;
};

struct stage_first {  // Y = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of X, F1
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 25088, n = 64, k = 576;
  static constexpr uint32_t mma_tile_m = 128, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 128, tile_cols = 128;
  static constexpr uint32_t grid_m = 196, grid_n = 1, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 9, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_first::OrderDesc>()), "order of first");

struct stage_second {  // Z = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of Y, F2
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 25088, n = 64, k = 576;
  static constexpr uint32_t mma_tile_m = 128, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 128, tile_cols = 128;
  static constexpr uint32_t grid_m = 196, grid_n = 1, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 9, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_second::OrderDesc>()), "order of second");

namespace edge_descs {

struct first_to_second {
  static constexpr cusync_edge value{
        {/*grid*/ 196, 1, /*block*/ 1, 1, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 196, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 128, 128, /*tensor*/ 25088, 64, /*k_blocks*/ 9,
        /*rows: m, n, k, offset, extent*/ {128, 0, 0, -57, 242}, /*cols*/ {0, 0, 0, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// first -> second, operand a (Y): policy Row, 196 slots from 0.
using first_to_second = ::cusync::Edge<edge_descs::first_to_second>;
static_assert(0 + 196 <= slot_count, "slots of first_to_second");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::first_to_second>().policy), "slots of first_to_second");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::first_to_second>().policy), "posts of first_to_second");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::first_to_second>(), 0, 0), "waits of first_to_second");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::first_to_second>(), 195, 0), "waits of first_to_second");

}  // namespace edges

}  // namespace cusync::plans::resnet_layer
