//! Access to the GPU memory of candle's tensors, in place. Feature `candle-cuda`.

use std::ffi::c_void;
use std::sync::Arc;

use candle_core::{CudaDevice, DType, Error, Result, Storage, Tensor};
use cudarc::driver::DevicePtr;

use super::context::Device;
use super::memory::DeviceBuffer;

/// Memory of a contiguous tensor of 16-bit floats; candle keeps ownership.
///
/// # Errors
/// The tensor has another type or is not contiguous.
pub(crate) fn of_candle(
    device: &Device,
    gpu: &CudaDevice,
    tensor: &Tensor,
) -> Result<Arc<DeviceBuffer<u16>>> {
    if !tensor.is_contiguous() {
        candle_core::bail!("a tensor that is bound is contiguous: call `contiguous` before");
    }
    let stream = gpu.cuda_stream();
    stream.synchronize().map_err(Error::wrap)?;
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        candle_core::bail!("the tensor is not on the pipeline's GPU");
    };
    let first = match tensor.dtype() {
        DType::F16 => storage.as_cuda_slice::<half::f16>()?.device_ptr(&stream).0,
        DType::BF16 => storage.as_cuda_slice::<half::bf16>()?.device_ptr(&stream).0,
        other => candle_core::bail!("a tensor that is bound is of 16-bit floats, not {other:?}"),
    };
    let pointer = (first as usize + layout.start_offset() * size_of::<u16>()) as *mut c_void;
    // SAFETY: the storage holds the tensor's elements from that offset on, and the buffer keeps the tensor
    // alive.
    let memory =
        unsafe { DeviceBuffer::lent(device, pointer, tensor.elem_count(), Some(Arc::new(tensor.clone()))) };
    memory.map(Arc::new).map_err(Error::wrap)
}
