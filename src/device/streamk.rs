//! CUTLASS's Stream-K kernel, a peer of the benchmarks.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::context::Device;
use super::error::{Error, Result, check_status};
use super::memory::DeviceBuffer;
use super::stage::BoundStage;
use super::stream::Stream;
use super::words;
use crate::ffi;

/// CUTLASS's Stream-K kernel on a stage's operands: a peer of the benchmarks, never part of a pipeline.
#[derive(Debug)]
pub struct StreamK {
    device: Device,
    handle: NonNull<ffi::cusync_streamk>,
    stage: BoundStage,
    /// Scratch memory for partial sums.
    _workspace: DeviceBuffer<u8>,
}

// SAFETY: the handle is host data, changed only by `launch(&mut self)`.
unsafe impl Send for StreamK {}

impl Drop for StreamK {
    fn drop(&mut self) {
        // SAFETY: made by `cusync_streamk_create`, destroyed once.
        unsafe { ffi::cusync_streamk_destroy(self.handle.as_ptr()) };
    }
}

impl StreamK {
    /// Prepares the peer.
    pub fn new(device: &Device, stage: BoundStage) -> Result<StreamK> {
        let _entered = device.enter()?;
        stage.product()?;
        let (raw, element) = (stage.raw()?, words::element_code(stage.element));
        let call = || format!("Stream-K peer of stage {}", stage.stage.name);
        let (mut bytes, mut handle) = (0, std::ptr::null_mut());
        // SAFETY: a null workspace asks for the size only.
        let status = unsafe {
            let none = std::ptr::null_mut::<c_void>();
            ffi::cusync_streamk_create(&raw, element, none, &mut bytes, &mut handle)
        };
        check_status(call, status)?;
        // At least one byte: a null workspace would ask for the size again.
        let workspace = DeviceBuffer::zeroed(device, (bytes as usize).max(1), "the Stream-K workspace")?;
        // SAFETY: the workspace has the size asked for; the operands are those of `stage`.
        let status = unsafe {
            ffi::cusync_streamk_create(&raw, element, workspace.pointer(), &mut bytes, &mut handle)
        };
        check_status(call, status)?;
        let handle = NonNull::new(handle).ok_or_else(|| Error::NoHostMemory(call()))?;
        Ok(StreamK { device: device.clone(), handle, stage, _workspace: workspace })
    }

    /// Queues the kernel, including the reset of its workspace.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: handle and stream are live.
        let status = unsafe { ffi::cusync_streamk_launch(self.handle.as_ptr(), stream.pointer()) };
        check_status(|| format!("launch of the Stream-K peer of {}", self.stage.stage.name), status)
    }
}
