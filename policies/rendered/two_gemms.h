// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `two_gemms`, inputs a762beda29833d53. Do not edit: change the
// spec and run `cargo xtask render`.
// fp16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::two_gemms {

inline constexpr uint32_t slot_count = 8;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_M = 512;
inline constexpr uint32_t dim_N = 512;
inline constexpr uint32_t dim_K = 512;

struct tensor_A {  // an input
  static constexpr uint32_t rows = 512, cols = 512;
};
struct tensor_B {  // an input
  static constexpr uint32_t rows = 512, cols = 512;
};
struct tensor_C {  // written by first
  static constexpr uint32_t rows = 512, cols = 512;
};
struct tensor_D {  // an input
  static constexpr uint32_t rows = 512, cols = 512;
};
struct tensor_E {  // written by second
  static constexpr uint32_t rows = 512, cols = 512;
};

struct stage_first {  // C = gemm of A, B
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 512, n = 512, k = 512;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 8, grid_n = 4, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 8, split_k = 1;

  struct OrderDesc {  // GroupedRows(2)
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 2, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_first::OrderDesc>()), "order of first");

struct stage_second {  // E = gemm of C, D
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 512, n = 512, k = 512;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 8, grid_n = 4, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 8, split_k = 1;

  struct OrderDesc {  // GroupedRows(2)
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 2, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_second::OrderDesc>()), "order of second");

namespace edge_descs {

struct first_to_second {
  static constexpr cusync_edge value{
        {/*grid*/ 8, 4, /*block*/ 1, 4, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 8,
         /*width, columns*/ 0, 0, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 64, 128, /*tensor*/ 512, 512, /*k_blocks*/ 8,
        /*rows: m, n, k, offset, extent*/ {64, 0, 0, 0, 64}, /*cols*/ {0, 0, 64, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// first -> second, operand a (C): policy Row, 8 slots from 0.
using first_to_second = ::cusync::Edge<edge_descs::first_to_second>;
static_assert(0 + 8 <= slot_count, "slots of first_to_second");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::first_to_second>().policy), "slots of first_to_second");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::first_to_second>().policy), "posts of first_to_second");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::first_to_second>(), 0, 0), "waits of first_to_second");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::first_to_second>(), 7, 3), "waits of first_to_second");

}  // namespace edges

}  // namespace cusync::plans::two_gemms
