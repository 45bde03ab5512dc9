// SPDX-License-Identifier: MIT OR Apache-2.0
// A stage in the form that kernels use, in three parts by reader and frequency of access, and its construction from a
// request.
#pragma once
#include "abi/kernel.h"
#include "cusync/order.hpp"

namespace cusync::kernels {

/// The fields that every tile of a stage needs. Small, so that all stages of a chain fit in constant memory.
struct Stage {
  void const* bias;
  void const* residual;
  uint32_t m, columns;      ///< size of the output
  uint32_t grid_m, grid_n;  ///< tiles
  uint8_t operation;        ///< enum cusync_operation
  uint8_t activation;       ///< enum cusync_activation
  uint8_t produced;         ///< bit 1 << role: the operand of that role is produced by a stage
  uint8_t load_waits;       ///< Edges::waits[0, load_waits): waited for along k
  uint8_t wait_count;       ///< Edges::waits[load_waits, wait_count): of the epilogue
  uint8_t post_count;
  uint8_t index;            ///< index of the stage in the plan, for reports
  uint8_t residual_first;   ///< whether the residual is added before the activation
};

inline constexpr uint8_t kProducedA = 1 << CUSYNC_OPERAND_A, kProducedB = 1 << CUSYNC_OPERAND_B;
inline constexpr uint8_t kProducedBias = 1 << CUSYNC_OPERAND_BIAS, kProducedResidual = 1 << CUSYNC_OPERAND_RESIDUAL;

/// Edges, read by the warps that wait and post.
struct Edges {
  cusync_edge waits[CUSYNC_MAX_WAITS];
  cusync_policy posts[CUSYNC_MAX_POSTS];
};

/// State shared by the waits and posts of all stages of a kernel.
struct Coupling {
  uint32_t* semaphores;
  cusync_report* report;
  unsigned long long timeout_ns;
  uint32_t post_weight;  ///< value that a tile adds to its slot
  cusync_delays delays;
  cusync_notes notes;
};

/// The ordered tiles of a single-stage launch.
struct OrderedTiles {
  cusync_order order;
  unsigned long long* tickets;
  uint32_t tiles, k_blocks;  ///< k-blocks per tile
  uint32_t drawn;            ///< 1: drawn by ticket
  uint32_t counts;           ///< whether a run advances the counter
};

/// The first `load_waits` waits are for operands read along k. Starved stages do not post, and some tests omit the
/// waits.
inline Stage make_stage(cusync_stage const& from, cusync_test const& test, Edges& edges) {
  Stage s{};
  s.bias = data_of(from, CUSYNC_OPERAND_BIAS), s.residual = data_of(from, CUSYNC_OPERAND_RESIDUAL);
  s.m = from.m, s.columns = from.n;
  s.grid_m = from.tiles.grid_m, s.grid_n = from.tiles.grid_n;
  s.operation = uint8_t(from.operation), s.activation = uint8_t(from.activation), s.index = uint8_t(from.index);
  s.residual_first = uint8_t(from.residual_first);
  edges = {};
  for (uint32_t const when : {CUSYNC_READ_IN_K_LOOP, CUSYNC_READ_IN_EPILOGUE}) {
    for (uint32_t i = 0; i < from.wait_count && !test.skip_waits; ++i) {
      cusync_edge const& edge = from.waits[i];
      if (operand(from, edge.operand)->read_at != when) continue;
      edges.waits[s.wait_count++] = edge;
      s.produced |= uint8_t(1u << edge.operand);
    }
    if (when == CUSYNC_READ_IN_K_LOOP) s.load_waits = s.wait_count;
  }
  s.post_count = uint8_t(test.starve ? 0 : from.post_count);
  for (uint32_t i = 0; i < from.post_count; ++i) edges.posts[i] = from.posts[i];
  return s;
}

inline Coupling make_coupling(cusync_sync const& sync, uint32_t post_weight) {
  return {sync.semaphores, sync.report, sync.timeout_ns, post_weight, sync.test.delays, sync.test.notes};
}

inline OrderedTiles make_tiles(Request const& request) {
  cusync_stage const& stage = request.stages[0];
  bool const drawn = request.work.source == CUSYNC_SOURCE_TICKETS;
  cusync_order const& order = request.work.order;
  return {order, request.sync.tickets, order.grid_m * order.grid_n, stage.tiles.k_blocks, drawn,
          drawn || stage.wait_count || stage.post_count};
}

}  // namespace cusync::kernels
