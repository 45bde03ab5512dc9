// SPDX-License-Identifier: MIT OR Apache-2.0
// Host code shared by the Hopper kernels built on CUTLASS collectives: element types and tensor maps.
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

/// If the driver rejects a tensor map, cute prints an error, continues, and leaves the map zero.
inline bool encoded(CUtensorMap const* map) {
  static constexpr CUtensorMap zero{};
  return std::memcmp(map, &zero, sizeof zero) != 0;
}

/// Tensor maps of A and B; false if the driver rejects one.
template <class C>
bool map_operands(cusync_stage const& stage, typename C::Mainloop::Params& to) {
  using Element = typename C::Element;
  using Mainloop = typename C::Mainloop;
  // A filter is one matrix per tap, so k-blocks end at the channels of a tap.
  bool const taps = stage.operation == CUSYNC_CONV2D;
  int const m = int(stage.m), n = int(packed_columns(stage)), k = int(taps ? stage.shape.images.channels : stage.k);
  int const count = int(stage.k) / k;
  typename Mainloop::Arguments const operands{
      static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_A)),
      cutlass::make_cute_packed_stride(typename Mainloop::StrideA{}, {m, k, count}),
      static_cast<Element const*>(data_of(stage, CUSYNC_OPERAND_B)),
      cutlass::make_cute_packed_stride(typename Mainloop::StrideB{}, {n, k, count})};
  to = Mainloop::to_underlying_arguments(cute::make_shape(m, n, k, count), operands, nullptr);
  return encoded(to.tma_load_a.get_tma_descriptor()) && encoded(to.tma_load_b.get_tma_descriptor());
}

/// The tensor map of a tensor, innermost axis first, copied in boxes with 128-byte rows under the 128-byte swizzle;
/// false if the driver rejects it. The tensor is dense, or has a stride of `outer` elements along its outermost axis.
template <class Element, int Rank>
bool map_box(CUtensorMap& map, void const* data, cuuint64_t const (&sizes)[Rank], cuuint32_t const (&box)[Rank], cuuint64_t outer = 0) {
  auto const type = std::is_same_v<Element, cutlass::half_t> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  cuuint64_t strides[Rank - 1];
  cuuint32_t steps[Rank];
  cuuint64_t bytes = sizeof(Element);
  for (int axis = 0; axis < Rank; ++axis) {
    steps[axis] = 1, bytes *= sizes[axis];
    if (axis + 1 < Rank) strides[axis] = bytes;
  }
  if (outer) strides[Rank - 2] = outer * sizeof(Element);
  return CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
             &map, type, Rank, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// The tensor map of the output, stored one `Layout` at a time.
template <class C, class Layout>
auto map_output(cusync_stage const& stage, Layout const& layout) {
  auto const output = cute::make_tensor(static_cast<typename C::Element*>(stage.out),
                                        cute::make_shape(int(stage.m), int(stage.n)),
                                        typename C::OutputStride{int64_t(stage.n), {}});
  return cute::make_tma_copy(cute::SM90_TMA_STORE{}, output, layout);
}

}  // namespace cusync::kernels::sm90
