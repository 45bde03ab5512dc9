//! Page-locked host memory, and copies to and from it that do not block the host.

use std::sync::Arc;

use cudarc::driver::sys;

use super::context::Device;
use super::error::{Error, Result, check};
use super::memory::DeviceBuffer;
use super::stream::Stream;

/// Page-locked host memory of 32-bit words, which copy engines and kernels access while the host continues.
/// With unified addressing, which every 64-bit system has, both sides use the same address.
#[derive(Debug)]
pub struct PinnedBuffer {
    device: Device,
    host: *mut u32,
    len: usize,
}

// SAFETY: the memory is accessed through raw pointers only, word by word.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above; all accesses are volatile or by copy engines.
unsafe impl Sync for PinnedBuffer {}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: allocated in `new`. Nothing can be done about a failure here.
            unsafe { sys::cuMemFreeHost(self.host.cast()) };
        }
    }
}

impl PinnedBuffer {
    /// Allocates `len` words of zero.
    pub fn new(device: &Device, len: usize) -> Result<PinnedBuffer> {
        let _entered = device.enter()?;
        let mut host = std::ptr::null_mut();
        let bytes = len.max(1).saturating_mul(size_of::<u32>());
        // SAFETY: a current context; the pointer outlives the call.
        check("cuMemHostAlloc", unsafe {
            sys::cuMemHostAlloc(&mut host, bytes, sys::CU_MEMHOSTALLOC_PORTABLE)
        })?;
        // SAFETY: just allocated with this many bytes.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        Ok(PinnedBuffer { device: device.clone(), host: host.cast(), len })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills it. No copy may be in progress.
    pub fn write(&self, words: &[u32]) -> Result<()> {
        if words.len() != self.len {
            return Err(Error::Length { what: "pinned memory".into(), have: words.len(), want: self.len });
        }
        for (index, &word) in words.iter().enumerate() {
            // SAFETY: inside the allocation.
            unsafe { self.host.add(index).write_volatile(word) };
        }
        Ok(())
    }

    /// Its words. Copies into it must be done.
    pub fn read(&self) -> Vec<u32> {
        // SAFETY: inside the allocation.
        (0..self.len).map(|index| unsafe { self.host.add(index).read_volatile() }).collect()
    }

    /// One word, which the device may be writing.
    pub fn word(&self, index: usize) -> Option<u32> {
        // SAFETY: inside the allocation.
        (index < self.len).then(|| unsafe { self.host.add(index).read_volatile() })
    }

    /// Sets one word. The device must not be writing it.
    pub fn set_word(&self, index: usize, value: u32) -> Result<()> {
        self.inside(index)?;
        // SAFETY: inside the allocation.
        unsafe { self.host.add(index).write_volatile(value) };
        Ok(())
    }

    fn inside(&self, index: usize) -> Result<()> {
        if index < self.len {
            return Ok(());
        }
        Err(Error::Length { what: "pinned memory".into(), have: self.len, want: index + 1 })
    }

    /// The first word, for host and device.
    pub(super) fn pointer(&self) -> *mut u32 {
        self.host
    }
}

/// A copy of a whole buffer between host and device. Keeps both alive.
#[derive(Clone, Debug)]
pub struct CopyCall {
    host: Arc<PinnedBuffer>,
    device: Arc<DeviceBuffer<u32>>,
    to_device: bool,
}

impl CopyCall {
    /// Host to device. Both must have the same length.
    pub fn upload(from: &Arc<PinnedBuffer>, to: &Arc<DeviceBuffer<u32>>) -> Result<CopyCall> {
        Self::checked(from, to, true)
    }

    /// Device to host. Both must have the same length.
    pub fn download(from: &Arc<DeviceBuffer<u32>>, to: &Arc<PinnedBuffer>) -> Result<CopyCall> {
        Self::checked(to, from, false)
    }

    fn checked(
        host: &Arc<PinnedBuffer>,
        device: &Arc<DeviceBuffer<u32>>,
        to_device: bool,
    ) -> Result<CopyCall> {
        if host.len() != device.len() {
            let name = "copy between host and device".into();
            return Err(Error::Length { what: name, have: host.len(), want: device.len() });
        }
        Ok(CopyCall { host: host.clone(), device: device.clone(), to_device })
    }

    /// Whether it copies from host to device.
    pub fn is_upload(&self) -> bool {
        self.to_device
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.device.bytes()
    }

    /// Host address, device address.
    pub(super) fn ends(&self) -> (*mut u32, sys::CUdeviceptr) {
        (self.host.pointer(), self.device.pointer() as sys::CUdeviceptr)
    }
}

impl Stream {
    /// Writes one word of host memory after all earlier work of the stream. `to` must live until then.
    pub fn write_word(&self, to: &PinnedBuffer, index: usize, value: u32) -> Result<()> {
        let _entered = self.device().enter()?;
        to.inside(index)?;
        let address = to.pointer().wrapping_add(index) as sys::CUdeviceptr;
        // SAFETY: the word is inside the allocation.
        check("cuStreamWriteValue32", unsafe { sys::cuStreamWriteValue32_v2(self.raw(), address, value, 0) })
    }

    /// Queues a copy.
    pub fn copy(&self, call: &CopyCall) -> Result<()> {
        let _entered = self.device().enter()?;
        let (host, device) = call.ends();
        if call.to_device {
            // SAFETY: both ends hold `bytes` bytes and outlive the work, because the caller keeps the call.
            check("cuMemcpyHtoDAsync", unsafe {
                sys::cuMemcpyHtoDAsync_v2(device, host.cast(), call.bytes(), self.raw())
            })
        } else {
            // SAFETY: as above.
            check("cuMemcpyDtoHAsync", unsafe {
                sys::cuMemcpyDtoHAsync_v2(host.cast(), device, call.bytes(), self.raw())
            })
        }
    }
}
