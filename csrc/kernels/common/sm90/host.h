// SPDX-License-Identifier: MIT OR Apache-2.0
// What the host halves of the Hopper kernels around CUTLASS's collectives share: element types and tensor maps.
#pragma once
#include <cuda.h>

#include <cstring>
#include <type_traits>

#include "cute/tensor.hpp"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"
#include "cutlass/util/packed_stride.hpp"
#include "kernels/common/host.h"
#include "kernels/common/stage.cuh"

namespace cusync::kernels::sm90 {

/// cute prints and goes on when the driver refuses a tensor map, and leaves it zero.
inline bool encoded(CUtensorMap const* map) {
  static constexpr CUtensorMap zero{};
  return std::memcmp(map, &zero, sizeof zero) != 0;
}

/// Tensor maps of A and B; false when the driver refuses one.
template <class C>
bool map_operands(cusync_stage const& stage, typename C::Mainloop::Params& to) {
  using Element = typename C::Element;
  using Mainloop = typename C::Mainloop;
  // A filter is a matrix a tap, so that channels end where a tap's do.
  bool const taps = stage.operation == CUSYNC_CONV2D;
  int const m = int(stage.m), n = int(packed_columns(stage)), k = int(taps ? stage.images.channels : stage.k.most);
  int const count = int(stage.k.most) / k;
  typename Mainloop::Arguments const operands{
      static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_A)),
      cutlass::make_cute_packed_stride(typename Mainloop::StrideA{}, {m, k, count}),
      static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_B)),
      cutlass::make_cute_packed_stride(typename Mainloop::StrideB{}, {n, k, count})};
  to = Mainloop::to_underlying_arguments(cute::make_shape(m, n, k, count), operands, nullptr);
  return encoded(to.tma_load_a.get_tma_descriptor()) && encoded(to.tma_load_b.get_tma_descriptor());
}

/// The tensor map of the output, stored a `Layout` at a time.
template <class C, class Layout>
auto map_output(cusync_stage const& stage, Layout const& layout) {
  auto const output = cute::make_tensor(static_cast<typename C::Element*>(stage.out),
                                        cute::make_shape(int(stage.m), int(stage.n)),
                                        typename C::OutputStride{int64_t(stage.n), {}});
  return cute::make_tma_copy(cute::SM90_TMA_STORE{}, output, layout);
}

}  // namespace cusync::kernels::sm90
