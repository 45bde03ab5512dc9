// SPDX-License-Identifier: MIT OR Apache-2.0
// Code shared by Hopper kernels that take work from a ring: the CUTLASS main loop, and the consumer end of the work
// ring.
#pragma once
#include "cute/tensor.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/pipeline/pipeline.hpp"

#include "cusync/ptx.cuh"

namespace cusync::kernels::sm90 {

/// Number of warpgroups that multiply a tile of `rows` rows.
constexpr int consumer_groups(int rows) { return rows == 192 ? 3 : rows >= 128 ? 2 : 1; }

/// CUTLASS's main loop for tiles of TileM x TileN x 64, with `Stages` operand stages.
template <class Element, int TileM, int TileN, int ClusterM, int ClusterN, int Stages>
struct Multiplies {
  static constexpr int kGroups = consumer_groups(TileM);
  using TileShape = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::_64>;
  using ClusterShape = cute::Shape<cute::Int<ClusterM>, cute::Int<ClusterN>, cute::_1>;
  using Schedule = cute::conditional_t<(kGroups > 1), cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                       cutlass::gemm::KernelTmaWarpSpecialized>;
  /// CUTLASS's builder supports only one or two warpgroups along the rows.
  template <int Groups, class = void>
  struct Loop : cutlass::gemm::collective::CollectiveBuilder<
                    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,            //
                    Element, cutlass::layout::RowMajor, 8,                          // A: M x K
                    Element, cutlass::layout::RowMajor, 8,                          // B: K x N
                    float, TileShape, ClusterShape, cutlass::gemm::collective::StageCount<Stages>, Schedule> {};
  /// For three warpgroups, assemble the same loop here.
  template <class Any>
  struct Loop<3, Any> {
    static constexpr auto kA = cute::GMMA::Major::K, kB = cute::GMMA::Major::MN;
    using CollectiveOp = cutlass::gemm::collective::CollectiveMma<
        cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<Stages, ClusterShape, Schedule>, TileShape,  //
        Element, cutlass::gemm::TagToStrideA_t<cutlass::layout::RowMajor>,                             //
        Element, cutlass::gemm::TagToStrideB_t<cutlass::layout::RowMajor>,
        decltype(cute::make_tiled_mma(cute::GMMA::ss_op_selector<Element, Element, float, TileShape, kA, kB>(),
                                      cute::Layout<cute::Shape<cute::_3, cute::_1, cute::_1>>{})),
        decltype(cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(cute::Int<ClusterN>{})),
        decltype(cutlass::gemm::collective::detail::ss_smem_selector<kA, Element, cute::Int<TileM>, cute::_64>()), void, cute::identity,
        decltype(cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(cute::Int<ClusterM>{})),
        decltype(cutlass::gemm::collective::detail::ss_smem_selector<kB, Element, cute::Int<TileN>, cute::_64>()), void, cute::identity>;
  };
  using Mainloop = typename Loop<kGroups>::CollectiveOp;
  static_assert(cute::size(typename Mainloop::TiledMma{}) == 128 * kGroups);
};

/// The state of a ring after `count` steps from its start in phase `first`.
template <int Depth>
CUSYNC_DEVICE cutlass::PipelineState<Depth> of_count(uint32_t count, uint32_t first) {
  return {int(count % Depth), first ^ count / Depth % 2, count};
}

/// The consumer end of the work ring. A whole converged warp calls `next`, and each lane releases the item itself: one
/// release per warp would be correct too, but race checkers cannot follow it.
template <class C>
class WorkReader {
 public:
  CUSYNC_DEVICE WorkReader(typename C::SharedStorage const& shared, typename C::WorkPipeline& work)
      : shared_(shared), work_(work) {}

  CUSYNC_DEVICE auto next() {
    // If registers are scarce, keep one number instead of the state's three.
    if constexpr (C::kLean) state_ = of_count<C::kWorkDepth>(count_++, 0);
    work_.consumer_wait(state_);
    auto const item = shared_.items[state_.index()];
    work_.consumer_release(state_);
    if constexpr (!C::kLean) ++state_;
    return item;
  }

 private:
  typename C::SharedStorage const& shared_;
  typename C::WorkPipeline& work_;
  cutlass::PipelineState<C::kWorkDepth> state_;
  uint32_t count_ = 0;
};

}  // namespace cusync::kernels::sm90
