//! Errors below the runtime, each with a suggested fix.

use std::ffi::CStr;

use cudarc::driver::sys;

use crate::ffi;

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of the driver, the GPU or the kernel library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// libcuda is not installed.
    #[error(
        "no NVIDIA driver was found (libcuda.so.1)\n  help: install the driver; the cpu executor needs none"
    )]
    NoDriver,
    /// libcuda is installed but does not load.
    #[error(
        "the NVIDIA driver does not load: {0}\n  help: install the driver for this system, or take its folder out of LD_LIBRARY_PATH; the cpu executor needs none"
    )]
    Unloadable(String),
    /// The driver is installed but there is no GPU.
    #[error(
        "no usable GPU: {0}\n  help: check `nvidia-smi` and CUDA_VISIBLE_DEVICES; the cpu executor needs none"
    )]
    NoDevice(String),
    /// A driver call failed.
    #[error("{call} failed: {name} ({code}){}", hint(call, *code))]
    Driver {
        /// The driver function.
        call: &'static str,
        /// `CUresult`.
        code: u32,
        /// Name of the code.
        name: String,
    },
    /// Two GPUs cannot reach each other's memory.
    #[error(
        "GPU {own} ({from}) cannot reach the memory of GPU {theirs} ({to})\n  help: `nvidia-smi topo -p2p r` shows which GPUs are connected; choose some that are"
    )]
    Unconnected {
        /// Product name of the first GPU.
        from: String,
        /// Its number.
        own: i32,
        /// Product name of the other.
        to: String,
        /// Its number.
        theirs: i32,
    },
    /// This binary has no kernel for the request.
    #[error(
        "{0} needs kernels that this binary was not built with\n  help: `cusync doctor` says which command builds them"
    )]
    NotBuilt(String),
    /// The kernel library rejected an argument.
    #[error("{0}: the kernel library refused an argument (a size, an alignment or a missing pointer)")]
    BadArgument(String),
    /// A CUDA runtime error inside the kernel library.
    #[error("{call} failed in the CUDA runtime with error {code}{}", hint(call, *code))]
    Runtime {
        /// C function and its subject.
        call: String,
        /// `cudaError_t`.
        code: u32,
    },
    /// A library that is loaded on first use is missing.
    #[error("{0} was not found\n  help: install it, or put its folder on LD_LIBRARY_PATH")]
    NoLibrary(&'static str),
    /// A call into such a library failed.
    #[error("{call} failed: {status}")]
    Library {
        /// The function.
        call: &'static str,
        /// The library's name for the error.
        status: String,
    },
    /// The code of a Custom stage's kernel does not compile, or does not fit the stage.
    #[error("{file}: {why}")]
    Code {
        /// Its file, as the user named it.
        file: String,
        /// The reason, with the compiler's messages if there are some.
        why: String,
    },
    /// A node of a captured graph that no other graph can have.
    #[error("node {node} of the captured graph, {kind}, cannot be moved to another graph\n  help: {help}")]
    Unmovable {
        /// Its place in the order of its graph.
        node: usize,
        /// Its type.
        kind: &'static str,
        /// The fix.
        help: &'static str,
    },
    /// Host memory ran out.
    #[error("{0}: out of host memory")]
    NoHostMemory(String),
    /// Device memory ran out or would run out.
    #[error(
        "{what} needs {need_mib} MiB of device memory, {free_mib} MiB are free\n  help: use a smaller size or another GPU"
    )]
    NoDeviceMemory {
        /// What the memory is for.
        what: String,
        /// MiB requested.
        need_mib: u64,
        /// MiB free.
        free_mib: u64,
    },
    /// Two lengths disagree.
    #[error("{what}: {have} elements, {want} expected")]
    Length {
        /// Copied or bound object.
        what: String,
        /// Elements given.
        have: usize,
        /// Elements expected.
        want: usize,
    },
}

/// Suggested fix for common codes; driver and runtime share these numbers.
fn hint(call: &str, code: u32) -> &'static str {
    match code {
        2 => "\n  help: out of device memory: use a smaller size, or end other users of this GPU",
        35 => "\n  help: the driver is older than CUDA 13.0 (580): update it",
        100 | 101 => "\n  help: no such GPU: check CUDA_VISIBLE_DEVICES",
        209 => "\n  help: no kernel image for this GPU: build with CUSYNC_ARCHS naming its architecture",
        700 => "\n  help: a kernel left its memory: run under compute-sanitizer and report this",
        715 | 719 => "\n  help: a kernel trapped; the context is lost, start a new process",
        802 => "\n  help: the system is not ready: see `nvidia-smi`; HGX machines need nvidia-fabricmanager",
        803 => {
            "\n  help: libcuda and the kernel module are of different versions, as after an update: restart the machine, or the container with the host's libcuda"
        }
        804 => {
            "\n  help: this GPU takes no CUDA compatibility package: remove its libcuda from LD_LIBRARY_PATH"
        }
        999 => "\n  help: the kernel log (`dmesg`) may say why; if it goes on, restart the machine",
        _ if call == INIT => {
            "\n  help: see `nvidia-smi` and the kernel log (`dmesg`); the cpu executor needs no GPU"
        }
        _ => "",
    }
}

/// The call that initializes the driver.
pub(super) const INIT: &str = "cuInit";

/// Converts a driver result to ours.
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver is loaded, since it returned a result; it returns a static string or leaves null.
    let name = unsafe {
        let known = sys::cuGetErrorName(result, &mut text);
        if known == sys::CUresult::CUDA_SUCCESS && !text.is_null() {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        } else {
            "unknown".to_owned()
        }
    };
    Err(Error::Driver { call, code: result as u32, name })
}

/// Converts a status of the kernel library to ours; `call` names the function and its subject.
pub(super) fn check_status(call: impl FnOnce() -> String, status: i32) -> Result<()> {
    let status = status as u32;
    Err(match status {
        ffi::CUSYNC_OK => return Ok(()),
        ffi::CUSYNC_ERROR_NOT_BUILT => Error::NotBuilt(call()),
        ffi::CUSYNC_ERROR_BAD_ARGUMENT => Error::BadArgument(call()),
        ffi::CUSYNC_ERROR_NO_MEMORY => Error::NoHostMemory(call()),
        _ => Error::Runtime { call: call(), code: status.saturating_sub(ffi::CUSYNC_ERROR_CUDA) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_errors_that_name_the_call() {
        let checked = |status| check_status(|| "gemm up".into(), status);
        assert_eq!(checked(0), Ok(()));
        assert_eq!(checked(1), Err(Error::NotBuilt("gemm up".into())));
        assert_eq!(checked(2), Err(Error::BadArgument("gemm up".into())));
        assert_eq!(checked(1719), Err(Error::Runtime { call: "gemm up".into(), code: 719 }));
        assert!(checked(1719).expect_err("719 is an error").to_string().contains("trapped"));
    }
}
