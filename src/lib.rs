//! Tile-synchronized execution of dependent GPU kernels, proved before it runs.
//!
//! Start with a [`Session`]: a pipeline with its tensors by name, with the same interface on a GPU and on the
//! host. A pipeline is a page of RON (`docs/spec.md`), or is built in code ([`PipelineBuilder`]).
//!
//! ```
//! use cusync::prelude::*;
//!
//! let mlp = PipelineBuilder::new("mlp")
//!     .dim("M", 8)
//!     .stage(Stage::gemm("up", "X(M,64)", "W1(64,128)", "Y(M,128)").word("epilogue", "Gelu"))
//!     .stage(Stage::gemm("down", "Y(M,128)", "W2(128,64)", "Z(M,64)"));
//! let mut session = Session::open(&mlp.text(), &[])?;
//! session.set_f32("X", &[1.0; 8 * 64])?;
//! session.set_f32("W1", &[0.01; 64 * 128])?;
//! session.set_f32("W2", &[0.01; 128 * 64])?;
//! session.run()?;
//! assert_eq!(session.read_f32("Z")?.len(), 8 * 64);
//! # Ok::<(), SessionError>(())
//! ```
//!
//! The lower layers, each built on the previous ones: [`ffi`] (raw C ABI), [`device`] (safe handles),
//! [`runtime`] (plans on real hardware). [`codegen`] compiles specs to proved plans; [`dag`] schedules
//! programs of short kernels, and [`programs`] runs them. The library prints nothing.

pub mod device;
pub mod element;
pub mod ffi;
pub mod inputs;
pub mod measure;
pub mod programs;
pub mod reference;
pub mod runtime;
pub mod sources;
pub mod trace;
pub mod tune;

mod build;
#[cfg(feature = "candle")]
pub mod candle;
mod group;
mod session;

pub use build::{PipelineBuilder, Stage};
pub use cusync_dag as dag;
pub use cusync_gen as codegen;
pub use group::Group;
pub use session::{Session, SessionError, SessionResult};

/// Items that most callers need.
///
/// ```
/// use cusync::prelude::*;
///
/// let h200 = Profile::named("h200").expect("it ships");
/// assert_eq!((h200.sms, Executor::Fused.name()), (132, "fused"));
/// ```
pub mod prelude {
    pub use crate::codegen::check::{Executor, Plan};
    pub use crate::codegen::device::Profile;
    pub use crate::codegen::graph::Element;
    pub use crate::device::{Device, DeviceBuffer, Stream};
    pub use crate::runtime::{Options, Pipeline};
    pub use crate::{Group, PipelineBuilder, Session, SessionError, Stage};
}
