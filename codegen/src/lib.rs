//! cuSyncGen: from a RON spec of dependent GPU kernels to a proved plan and rendered code.
//!
//! The flow, one module per step: [`spec`] reads RON and knows spans; [`graph`] holds stages, grids and footprints;
//! [`sync`] maps tiles to semaphore slots and orders tiles; [`check`] proves a candidate and is the only constructor
//! of a [`check::Plan`]; [`simulate`] predicts times; [`emit`] renders a plan and cannot fail.
//!
//! [`columns`] is the storage format for records of measurements.
//!
//! Invariant: no CUDA, no I/O, no printing in this crate.
//!
//! ```
//! use cusync_gen::check::Executor;
//! use cusync_gen::{choose, device::Profile, emit, spec};
//!
//! let text = r#"Pipeline(name: "mlp", dims: { "M": 64 }, stages: [
//!     Gemm(name: "up", a: "X(M,512)", b: "W1(512,1024)", out: "Y(M,1024)", epilogue: Relu),
//!     Gemm(name: "down", a: "Y(M,1024)", b: "W2(1024,512)", out: "Z(M,512)"),
//! ])"#;
//! let resolved = spec::parse(text, "mlp.ron")?.resolve(&[])?;
//! let h200 = Profile::named("h200").expect("it ships");
//! let plan = choose::plan(&resolved, h200, Executor::Streams)?;
//! assert!(emit::header(&plan, "cusync gen mlp.ron").contains("namespace"));
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

pub mod check;
pub mod choose;
pub mod columns;
pub mod device;
pub mod diagnostic;
pub mod emit;
mod executor;
pub mod graph;
pub mod obstacle;
mod operand;
pub mod schedule;
pub mod simulate;
pub mod spec;
pub mod sync;
