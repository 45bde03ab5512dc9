//! Kernels of Custom stages, which the user writes.

use cusync_gen::emit;
use cusync_gen::graph::StageId;

use super::cpu::CpuError;
use super::error::{Error, Result};
use super::pipeline::{Pipeline, Set};
use crate::device::{KernelCode, OwnRead, words};

impl Pipeline {
    /// Sets the kernel of a Custom stage. A source is compiled here, and may include the plan's rendered header under
    /// the pipeline's name: `#include "NAME.h"`. Waits for the GPU.
    ///
    /// # Errors
    /// There is no Custom stage of that name, NVRTC is not installed, or the code does not compile.
    pub fn set_kernel(&mut self, stage: &str, code: &KernelCode) -> Result<()> {
        let graph = self.plan.graph();
        let found = graph.stages.iter().position(|s| s.name == stage && s.op.is_custom());
        let index = found.ok_or_else(|| CpuError::NoCustomStage(stage.into()))?;
        let (name, header) = (format!("{}.h", graph.name), emit::header(&self.plan, "cusync gen"));
        self.main.synchronize()?;
        self.own[index] = Some(code.load(&self.device, stage, (&name, &header))?);
        self.sets.iter_mut().for_each(Set::changed);
        Ok(())
    }

    /// Checks that every Custom stage has a kernel.
    pub(super) fn has_kernels(&self) -> Result<()> {
        let stages = self.plan.graph().stages.iter().zip(&self.own);
        let mut without = stages.filter(|(stage, own)| stage.op.is_custom() && own.is_none());
        without.next().map_or(Ok(()), |(stage, _)| Err(Error::NoKernel(stage.name.clone())))
    }

    /// Boxes of a Custom stage's reads. `waits`: whether it waits for them.
    pub(super) fn own_reads(&self, stage: StageId, waits: bool) -> Vec<OwnRead> {
        let graph = self.plan.graph();
        let planned = &graph.stages[stage.0];
        let read = |(at, operand): (usize, &cusync_gen::graph::Operand)| {
            let edges = self.plan.edges().iter().zip(&self.shared.descriptors.edges);
            let mut edges = edges.filter(|(edge, _)| {
                let dependence = edge.dependence();
                waits && (dependence.consumer, dependence.operand) == (stage, at)
            });
            match edges.next() {
                Some((_, edge)) => OwnRead { edge: *edge, waits },
                None => {
                    let tensor = &graph.tensors[operand.tensor.0];
                    OwnRead { edge: words::read(planned, operand, tensor), waits: false }
                }
            }
        };
        planned.operands.iter().enumerate().map(read).collect()
    }
}
