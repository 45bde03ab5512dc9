// SPDX-License-Identifier: MIT OR Apache-2.0
// Standalone mixture of experts: five kernels in stream order, or four if there are few rows.
//
//   choose   a warp per row: its experts and their weights
//   list     one CTA: the pairs of row and expert in lists, expert by expert, and their tiles
//   multiply gate and up: hidden rows, in the order of the lists
//   multiply down: output rows, in the same order
//   combine  weighted sums of each row's output rows
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // products of 160 columns
#include <cmath>

#include "kernels/common/sm90/host.h"
#include "kernels/experts/sm90/combine.cuh"
#include "kernels/experts/sm90/lists.cuh"
#include "kernels/experts/sm90/products.cuh"

namespace cusync::kernels::sm90 {
namespace experts {
namespace {

/// The element type of plain CUDA.
template <class Element>
using Plain = std::conditional_t<std::is_same_v<Element, cutlass::half_t>, __half, __nv_bfloat16>;

template <class Element, int Pairs, int Groups, bool Gated>
Code code() {
  auto const kernel = products<Element, Pairs, Groups, Gated>;
  return {reinterpret_cast<void const*>(kernel), CUSYNC_SM90A, 128 * (1 + Groups), uint32_t(sizeof(Memory<Pairs, Groups>))};
}

Code plain(void const* kernel, uint32_t threads) { return {kernel, CUSYNC_SM90A, threads, 0}; }

/// All kernels of a stage, ready to launch.
struct Mixture final : cusync_kernel {
  Code choose, list, hidden, outputs, combine;
  Experts experts;
  Product up, down;
  uint32_t workers[2];  ///< of the products

  int32_t launch(cusync_how const& how) const override {
    cusync_how next = how;
    auto const queue = [&](Code const& code, uint32_t ctas, void const* params) {
      int32_t const status = kernels::launch(code, ctas, next, params);
      next.programmatic = 1;
      return status;
    };
    auto const of_rows = [](uint64_t threads) { return uint32_t((threads + kRowThreads - 1) / kRowThreads); };
    int32_t status = experts.rows > kFewRows ? queue(choose, of_rows(uint64_t(experts.rows) * 32), &experts) : CUSYNC_OK;
    if (status == CUSYNC_OK) status = queue(list, 1, &experts);
    if (status == CUSYNC_OK) status = queue(hidden, workers[0], &up);
    if (status == CUSYNC_OK) status = queue(outputs, workers[1], &down);
    return status == CUSYNC_OK ? queue(combine, of_rows(uint64_t(experts.rows) * (experts.width / 8)), &experts) : status;
  }
};

/// Products with tiles of `Pairs` pairs.
template <class Element, int Pairs, int Groups>
int32_t create_for(Experts experts, cusync_stage const& stage, cusync_kernel** out) {
  constexpr uint32_t kRows = Groups * kRowsOfBlock;
  uint64_t const pairs = uint64_t(experts.rows) * experts.top_k, width = experts.width, features = experts.features;
  experts.pairs = Pairs;
  Product up{}, down{};
  up.experts = down.experts = experts;
  up.columns = down.inputs = experts.features, up.inputs = down.columns = experts.width;
  up.blocks = ceil_div(experts.features, kRows), down.blocks = ceil_div(experts.width, 2 * kRows);
  auto const map_weights = [&](CUtensorMap& map, uint32_t role, uint64_t inputs, uint64_t columns) {
    return map_box<Element, 2>(map, data_of(stage, role), {inputs, columns * experts.experts}, {64, kRows});
  };
  bool const mapped = map_weights(up.weights[0], CUSYNC_OPERAND_B, width, features) &&
                      map_weights(up.weights[1], CUSYNC_OPERAND_UP, width, features) &&
                      map_weights(down.weights[0], CUSYNC_OPERAND_DOWN, features, width) &&
                      map_weights(down.weights[1], CUSYNC_OPERAND_DOWN, features, width) &&
                      map_box<Element, 2>(down.right, experts.hidden, {features, pairs}, {64, Pairs});
  if (!mapped) return status_of(cudaErrorInvalidValue);
  auto* kernel = new (std::nothrow) Mixture;
  if (!kernel) return CUSYNC_ERROR_NO_MEMORY;
  kernel->experts = experts, kernel->up = up, kernel->down = down;
  kernel->choose = plain(reinterpret_cast<void const*>(choose<Plain<Element>>), kRowThreads);
  kernel->list = plain(reinterpret_cast<void const*>(list<Plain<Element>>), kListThreads);
  kernel->hidden = code<Element, Pairs, Groups, true>();
  kernel->outputs = code<Element, Pairs, Groups, false>();
  kernel->combine = plain(reinterpret_cast<void const*>(combine<Plain<Element>>), kRowThreads);
  uint64_t const tiles = most_tiles(pairs, experts.experts, Pairs);
  int32_t status = CUSYNC_OK;
  uint32_t unused = 0;
  for (Code const* code : {&kernel->choose, &kernel->list, &kernel->combine})
    if (status == CUSYNC_OK) status = resident(*code, 0, &unused);
  for (int i = 0; i < 2 && status == CUSYNC_OK; ++i) {
    Code const& code = i ? kernel->outputs : kernel->hidden;
    uint64_t const items = tiles * (i ? down.blocks : up.blocks);
    status = resident(code, code.shared_bytes, &kernel->workers[i]);
    if (items < kernel->workers[i]) kernel->workers[i] = uint32_t(items);
  }
  if (status != CUSYNC_OK) {
    delete kernel;
    return status;
  }
  *out = kernel;
  return CUSYNC_OK;
}

template <class Element>
struct Mix {
  static constexpr cusync_operation kOperation = CUSYNC_EXPERTS;
  static constexpr uint32_t kElement = kElementOf<Element>;

  static Code code() { return experts::code<Element, 160, 2, true>(); }
  static int32_t create(Request const& request, cusync_kernel** out) {
    cusync_stage const& stage = request.stages[0];
    cusync_experts const& shape = stage.shape.experts;
    ExpertScratch const at = expert_scratch(shape, stage.m, stage.n);
    char* const scratch = static_cast<char*>(request.work.scratch);
    Experts experts{};
    experts.x = data_of(stage, CUSYNC_OPERAND_A), experts.router = data_of(stage, CUSYNC_OPERAND_ROUTER);
    experts.residual = data_of(stage, CUSYNC_OPERAND_RESIDUAL), experts.out = stage.out;
    experts.chosen = reinterpret_cast<uint32_t*>(scratch + at.chosen);
    experts.weights = reinterpret_cast<float*>(scratch + at.weights);
    experts.places = reinterpret_cast<uint32_t*>(scratch + at.places);
    experts.listed = reinterpret_cast<uint32_t*>(scratch + at.listed);
    experts.count = reinterpret_cast<uint32_t*>(scratch + at.tiles);
    experts.tiles = reinterpret_cast<ExpertTile*>(scratch + at.tiles + 16);
    experts.hidden = scratch + at.hidden, experts.outputs = scratch + at.outputs;
    experts.rows = stage.m, experts.width = stage.n, experts.features = shape.features;
    experts.experts = shape.experts, experts.top_k = shape.top_k;
    experts.normalized = shape.normalized, experts.activation = stage.activation;
    experts.delays = request.sync.test.delays;
    // One tile for nearly every expert, if rows choose independently: experts of few pairs are limited by reading weights.
    double const average = double(stage.m) * shape.top_k / shape.experts, most = average + 2.5 * std::sqrt(average);
    if (most <= 16) return create_for<Element, 16, 1>(experts, stage, out);
    if (most <= 32) return create_for<Element, 32, 1>(experts, stage, out);
    if (most <= 64) return create_for<Element, 64, 2>(experts, stage, out);
    if (most <= 96) return create_for<Element, 96, 2>(experts, stage, out);
    return most <= 160 ? create_for<Element, 160, 2>(experts, stage, out) : create_for<Element, 128, 2>(experts, stage, out);
  }
};

}  // namespace
}  // namespace experts
}  // namespace cusync::kernels::sm90

namespace cusync::kernels {

KernelTable alone_sm90_experts_f16() { return alone<sm90::experts::Mix<cutlass::half_t>>(); }
KernelTable alone_sm90_experts_bf16() { return alone<sm90::experts::Mix<cutlass::bfloat16_t>>(); }

}  // namespace cusync::kernels
