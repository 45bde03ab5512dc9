//! Errors of sessions.

use crate::reference::ReferenceError;
use crate::runtime;
use crate::runtime::cpu::CpuError;
use crate::tune;

/// Error of a session, with a suggested fix.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Error of the GPU runtime.
    #[error(transparent)]
    Runtime(#[from] runtime::Error),
    /// Error of the host executor.
    #[error(transparent)]
    Host(#[from] CpuError),
    /// Error of the planner.
    #[error(transparent)]
    Plan(#[from] tune::Error),
    /// There is no shipped spec of this name.
    #[error("no spec `{0}` ships\n  help: `cusync list` names those that do")]
    NoSpec(String),
    /// There is no tensor of this name.
    #[error("the pipeline has no tensor `{name}`\n  help: its tensors are {known}")]
    NoTensor {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// A tensor that a stage writes cannot be set.
    #[error("`{0}` is written by a stage: it cannot be set")]
    Produced(String),
    /// Floats were given for integers, or the other way round.
    #[error("`{0}` is of the other type: `set_f32` sets floats, `set_integers` lengths and page numbers")]
    Type(String),
    /// The number of values does not match the tensor.
    #[error("`{name}` has {want} values ({rows} x {cols}), not {have}")]
    Length {
        /// The tensor.
        name: String,
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
        /// Expected number of values.
        want: usize,
        /// Given number of values.
        have: usize,
    },
    /// The reference cannot judge a run.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A group has no device of this number.
    #[error("the group has no device {device}\n  help: its devices are 0 to {}", devices - 1)]
    NoDevice {
        /// The number.
        device: usize,
        /// Number of devices.
        devices: usize,
    },
    /// Error of a device of a group.
    #[error("device {device}: {error}")]
    Device {
        /// Its number.
        device: usize,
        /// The error.
        error: Box<SessionError>,
    },
    /// Only the other side (GPU or host) supports this.
    #[error("{0}")]
    Elsewhere(&'static str),
}

/// Result of a session.
pub type SessionResult<T> = Result<T, SessionError>;
