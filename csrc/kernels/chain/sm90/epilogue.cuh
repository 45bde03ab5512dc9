// SPDX-License-Identifier: MIT OR Apache-2.0
// From accumulators to global memory in a chain kernel. Each consumer warpgroup stages its own units in swizzled shared
// memory and has its own store warp, so warpgroups never wait for each other; the last store warp to finish posts the
// tile. Consumers wait only for free staging buffers, never for stores.
#pragma once
#include "cusync/edge.cuh"
#include "kernels/chain/sm90/config.cuh"
#include "kernels/chain/sm90/slabs.cuh"
#include "kernels/common/sm90/fragment.cuh"

namespace cusync::kernels::sm90 {

/// Origin of unit `u` of a warpgroup's part of a tile: its row in the tile, its column in the output.
template <class C>
struct Unit {
  uint32_t row, col;
  bool in_tile;  ///< always; without it ptxas reloads a spilled word in the k-loop of tiles of 192 x 192

  CUSYNC_DEVICE Unit(Work const& item, int column_shift, uint32_t group, int u)
      : row(row_of_unit<C>(group, u)),
        col((item.range.n * uint32_t(C::kTileN) + u % C::kColUnits * C::kUnitCols) >> column_shift),
        in_tile(uint32_t(u % C::kColUnits * C::kUnitCols) < uint32_t(C::kTileN)) {}
  CUSYNC_DEVICE bool any(Stage const& stage) const { return in_tile && col < stage.columns; }
};

/// Writes a unit's words, 8 columns per word pair, to a staging buffer.
template <int Pieces, class Element>
CUSYNC_DEVICE void write_unit(Element* buffer, Fragment const& at, uint32_t const (&words)[Pieces][2]) {
  uint32_t* const to = reinterpret_cast<uint32_t*>(buffer);
#pragma unroll
  for (int j = 0; j < Pieces; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) to[chunk_word<Pieces>(at, j, half)] = words[j][half];
}

/// Waits for the operands in `Roles` that stages produce and an epilogue reads; one thread.
template <class C, ReadBy By, uint32_t Roles>
CUSYNC_DEVICE void await_in_epilogue(typename C::Params const& params, Work const& item, uint32_t epoch, uint32_t group) {
  Stage const& stage = params.stages[item.stage];
  TileRange const range{item.range.m, item.range.n, epoch, item.range.k_begin, item.range.k_end};
#pragma unroll 1
  for (uint32_t i = stage.load_waits; i < stage.wait_count; ++i) {
    cusync_edge const& edge = params.table[item.stage].edges.waits[i];
    if (Roles >> edge.operand & 1) wait_for_epilogue<By>(params.coupling, edge, range, stage.index, group);
  }
}

/// Finishes the units of a tile that this part owns, in the threads of one consumer warpgroup; `thread` counts over all
/// warpgroups.
template <class C>
CUSYNC_DEVICE void finish_item(typename C::Params const& params, Work const& item, Parts<C> const& parts,
                               uint32_t epoch, uint32_t rank, Units<C>& units, typename C::SharedStorage& shared,
                               typename C::StagingPipeline& staged,
                               cutlass::PipelineState<C::kStagingDepth>& state, uint32_t group, int thread) {
  using Element = typename C::Element;
  Stage const& stage = params.stages[item.stage];

  // A residual is waited for before it is loaded: by the store warp, or by the wait warp for pixel tiles.
  constexpr uint32_t kAwaited = kProducedBias;
  if (stage.produced & kAwaited) {
    // One thread acquires for the whole warpgroup.
    if (thread % 128 == 0) await_in_epilogue<C, ReadBy::kLoads, kAwaited>(params, item, epoch, group);
    ptx::bar_sync(8 + group, 128);
  }

  if constexpr (C::kTurned) {
    if (parts.count)
#pragma unroll 1
      for (uint32_t u = 0; u < C::kUnits; ++u, units.rotate())
        if (parts.owns(u)) add_sums<C>(params, parts, rank, u, units.current(), thread);
    using To = typename Operation<C::kTurned ? CUSYNC_CONV2D : CUSYNC_GEMM>::Store;
    To::template finish<C>(params, item, parts, epoch, units, shared, staged, state, group, thread % 128);
    return;
  }

#pragma unroll 1
  for (uint32_t u = 0; u < C::kUnits; ++u, units.rotate()) {
    if (!parts.owns(u)) continue;
    float* const v = units.current();
    // With row operations, and with three warpgroups, the addresses of a unit's values do not fit in the registers left
    // by the loop; `opaque` recomputes them.
    constexpr bool few_registers = C::kRows || C::kThreeGroups;
    Fragment const at(int(few_registers ? ptx::opaque(uint32_t(thread)) : uint32_t(thread)) % 128);
    add_sums<C>(params, parts, rank, u, v, thread);
    bool staged_one = false;
    C::Products::visit(stage.operation, [&](auto found) {
      using Found = decltype(found);
      constexpr int pieces = 8 >> Found::kColumnShift;
      Unit<C> const unit(item, Found::kColumnShift, group, int(u));
      auto const rows = [&] {
        if constexpr (C::kConvolves)
          return Found::Store::template rows<C>(params, item, unit.row, shared);
        else
          return Found::Store::template rows<C>(params, item, unit.row);
      }();
      if (!rows.any(stage) || !unit.any(stage)) return;
      uint32_t words[pieces][2];
      Element* const buffer = shared.staging[group][state.index()];
      if constexpr (C::kBringsResiduals) {
        if (stage.residual) {
          staged.producer_acquire(state);
          shared.brought[group][state.index()].wait(state.phase() ^ 1);
        }
        Found::template finish<Element>(stage, v, unit.col, at, StagedResidual<Element>{buffer, at}, words);
      } else {
        if (stage.residual) {
          cute::cp_async_wait<0>();
          __syncwarp();
        }
        Found::template finish<Element>(stage, v, unit.col, at, StagedResidual<Element>{buffer, at}, words);
        __syncwarp();
      }
      staged.producer_acquire(state);
      write_unit<pieces>(buffer, at, words);
      if constexpr (C::kConvolves) {
        __syncwarp();
        Found::Store::template write<C>(params, item, parts, rows, unit.col, buffer, epoch, group, u, thread % 128);
      }
      staged_one = true;
    });
    if (!staged_one) continue;
    if constexpr (!C::kConvolves) ptx::fence_proxy_async_shared_cta();
    staged.producer_commit(state);
    ++state;
  }
}

/// Runs one tile of a row operation, in all consumer threads, which store it themselves. An empty unit notifies each
/// store warp that its warpgroup has finished. `mark` is called when the operands may be read.
template <class C, class Mark>
CUSYNC_DEVICE void run_rows(typename C::Params const& params, Work const& item, typename C::SharedStorage& shared,
                            typename C::LoadPipeline& loaded, typename C::LoadState& loaded_state,
                            typename C::StagingPipeline& staged,
                            cutlass::PipelineState<C::kStagingDepth>& state, uint32_t group, int thread, Mark&& mark) {
  C::RowOperations::visit(params.stages[item.stage].operation, [&](auto found) {
    typename decltype(found)::template Rows<C> rows(params, item, thread);
    // Acquire all staging buffers: the rows may use them as scratch space.
    for (auto buffer = state; buffer.count() < state.count() + C::kStagingDepth; ++buffer) staged.producer_acquire(buffer);
    rows.run(params, item, shared, loaded, loaded_state, mark);
    staged.producer_commit(state);
    ++state;
  });
}

/// A store warp's side of the staging ring. A buffer is released once its store has read it, up to kLag stores later:
/// waiting for each store immediately would leave only one in flight.
template <class C>
class StoreRing {
 public:
  CUSYNC_DEVICE StoreRing(typename C::StagingPipeline& staged) : staged_(staged) {}

  /// Index of the next buffer to receive a residual, or the notice that there is none.
  CUSYNC_DEVICE uint32_t begin() {
    uint32_t const index = begun_.index();
    ++begun_;
    return index;
  }

  /// Index of the next full buffer.
  CUSYNC_DEVICE uint32_t wait() {
    staged_.consumer_wait(full_);
    return full_.index();
  }

  /// Call after issuing the store of that buffer.
  CUSYNC_DEVICE void issued() {
    ptx::cp_async_bulk_commit_group();
    ++full_;
    if (++pending_ > kLag) {
      ptx::cp_async_bulk_wait_group_read<kLag>();
      release();
    }
  }

  /// Call after that buffer was read by other means.
  CUSYNC_DEVICE void read() {
    ++full_, ++pending_;
    release();
  }

  CUSYNC_DEVICE void drain() {
    ptx::cp_async_bulk_wait_group_read<0>();
    while (pending_) release();
  }

 private:
  static constexpr int kLag = C::kStagingDepth - 1;
  CUSYNC_DEVICE void release() {
    staged_.consumer_release(free_);
    ++free_;
    --pending_;
  }
  typename C::StagingPipeline& staged_;
  cutlass::PipelineState<C::kStagingDepth> full_, free_, begun_;
  int pending_ = 0;
};

/// Issues the TMA store of the unit at (row, col) of an output.
template <class C, class Layout, class Store>
CUSYNC_DEVICE void store_unit(Store const& store, Stage const& stage, typename C::Element* buffer, uint32_t row,
                              uint32_t col) {
  using namespace cute;
  constexpr int rows = size<0>(Layout{}), cols = size<1>(Layout{});
  auto const slice = store.get_slice(0);
  Tensor const output = store.get_tma_tensor(make_shape(int(stage.m), int(stage.columns)));
  Tensor const units = local_tile(output, Shape<Int<rows>, Int<cols>>{}, make_coord(_, _));
  Tensor const to = slice.partition_D(units);  // (TMA, TMA_M, TMA_N, row unit, column unit)
  Tensor const from = make_tensor(make_smem_ptr(buffer), Layout{});
  copy(store, slice.partition_S(from), to(_, _, _, int(row) / rows, int(col) / cols));
}

/// Waits until a residual may be read: after everything the item's loads wait for, because an epilogue comes after
/// those.
template <class C>
CUSYNC_DEVICE void await_residual(typename C::Params const& params, Work const& item, typename C::SharedStorage& shared,
                                  uint32_t group) {
  ReadyReader ready(&shared.ready, item.done);
  while (!ready.is_ready(item.range.k_end - item.range.k_begin - 1)) ptx::nanosleep(20);
  if (!(params.stages[item.stage].produced & kProducedResidual)) return;
  shared.epoch_known.wait(0);
  await_in_epilogue<C, ReadBy::kTma, kProducedResidual>(params, item, epoch_of<C>(item, shared.epoch), group);
}

/// Loads the residual of a warpgroup's next unit, at (row, col) of the output, into the unit's staging buffer.
template <class C>
CUSYNC_DEVICE void bring_residual(typename C::Params const& params, Work const& item, typename C::SharedStorage& shared,
                                  StoreRing<C>& ring, uint32_t group, uint32_t row, uint32_t col) {
  if constexpr (C::kBringsResiduals) {
    uint32_t const index = ring.begin();
    auto& brought = shared.brought[group][index];
    ring.drain();  // the buffer's previous contents have been read
    brought.arrive_and_expect_tx(C::kUnitElements * sizeof(typename C::Element));
    cute::SM90_TMA_LOAD_2D::copy(&params.table[item.stage].residual, reinterpret_cast<uint64_t*>(&brought),
                                 static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL), shared.staging[group][index],
                                 int(col), int(row));
  }
}

/// Stores one warpgroup's units of a tile to global memory by TMA, from the leader of a warp. Both ends of the staging
/// ring skip units outside the output.
template <class C>
CUSYNC_DEVICE void send_units(typename C::Params const& params, Work const& item, Parts<C> const& parts,
                              typename C::SharedStorage& shared, StoreRing<C>& ring, uint32_t group, bool leader) {
  if (!leader) return;
  Stage const& stage = params.stages[item.stage];
  // Load as many residuals ahead of the units being sent as there are buffers.
  int const ahead = C::kBringsResiduals && stage.residual ? C::kStagingDepth : 0;
  if (ahead) await_residual<C>(params, item, shared, group);
#pragma unroll 1
  for (int step = 0; step < C::kUnits + ahead; ++step)
#pragma unroll 1
    for (int sends = 1; sends >= (ahead ? 0 : 1); --sends) {
      int const u = step - sends * ahead;
      if (u < 0 || u >= C::kUnits || !parts.owns(u)) continue;
      C::Products::visit(stage.operation, [&](auto found) {
        using Found = decltype(found);
        using To = typename Found::Store;
        Unit<C> const unit(item, Found::kColumnShift, group, u);
        auto const to = To::template rows<C>(params, item, unit.row);
        if (!to.any(stage) || !unit.any(stage)) return;
        if (!sends) return bring_residual<C>(params, item, shared, ring, group, to.first, unit.col);
        uint32_t const index = ring.wait();
        if constexpr (C::kBringsResiduals)
          if (!ahead) shared.brought[group][ring.begin()].arrive();
        typename C::Element* const buffer = shared.staging[group][index];
        delay(params.coupling.delays, DelayAt::kStore, epoch_of<C>(item, shared.epoch), item.stage, item.index, group * C::kUnits + u);
        note(params.coupling.notes, CUSYNC_EVENT_STORE, note_of(params, item), u, group);
        To::template store<C, Found>(params, item, to, unit.col, buffer);
        ring.issued();
      });
    }
  ring.drain();
}

struct MatrixStore {
  /// The rows of a tile, from row `row`.
  template <class C>
  CUSYNC_DEVICE static MatrixRows rows(typename C::Params const&, Work const& item, uint32_t row) {
    return {item.range.m * C::kTileM + row};
  }

  template <class C, class Found>
  CUSYNC_DEVICE static void store(typename C::Params const& params, Work const& item, MatrixRows const& rows, uint32_t col,
                                  typename C::Element* buffer) {
    using Map = typename C::template OutputMap<Found::kOperation>;
    store_unit<C, typename C::template LayoutOf<Found::kOperation>>(
        static_cast<Map const&>(params.table[item.stage].outputs).store, params.stages[item.stage], buffer, rows.first, col);
  }

  template <class C>
  CUSYNC_DEVICE static void send(typename C::Params const& params, Work const& item, Parts<C> const& parts,
                                 typename C::SharedStorage& shared, StoreRing<C>& ring, uint32_t group, bool leader) {
    send_units<C>(params, item, parts, shared, ring, group, leader);
  }
};

struct RowStore {
  /// The single, empty unit of a tile.
  template <class C>
  CUSYNC_DEVICE static void send(typename C::Params const& params, Work const& item, Parts<C> const&,
                                 typename C::SharedStorage& shared, StoreRing<C>& ring, uint32_t group, bool leader) {
    if (!leader) return;
    ring.wait();
    if constexpr (C::kBringsResiduals) shared.brought[group][ring.begin()].arrive();
    note(params.coupling.notes, CUSYNC_EVENT_STORE, note_of(params, item), 0, group);
    ring.read();
  }
};

/// Tells the sender that this worker has finished word `number`.
template <class C>
CUSYNC_DEVICE void tell_done(typename C::Params const& params, uint32_t number) {
  if constexpr (C::kMailed) ptx::st_release_sys(params.mail.done + blockIdx.x, number);
}

/// Posts a tile once all store warps have sent their units. Called by the thread that issued the stores, or that is
/// ordered after them. `tile` is the number of tiles this CTA stored before; by mail, of its words.
template <class C>
CUSYNC_DEVICE void post_item(typename C::Params const& params, Work const& item, Parts<C> const& parts,
                             typename C::SharedStorage& shared, uint32_t group, uint32_t tile) {
  typename C::StageTable const& at = params.table[item.stage];
  Stage const& stage = params.stages[item.stage];
  if (!C::kMailed && !stage.post_count) return;
  // The first policy, usually the only one, is read from device memory while the stores complete.
  uint32_t const slot = C::kMailed && !stage.post_count ? 0 : slot_of(at.edges.posts[0], item.range.m, item.range.n);
  // The full wait, in the thread that issued the stores: only then are they in global memory. The store warps count on
  // one counter per tile; the last one has seen the others' stores complete, and its release covers them. A counter is
  // reused eight tiles later, which is more than the work ring lets one warp run ahead of another.
  ptx::cp_async_bulk_wait_group<0>();
  if constexpr (C::kConsumerGroups > 1) {
    uint32_t* const counter = shared.stored + tile % (2 * C::kWorkDepth);
    if (ptx::atom_acq_rel_cta_shared_add(counter, 1) % C::kConsumerGroups != C::kConsumerGroups - 1) return;  // not the last
  }
  // The sender is told about each word in order, after its posts.
  if (C::kMailed && !stage.post_count) return tell_done<C>(params, tile + 1);
  delay(params.coupling.delays, DelayAt::kPost, epoch_of<C>(item, shared.epoch), item.stage, item.index, group);
  note(params.coupling.notes, CUSYNC_EVENT_POST, note_of(params, item), slot, parts.weight());
  post(params.coupling.semaphores, slot, parts.weight());
#pragma unroll 1
  for (uint32_t i = 1; i < stage.post_count; ++i) {
    if (CUSYNC_DELAYS)
      note(params.coupling.notes, CUSYNC_EVENT_POST, note_of(params, item),
           slot_of(at.edges.posts[i], item.range.m, item.range.n), parts.weight());
    post_tile(at.edges.posts[i], params.coupling.semaphores, item.range.m, item.range.n, parts.weight());
  }
  tell_done<C>(params, tile + 1);
}

}  // namespace cusync::kernels::sm90
