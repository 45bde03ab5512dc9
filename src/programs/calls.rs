//! GPU work of a program's nodes.

use std::sync::Arc;

use cusync_dag::{NodeId, Program};

use super::error::Result;
use super::tiled::Watch;
use crate::device::{CopyCall, Graph, KernelCall, Stream};

/// A kernel launch or a copy that can be queued any number of times.
#[derive(Clone, Debug)]
pub enum Call {
    /// A kernel, on the SMs.
    Kernel(KernelCall),
    /// A copy, on a copy engine.
    Copy(CopyCall),
}

impl Call {
    /// Queues it. `programmatic` lets a kernel launch while the previous one in the stream ends.
    pub(super) fn enqueue(&self, stream: &Stream, programmatic: bool) -> crate::device::Result<()> {
        match self {
            Call::Kernel(call) => stream.launch(call, programmatic),
            Call::Copy(call) => stream.copy(call),
        }
    }
}

/// A program with the work of each of its nodes. Everything built from it keeps its memory alive.
#[derive(Clone, Debug)]
pub struct Calls {
    pub(super) program: Program,
    pub(super) calls: Arc<[Call]>,
    /// Names the timed-out waits for tiles.
    pub(super) watch: Option<Arc<Watch>>,
}

impl Calls {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// One node, repeated `times` times.
    ///
    /// # Errors
    /// [`cusync_dag::DagError::TooMany`].
    pub fn repeated(&self, node: NodeId, times: usize) -> Result<Calls> {
        let mut program = self.program.only(|_| false);
        for _ in 0..times {
            program.push(self.program.node(node).clone())?;
        }
        let calls = std::iter::repeat_n(self.calls[node.index()].clone(), times).collect();
        Ok(Calls { program, calls, watch: self.watch.clone() })
    }

    /// Captures the nodes in order on one stream, like serial user code, without instantiating the graph.
    pub fn serial_graph(&self, main: &Stream) -> Result<Graph> {
        Ok(Graph::captured(main, || self.calls.iter().try_for_each(|call| call.enqueue(main, false)))?)
    }
}
