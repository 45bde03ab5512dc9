//! What a node does on the GPU.

use crate::device::{CopyCall, KernelCall, Result, Stream};

/// A kernel launch or a copy, ready to be queued any number of times.
#[derive(Clone, Debug)]
pub enum Call {
    /// On the SMs.
    Kernel(KernelCall),
    /// On a copy engine.
    Copy(CopyCall),
}

impl Call {
    /// Queues it. `programmatic` lets a kernel begin to launch while the one just before it in the stream ends.
    pub(super) fn enqueue(&self, stream: &Stream, programmatic: bool) -> Result<()> {
        match self {
            Call::Kernel(call) => stream.launch(call, programmatic),
            Call::Copy(call) => stream.copy(call),
        }
    }

    /// Whether it is a kernel.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Call::Kernel(_))
    }
}
