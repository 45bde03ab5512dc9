//! Matrix products by cuBLASLt, for the stages that it computes faster than our kernels.
//!
//! Weights that no stage writes are copied in transposed layout when a pipeline is prepared, if that is
//! faster: most cuBLASLt kernels expect that layout. If cuBLASLt is not installed, our kernels run all
//! stages. A cuBLASLt stage is queued between kernel boundaries like any other stage of a serial chain, so it
//! needs no further proof.

use cusync_gen::graph::{OperandKind, Stage};

use super::error::Result;
use super::pipeline::{Faster, Pipeline};
use crate::device::{CublasLt, DeviceBuffer, Error as DeviceError, Kernel, KernelArgs, LaunchAttributes};

/// Runs of a stage per measurement, and number of measurements; the minimum counts.
const ROUNDS: usize = 5;
const TURNS: usize = 6;

impl Pipeline {
    /// Stages that cuBLASLt computes under the `library` executor, once the pipeline is prepared.
    pub fn by_library(&self) -> impl Iterator<Item = &str> {
        let stages = self.plan.graph().stages.iter().zip(&self.faster);
        stages
            .filter(|(_, faster)| matches!(faster, Some(Faster::Library(_))))
            .map(|(stage, _)| stage.name.as_str())
    }

    /// A stage of a set by cuBLASLt, if that is faster or was found to be faster for another set. The trial
    /// runs write to scratch memory.
    pub(super) fn library_stage(&mut self, set: usize, index: usize) -> Result<Option<CublasLt>> {
        let stage: &Stage = &self.plan.graph().stages[index];
        if !stage.in_library() {
            return Ok(None);
        }
        if self.faster[index].is_none() {
            let mut alone = self.alone(set, index)?;
            let elements = stage.m as usize * stage.n as usize;
            let scratch = DeviceBuffer::new(&self.device, elements, &format!("a trial of {}", stage.name))?;
            let scratch = std::sync::Arc::new(scratch);
            alone.stages.iter_mut().for_each(|stage| stage.out = scratch.clone());
            let graph = self.plan.graph();
            let weights =
                graph.stages[index].operands.iter().filter(|operand| operand.kind == OperandKind::B);
            let constant =
                weights.map(|b| &graph.tensors[b.tensor.0]).all(|tensor| tensor.producer.is_none());
            self.faster[index] = Some(self.compare(alone, constant)?);
        }
        match &self.faster[index] {
            Some(Faster::Library(tuned)) => Ok(Some(tuned.like(self.bound_stage(set, index)?)?)),
            Some(Faster::Ours) | None => Ok(None),
        }
    }

    /// `constant`: no stage writes the weights.
    fn compare(&self, alone: KernelArgs, constant: bool) -> Result<Faster> {
        let bound = alone.stages.first().filter(|_| CublasLt::is_installed()).cloned();
        let Some(bound) = bound else { return Ok(Faster::Ours) };
        let theirs = match CublasLt::new(&self.device, bound, constant) {
            Ok(stage) => stage,
            // cuBLASLt has no algorithm for this shape.
            Err(DeviceError::NotBuilt(_)) => return Ok(Faster::Ours),
            Err(other) => return Err(other.into()),
        };
        let ours = Kernel::new(&self.device, alone)?;
        let stream = &self.main;
        let least = stream.least_us((2, TURNS, ROUNDS), |which| match which {
            0 => ours.launch(LaunchAttributes { stream, started: None, programmatic: false }),
            _ => theirs.launch(stream),
        })?;
        Ok(if least[1] < least[0] { Faster::Library(Box::new(theirs)) } else { Faster::Ours })
    }
}
