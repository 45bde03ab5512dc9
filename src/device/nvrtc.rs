//! NVRTC, NVIDIA's compiler as a library, loaded if installed.

use std::ffi::{CString, c_char};

use cudarc::nvrtc::sys::{self, nvrtcResult as Status};

use super::context::installed;
use super::error::{Error, Result};

/// A source or a header: its name and text.
pub(super) type Named<'a> = (&'a str, &'a str);

/// Outcome of a compilation: a cubin, or the compiler's messages.
pub(super) type Compiled = std::result::Result<Vec<u8>, String>;

/// Whether it is installed.
pub(super) fn is_installed() -> bool {
    installed(&["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"])
}

/// A program to compile.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once in `compile`; destroying fails harmlessly at worst.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        Status::NVRTC_SUCCESS => Ok(()),
        other => Err(Error::Library { call, status: format!("{other:?}") }),
    }
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::BadArgument("a text with a zero byte".into()))
}

/// Compiles a source for one architecture. Its `#include`s find `headers` by their names.
///
/// # Errors
/// [`Error::NoLibrary`] if it is not installed, [`Error::Library`] if it does not take the options.
pub(super) fn compile(source: Named<'_>, headers: &[Named<'_>], options: &[String]) -> Result<Compiled> {
    if !is_installed() {
        return Err(Error::NoLibrary(
            "NVRTC (libnvrtc.so.13, of the CUDA toolkit or of `pip install nvidia-cuda-nvrtc`)",
        ));
    }
    let (name, code) = (text(source.0)?, text(source.1)?);
    let headers = headers.iter().map(|(name, code)| Ok((text(name)?, text(code)?)));
    let headers = headers.collect::<Result<Vec<_>>>()?;
    let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>>>()?;
    let names: Vec<*const c_char> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
    let codes: Vec<*const c_char> = headers.iter().map(|(_, code)| code.as_ptr()).collect();
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: all texts end with a zero and outlive the program; `names` and `codes` have one entry per header.
    check("nvrtcCreateProgram", unsafe {
        let (codes, names, count) = (codes.as_ptr(), names.as_ptr(), headers.len() as i32);
        sys::nvrtcCreateProgram(&mut program, code.as_ptr(), name.as_ptr(), count, codes, names)
    })?;
    let program = Program(program);
    // SAFETY: a live program; `options` outlive the call.
    let status = unsafe { sys::nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr()) };
    if status == Status::NVRTC_SUCCESS {
        return program.take("nvrtcGetCUBIN", sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN).map(Ok);
    }
    let log = program.take("nvrtcGetProgramLog", sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?;
    let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
    match status {
        Status::NVRTC_ERROR_COMPILATION => Ok(Err(log)),
        other => Err(Error::Library { call: "nvrtcCompileProgram", status: format!("{other:?} {log}") }),
    }
}

impl Program {
    /// Bytes of a result.
    fn take(
        &self,
        call: &'static str,
        size: unsafe fn(sys::nvrtcProgram, *mut usize) -> Status,
        get: unsafe fn(sys::nvrtcProgram, *mut c_char) -> Status,
    ) -> Result<Vec<u8>> {
        let mut length = 0;
        // SAFETY: a live program that was compiled.
        check(call, unsafe { size(self.0, &mut length) })?;
        let mut bytes = vec![0; length];
        // SAFETY: as above; the buffer has the length that the library asked for.
        check(call, unsafe { get(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}
