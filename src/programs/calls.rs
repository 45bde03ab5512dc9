//! GPU work of a program's nodes.

use std::ops::Range;
use std::sync::Arc;

use cusync_dag::{Form, KernelSchedule, NodeId, Program, ScheduleOptions, schedule};

use super::adopt::AdoptedCall;
use super::error::{Error, Result};
use super::opaque::OpaqueCall;
use super::tiled::Watch;
use crate::device::{CopyCall, Device, Graph, KernelCall, Stream};

/// A kernel launch or a copy that can be queued any number of times.
#[derive(Clone, Debug)]
pub enum Call {
    /// A kernel, on the SMs.
    Kernel(KernelCall),
    /// A copy, on a copy engine.
    Copy(CopyCall),
    /// Work that a callback queues, captured for each executable.
    Opaque(OpaqueCall),
    /// A node of a captured graph.
    Adopted(AdoptedCall),
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

    /// The program's schedule for a GPU, in one of these forms (none: any), with at most so many streams.
    ///
    /// # Errors
    /// [`Error::NotOffered`]; [`Error::TooOld`]; [`Error::Dag`].
    pub fn schedule(
        &self,
        device: &Device,
        forms: &[Form],
        streams: Option<usize>,
    ) -> Result<KernelSchedule> {
        let profile = device.profile().ok_or_else(|| Error::TooOld(device.name().into()))?;
        let asked = |form: &Form| forms.is_empty() || forms.contains(form);
        let early = device.capability().0 >= 9;
        let offered = Form::ALL.into_iter().filter(|form| asked(form) && (early || !form.is_programmatic()));
        let offered = offered.collect();
        let options = ScheduleOptions { forms: offered, streams, device: profile, ..Default::default() };
        let found = schedule(&self.program, &options)?;
        if asked(&found.form) { Ok(found) } else { Err(Error::NotOffered) }
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
                Call::Adopted(call) => Ok(call.alone(main.device())?.join_capture(main)?),
                Call::Opaque(_) => {
                    let fault = "its workspace belongs to an executable: build one with `Calls::planned`";
                    Err(Error::Opaque { node: node.name.clone(), what: fault.into() })
                }
            })
        })
    }
}
