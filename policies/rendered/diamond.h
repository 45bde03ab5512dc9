// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `diamond`, inputs 17bf6f9382a98ce5. Do not edit: change the
// spec and run `cargo xtask render`.
// fp16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::diamond {

inline constexpr uint32_t slot_count = 16;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_M = 512;
inline constexpr uint32_t dim_H = 1024;
inline constexpr uint32_t dim_I = 2048;

struct tensor_X {  // an input
  static constexpr uint32_t rows = 512, cols = 1024;
};
struct tensor_Wl {  // an input
  static constexpr uint32_t rows = 1024, cols = 2048;
};
struct tensor_L {  // written by left
  static constexpr uint32_t rows = 512, cols = 2048;
};
struct tensor_Wr {  // an input
  static constexpr uint32_t rows = 1024, cols = 1024;
};
struct tensor_R {  // written by right
  static constexpr uint32_t rows = 512, cols = 1024;
};
struct tensor_Wj {  // an input
  static constexpr uint32_t rows = 2048, cols = 1024;
};
struct tensor_Z {  // written by join
  static constexpr uint32_t rows = 512, cols = 1024;
};

struct stage_left {  // L = gemm, gelu of X, Wl
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 512, n = 2048, k = 1024;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 8, grid_n = 16, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 16, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_left::OrderDesc>()), "order of left");

struct stage_right {  // R = gemm of X, Wr
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 512, n = 1024, k = 1024;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 8, grid_n = 8, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 16, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_right::OrderDesc>()), "order of right");

struct stage_join {  // Z = gemm of L, Wj, R
  static constexpr uint32_t index = 2;
  static constexpr uint32_t m = 512, n = 1024, k = 2048;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 8, grid_n = 8, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 32, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_join::OrderDesc>()), "order of join");

namespace edge_descs {

struct left_to_join {
  static constexpr cusync_edge value{
        {/*grid*/ 8, 16, /*block*/ 1, 16, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 8, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 64, 128, /*tensor*/ 512, 2048, /*k_blocks*/ 32,
        /*rows: m, n, k, offset, extent*/ {64, 0, 0, 0, 64}, /*cols*/ {0, 0, 64, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

struct right_to_join {
  static constexpr cusync_edge value{
        {/*grid*/ 8, 8, /*block*/ 1, 8, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 8, /*count*/ 8, nullptr, nullptr},
        /*id*/ 1, CUSYNC_OPERAND_RESIDUAL, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 64, 128, /*tensor*/ 512, 1024, /*k_blocks*/ 32,
        /*rows: m, n, k, offset, extent*/ {64, 0, 0, 0, 64}, /*cols*/ {0, 128, 0, 0, 128}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// left -> join, operand a (L): policy Row, 8 slots from 0.
using left_to_join = ::cusync::Edge<edge_descs::left_to_join>;
static_assert(0 + 8 <= slot_count, "slots of left_to_join");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::left_to_join>().policy), "slots of left_to_join");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::left_to_join>().policy), "posts of left_to_join");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::left_to_join>(), 0, 0), "waits of left_to_join");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::left_to_join>(), 7, 7), "waits of left_to_join");

// right -> join, operand residual (R): policy Row, 8 slots from 8.
using right_to_join = ::cusync::Edge<edge_descs::right_to_join>;
static_assert(8 + 8 <= slot_count, "slots of right_to_join");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::right_to_join>().policy), "slots of right_to_join");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::right_to_join>().policy), "posts of right_to_join");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::right_to_join>(), 0, 0), "waits of right_to_join");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::right_to_join>(), 7, 7), "waits of right_to_join");

}  // namespace edges

}  // namespace cusync::plans::diamond
