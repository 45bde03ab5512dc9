//! Errors between a schedule and the GPU.

use cusync_dag::{BufferId, DagError, Unproved};

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a program.
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
    /// A plan or a refinement that does not keep the program's dependences.
    #[error("the program must not be run so: {0}")]
    Unproved(#[from] Unproved),
    /// A plan or a refinement that was proved for another program.
    #[error("what was proved is of another program: plan the program that is run")]
    OtherProgram,
    /// The recording uses addresses of foreign memory.
    #[error("the recording has memory by its addresses: give its kernels buffers of the recording")]
    Addresses,
    /// A wait for a tile timed out.
    #[error(
        "CTA {cta} of `{node}` waited too long for CTA {of_cta} of `{of}`: its slot is at {have}, {want} is wanted"
    )]
    Late {
        /// The node that waits.
        node: String,
        /// Its CTA.
        cta: u32,
        /// The node that it waits for.
        of: String,
        /// Its CTA.
        of_cta: u32,
        /// Value of the slot.
        have: u32,
        /// Expected value.
        want: u32,
    },
    /// A captured kernel has no declaration.
    #[error(
        "kernel `{kernel}` was captured, but nothing says what it reads and writes: declare its parameters"
    )]
    Undeclared {
        /// The kernel.
        kernel: String,
    },
    /// A declaration does not fit the captured kernel.
    #[error("kernel `{kernel}`: parameter {parameter} {what}")]
    Parameter {
        /// The kernel.
        kernel: String,
        /// Parameter index, from 0.
        parameter: usize,
        /// The mismatch.
        what: &'static str,
    },
}
