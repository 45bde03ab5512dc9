//! cuSyncGen: from a RON spec of dependent GPU kernels to a proved plan and rendered code.
//!
//! The flow, one module a step: [`spec`] reads RON and knows spans; [`graph`] holds stages, grids and footprints;
//! [`sync`] maps tiles to semaphore slots and orders tiles; [`check`] proves a candidate and is the only
//! constructor of a [`check::Plan`]; [`simulate`] predicts times; [`emit`] renders a plan and cannot fail.
//!
//! [`columns`] is the form that records of measurements are kept in.
//!
//! Invariant: no CUDA, no I/O, no printing in this crate.

pub mod check;
pub mod choose;
pub mod columns;
pub mod device;
pub mod diagnostic;
pub mod emit;
mod executor;
pub mod graph;
mod operand;
pub mod schedule;
pub mod simulate;
pub mod spec;
pub mod sync;
