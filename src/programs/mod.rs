//! Programs on a GPU: recorded code bound to memory and kernels, and built into executables that can be
//! launched repeatedly.
//!
//! [`BoundRecording`] adds kernels, callbacks of opaque nodes, and memory that was not given by addresses to a
//! [`cusync_dag::Recording`]; [`Calls::adopt`] takes a captured graph
//! instead. Both give [`Calls`], the work of each node, which can only be launched according to a
//! [`cusync_dag::ProvedPlan`]. Both refuse kernels that are declared fit for programmatic edges if their code, as far as
//! its image is at hand, does not wait for earlier kernels ([`verified`]).
//!
//! ```no_run
//! use cusync::dag::Recording;
//! use cusync::device::{Device, Module};
//! use cusync::programs::BoundRecording;
//!
//! fn bind(code: &Recording, module: &Module) -> Result<BoundRecording, Box<dyn std::error::Error>> {
//!     Ok(BoundRecording::new(code, &Device::open(0)?, module)?)
//! }
//! ```

mod adopt;
mod bind;
mod calls;
mod error;
mod exec;
mod opaque;
mod tiled;
mod verify;

pub use adopt::{AddressAccess, AddressMap, AdoptedCall, Declaration};
pub use bind::BoundRecording;
pub use calls::{Call, Calls};
pub use error::{Error, Result};
pub use exec::{Executable, Lent};
pub use opaque::{Enqueue, OpaqueCall, Workspace};
pub use verify::verified;
