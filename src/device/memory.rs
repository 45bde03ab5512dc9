//! Device memory and the pinned report.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;

use super::context::{Device, Keeper, Owner};
use super::error::{Error, Result, check};
use super::pinned::PinnedBuffer;
use super::stream::Stream;
use crate::ffi;

/// Types of plain bytes: any bit pattern is valid and there is no padding.
///
/// # Safety
/// Implementors must be `repr` of primitive numbers only.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty),*) => {
        $(
            // SAFETY: a primitive number.
            unsafe impl Plain for $t {}
        )*
    };
}
plain!(u8, u16, u32, u64, i32, f32, half::f16, half::bf16);
// SAFETY: primitive numbers only, laid out without padding, as the size tests of the bindings show.
unsafe impl Plain for ffi::cusync_item {}
// SAFETY: as above.
unsafe impl Plain for ffi::cusync_trace {}
// SAFETY: as above.
unsafe impl Plain for ffi::cusync_note {}
// SAFETY: as above.
unsafe impl Plain for ffi::cusync_sampling {}

/// `len` values of `T` in device memory, freed on drop. Tensors of 16-bit floats are `DeviceBuffer<u16>`; the
/// pipeline knows which of the two formats they hold.
#[derive(Debug)]
pub struct DeviceBuffer<T: Plain> {
    device: Device,
    pointer: sys::CUdeviceptr,
    len: usize,
    owner: Owner,
    /// Whether runs of a pipeline write it.
    written: AtomicBool,
    marker: PhantomData<T>,
}

impl<T: Plain> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Lent { .. }) {
            return;
        }
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: allocated in `new` in this context. After a context fault the call fails, and the
            // memory is gone anyway.
            unsafe { sys::cuMemFree_v2(self.pointer) };
        }
    }
}

impl<T: Plain> DeviceBuffer<T> {
    /// Allocates without initializing; `name` names the buffer if memory runs out.
    pub fn new(device: &Device, len: usize, name: &str) -> Result<Self> {
        let _entered = device.enter()?;
        let bytes = len.max(1).saturating_mul(size_of::<T>());
        let mut pointer = 0;
        // SAFETY: a current context; the pointer outlives the call.
        let result = unsafe { sys::cuMemAlloc_v2(&mut pointer, bytes) };
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let free_mib = device.memory().map_or(0, |(free, _)| free >> 20);
            return Err(Error::NoDeviceMemory {
                what: name.into(),
                need_mib: (bytes as u64) >> 20,
                free_mib,
            });
        }
        check("cuMemAlloc", result)?;
        Ok(DeviceBuffer {
            device: device.clone(),
            pointer,
            len,
            owner: Owner::Own,
            written: AtomicBool::new(false),
            marker: PhantomData,
        })
    }

    /// Memory allocated and freed by the caller: `len` values from `pointer` on. Nothing is copied, now or
    /// when it is bound.
    ///
    /// # Safety
    /// For as long as the buffer, its clones in `Arc`s, pipelines that it is bound to and graphs captured from
    /// them live:
    /// * `pointer` is device memory that `device`'s context can address, of at least `len` values, and stays
    ///   allocated;
    /// * all other writes to it are ordered with the runs that read it, by stream order or events.
    ///
    /// # Errors
    /// [`Error::BadArgument`]: the pointer is null, or not aligned to 16 bytes, which bulk copies need.
    pub unsafe fn borrow(device: &Device, pointer: *mut c_void, len: usize) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::lent(device, pointer, len, None) }
    }

    /// # Safety
    /// [`DeviceBuffer::borrow`] with an optional `keeper` that keeps the memory alive instead of the caller.
    pub(super) unsafe fn lent(
        device: &Device,
        pointer: *mut c_void,
        len: usize,
        keeper: Option<Keeper>,
    ) -> Result<Self> {
        let pointer = pointer as sys::CUdeviceptr;
        if pointer == 0 || !pointer.is_multiple_of(16) {
            return Err(Error::BadArgument(format!(
                "borrowed memory at {pointer:#x}, which is not aligned to 16 bytes"
            )));
        }
        let owner = Owner::Lent { _keeper: keeper };
        Ok(DeviceBuffer {
            device: device.clone(),
            pointer,
            len,
            owner,
            written: AtomicBool::new(false),
            marker: PhantomData,
        })
    }

    /// A range of this buffer's values as values of the same or another type. The buffer stays alive with it,
    /// and writes to the view are writes to the buffer.
    ///
    /// # Errors
    /// The range is not inside the buffer, does not begin at a multiple of 16 bytes, or is no whole number of
    /// values of the other type.
    pub fn view<U: Plain>(self: &Arc<Self>, range: Range<usize>) -> Result<DeviceBuffer<U>>
    where
        T: std::fmt::Debug,
    {
        let bytes = range.len() * size_of::<T>();
        if range.start > range.end || range.end > self.len || !bytes.is_multiple_of(size_of::<U>()) {
            let end = range.end.max(range.start);
            return Err(Error::Length { what: "view of a buffer".into(), have: self.len, want: end });
        }
        let first = self.pointer + (range.start * size_of::<T>()) as sys::CUdeviceptr;
        let (first, values) = (first as *mut c_void, bytes / size_of::<U>());
        // SAFETY: the range is inside the allocation, which the keeper keeps alive, and any bits are a `U`.
        unsafe { DeviceBuffer::lent(&self.device, first, values, Some(self.clone())) }
    }

    /// Allocates and zeroes, and waits for completion.
    pub fn zeroed(device: &Device, len: usize, name: &str) -> Result<Self> {
        let buffer = Self::new(device, len, name)?;
        let _entered = device.enter()?;
        // SAFETY: the allocation holds at least `bytes()` bytes.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(buffer.pointer, 0, buffer.bytes()) })?;
        device.synchronize()?;
        Ok(buffer)
    }

    /// Allocates and uploads `data`, and waits for completion.
    pub fn from_slice(device: &Device, data: &[T], name: &str) -> Result<Self> {
        let buffer = Self::new(device, data.len(), name)?;
        buffer.upload(data)?;
        Ok(buffer)
    }

    /// The GPU that holds it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Address range.
    pub fn addresses(&self) -> Range<usize> {
        let begin = self.pointer as usize;
        begin..begin + self.bytes()
    }

    /// Marks the buffer as written by runs of a pipeline.
    pub(crate) fn written_by_runs(&self) {
        self.written.store(true, Ordering::Relaxed);
    }

    /// Whether runs of a pipeline write it.
    pub fn is_written(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// The device address.
    pub fn pointer(&self) -> *mut c_void {
        self.pointer as *mut c_void
    }

    /// Copies from the host and waits for the whole GPU. Other streams must not be using the buffer.
    pub fn upload(&self, data: &[T]) -> Result<()> {
        self.same_length("upload", data.len())?;
        let _entered = self.device.enter()?;
        // SAFETY: both sides hold `bytes()` bytes of plain data.
        check("cuMemcpyHtoD", unsafe {
            sys::cuMemcpyHtoD_v2(self.pointer, data.as_ptr().cast(), self.bytes())
        })?;
        // The call may return while the last bytes are still in a staging buffer, and our streams do not wait
        // for the default stream.
        self.device.synchronize()
    }

    /// Copies from the host behind the work of `stream`, and waits only for that stream: a persistent kernel
    /// keeps running.
    pub fn upload_on(&self, data: &[T], stream: &Stream) -> Result<()> {
        self.same_length("upload", data.len())?;
        let _entered = self.device.enter()?;
        // SAFETY: both sides hold `bytes()` bytes of plain data, and the copy is over when this returns.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.pointer, data.as_ptr().cast(), self.bytes(), stream.raw())
        })?;
        stream.synchronize()
    }

    /// Copies to the host and waits for the copy; the caller must have waited for the writers.
    pub fn download(&self, data: &mut [T]) -> Result<()> {
        self.same_length("download", data.len())?;
        self.download_first(data)
    }

    /// Downloads the first `data.len()` values.
    pub fn download_first(&self, data: &mut [T]) -> Result<()> {
        if data.len() > self.len {
            self.same_length("download", data.len())?;
        }
        let _entered = self.device.enter()?;
        // SAFETY: both sides hold that many bytes, and any bit pattern is a valid `T`.
        check("cuMemcpyDtoH", unsafe {
            sys::cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), self.pointer, size_of_val(data))
        })
    }

    /// Copies another buffer of the same length, of this GPU or another one, in the order of a stream of either. Both
    /// must live until the copy is over.
    pub fn copy_from(&self, from: &DeviceBuffer<T>, stream: &Stream) -> Result<()> {
        self.same_length("copy", from.len())?;
        let _entered = stream.device().enter()?;
        let [own, theirs] = [&self.device, &from.device].map(|device| device.as_raw().cast());
        // SAFETY: both sides hold `bytes()` bytes in live contexts.
        check("cuMemcpyPeerAsync", unsafe {
            sys::cuMemcpyPeerAsync(self.pointer, own, from.pointer, theirs, self.bytes(), stream.raw())
        })
    }

    /// Fills with one byte, in stream order. 0xFF makes NaNs of both float formats: poison that exposes
    /// outputs which were never written.
    pub fn fill_bytes(&self, byte: u8, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the allocation holds `bytes()` bytes.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(self.pointer, byte, self.bytes(), stream.raw())
        })
    }

    fn same_length(&self, name: &str, have: usize) -> Result<()> {
        if have == self.len {
            return Ok(());
        }
        Err(Error::Length { what: name.into(), have, want: self.len })
    }
}

/// Record filled by a timed-out wait: pinned host memory that kernels write, and that survives the trap.
#[derive(Debug)]
pub struct TimeoutReport(PinnedBuffer);

impl TimeoutReport {
    /// Allocates an empty record that the GPU can write.
    pub fn new(device: &Device) -> Result<TimeoutReport> {
        let report =
            TimeoutReport(PinnedBuffer::new(device, size_of::<ffi::cusync_report>() / size_of::<u32>())?);
        report.clear();
        Ok(report)
    }

    /// The record, if a wait has filled it completely.
    pub fn read(&self) -> Option<ffi::cusync_report> {
        // SAFETY: valid as long as `self`; volatile because the GPU writes it.
        let record = unsafe { self.device_pointer().read_volatile() };
        complete(record)
    }

    /// Empties the record. No kernel that could fill it may be running.
    pub fn clear(&self) {
        // SAFETY: as above.
        unsafe { self.device_pointer().write_volatile(ffi::cusync_report::default()) };
    }

    /// Address, for kernels and for the host.
    pub(crate) fn device_pointer(&self) -> *mut ffi::cusync_report {
        self.0.pointer().cast()
    }
}

/// `claimed` is 0 in an empty record, 1 while the reporter writes it, and 2 when it is complete.
fn complete(record: ffi::cusync_report) -> Option<ffi::cusync_report> {
    (record.claimed == 2).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_when_it_is_complete() {
        let record = |claimed| ffi::cusync_report { claimed, slot: 7, ..Default::default() };
        assert_eq!(complete(record(0)), None);
        assert_eq!(complete(record(1)), None, "the reporter is still writing");
        assert_eq!(complete(record(2)).map(|r| r.slot), Some(7));
    }
}
