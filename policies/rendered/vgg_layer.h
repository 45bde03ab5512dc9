// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `vgg_layer`, inputs 89dd82638c8fc503. Do not edit: change the
// spec and run `cargo xtask render`.
// fp16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::vgg_layer {

inline constexpr uint32_t slot_count = 75;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_B = 8;
inline constexpr uint32_t dim_HW = 14;
inline constexpr uint32_t dim_C = 256;

struct tensor_X0 {  // an input
  static constexpr uint32_t rows = 1568, cols = 256;
};
struct tensor_F1 {  // an input
  static constexpr uint32_t rows = 2304, cols = 256;
};
struct tensor_X1 {  // written by conv1
  static constexpr uint32_t rows = 1568, cols = 256;
};
struct tensor_F2 {  // an input
  static constexpr uint32_t rows = 2304, cols = 256;
};
struct tensor_X2 {  // written by conv2
  static constexpr uint32_t rows = 1568, cols = 256;
};
struct tensor_F3 {  // an input
  static constexpr uint32_t rows = 2304, cols = 256;
};
struct tensor_X3 {  // written by conv3
  static constexpr uint32_t rows = 1568, cols = 256;
};
struct tensor_F4 {  // an input
  static constexpr uint32_t rows = 2304, cols = 256;
};
struct tensor_X4 {  // written by conv4
  static constexpr uint32_t rows = 1568, cols = 256;
};

struct stage_conv1 {  // X1 = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of X0, F1
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 1568, n = 256, k = 2304;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 25, grid_n = 2, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 36, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_conv1::OrderDesc>()), "order of conv1");

struct stage_conv2 {  // X2 = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of X1, F2
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 1568, n = 256, k = 2304;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 25, grid_n = 2, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 36, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_conv2::OrderDesc>()), "order of conv2");

struct stage_conv3 {  // X3 = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of X2, F3
  static constexpr uint32_t index = 2;
  static constexpr uint32_t m = 1568, n = 256, k = 2304;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 25, grid_n = 2, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 36, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_conv3::OrderDesc>()), "order of conv3");

struct stage_conv4 {  // X4 = 3 x 3 convolution, stride 1 x 1, padding 1 x 1, relu of X3, F4
  static constexpr uint32_t index = 3;
  static constexpr uint32_t m = 1568, n = 256, k = 2304;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 25, grid_n = 2, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 36, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_conv4::OrderDesc>()), "order of conv4");

namespace edge_descs {

struct conv1_to_conv2 {
  static constexpr cusync_edge value{
        {/*grid*/ 25, 2, /*block*/ 1, 2, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 25, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 64, 128, /*tensor*/ 1568, 256, /*k_blocks*/ 36,
        /*rows: m, n, k, offset, extent*/ {64, 0, 0, -15, 94}, /*cols*/ {0, 0, 0, 0, 256}};
  static constexpr ::cusync::NoTable table{};
};

struct conv2_to_conv3 {
  static constexpr cusync_edge value{
        {/*grid*/ 25, 2, /*block*/ 1, 2, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 25, /*count*/ 25, nullptr, nullptr},
        /*id*/ 1, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 64, 128, /*tensor*/ 1568, 256, /*k_blocks*/ 36,
        /*rows: m, n, k, offset, extent*/ {64, 0, 0, -15, 94}, /*cols*/ {0, 0, 0, 0, 256}};
  static constexpr ::cusync::NoTable table{};
};

struct conv3_to_conv4 {
  static constexpr cusync_edge value{
        {/*grid*/ 25, 2, /*block*/ 1, 2, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 50, /*count*/ 25, nullptr, nullptr},
        /*id*/ 2, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 64, 128, /*tensor*/ 1568, 256, /*k_blocks*/ 36,
        /*rows: m, n, k, offset, extent*/ {64, 0, 0, -15, 94}, /*cols*/ {0, 0, 0, 0, 256}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// conv1 -> conv2, operand a (X1): policy Row, 25 slots from 0.
using conv1_to_conv2 = ::cusync::Edge<edge_descs::conv1_to_conv2>;
static_assert(0 + 25 <= slot_count, "slots of conv1_to_conv2");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::conv1_to_conv2>().policy), "slots of conv1_to_conv2");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::conv1_to_conv2>().policy), "posts of conv1_to_conv2");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::conv1_to_conv2>(), 0, 0), "waits of conv1_to_conv2");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::conv1_to_conv2>(), 24, 1), "waits of conv1_to_conv2");

// conv2 -> conv3, operand a (X2): policy Row, 25 slots from 25.
using conv2_to_conv3 = ::cusync::Edge<edge_descs::conv2_to_conv3>;
static_assert(25 + 25 <= slot_count, "slots of conv2_to_conv3");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::conv2_to_conv3>().policy), "slots of conv2_to_conv3");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::conv2_to_conv3>().policy), "posts of conv2_to_conv3");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::conv2_to_conv3>(), 0, 0), "waits of conv2_to_conv3");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::conv2_to_conv3>(), 24, 1), "waits of conv2_to_conv3");

// conv3 -> conv4, operand a (X3): policy Row, 25 slots from 50.
using conv3_to_conv4 = ::cusync::Edge<edge_descs::conv3_to_conv4>;
static_assert(50 + 25 <= slot_count, "slots of conv3_to_conv4");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::conv3_to_conv4>().policy), "slots of conv3_to_conv4");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::conv3_to_conv4>().policy), "posts of conv3_to_conv4");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::conv3_to_conv4>(), 0, 0), "waits of conv3_to_conv4");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::conv3_to_conv4>(), 24, 1), "waits of conv3_to_conv4");

}  // namespace edges

}  // namespace cusync::plans::vgg_layer
