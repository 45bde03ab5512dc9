//! Opening a GPU.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, LazyLock};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::error::{Error, INIT, Result, check};

/// An opened GPU with its primary context. Clones share it; the last one releases it.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Whose context it is.
    owner: Owner,
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
        if matches!(self.owner, Owner::Own) {
            // SAFETY: retained once in `open`. A failure leaves nothing to do.
            unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        }
    }
}

/// Whose a handle is.
#[derive(Debug)]
pub(super) enum Owner {
    /// Made here, and given back on drop.
    Own,
    /// Somebody else's; what keeps it alive, where that is known.
    Lent { _keeper: Option<Keeper> },
}

/// A value of another library that keeps a handle alive.
pub(super) type Keeper = Arc<dyn std::fmt::Debug + Send + Sync>;

/// While it lives, a GPU's context is current on the thread. Then the one is current again that was current before; where
/// none was, the GPU's stays.
#[derive(Debug)]
#[must_use = "the context is current for as long as this lives"]
pub struct Entered {
    before: sys::CUcontext,
    /// Contexts are current on one thread.
    thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.before.is_null() {
            // SAFETY: it was current on this thread, so whoever made it keeps it alive.
            unsafe { sys::cuCtxSetCurrent(self.before) };
        }
    }
}

/// Whether a library of NVIDIA's is there under one of its names. cudarc would panic on the first call of an absent one, and
/// cannot be asked where another crate has it linked instead of loaded.
pub(super) fn installed(names: &[&str]) -> bool {
    names.iter().any(|name| load(name).is_ok())
}

/// Whether a library of NVIDIA's loads; else why not, in the loader's words, or nothing where there is none of this name.
fn load(name: &str) -> std::result::Result<(), Option<String>> {
    // SAFETY: constructors of these libraries ask nothing of their callers.
    let Err(error) = (unsafe { libloading::Library::new(name) }) else { return Ok(()) };
    let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    // Of a library that this one needs the same is said with the other's name.
    let absent = text.starts_with(name) && text.contains("No such file");
    Err((!absent && cfg!(unix)).then_some(text))
}

/// Finds the driver's library.
fn find() -> Result<()> {
    static FOUND: LazyLock<Result<()>> = LazyLock::new(|| {
        let mut found = Err(Error::NoDriver);
        for name in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
            match load(name) {
                Ok(()) => return Ok(()),
                Err(Some(why)) if found == Err(Error::NoDriver) => found = Err(Error::Unloadable(why)),
                Err(_) => {}
            }
        }
        found
    });
    FOUND.clone()
}

/// Loads and initialises the driver.
fn init() -> Result<()> {
    find()?;
    // SAFETY: the library is there.
    match unsafe { sys::cuInit(0) } {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::NoDevice("the driver shows none".into())),
        result => check(INIT, result),
    }
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
    find()?;
    let mut version = 0;
    // SAFETY: the library is there, and tells its version before it is initialised; `version` outlives the call.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}

impl Device {
    /// Opens GPU number `ordinal` in its primary context, which CUDA's runtime and most libraries share.
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
        // SAFETY: a valid device; released in `Inner::drop`.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        Device::of(device, context, Owner::Own)
    }

    /// A GPU in a context that somebody else made and keeps: memory, streams and kernels are of that context.
    ///
    /// # Safety
    /// `context` is a live `CUcontext`, and stays so for as long as this value, its clones and everything made with them.
    ///
    /// # Errors
    /// There is no driver, or the context is not one.
    pub unsafe fn from_context(context: *mut c_void) -> Result<Device> {
        // SAFETY: the caller vouches for it.
        unsafe { Device::lent(context, None) }
    }

    /// # Safety
    /// As [`Device::from_context`]; `keeper` may vouch for the context's life in the caller's place.
    pub(super) unsafe fn lent(context: *mut c_void, keeper: Option<Keeper>) -> Result<Device> {
        init()?;
        let (mut device, mut before) = (0, std::ptr::null_mut());
        // SAFETY: initialised; the caller vouches for the context, and the one that is current comes back at once.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut before))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context.cast()))?;
            let found = check("cuCtxGetDevice", sys::cuCtxGetDevice(&mut device));
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(before))?;
            found?;
        }
        Device::of(device, context.cast(), Owner::Lent { _keeper: keeper })
    }

    fn of(device: sys::CUdevice, context: sys::CUcontext, owner: Owner) -> Result<Device> {
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
        let inner = Inner { device, context, owner, name, sms, capability: (major, minor), per_sm };
        let device = Device { inner: Arc::new(inner) };
        drop(device.enter()?);
        Ok(device)
    }

    /// Makes this GPU's context current on the calling thread until the answer is dropped. Every method of this layer does so
    /// itself, so a foreign context that is current stays so for its owner.
    pub fn enter(&self) -> Result<Entered> {
        let mut before = std::ptr::null_mut();
        // SAFETY: `before` outlives the call.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut before) })?;
        if before == self.inner.context {
            before = std::ptr::null_mut();
        } else {
            // SAFETY: the context is retained, or vouched for, for as long as `self` lives.
            check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.inner.context) })?;
        }
        Ok(Entered { before, thread: std::marker::PhantomData })
    }

    /// The context, a `CUcontext`, for other libraries.
    pub fn as_raw(&self) -> *mut c_void {
        self.inner.context.cast()
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
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a current context; both outlive the call.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits for all work on the GPU. A kernel's fault shows here.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.enter()?;
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
