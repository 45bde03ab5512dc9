//! Errors between a schedule and the GPU.

use cusync_dag::{BufferId, DagError, NodeId, Unproved};

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
    /// A copy or contents of memory that was given by addresses.
    #[error(
        "memory given by addresses belongs to the caller: read and write it there, and copy it in an opaque node"
    )]
    Addresses,
    /// An address passed to a kernel is not memory of the GPU.
    #[error("`{node}` gets memory at {address:#x}, which the GPU does not know: pass device memory")]
    NoMemory {
        /// The node.
        node: String,
        /// Its first unknown byte.
        address: u64,
    },
    /// A callback for a node that is not opaque, or does not exist.
    #[error("node {} is no opaque node of this program: give callbacks to what `Recording::opaque` returned", .0.0)]
    NotOpaque(NodeId),
    /// An opaque node whose work cannot be had, or must not run.
    #[error("opaque node `{node}`: {what}")]
    Opaque {
        /// The node.
        node: String,
        /// The fault and its fix.
        what: String,
    },
    /// Workspaces lent by the caller do not suffice.
    #[error("{what}")]
    Lent {
        /// The fault and its fix.
        what: String,
    },
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
    /// A kernel that is declared fit for programmatic edges, but has no instruction that waits for earlier grids.
    #[error(
        "node `{node}`: kernel `{kernel}` is declared fit for programmatic edges, but its code has no griddepcontrol.wait: call cudaGridDependencySynchronize() before it touches memory, in code for sm_90 or newer, or drop the declaration"
    )]
    NeverWaits {
        /// The node.
        node: String,
        /// The kernel.
        kernel: String,
    },
    /// A kernel that is declared to trigger early, but has no instruction for it.
    #[error(
        "node `{node}`: kernel `{kernel}` is declared to trigger early, but its code has no griddepcontrol.launch_dependents: call cudaTriggerProgrammaticLaunchCompletion(), or drop `early_trigger`"
    )]
    NeverTriggers {
        /// The node.
        node: String,
        /// The kernel.
        kernel: String,
    },
    /// A captured graph without work.
    #[error("the captured graph has no work: queue it on the stream that is captured")]
    NothingCaptured,
    /// A schedule in a form that does not exist for the program and the GPU.
    #[error("the form is not offered: it needs more streams, or a newer GPU")]
    NotOffered,
    /// A GPU that is too old.
    #[error("{0} is older than compute capability 8.0")]
    TooOld(String),
}
