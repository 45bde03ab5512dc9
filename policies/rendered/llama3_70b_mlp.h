// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `llama3_70b_mlp`, inputs 5b2ddd76a70f4c24. Do not edit: change the
// spec and run `cargo xtask render`.
// bf16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::llama3_70b_mlp {

inline constexpr uint32_t slot_count = 2;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_M = 512;
inline constexpr uint32_t dim_H = 8192;
inline constexpr uint32_t dim_I = 3584;

struct tensor_X {  // an input
  static constexpr uint32_t rows = 512, cols = 8192;
};
struct tensor_Wg {  // an input
  static constexpr uint32_t rows = 8192, cols = 3584;
};
struct tensor_Wu {  // an input
  static constexpr uint32_t rows = 8192, cols = 3584;
};
struct tensor_Y {  // written by gate_up
  static constexpr uint32_t rows = 512, cols = 3584;
};
struct tensor_W2 {  // an input
  static constexpr uint32_t rows = 3584, cols = 8192;
};
struct tensor_Z {  // written by down
  static constexpr uint32_t rows = 512, cols = 8192;
};

struct stage_gate_up {  // Y = gated gemm of X, Wg, Wu
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 512, n = 3584, k = 8192;
  static constexpr uint32_t mma_tile_m = 256, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 256, tile_cols = 64;
  static constexpr uint32_t grid_m = 2, grid_n = 56, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 128, split_k = 1;

  struct OrderDesc {  // column-major
    static constexpr cusync_order value{CUSYNC_ORDER_COLUMN_MAJOR, grid_m, grid_n, 1, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_gate_up::OrderDesc>()), "order of gate_up");

struct stage_down {  // Z = gemm of Y, W2
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 512, n = 8192, k = 3584;
  static constexpr uint32_t mma_tile_m = 256, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 256, tile_cols = 128;
  static constexpr uint32_t grid_m = 2, grid_n = 64, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 56, split_k = 1;

  struct OrderDesc {  // column-major
    static constexpr cusync_order value{CUSYNC_ORDER_COLUMN_MAJOR, grid_m, grid_n, 1, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_down::OrderDesc>()), "order of down");

namespace edge_descs {

struct gate_up_to_down {
  static constexpr cusync_edge value{
        {/*grid*/ 2, 56, /*block*/ 1, 56, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 2, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 256, 64, /*tensor*/ 512, 3584, /*k_blocks*/ 56,
        /*rows: m, n, k, offset, extent*/ {256, 0, 0, 0, 256}, /*cols*/ {0, 0, 64, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// gate_up -> down, operand a (Y): policy Row, 2 slots from 0.
using gate_up_to_down = ::cusync::Edge<edge_descs::gate_up_to_down>;
static_assert(0 + 2 <= slot_count, "slots of gate_up_to_down");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::gate_up_to_down>().policy), "slots of gate_up_to_down");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::gate_up_to_down>().policy), "posts of gate_up_to_down");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::gate_up_to_down>(), 0, 0), "waits of gate_up_to_down");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::gate_up_to_down>(), 1, 63), "waits of gate_up_to_down");

}  // namespace edges

}  // namespace cusync::plans::llama3_70b_mlp
