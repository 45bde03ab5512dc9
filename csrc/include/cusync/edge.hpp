// SPDX-License-Identifier: MIT OR Apache-2.0
// Edges and orders fixed at compile time, as types for rendered headers: `using up_to_down = cusync::Edge<...>`. Each
// member calls the function of the same name for run-time edges.
#pragma once
#include "cusync/fixed.hpp"
#if defined(__CUDACC__)
#include "cusync/edge.cuh"
#endif

namespace cusync {

/// The producer side of an edge.
template <class Desc>
struct Producer {
  static CUSYNC_HD cusync_policy value() { return get<Desc>().policy; }
  static CUSYNC_HD uint32_t slot_of(uint32_t m, uint32_t n) { return cusync::slot_of(value(), m, n); }
  static CUSYNC_HD uint32_t posts_of(uint32_t slot) { return cusync::posts_of(value(), slot); }

#if defined(__CUDACC__)
  static CUSYNC_DEVICE void post_tile(uint32_t* semaphores, uint32_t m, uint32_t n) {
    cusync::post_tile(value(), semaphores, m, n);
  }
  static CUSYNC_DEVICE void cta_post_tile(uint32_t* semaphores, uint32_t m, uint32_t n) {
    cusync::cta_post_tile(value(), semaphores, m, n);
  }
#endif
};

/// The consumer side of an edge; `Edge<Desc>::Producer` is the producer side.
template <class Desc>
struct Edge {
  using Producer = cusync::Producer<Desc>;

  static CUSYNC_HD cusync_edge value() { return get<Desc>(); }
  static CUSYNC_HD TileBox wait_box(uint32_t m, uint32_t n, uint32_t k, bool first, uint32_t k_end) {
    return cusync::wait_box(value(), m, n, k, first, k_end);
  }

#if defined(__CUDACC__)
  template <ReadBy By = ReadBy::kLoads>
  static CUSYNC_DEVICE void wait_for_k_block(uint32_t m, uint32_t n, uint32_t k, bool first, uint32_t k_end,
                                             WaitContext const& ctx) {
    cusync::wait_for_k_block<By>(value(), m, n, k, first, k_end, ctx);
  }
  template <ReadBy By = ReadBy::kLoads>
  static CUSYNC_DEVICE void wait_for_tile(uint32_t m, uint32_t n, WaitContext const& ctx) {
    cusync::wait_for_tile<By>(value(), m, n, ctx);
  }
  template <ReadBy By = ReadBy::kLoads>
  static CUSYNC_DEVICE void warp_wait_for_k_block(uint32_t m, uint32_t n, uint32_t k, bool first, uint32_t k_end,
                                                  WaitContext const& ctx) {
    cusync::warp_wait_for_k_block<By>(value(), m, n, k, first, k_end, ctx);
  }
#endif
};

/// The order of a stage's tiles.
template <class Desc>
struct Order {
  static CUSYNC_HD cusync_order value() { return get<Desc>(); }
  static CUSYNC_HD TileCoord tile_at(uint32_t i) { return cusync::tile_at(value(), i); }
};

}  // namespace cusync
