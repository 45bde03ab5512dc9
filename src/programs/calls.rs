//! GPU work of a program's nodes.

use std::ops::Range;
use std::sync::Arc;

use cusync_dag::{NodeId, Program};

use super::error::{Error, Result};
use super::opaque::OpaqueCall;
use super::tiled::Watch;
use crate::device::{CopyCall, Graph, KernelCall, Stream};

/// A kernel launch or a copy that can be queued any number of times.
#[derive(Clone, Debug)]
pub enum Call {
    /// A kernel, on the SMs.
    Kernel(KernelCall),
    /// A copy, on a copy engine.
    Copy(CopyCall),
    /// Work that a callback queues, captured for each executable.
    Opaque(OpaqueCall),
}

/// A program with the work of each of its nodes. Everything built from it keeps its memory alive.
#[derive(Clone, Debug)]
pub struct Calls {
    pub(super) program: Program,
    pub(super) calls: Arc<[Call]>,
    /// Addresses of each buffer; empty if nothing is opaque.
    pub(super) memory: Arc<[Range<u64>]>,
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
        Ok(Calls { program, calls, memory: self.memory.clone(), watch: self.watch.clone() })
    }

    /// Captures the nodes in order on one stream, like serial user code, without instantiating the graph.
    ///
    /// # Errors
    /// [`Error::Opaque`] for an opaque node; device errors.
    pub fn serial_graph(&self, main: &Stream) -> Result<Graph> {
        Graph::captured(main, || {
            self.calls.iter().zip(self.program.nodes()).try_for_each(|(call, node)| match call {
                Call::Kernel(call) => Ok(main.launch(call, false)?),
                Call::Copy(call) => Ok(main.copy(call)?),
                Call::Opaque(_) => {
                    let fault = "its workspace belongs to an executable: build one with `Calls::planned`";
                    Err(Error::Opaque { node: node.name.clone(), what: fault.into() })
                }
            })
        })
    }
}
