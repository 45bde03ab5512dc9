// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code of the chain kernels: stage tables and parameters.
#pragma once
#include <memory>
#include <new>

#include "kernels/chain/sm90/kernel.cuh"
#include "kernels/common/number.h"
#include "kernels/common/sm90/host.h"
#include "kernels/conv2d/sm90/host.h"

namespace cusync::kernels::sm90 {

template <class OfLists, uint32_t Operations>
struct ChainHost {
  /// Mailbox kernels exist for two tile shapes only: each adds a kernel to every library, and users of mailboxes choose
  /// their tiles accordingly.
  static constexpr bool kMail = OfLists::kClusterSize == 1 && !OfLists::kRows && !OfLists::kConvolves && OfLists::kTileM == 128 &&
                                (OfLists::kTileN == 128 || OfLists::kTileN == 256);

  template <class C = OfLists>
  static Code code() {
    return {reinterpret_cast<void const*>(chain<C>), CUSYNC_SM90A,          uint32_t(C::kThreads),
            uint32_t(C::kSharedBytes),               uint32_t(C::kClusterM), uint32_t(C::kClusterN), true};
  }

  static uint32_t registers() { return registers_of(code().kernel, CUSYNC_SM90A); }
  static int32_t resident(uint32_t* workers) { return kernels::resident(code(), OfLists::kSharedBytes, workers); }

  static int32_t create(Request const& request, cusync_kernel** out) {
    if (request.work.source != CUSYNC_SOURCE_MAIL) return create_as<OfLists>(request, out);
    if constexpr (kMail) return create_as<Mailed<OfLists>>(request, out);
    return CUSYNC_ERROR_NOT_BUILT;
  }

  template <class C>
  static int32_t create_as(Request const& request, cusync_kernel** out) {
    uint32_t most = 0;
    if (int32_t const status = kernels::resident(code<C>(), C::kSharedBytes, &most); status != CUSYNC_OK) return status;
    // Other workers could wait forever for a worker that is not resident.
    if (request.work.workers > most) return CUSYNC_ERROR_BAD_ARGUMENT;
    typename C::Params p{};
    std::unique_ptr<typename C::StageTable[]> const table(new (std::nothrow) typename C::StageTable[request.count]);
    if (!table) return CUSYNC_ERROR_NO_MEMORY;
    for (uint32_t s = 0; s < request.count; ++s) {
      cusync_stage const& stage = request.stages[s];
      p.stages[s] = make_stage(stage, request.sync.test, table[s].edges);
      table[s].fill(stage);
      if (C::is_rows(stage.operation)) continue;
      auto const map = [&](auto& store, auto const& layout) {
        store = map_output<C>(stage, layout);
        return encoded(store.get_tma_descriptor());
      };
      if (!map_operands<C>(stage, table[s].mainloop) || !table[s].outputs.encode(map))
        return status_of(cudaErrorInvalidValue);
      if constexpr (!C::kConvolves) {
        using Element = typename C::Element;
        void const* const residual = p.stages[s].residual;
        if (residual && !map_box<Element, 2>(table[s].residual, residual, {stage.n, stage.m}, {64, C::kUnitRows}))
          return status_of(cudaErrorInvalidValue);
        if (uint32_t const rows = stage.m % C::kTileM;
            rows && !map_box<Element, 3>(table[s].last_rows, data_of(stage, CUSYNC_OPERAND_A), {stage.k, stage.m, 1}, {C::kTileK, rows, 1}))
          return status_of(cudaErrorInvalidValue);
      } else {
        if (!make_window(stage, C::kTileM, C::kWindowRows, C::kTurned ? C::kConsumerGroups : 0, p.windows[s])) return CUSYNC_ERROR_BAD_ARGUMENT;
        if (groups_filters(stage, p.windows[s])) p.windows[s].filter_group = kFilterGroup;
        if (!map_windows<C>(stage, p.windows[s], table[s])) return status_of(cudaErrorInvalidValue);
      }
    }
    size_t const bytes = request.count * sizeof(typename C::StageTable);
    if (int32_t const status = upload(table.get(), bytes, request.table); status != CUSYNC_OK) return status;
    cusync_work const& work = request.work;
    p.table = static_cast<typename C::StageTable const*>(request.table);
    p.stage_count = request.count;
    p.drawn = work.source == CUSYNC_SOURCE_DRAWN;
    p.items = work.items, p.list_length = work.length, p.workers = work.workers;
    p.slabs = reinterpret_cast<float4*>(work.slabs), p.slab_flags = work.slab_flags;
    p.epochs = request.sync.epochs, p.tickets = request.sync.tickets, p.trace = request.sync.trace;
    p.coupling = make_coupling(request.sync, CUSYNC_POST_WEIGHT);
    if constexpr (C::kMailed) p.mail = work.mail;
    return ready(code<C>(), work.workers, p, out);
  }

  static Kernel kernel() {
    cusync_kernel_info info{};
    using C = OfLists;
    info.id = {CUSYNC_FAMILY_CHAIN, CUSYNC_SM90A, Operations,   kElementOf<typename C::Element>, C::kTileM,
               C::kTileN,           C::kClusterM, C::kClusterN, 0};
    info.tile_k = C::kTileK, info.ring = C::kStages, info.stages = CUSYNC_MAX_STAGES;
    info.table_bytes = sizeof(typename C::StageTable);
    info.threads = C::kThreads, info.shared_bytes = C::kSharedBytes;
    return {info, registers, resident, create};
  }
};

}  // namespace cusync::kernels::sm90

namespace cusync::kernels {

/// One kernel for all operations.
template <cusync_element Element, int TileM, int TileN, int Ring, int ClusterM, int ClusterN, cusync_operation... Operations>
KernelTable chain_sm90() {
  using C = sm90::ChainConfig<Number<Element>, TileM, TileN, Ring, ClusterM, ClusterN, Operations...>;
  static Kernel const table[] = {sm90::ChainHost<C, kOperationSet<Operations...>>::kernel()};
  return {table, 1};
}

}  // namespace cusync::kernels
