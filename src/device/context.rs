//! Opening a GPU.

use std::ffi::c_int;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::error::{Error, Result, check};

/// An opened GPU with its primary context. Clones share it; the last one releases it.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    sms: u32,
    capability: (u32, u32),
    /// Shared memory, threads and CTAs of an SM.
    per_sm: [u32; 3],
}

// SAFETY: a CUcontext may be used from any thread; `Device::enter` makes it current on the calling one.
unsafe impl Send for Inner {}
// SAFETY: as above; the fields are never written after `open`.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`. A failure leaves nothing to do.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// Loads and initialises the driver.
fn init() -> Result<()> {
    // SAFETY: only looks for the library; cudarc would panic on the first call if it were absent.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::NoDriver);
    }
    // SAFETY: the library is there.
    check("cuInit", unsafe { sys::cuInit(0) }).map_err(|e| Error::NoDevice(e.to_string()))
}

/// GPUs that the driver shows.
pub fn gpu_count() -> Result<u32> {
    init()?;
    let mut count = 0;
    // SAFETY: initialised; `count` outlives the call.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The newest CUDA version that the driver supports, as (major, minor).
pub fn driver_version() -> Result<(u32, u32)> {
    init()?;
    let mut version = 0;
    // SAFETY: initialised; `version` outlives the call.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}

impl Device {
    /// Opens GPU number `ordinal` and makes its primary context current.
    ///
    /// # Errors
    /// [`Error::NoDriver`] and [`Error::NoDevice`] when there is nothing to open.
    pub fn open(ordinal: u32) -> Result<Device> {
        let count = gpu_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice(format!("GPU {ordinal} was asked for, the driver shows {count}")));
        }
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: initialised, and the ordinal is in range.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })?;
        let mut name = [0 as std::ffi::c_char; 128];
        // SAFETY: the driver writes at most 128 bytes, zero included.
        check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 128, device) })?;
        let name = name.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect();
        let attribute = |which| -> Result<u32> {
            let mut value = 0;
            // SAFETY: a valid device; `value` outlives the call.
            check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let sms = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let per_sm = [
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
        ];
        // SAFETY: a valid device; released in `Inner::drop`.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        let inner = Inner { device, context, name, sms, capability: (major, minor), per_sm };
        let device = Device { inner: Arc::new(inner) };
        device.enter()?;
        Ok(device)
    }

    /// Makes this GPU's context current on the calling thread. Every method of this layer does so itself.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained for as long as `self` lives.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.inner.context) })
    }

    /// The product name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Streaming multiprocessors.
    pub fn sms(&self) -> u32 {
        self.inner.sms
    }

    /// Compute capability, (major, minor).
    pub fn capability(&self) -> (u32, u32) {
        self.inner.capability
    }

    /// Free and total device memory, bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a current context; both outlive the call.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits for all work on the GPU. A kernel's fault shows here.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: a current context.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// The profile that plans for this GPU should be proved with: the shipped one of its name or, failing that, of
    /// its kernel family, with this GPU's own SM count and what its SMs hold. `None` below compute capability 8.0.
    pub fn profile(&self) -> Option<cusync_gen::device::Profile> {
        use cusync_gen::device::DEVICES;
        let arch = match self.inner.capability.0 {
            9 => 90,
            0..=7 => return None,
            _ => 80,
        };
        let named = |d: &&cusync_gen::device::Profile| {
            d.arch == arch && self.inner.name.to_lowercase().replace(' ', "").contains(&d.name.to_lowercase())
        };
        let shipped = DEVICES.iter().find(named).or_else(|| DEVICES.iter().find(|d| d.arch == arch))?;
        let [shared_per_sm, threads_per_sm, ctas_per_sm] = self.inner.per_sm;
        let sms = self.inner.sms;
        Some(cusync_gen::device::Profile {
            sms,
            shared_per_sm,
            threads_per_sm,
            ctas_per_sm,
            ..shipped.clone()
        })
    }
}
