// SPDX-License-Identifier: MIT OR Apache-2.0
// Rendered by cusync 0.1.0 from a proved plan of `llama65_attention`, inputs 9c127eddd7387ccc. Do not edit: change the
// spec and run `cargo xtask render`.
// fp16, device h200, executor streams; start guarantee: consumers start after all their producers' CTAs.
#pragma once
#include "cusync/cusync.hpp"

namespace cusync::plans::llama65_attention {

inline constexpr uint32_t slot_count = 20;  // 32-bit words of the semaphore array

inline constexpr uint32_t dim_S = 512;
inline constexpr uint32_t dim_E = 8192;
inline constexpr uint32_t dim_HQ = 8;
inline constexpr uint32_t dim_HKV = 8;
inline constexpr uint32_t dim_D = 128;

struct tensor_X {  // an input
  static constexpr uint32_t rows = 512, cols = 8192;
};
struct tensor_Wqkv {  // an input
  static constexpr uint32_t rows = 8192, cols = 3072;
};
struct tensor_QKV {  // written by qkv
  static constexpr uint32_t rows = 512, cols = 3072;
};
struct tensor_A {  // written by attend
  static constexpr uint32_t rows = 512, cols = 1024;
};
struct tensor_Wo {  // an input
  static constexpr uint32_t rows = 1024, cols = 8192;
};
struct tensor_Z {  // written by project
  static constexpr uint32_t rows = 512, cols = 8192;
};

struct stage_qkv {  // QKV = gemm of X, Wqkv
  static constexpr uint32_t index = 0;
  static constexpr uint32_t m = 512, n = 3072, k = 8192;
  static constexpr uint32_t mma_tile_m = 128, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 128, tile_cols = 128;
  static constexpr uint32_t grid_m = 4, grid_n = 24, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 128, split_k = 1;

  struct OrderDesc {  // column-major
    static constexpr cusync_order value{CUSYNC_ORDER_COLUMN_MAJOR, grid_m, grid_n, 1, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_qkv::OrderDesc>()), "order of qkv");

struct stage_attend {  // A = causal attention, 8 heads of 128 columns, 8 of keys and values, of QKV, QKV, QKV
  static constexpr uint32_t index = 1;
  static constexpr uint32_t m = 512, n = 1024, k = 512;
  static constexpr uint32_t mma_tile_m = 64, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 64, tile_cols = 128;
  static constexpr uint32_t grid_m = 8, grid_n = 8, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 8, split_k = 1;

  struct OrderDesc {  // groups of 4 rows
    static constexpr cusync_order value{CUSYNC_ORDER_GROUPED_ROWS, grid_m, grid_n, 4, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_attend::OrderDesc>()), "order of attend");

struct stage_project {  // Z = gemm of A, Wo
  static constexpr uint32_t index = 2;
  static constexpr uint32_t m = 512, n = 8192, k = 1024;
  static constexpr uint32_t mma_tile_m = 256, mma_tile_n = 128, mma_tile_k = 64;
  static constexpr uint32_t tile_rows = 256, tile_cols = 128;
  static constexpr uint32_t grid_m = 2, grid_n = 64, tiles = grid_m * grid_n;
  static constexpr uint32_t k_blocks = 16, split_k = 1;

  struct OrderDesc {  // column-major
    static constexpr cusync_order value{CUSYNC_ORDER_COLUMN_MAJOR, grid_m, grid_n, 1, nullptr};
    static constexpr ::cusync::NoTable table{};
  };
  using Order = ::cusync::Order<OrderDesc>;
};
static_assert(::cusync::ends_on_grid(::cusync::get_constant<stage_project::OrderDesc>()), "order of project");

namespace edge_descs {

struct qkv_to_attend_query {
  static constexpr cusync_edge value{
        {/*grid*/ 4, 24, /*block*/ 1, 24, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 0, /*count*/ 4, nullptr, nullptr},
        /*id*/ 0, CUSYNC_OPERAND_CUSTOM, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 128, 128, /*tensor*/ 512, 3072, /*k_blocks*/ 8,
        /*rows: m, n, k, offset, extent*/ {64, 0, 0, 0, 64}, /*cols*/ {0, 128, 0, 0, 128}};
  static constexpr ::cusync::NoTable table{};
};

struct qkv_to_attend_key {
  static constexpr cusync_edge value{
        {/*grid*/ 4, 24, /*block*/ 1, 24, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 4, /*count*/ 4, nullptr, nullptr},
        /*id*/ 1, CUSYNC_OPERAND_CUSTOM, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 128, 128, /*tensor*/ 512, 3072, /*k_blocks*/ 8,
        /*rows: m, n, k, offset, extent*/ {0, 0, 64, 0, 64}, /*cols*/ {0, 128, 0, 1024, 128}};
  static constexpr ::cusync::NoTable table{};
};

struct qkv_to_attend_value {
  static constexpr cusync_edge value{
        {/*grid*/ 4, 24, /*block*/ 1, 24, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 8, /*count*/ 4, nullptr, nullptr},
        /*id*/ 2, CUSYNC_OPERAND_CUSTOM, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 128, 128, /*tensor*/ 512, 3072, /*k_blocks*/ 8,
        /*rows: m, n, k, offset, extent*/ {0, 0, 64, 0, 64}, /*cols*/ {0, 128, 0, 2048, 128}};
  static constexpr ::cusync::NoTable table{};
};

struct attend_to_project {
  static constexpr cusync_edge value{
        {/*grid*/ 8, 8, /*block*/ 1, 8, /*stride*/ 0, /*slots_n*/ 1, /*base*/ 12, /*count*/ 8, nullptr, nullptr},
        /*id*/ 3, CUSYNC_OPERAND_A, CUSYNC_WAIT_PER_K_BLOCK,
        /*tile*/ 64, 128, /*tensor*/ 512, 1024, /*k_blocks*/ 16,
        /*rows: m, n, k, offset, extent*/ {256, 0, 0, 0, 256}, /*cols*/ {0, 0, 64, 0, 64}};
  static constexpr ::cusync::NoTable table{};
};

}  // namespace edge_descs

namespace edges {

// qkv -> attend, operand query (QKV): policy Row, 4 slots from 0.
using qkv_to_attend_query = ::cusync::Edge<edge_descs::qkv_to_attend_query>;
static_assert(0 + 4 <= slot_count, "slots of qkv_to_attend_query");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::qkv_to_attend_query>().policy), "slots of qkv_to_attend_query");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::qkv_to_attend_query>().policy), "posts of qkv_to_attend_query");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::qkv_to_attend_query>(), 0, 0), "waits of qkv_to_attend_query");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::qkv_to_attend_query>(), 7, 7), "waits of qkv_to_attend_query");

// qkv -> attend, operand key (QKV): policy Row, 4 slots from 4.
using qkv_to_attend_key = ::cusync::Edge<edge_descs::qkv_to_attend_key>;
static_assert(4 + 4 <= slot_count, "slots of qkv_to_attend_key");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::qkv_to_attend_key>().policy), "slots of qkv_to_attend_key");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::qkv_to_attend_key>().policy), "posts of qkv_to_attend_key");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::qkv_to_attend_key>(), 0, 0), "waits of qkv_to_attend_key");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::qkv_to_attend_key>(), 7, 7), "waits of qkv_to_attend_key");

// qkv -> attend, operand value (QKV): policy Row, 4 slots from 8.
using qkv_to_attend_value = ::cusync::Edge<edge_descs::qkv_to_attend_value>;
static_assert(8 + 4 <= slot_count, "slots of qkv_to_attend_value");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::qkv_to_attend_value>().policy), "slots of qkv_to_attend_value");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::qkv_to_attend_value>().policy), "posts of qkv_to_attend_value");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::qkv_to_attend_value>(), 0, 0), "waits of qkv_to_attend_value");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::qkv_to_attend_value>(), 7, 7), "waits of qkv_to_attend_value");

// attend -> project, operand a (A): policy Row, 8 slots from 12.
using attend_to_project = ::cusync::Edge<edge_descs::attend_to_project>;
static_assert(12 + 8 <= slot_count, "slots of attend_to_project");
static_assert(::cusync::corners_in_bounds(::cusync::get_constant<edge_descs::attend_to_project>().policy), "slots of attend_to_project");
static_assert(::cusync::posts_add_up(::cusync::get_constant<edge_descs::attend_to_project>().policy), "posts of attend_to_project");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::attend_to_project>(), 0, 0), "waits of attend_to_project");
static_assert(::cusync::waits_on_grid(::cusync::get_constant<edge_descs::attend_to_project>(), 1, 63), "waits of attend_to_project");

}  // namespace edges

}  // namespace cusync::plans::llama65_attention
