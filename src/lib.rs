//! Tile-synchronised execution of dependent GPU kernels.
//!
//! Layers, each knowing only those before it: [`ffi`] (raw C ABI), [`device`] (safe handles), [`runtime`] (plans on
//! real hardware). The library prints nothing.

pub mod bench;

pub mod device;
pub mod element;
pub mod ffi;
pub mod inputs;
pub mod measure;
pub mod programs;
pub mod reference;
pub mod runtime;
pub mod trace;
pub mod tune;
