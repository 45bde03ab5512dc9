//! The raw C ABI: only the output of bindgen. `csrc/abi/cusync.h` and `csrc/host/decode.h` document every item.
//!
//! Without a CUDA toolchain at build time, `csrc/nocuda.c` provides the same symbols, so higher layers need
//! no distinction. Only [`crate::device`] calls the kernel half; the `cusync_host_*` half is policy
//! arithmetic compiled for the host.
//!
//! ```
//! assert_eq!(cusync::ffi::CUSYNC_SM90A, 90);
//! ```
#![allow(
    unsafe_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks
)]

#[rustfmt::skip]
mod bindings;

pub use bindings::*;

// SAFETY: the pointers are addresses of tables that are written before the struct is created and only read
// afterward; the creator keeps the tables alive.
unsafe impl Send for cusync_policy {}
unsafe impl Sync for cusync_policy {}
unsafe impl Send for cusync_order {}
unsafe impl Sync for cusync_order {}
