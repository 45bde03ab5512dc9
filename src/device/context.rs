//! Opening a GPU.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, LazyLock};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::error::{Error, INIT, Result, check};

/// An open GPU with its primary context. Clones share it; the last one releases it.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Owner of the context.
    owner: Owner,
    name: String,
    sms: u32,
    capability: (u32, u32),
    /// Shared memory, threads and CTAs per SM.
    per_sm: [u32; 3],
}

// SAFETY: a CUcontext may be used from any thread; `Device::enter` makes it current on the calling thread.
unsafe impl Send for Inner {}
// SAFETY: as above; the fields are never written after `open`.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Own) {
            // SAFETY: retained once in `open`. Nothing can be done about a failure here.
            unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        }
    }
}

/// Owner of a handle.
#[derive(Debug)]
pub(super) enum Owner {
    /// Created here, and released on drop.
    Own,
    /// Owned elsewhere; `_keeper` keeps it alive, if known.
    Lent { _keeper: Option<Keeper> },
}

/// A value of another library that keeps a handle alive.
pub(super) type Keeper = Arc<dyn std::fmt::Debug + Send + Sync>;

/// Makes a GPU's context current on the thread while this value lives. Dropping it restores the previous
/// context; if there was none, the GPU's context stays current.
#[derive(Debug)]
#[must_use = "the context is current for as long as this lives"]
pub struct Entered {
    before: sys::CUcontext,
    /// A context is current on one thread only.
    thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.before.is_null() {
            // SAFETY: it was current on this thread, so its creator keeps it alive.
            unsafe { sys::cuCtxSetCurrent(self.before) };
        }
    }
}

/// Whether an NVIDIA library is installed under one of its names. cudarc panics on the first call into an
/// absent library, and cannot be queried if another crate links it instead of loading it.
pub(super) fn installed(names: &[&str]) -> bool {
    names.iter().any(|name| load(name).is_ok())
}

/// Loads an NVIDIA library. The error is the loader's message, or `None` if no library has this name.
fn load(name: &str) -> std::result::Result<(), Option<String>> {
    // SAFETY: constructors of these libraries have no preconditions.
    let Err(error) = (unsafe { libloading::Library::new(name) }) else { return Ok(()) };
    let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    // A missing dependency gives the same message with another library's name.
    let absent = text.starts_with(name) && text.contains("No such file");
    Err((!absent && cfg!(unix)).then_some(text))
}

/// Finds the driver library.
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

/// Loads and initializes the driver.
fn init() -> Result<()> {
    find()?;
    // SAFETY: the library is loaded.
    match unsafe { sys::cuInit(0) } {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::NoDevice("the driver shows none".into())),
        result => check(INIT, result),
    }
}

/// Number of GPUs visible to the driver.
pub fn gpu_count() -> Result<u32> {
    init()?;
    let mut count = 0;
    // SAFETY: initialized; `count` outlives the call.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The newest CUDA version that the driver supports, as (major, minor).
pub fn driver_version() -> Result<(u32, u32)> {
    find()?;
    let mut version = 0;
    // SAFETY: the library is loaded, and reports its version before it is initialized; `version` outlives the
    // call.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}

impl Device {
    /// Opens GPU `ordinal` in its primary context, which the CUDA runtime and most libraries share.
    ///
    /// # Errors
    /// [`Error::NoDriver`] and [`Error::NoDevice`] if there is nothing to open.
    pub fn open(ordinal: u32) -> Result<Device> {
        let count = gpu_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice(format!("GPU {ordinal} was asked for, the driver shows {count}")));
        }
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: initialized, and the ordinal is in range.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })?;
        // SAFETY: a valid device; released in `Inner::drop`.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        Device::with_owner(device, context, Owner::Own)
    }

    /// A GPU in the context that is current on this thread, which the caller keeps: [`Device::from_context`].
    ///
    /// # Errors
    /// There is no driver, or no context is current: the CUDA runtime makes one current on its first call.
    pub fn current() -> Result<Device> {
        init()?;
        let mut context = std::ptr::null_mut();
        // SAFETY: initialized; `context` outlives the call.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut context) })?;
        if context.is_null() {
            return Err(Error::NoDevice("no context is current on this thread".into()));
        }
        // SAFETY: it is current, so its creator keeps it alive.
        unsafe { Device::lent(context.cast(), None) }
    }

    /// A GPU in a context created and kept by the caller: memory, streams and kernels belong to that context.
    ///
    /// # Safety
    /// `context` is a live `CUcontext`, and stays alive as long as this value, its clones and everything
    /// created with them.
    ///
    /// # Errors
    /// There is no driver, or the context is invalid.
    pub unsafe fn from_context(context: *mut c_void) -> Result<Device> {
        // SAFETY: guaranteed by the caller.
        unsafe { Device::lent(context, None) }
    }

    /// # Safety
    /// [`Device::from_context`] with an optional `keeper` that keeps the context alive instead of the caller.
    pub(super) unsafe fn lent(context: *mut c_void, keeper: Option<Keeper>) -> Result<Device> {
        init()?;
        let (mut device, mut before) = (0, std::ptr::null_mut());
        // SAFETY: initialized; the caller guarantees the context, and the current one is restored at once.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut before))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context.cast()))?;
            let found = check("cuCtxGetDevice", sys::cuCtxGetDevice(&mut device));
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(before))?;
            found?;
        }
        Device::with_owner(device, context.cast(), Owner::Lent { _keeper: keeper })
    }

    fn with_owner(device: sys::CUdevice, context: sys::CUcontext, owner: Owner) -> Result<Device> {
        let mut name = [0 as std::ffi::c_char; 128];
        // SAFETY: the driver writes at most 128 bytes, including the terminating zero.
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

    /// Makes this GPU's context current on the calling thread until the returned value is dropped. Every
    /// method of this layer does so itself, and restores a foreign current context afterward.
    pub fn enter(&self) -> Result<Entered> {
        let mut before = std::ptr::null_mut();
        // SAFETY: `before` outlives the call.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut before) })?;
        if before == self.inner.context {
            before = std::ptr::null_mut();
        } else {
            // SAFETY: the context is retained, or guaranteed by the caller, for as long as `self` lives.
            check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.inner.context) })?;
        }
        Ok(Entered { before, thread: std::marker::PhantomData })
    }

    /// The driver's number of this GPU.
    pub(super) fn ordinal(&self) -> sys::CUdevice {
        self.inner.device
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

    /// Waits for all work on the GPU. Kernel faults are reported here.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: a current context.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Profile to prove plans for this GPU with: the shipped profile of its name or, failing that, of its
    /// kernel family, with this GPU's SM count and per-SM limits. `None` below compute capability 8.0.
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
