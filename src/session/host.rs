//! A session on host threads.

use std::collections::HashMap;

use cusync_gen::check::Plan;
use cusync_gen::graph::{Graph, TensorId};

use super::{SessionError, SessionResult};
use crate::inputs::{Inputs, Values};
use crate::reference::{Accuracy, Judge};
use crate::runtime::cpu::{CpuOptions, CpuPipeline};

/// Inputs and runs of a session on host threads.
pub(super) struct Host {
    inputs: Inputs,
    options: CpuOptions,
    pipeline: Option<CpuPipeline>,
    /// Number of runs.
    runs: usize,
    /// Whether the last run had these inputs.
    current: bool,
}

const NOT_RUN: &str = "nothing has run with these inputs yet\n  help: call `run` first";

impl Host {
    pub(super) fn new(inputs: Inputs, options: CpuOptions) -> Host {
        Host { inputs, options, pipeline: None, runs: 0, current: false }
    }

    /// Sets values for the next run, which continues with the last run's persistent tensors.
    pub(super) fn put(&mut self, index: usize, values: Values) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.put(TensorId(index), &values);
        }
        self.inputs.put(TensorId(index), values);
        self.current = false;
    }

    pub(super) fn run(&mut self, plan: &Plan) -> SessionResult<()> {
        if self.pipeline.is_none() {
            self.pipeline = Some(CpuPipeline::new(plan, &self.inputs, self.options)?);
        }
        if let Some(ready) = &mut self.pipeline {
            ready.run()?;
        }
        self.runs += 1;
        self.current = true;
        Ok(())
    }

    pub(super) fn read_f32(&self, name: &str) -> SessionResult<Vec<f32>> {
        let pipeline = self.pipeline.as_ref().ok_or(SessionError::Elsewhere(NOT_RUN))?;
        Ok(pipeline.tensor(name)?)
    }

    pub(super) fn verify(&self, graph: &Graph) -> SessionResult<Vec<Accuracy>> {
        let pipeline = self.pipeline.as_ref().filter(|_| self.current);
        let pipeline = pipeline.ok_or(SessionError::Elsewhere(NOT_RUN))?;
        if self.runs > 1 && graph.tensors.iter().any(|tensor| tensor.state) {
            return Err(SessionError::Elsewhere(
                "the caches before this run are not known\n  help: only the first run of a pipeline with caches can \
                 be verified",
            ));
        }
        let judge = Judge::new(graph, &self.inputs, HashMap::new())?;
        Ok(judge.compare(&|name| pipeline.tensor(name).ok())?)
    }
}
