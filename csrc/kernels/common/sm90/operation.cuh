// SPDX-License-Identifier: MIT OR Apache-2.0
// What tells one operation of the Hopper layers from another, and how a kernel that runs several turns to one of them. The
// layers own the rings, the waits, the items and the posts; an operation owns what lies between.
#pragma once
#include "kernels/common/sm90/fragment.cuh"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// Barrier of all consumer threads; those of one warpgroup are 8 and 9.
inline constexpr uint32_t kConsumerBarrier = 10;

/// A part of a kernel's parameters, tables or shared memory that some kernels do not have.
template <class Part>
struct Without {};
template <bool Has, class Part>
using PartIf = std::conditional_t<Has, Part, Without<Part>>;

/// An operation, for its enumerator; kernels/NAME/sm90/operation.cuh specialises it for operation NAME. It has
///
///   kOperation        its enumerator
///   kProduct          whether it multiplies: then it has
///
///   Load              what the load warp copies of an item: `Load::load<C>(...)` copies what no stage produces as soon as the
///                     ring has room, and the rest behind the word of the warp that waits
///   Arithmetic        from the ring to accumulators: `Arithmetic::accumulate<C>(...)`
///   kColumnShift      accumulator columns >> kColumnShift are columns of the output
///   finish<Element>(stage, v, col, at, residual, words)
///                     from accumulators to the output's words, 8 columns a pair, in registers
///   Store             which rows of the output the rows of a tile are, and how a finished unit gets there, in chain kernels
///
/// Any other operation works on whole rows, which its threads read and write themselves. It has
///
///   Load              what the load warp does instead
///   Table             what its stages keep in device memory; `table(stage)` fills it
///   Rows<C>           one tile, by all consumer threads: made before the operands may be read; `run` waits for them
///   Store             RowStore
template <cusync_operation>
struct Operation;

/// Every row of a tile is one of the output, by TMA.
struct MatrixStore;
/// Sends one warpgroup's units of a tile to global memory by TMA; by the leader of a warp. Both ends of the staging ring skip
/// units outside the output.
template <class C, class Item, class Parts, class Ring>
CUSYNC_DEVICE void send_units(typename C::Params const& params, Item const& item, Parts const& parts,
                              typename C::SharedStorage& shared, Ring& ring, uint32_t group, bool leader);
/// The threads that made the rows have stored them.
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

  /// The same with one part of the operation, such as LoadOf. Where all of them, or the last of them, have the same part there
  /// is no branch, and one copy of the code.
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
