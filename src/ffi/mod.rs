//! The C ABI of `csrc/abi/cusync.h`, raw: bindgen's output and nothing else.
//!
//! Without a CUDA toolchain at build time the same symbols come from `csrc/nocuda.c`, so nothing above this layer
//! has to know. [`crate::device`] is the only caller of the kernel half; the `cusync_host_*` half is policy
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

// The pointers in these are addresses of tables that are written before the struct is made and only read after;
// whoever makes one keeps the table alive.
unsafe impl Send for cusync_policy {}
unsafe impl Sync for cusync_policy {}
unsafe impl Send for cusync_order {}
unsafe impl Sync for cusync_order {}
