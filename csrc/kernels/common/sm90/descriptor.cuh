// SPDX-License-Identifier: MIT OR Apache-2.0
// Descriptors of WGMMA operands in shared memory, in rows of 128 bytes under the 128-byte swizzle.
#pragma once
#include "cute/arch/mma_sm90_desc.hpp"
#include "cute/atom/mma_traits_sm90_gmma.hpp"
#include "cute/tensor.hpp"
#include "cusync/ptx.cuh"

namespace cusync::kernels::sm90 {

/// A descriptor of operand rows of 128 bytes under the 128-byte swizzle, in contiguous groups of 8 rows. `leading`:
/// bytes from one block of 64 columns to the next, if the columns are not the reduction dimension.
CUSYNC_DEVICE cute::GmmaDescriptor rows_descriptor(void const* shared, uint32_t leading) {
  cute::GmmaDescriptor descriptor;
  descriptor.bitfield.start_address_ = uint16_t(cute::cast_smem_ptr_to_uint(shared) >> 4);
  descriptor.bitfield.leading_byte_offset_ = uint16_t(leading >> 4);
  descriptor.bitfield.stride_byte_offset_ = 1024 >> 4;
  descriptor.bitfield.base_offset_ = 0;
  descriptor.bitfield.layout_type_ = uint8_t(cute::SM90::GMMA::LayoutType::B128);
  return descriptor;
}

/// An operand's descriptor as an argument of cute's atoms, advanced by `bytes`.
CUSYNC_DEVICE auto descriptor_at(cute::GmmaDescriptor descriptor, uint32_t bytes) {
  descriptor.reg32_[0] += bytes >> 4;
  return cute::make_tensor(cute::SM90::GMMA::DescriptorIterator{descriptor}, cute::Layout<cute::_1>{});
}

}  // namespace cusync::kernels::sm90
