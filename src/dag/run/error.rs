//! What can go wrong between a schedule and the GPU.

use super::super::{BufferId, DagError};

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// From the device layer.
    #[error(transparent)]
    Device(#[from] crate::device::Error),
    /// From the program.
    #[error(transparent)]
    Dag(#[from] DagError),
    /// A buffer of another program.
    #[error("there is no buffer {} in this program", .0.0)]
    NoBuffer(BufferId),
    /// A plan of streams or edges that is not one of this program.
    #[error("node {node} {what}: plan the program that is run")]
    Plan {
        /// The node's number.
        node: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A captured kernel that nobody has described.
    #[error(
        "kernel `{kernel}` was captured, but nothing says what it reads and writes: declare its parameters"
    )]
    Undeclared {
        /// The kernel.
        kernel: String,
    },
    /// A declaration that does not fit the captured kernel.
    #[error("kernel `{kernel}`: parameter {parameter} {what}")]
    Parameter {
        /// The kernel.
        kernel: String,
        /// The parameter's number, from 0.
        parameter: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}
