// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `chain3`, inputs f2693629f0dacfbe. Do not edit: change the
// spec and run `cargo xtask render`.
// fp16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::chain3 {

inline constexpr uint32_t slot_count = 20;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_M = 512;
inline constexpr uint32_t dim_H = 2048;
inline constexpr uint32_t dim_I = 1024;

struct tensor_X {  // an input
  static constexpr uint32_t rows = 512, cols = 2048;
};
struct tensor_W0 {  // an input
  static constexpr uint32_t rows = 2048, cols = 2048;
};
struct tensor_b0 {  // an input
  static constexpr uint32_t rows = 1, cols = 2048;
};
struct tensor_P {  // written by project
  static constexpr uint32_t rows = 512, cols = 2048;
};
struct tensor_W1 {  // an input
  static constexpr uint32_t rows = 2048, cols = 1024;
};
struct tensor_b1 {  // an input
  static constexpr uint32_t rows = 1, cols = 1024;
};
struct tensor_Y {  // written by up
  static constexpr uint32_t rows = 512, cols = 1024;
};
struct tensor_W2 {  // an input
  static constexpr uint32_t rows = 1024, cols = 2048;
};
struct tensor_Z {  // written by down
  static constexpr uint32_t rows = 512, cols = 2048;
};

struct stage_project {  // P = gemm of X, W0, b0
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 512, n = 2048, k = 2048;
  static constexpr uint32_t mma_tile_m = 128, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 128, tile_cols = 128;
  static constexpr uint32_t grid_m = 4, grid_n = 16, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 32, split_k = 1;

  struct OrderDesc {  // groups of 2 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 2, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_project::OrderDesc>()), "order of project");

struct stage_up {  // Y = gemm, relu of P, W1, b1
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 512, n = 1024, k = 2048;
  static constexpr uint32_t mma_tile_m = 128, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 128, tile_cols = 128;
  static constexpr uint32_t grid_m = 4, grid_n = 8, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 32, split_k = 1;

  struct OrderDesc {  // groups of 2 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 2, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_up::OrderDesc>()), "order of up");

struct stage_down {  // Z = gemm of Y, W2, X
  static constexpr uint32_t index = 2;
  static constexpr uint32_t m = 512, n = 2048, k = 1024;
  static constexpr uint32_t mma_tile_m = 128, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 128, tile_cols = 128;
  static constexpr uint32_t grid_m = 4, grid_n = 16, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 16, split_k = 1;

  struct OrderDesc {  // groups of 2 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 2, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_down::OrderDesc>()), "order of down");

namespace edge_descs {

struct project_to_up {
  static constexpr cusync_edge value{
        {/*grid*/ 4, 16, /*block*/ 1, 16, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 4, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 128, 128, /*tensor*/ 512, 2048, /*k_blocks*/ 32,
        /*rows: m, n, k, offset, extent*/ {128, 0, 0, 0, 128}, /*cols*/ {0, 0, 64, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

struct up_to_down {
  static constexpr cusync_edge value{
        {/*grid*/ 4, 8, /*block*/ 1, 2, /*stride*/ 0, /*slots_n*/ 4, /*base*/ 4, /*count*/ 16, nullptr, nullptr},
        /*id*/ 1, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 128, 128, /*tensor*/ 512, 1024, /*k_blocks*/ 16,
        /*rows: m, n, k, offset, extent*/ {128, 0, 0, 0, 128}, /*cols*/ {0, 0, 64, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// project -> up, operand a (P): policy Row, 4 slots from 0.
using project_to_up = ::cusync::Edge<edge_descs::project_to_up>;
static_assert(0 + 4 <= slot_count, "slots of project_to_up");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::project_to_up>().policy), "slots of project_to_up");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::project_to_up>().policy), "posts of project_to_up");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::project_to_up>(), 0, 0), "waits of project_to_up");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::project_to_up>(), 3, 7), "waits of project_to_up");

// up -> down, operand a (Y): policy Batched(1 x 2), 16 slots from 4.
using up_to_down = ::cusync::Edge<edge_descs::up_to_down>;
static_assert(4 + 16 <= slot_count, "slots of up_to_down");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::up_to_down>().policy), "slots of up_to_down");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::up_to_down>().policy), "posts of up_to_down");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::up_to_down>(), 0, 0), "waits of up_to_down");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::up_to_down>(), 3, 15), "waits of up_to_down");

}  // namespace edges

}  // namespace cusync::plans::chain3
