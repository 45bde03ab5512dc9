//! Tile-synchronised execution of dependent GPU kernels.
//!
//! Layers, each knowing only those before it: [`ffi`] (raw C ABI), [`runtime`] (plans on real hardware). The library
//! prints nothing.

pub mod ffi;
pub mod runtime;
