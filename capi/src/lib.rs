//! The C ABI of whole pipelines: exactly the functions declared in `include/cusync/pipeline.h`. Every
//! function wraps a method of [`cusync::Session`]. Language models are in [`model`],
//! programs of kernels in [`dag`].
//!
//! `unsafe` code reads the arguments of C callers; the header states the contracts.
#![allow(unsafe_code)]

pub mod custom;
pub mod dag;
pub mod model;
pub mod program;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cusync::prelude::*;
use cusync::runtime::shipped;

/// `CUSYNC_PIPELINE_ABI` of the header.
const ABI: u32 = 1;
const OK: i32 = 0;
const FAILED: i32 = 1;
const ARGUMENT: i32 = 2;
const PANIC: i32 = 3;

/// `cusync_dim` of the header.
#[repr(C)]
pub struct Dim {
    name: *const c_char,
    value: u64,
}

/// `cusync_pipeline` of the header.
pub struct CPipeline {
    session: Session,
    /// GPU of the pipeline.
    device: Option<Device>,
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Reason why a call failed.
enum Failure {
    Argument(String),
    Failed(String),
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<cusync::device::Error> for Failure {
    fn from(error: cusync::device::Error) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<cusync::programs::Error> for Failure {
    fn from(error: cusync::programs::Error) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<cusync_models::Error> for Failure {
    fn from(error: cusync_models::Error) -> Failure {
        Failure::Failed(error.to_string())
    }
}

type Outcome = Result<(), Failure>;

/// Runs a call, stores the text of a failure, and catches panics.
fn call(work: impl FnOnce() -> Outcome) -> i32 {
    let (status, text) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OK,
        Ok(Err(Failure::Argument(text))) => (ARGUMENT, text),
        Ok(Err(Failure::Failed(text))) => (FAILED, text),
        Err(_) => (PANIC, "a fault of the library: please report it".into()),
    };
    // Embedded zeros would end the text.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    ERROR.with(|error| *error.borrow_mut() = text);
    status
}

fn null(argument: &str) -> Failure {
    Failure::Argument(format!("`{argument}` is null"))
}

/// # Safety
/// `text` is null or a zero-terminated string.
unsafe fn text<'a>(text: *const c_char, argument: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(null(argument));
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::Argument(format!("`{argument}` is not UTF-8")))
}

/// # Safety
/// `values` is null or points to `count` values.
unsafe fn slice<'a, T>(values: *const T, count: usize, argument: &str) -> Result<&'a [T], Failure> {
    match (values.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(argument)),
        // SAFETY: guaranteed by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(values, count) }),
    }
}

/// # Safety
/// `pipeline` is null or created by this library.
unsafe fn opened<'a>(pipeline: *const CPipeline) -> Result<&'a CPipeline, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { pipeline.as_ref() }.ok_or_else(|| null("pipeline"))
}

/// # Safety
/// `pipeline` is null or created by this library, and not used concurrently.
unsafe fn opened_mut<'a>(pipeline: *mut CPipeline) -> Result<&'a mut CPipeline, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { pipeline.as_mut() }.ok_or_else(|| null("pipeline"))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn cusync_pipeline_abi() -> u32 {
    ABI
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn cusync_pipeline_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn cusync_pipeline_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_open(
    spec: *const c_char,
    dims: *const Dim,
    dim_count: usize,
    executor: *const c_char,
    gpu: u32,
    out: *mut *mut CPipeline,
) -> i32 {
    call(|| {
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: not null; guaranteed by the caller.
        let (spec, given) = unsafe {
            out.write(std::ptr::null_mut());
            (text(spec, "spec")?, slice(dims, dim_count, "dims")?)
        };
        let mut dims = Vec::new();
        for dim in given {
            // SAFETY: guaranteed by the caller.
            dims.push((unsafe { text(dim.name, "a dim's name") }?, dim.value));
        }
        let spec = match (spec.contains('('), shipped(spec)) {
            (true, _) => spec,
            (false, Some(text)) => text,
            (false, None) => return Err(SessionError::NoSpec(spec.into()).into()),
        };
        // SAFETY: guaranteed by the caller.
        let asked = if executor.is_null() { None } else { Some(unsafe { text(executor, "executor") }?) };
        let names = Executor::GPU.iter().find(|e| Some(e.name()) == asked);
        let (session, device) = match (asked, names) {
            (Some("cpu"), _) => (Session::on_host(spec, &dims)?, None),
            (Some(name), None) => {
                let all = Executor::GPU.map(Executor::name).join(", ");
                return Err(Failure::Argument(format!("no executor `{name}`: cpu, {all}")));
            }
            (None, _) if gpu == 0 => {
                let session = Session::open(spec, &dims)?;
                let device = (session.executor() != Executor::Cpu).then(|| Device::open(0)).transpose()?;
                (session, device)
            }
            (_, executor) => {
                let device = Device::open(gpu)?;
                let session = Session::on_gpu(spec, &dims, &device, executor.copied(), Options::default())?;
                (session, Some(device))
            }
        };
        let made = Box::into_raw(Box::new(CPipeline { session, device }));
        // SAFETY: not null.
        unsafe { out.write(made) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_executor(pipeline: *const CPipeline) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    let executor = unsafe { pipeline.as_ref() }.map(|p| p.session.executor());
    let name: &'static CStr = match executor {
        Some(Executor::Cpu) => c"cpu",
        Some(Executor::Serial) => c"serial",
        Some(Executor::Library) => c"library",
        Some(Executor::Streams) => c"streams",
        Some(Executor::Programmatic) => c"programmatic",
        Some(Executor::Fused) => c"fused",
        Some(Executor::Copilot) => c"copilot",
        None => c"",
    };
    name.as_ptr()
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_shape(
    pipeline: *const CPipeline,
    tensor: *const c_char,
    rows: *mut usize,
    cols: *mut usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, tensor) = unsafe { (opened(pipeline)?, text(tensor, "tensor")?) };
        let (have_rows, have_cols) = pipeline.session.shape(tensor)?;
        if rows.is_null() || cols.is_null() {
            return Err(null("rows or cols"));
        }
        // SAFETY: not null; guaranteed by the caller.
        unsafe {
            rows.write(have_rows);
            cols.write(have_cols);
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_set_f32(
    pipeline: *mut CPipeline,
    tensor: *const c_char,
    values: *const f32,
    count: usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, tensor, values) =
            unsafe { (opened_mut(pipeline)?, text(tensor, "tensor")?, slice(values, count, "values")?) };
        Ok(pipeline.session.set_f32(tensor, values)?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_set_16(
    pipeline: *mut CPipeline,
    tensor: *const c_char,
    bits: *const u16,
    count: usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, tensor, bits) =
            unsafe { (opened_mut(pipeline)?, text(tensor, "tensor")?, slice(bits, count, "bits")?) };
        Ok(pipeline.session.set_bits(tensor, bits.to_vec())?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_set_i32(
    pipeline: *mut CPipeline,
    tensor: *const c_char,
    values: *const i32,
    count: usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, tensor, values) =
            unsafe { (opened_mut(pipeline)?, text(tensor, "tensor")?, slice(values, count, "values")?) };
        Ok(pipeline.session.set_integers(tensor, values)?)
    })
}

fn on_gpu(device: &Option<Device>) -> Result<&Device, Failure> {
    device.as_ref().ok_or_else(|| Failure::Failed("the pipeline runs on the host: use set and read".into()))
}

/// The pipeline, the tensor's name, and the caller's memory as a buffer.
///
/// # Safety
/// The pointers satisfy the header's contract, and their targets outlive the results.
unsafe fn borrowed<'a, T: cusync::device::Plain>(
    pipeline: *mut CPipeline,
    tensor: *const c_char,
    device_memory: *mut c_void,
    count: usize,
) -> Result<(&'a mut CPipeline, &'a str, Arc<DeviceBuffer<T>>), Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (pipeline, tensor) = (opened_mut(pipeline)?, text(tensor, "tensor")?);
        let buffer = DeviceBuffer::borrow(on_gpu(&pipeline.device)?, device_memory, count)?;
        Ok((pipeline, tensor, Arc::new(buffer)))
    }
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_bind(
    pipeline: *mut CPipeline,
    tensor: *const c_char,
    device_memory: *mut c_void,
    count: usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller, as the header requires.
        let (pipeline, tensor, buffer) = unsafe { borrowed(pipeline, tensor, device_memory, count)? };
        Ok(pipeline.session.bind(tensor, buffer)?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_bind_i32(
    pipeline: *mut CPipeline,
    tensor: *const c_char,
    device_memory: *mut c_void,
    count: usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller, as the header requires.
        let (pipeline, tensor, buffer) = unsafe { borrowed(pipeline, tensor, device_memory, count)? };
        Ok(pipeline.session.bind_integers(tensor, buffer)?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_memory(
    pipeline: *mut CPipeline,
    tensor: *const c_char,
    device_memory: *mut *mut c_void,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, tensor) = unsafe { (opened_mut(pipeline)?, text(tensor, "tensor")?) };
        let found = pipeline.session.pipeline()?.tensor(0, tensor).map_err(SessionError::from)?;
        if device_memory.is_null() {
            return Err(null("device_memory"));
        }
        // SAFETY: not null; guaranteed by the caller.
        unsafe { device_memory.write(found.pointer()) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_prepare(pipeline: *mut CPipeline) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let pipeline = unsafe { opened_mut(pipeline) }?;
        if pipeline.device.is_some() {
            pipeline.session.pipeline()?.prepare().map_err(SessionError::from)?;
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_run(pipeline: *mut CPipeline, stream: *mut c_void) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let pipeline = unsafe { opened_mut(pipeline) }?;
        match &pipeline.device {
            None => Ok(pipeline.session.run()?),
            Some(device) => {
                // SAFETY: guaranteed by the caller; the stream outlives this call.
                let stream = unsafe { Stream::from_raw(device, stream) };
                Ok(pipeline.session.run_on(&stream)?)
            }
        }
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_read_f32(
    pipeline: *const CPipeline,
    tensor: *const c_char,
    values: *mut f32,
    count: usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, tensor) = unsafe { (opened(pipeline)?, text(tensor, "tensor")?) };
        let found = pipeline.session.read_f32(tensor)?;
        if found.len() != count {
            return Err(Failure::Argument(format!("`{tensor}` has {} values, not {count}", found.len())));
        }
        if values.is_null() {
            return Err(null("values"));
        }
        // SAFETY: not null, and `count` values long, as guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), values, count) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_close(pipeline: *mut CPipeline) {
    if !pipeline.is_null() {
        // SAFETY: created by `cusync_pipeline_open`, closed once. A panic of a destructor must not reach C.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(pipeline) })));
    }
}
