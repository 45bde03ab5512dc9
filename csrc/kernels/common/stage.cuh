// SPDX-License-Identifier: MIT OR Apache-2.0
// One GEMM stage as its kernel sees it: sizes, epilogue operands, edges. Passed by value, in constant memory.
#pragma once
#include "abi/cusync.h"
#include "cusync/order.hpp"

namespace cusync::kernels {

struct Stage {
  uint32_t m, n, k;      ///< n counts packed columns when gated
  uint32_t columns;      ///< of the output
  uint32_t k_blocks, tiles;
  uint32_t activation;   ///< enum cusync_activation
  uint32_t schedule;     ///< enum cusync_schedule
  uint32_t draws;        ///< whether this run advances the ticket counter
  uint32_t load_waits;   ///< edges[0, load_waits) feed operands A and B
  uint32_t wait_count;   ///< edges[load_waits, wait_count) feed bias and residual
  uint32_t produced;     ///< bit 0: operand A comes from a stage, bit 1: operand B does
  uint32_t post_count, post_value;
  uint32_t post_weight;  ///< what a tile of a producer adds to its slot
  void const* bias;
  void const* residual;
  unsigned long long* tickets;
  uint32_t* semaphores;
  cusync_report* report;
  unsigned long long timeout_ns;
  uint32_t index;        ///< of the stage in the plan, for reports
  cusync_delays delays;
  cusync_order order;
  cusync_edge edges[CUSYNC_MAX_WAITS];
  cusync_policy posts[CUSYNC_MAX_POSTS];
};

inline constexpr uint32_t kProducedA = 1, kProducedB = 2;

/// From arguments that have passed `validate`; `tile_k` is the kernel's.
inline Stage make_stage(cusync_gemm_args const& a, uint32_t tile_k) {
  Stage s{};
  s.m = a.m, s.n = a.n, s.k = a.k;
  s.columns = a.operation == CUSYNC_GATED_GEMM ? a.n / 2 : a.n;
  s.k_blocks = ceil_div(a.k, tile_k);
  s.tiles = a.order.grid_m * a.order.grid_n;
  s.activation = a.activation;
  s.schedule = a.schedule;
  s.draws = a.schedule == CUSYNC_SCHEDULE_TICKET || a.wait_count || a.post_count;
  s.bias = a.bias, s.residual = a.residual;
  s.tickets = a.tickets, s.semaphores = a.semaphores;
  s.report = a.report, s.timeout_ns = a.timeout_ns;
  s.index = a.stage;
  s.delays = a.delays;
  s.order = a.order;
  if (!a.skip_waits) {
    for (uint32_t i = 0; i < a.wait_count; ++i)
      if (a.waits[i].operand <= CUSYNC_OPERAND_B) {
        s.edges[s.load_waits++] = a.waits[i];
        s.produced |= a.waits[i].operand == CUSYNC_OPERAND_A ? kProducedA : kProducedB;
      }
    s.wait_count = s.load_waits;
    for (uint32_t i = 0; i < a.wait_count; ++i)
      if (a.waits[i].operand > CUSYNC_OPERAND_B) s.edges[s.wait_count++] = a.waits[i];
  }
  // A scale of 0 starves the edge on purpose.
  s.post_count = a.post_value_scale ? a.post_count : 0;
  s.post_value = a.post_value_scale;
  s.post_weight = 1;
  for (uint32_t i = 0; i < a.post_count; ++i) s.posts[i] = a.posts[i];
  return s;
}

}  // namespace cusync::kernels
