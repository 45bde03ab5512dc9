// SPDX-License-Identifier: MIT OR Apache-2.0
// The interface of an operation in the Hopper kernel layers, and the dispatch in kernels with several operations. The
// layers own the rings, waits, items and posts; the operation owns everything in between.
#pragma once
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// Named barrier of all consumer threads; the warpgroups have 8 and 9.
inline constexpr uint32_t kConsumerBarrier = 10;

/// A part of a kernel's parameters, tables or shared memory that only some kernels have.
template <class Part>
struct Without {};
template <bool Has, class Part>
using PartIf = std::conditional_t<Has, Part, Without<Part>>;

/// An operation, selected by its enumerator; kernels/NAME/sm90/operation.cuh specializes it for operation NAME. It has
///
///   kOperation        its enumerator
///   kProduct          whether it is a matrix product; products have
///
///   Load              copies of the load warp: `Load::load<C>(...)` copies operands without a producer as soon as the
///                     ring has room, and the others when the wait warp allows it
///   Arithmetic        from the ring to accumulators: `Arithmetic::accumulate<C>(...)`
///   kColumnShift      accumulator columns >> kColumnShift are output columns
///   finish<Element>(stage, v, col, at, residual, words)
///                     from accumulators to the output's words, 8 columns per pair, in registers
///   Store             in chain kernels: maps rows of a tile to rows of the output, and stores finished units
///
/// Any other operation works on whole rows, which its threads read and write themselves. It has
///
///   Load              replaces the copies of the load warp
///   Table             data of its stages in device memory; `table(stage)` fills it
///   Rows<C>           one tile, by all consumer threads: constructed before operands may be read; `run` waits
///   Store             RowStore
template <cusync_operation>
struct Operation;

/// Every row of a tile is a row of the output, stored by TMA.
struct MatrixStore;
/// The threads that computed the rows have already stored them.
struct RowStore;

template <cusync_operation O>
using LoadOf = typename Operation<O>::Load;
template <cusync_operation O>
using ArithmeticOf = typename Operation<O>::Arithmetic;
template <cusync_operation O>
using StoreOf = typename Operation<O>::Store;

/// The operations of one kernel.
template <cusync_operation...>
struct OperationSet;

/// Appends the operations with kProduct == Product to `Set`.
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
  /// Calls f with the operation of a stage, which must be in the set.
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

  /// The same with one part of the operation, such as LoadOf. If all operations have the same part, or the remaining
  /// ones do, there is no branch and one copy of the code.
  template <template <cusync_operation> class Part, class F>
  CUSYNC_DEVICE static void visit_part(uint32_t operation, F&& f) {
    if constexpr ((std::is_same_v<Part<First>, Part<Rest>> && ...))
      f(Part<First>{});
    else if (operation == First)
      f(Part<First>{});
    else
      OperationSet<Rest...>::template visit_part<Part>(operation, f);
  }
};

}  // namespace cusync::kernels::sm90
