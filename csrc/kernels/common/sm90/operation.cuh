// SPDX-License-Identifier: MIT OR Apache-2.0
// What tells one operation of the Hopper layers from another, and how a kernel that runs several turns to one of them. The
// layers own the rings, the waits, the items and the posts; an operation owns what lies between.
#pragma once
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// Barrier of all consumer threads; those of one warpgroup are 8 and 9.
inline constexpr uint32_t kConsumerBarrier = 10;

/// An operation, for its enumerator; kernels/NAME/sm90/operation.cuh specialises it for operation NAME. It has
///
///   kOperation        its enumerator
///   kProduct          whether it multiplies: then it has
///
///   Load              what the load warp copies of an item: `Load::load<C>(...)` copies what no stage produces as soon as the
///                     ring has room, and the rest behind the word of the warp that waits
///   Arithmetic        from the ring to accumulators: `Arithmetic::accumulate<C>(...)`
///   kColumnShift      accumulator columns >> kColumnShift are columns of the output
///   finish<Element>(stage, v, row, col, at, words)
///                     from accumulators to the output's words, 8 columns a pair, in registers
///
/// Any other operation works on whole rows, which its threads read and write themselves. It has
///
///   Load              what the load warp does instead
///   Table             what its stages keep in device memory; `table(stage)` fills it
///   Rows<C>           one tile, by all consumer threads: made before the operands may be read, `run` after
template <cusync_operation>
struct Operation;

/// The operations of one kernel. Where all of them load or calculate alike there is no branch.
template <cusync_operation...>
struct OperationSet;

/// Those of them that multiply (or do not), added to `Set`.
template <bool Product, class Set, cusync_operation...>
struct OperationsThat {
  using type = Set;
};
template <bool Product, cusync_operation... Taken, cusync_operation First, cusync_operation... Rest>
struct OperationsThat<Product, OperationSet<Taken...>, First, Rest...>
    : OperationsThat<Product,
                     std::conditional_t<Operation<First>::kProduct == Product, OperationSet<Taken..., First>,
                                        OperationSet<Taken...>>,
                     Rest...> {};

template <cusync_operation First, cusync_operation... Rest>
struct OperationSet<First, Rest...> {
  /// Calls f with the operation that a stage names, which is one of them.
  template <class F>
  CUSYNC_DEVICE static void visit(uint32_t operation, F&& f) {
    if constexpr (sizeof...(Rest) == 0) {
      f(Operation<First>{});
    } else {
      if (operation == First)
        f(Operation<First>{});
      else
        OperationSet<Rest...>::visit(operation, f);
    }
  }

  /// The same with what it loads.
  template <class F>
  CUSYNC_DEVICE static void visit_load(uint32_t operation, F&& f) {
    using Load = typename Operation<First>::Load;
    if constexpr ((std::is_same_v<Load, typename Operation<Rest>::Load> && ...))
      f(Load{});
    else
      visit(operation, [&](auto found) { f(typename decltype(found)::Load{}); });
  }

  /// The same with what it calculates.
  template <class F>
  CUSYNC_DEVICE static void visit_arithmetic(uint32_t operation, F&& f) {
    using Arithmetic = typename Operation<First>::Arithmetic;
    if constexpr ((std::is_same_v<Arithmetic, typename Operation<Rest>::Arithmetic> && ...))
      f(Arithmetic{});
    else
      visit(operation, [&](auto found) { f(typename decltype(found)::Arithmetic{}); });
  }
};

}  // namespace cusync::kernels::sm90
