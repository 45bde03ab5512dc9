//! GPU work of a program's nodes.

use std::sync::Arc;

use cusync_dag::{Form, KernelSchedule, LaunchPlan, NodeId, Program, ProvedPlan};

use super::error::{Error, Result};
use super::exec::Executable;
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

    /// Builds an executable for a proved plan; launches are queued on `main`.
    ///
    /// # Errors
    /// [`Error::OtherProgram`]; device errors.
    pub fn executable(&self, main: &Arc<Stream>, plan: &ProvedPlan) -> Result<Executable> {
        match plan.is_of(&self.program) {
            true => Executable::new(self, main, plan.launches()),
            false => Err(Error::OtherProgram),
        }
    }

    /// Proves a plan and builds an executable for it.
    ///
    /// # Errors
    /// [`Error::Unproved`]; device errors.
    pub fn planned(&self, main: &Arc<Stream>, plan: impl Into<LaunchPlan>) -> Result<Executable> {
        self.executable(main, &plan.into().prove(&self.program)?)
    }

    /// [`Calls::planned`] for a form of the program's schedule.
    ///
    /// # Errors
    /// As [`Calls::planned`].
    pub fn scheduled(&self, main: &Arc<Stream>, schedule: &KernelSchedule, form: Form) -> Result<Executable> {
        self.planned(main, schedule.plan(&self.program, form))
    }
}
