//! Handles shared with `cudarc`: the handles created here keep cudarc's value alive. Feature `cudarc`.
//!
//! Both sides queue work on the same GPU, ordered by streams and events: cudarc's tracking of reads and
//! writes does not cover ours.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use super::context::Device;
use super::error::{Error, Result};
use super::memory::{DeviceBuffer, Plain};
use super::stream::Stream;

fn same(device: &Device, context: &CudaContext, name: &str) -> Result<()> {
    if device.as_raw() == context.cu_ctx().cast() {
        return Ok(());
    }
    Err(Error::BadArgument(format!("the {name} is of another context than the device")))
}

impl Device {
    /// A GPU in cudarc's context.
    ///
    /// # Errors
    /// The driver does not know the context.
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Device> {
        // SAFETY: the device keeps the context alive.
        unsafe { Device::lent(context.cu_ctx().cast(), Some(context.clone())) }
    }
}

impl Stream {
    /// A cudarc stream.
    ///
    /// # Errors
    /// The stream belongs to another context than `device`.
    pub fn from_cudarc(device: &Device, stream: &Arc<CudaStream>) -> Result<Stream> {
        same(device, stream.context(), "stream")?;
        // SAFETY: the stream belongs to this context, and is kept alive.
        Ok(unsafe { Stream::lent(device, stream.cu_stream().cast(), Some(stream.clone())) })
    }
}

impl<T: Plain> DeviceBuffer<T> {
    /// cudarc memory, in place; 16-bit floats are bound as bits. Waits for all work queued on its stream;
    /// the caller orders later work.
    ///
    /// # Errors
    /// The memory belongs to another context than `device`, its values have another size, or it is not
    /// aligned to 16 bytes.
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
        // SAFETY: the stream belongs to this context, and the slice keeps it alive.
        unsafe { Stream::lent(device, stream.cu_stream().cast(), None) }.synchronize()?;
        // SAFETY: `len` plain values of this context; the buffer keeps them alive.
        unsafe { DeviceBuffer::lent(device, pointer, slice.len(), Some(slice.clone())) }
    }
}
