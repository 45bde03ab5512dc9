//! Handles of `cudarc`, shared with it: what is made here keeps cudarc's value alive. Feature `cudarc`.
//!
//! Both sides queue work on the same GPU, in the order that streams and events state: cudarc's own bookkeeping of reads and
//! writes does not know of ours.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use super::context::Device;
use super::error::{Error, Result};
use super::memory::{DeviceBuffer, Plain};
use super::stream::Stream;

fn same(device: &Device, context: &CudaContext, what: &str) -> Result<()> {
    if device.as_raw() == context.cu_ctx().cast() {
        return Ok(());
    }
    Err(Error::BadArgument(format!("the {what} is of another context than the device")))
}

impl Device {
    /// A GPU in cudarc's context.
    ///
    /// # Errors
    /// The driver does not know the context.
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Device> {
        // SAFETY: the device keeps the context.
        unsafe { Device::lent(context.cu_ctx().cast(), Some(context.clone())) }
    }
}

impl Stream {
    /// A stream of cudarc's.
    ///
    /// # Errors
    /// It is of another context than `device`.
    pub fn from_cudarc(device: &Device, stream: &Arc<CudaStream>) -> Result<Stream> {
        same(device, stream.context(), "stream")?;
        // SAFETY: it is of this context, and kept.
        Ok(unsafe { Stream::lent(device, stream.cu_stream().cast(), Some(stream.clone())) })
    }
}

impl<T: Plain> DeviceBuffer<T> {
    /// Memory of cudarc's, in place; 16-bit floats are bound as their bits. Waits for what its stream has queued. What is
    /// queued later is ordered by the caller.
    ///
    /// # Errors
    /// It is of another context than `device`, its values have another size, or it is not aligned to 16 bytes.
    pub fn from_cudarc<S: Plain + std::fmt::Debug>(
        device: &Device,
        slice: &Arc<CudaSlice<S>>,
    ) -> Result<DeviceBuffer<T>> {
        same(device, slice.context(), "memory")?;
        if size_of::<S>() != size_of::<T>() {
            let sizes = (size_of::<S>(), size_of::<T>());
            return Err(Error::BadArgument(format!("values of {} bytes are bound as {}", sizes.0, sizes.1)));
        }
        let stream = slice.stream();
        let pointer = slice.device_ptr(stream).0 as *mut std::ffi::c_void;
        // SAFETY: it is of this context; the stream is kept by the slice.
        unsafe { Stream::lent(device, stream.cu_stream().cast(), None) }.synchronize()?;
        // SAFETY: `len` plain values, of this context, that the buffer keeps.
        unsafe { DeviceBuffer::lent(device, pointer, slice.len(), Some(slice.clone())) }
    }
}
