//! A session on host threads.

use std::collections::HashMap;
use std::sync::Arc;

use cusync_gen::check::Plan;
use cusync_gen::graph::{Graph, TensorId};

use super::{SessionError, SessionResult};
use crate::inputs::{Inputs, Values};
use crate::reference::{Accuracy, Judge};
use crate::runtime::cpu::{Areas, CpuOptions, CpuPipeline, CustomKernel};

/// Inputs and runs of a session on host threads.
pub(super) struct Host {
    inputs: Inputs,
    options: CpuOptions,
    /// Areas of its group, and its number there.
    group: Option<(Arc<Areas>, u32)>,
    /// Arithmetic of Custom stages, by name.
    kernels: Vec<(String, Arc<dyn CustomKernel>)>,
    pipeline: Option<CpuPipeline>,
    /// Number of runs.
    runs: usize,
    /// Whether the last run had these inputs.
    current: bool,
}

const NOT_RUN: &str = "nothing has run with these inputs yet\n  help: call `run` first";

impl Host {
    pub(super) fn new(inputs: Inputs, options: CpuOptions, group: Option<(Arc<Areas>, u32)>) -> Host {
        Host { inputs, options, group, kernels: Vec::new(), pipeline: None, runs: 0, current: false }
    }

    pub(super) fn in_group(&self) -> bool {
        self.group.is_some()
    }

    /// Sets values for the next run, which continues with the last run's persistent tensors.
    pub(super) fn put(&mut self, index: usize, values: Values) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.put(TensorId(index), &values);
        }
        self.inputs.put(TensorId(index), values);
        self.current = false;
    }

    /// Sets the arithmetic of a Custom stage; the stage exists.
    pub(super) fn custom(&mut self, stage: &str, kernel: Arc<dyn CustomKernel>) -> SessionResult<()> {
        self.kernels.push((stage.to_owned(), kernel.clone()));
        let ready = self.pipeline.take().map(|pipeline| pipeline.shared_custom(stage, kernel));
        self.pipeline = ready.transpose()?;
        self.current = false;
        Ok(())
    }

    /// Allocates the tensors before the first run.
    pub(super) fn prepare(&mut self, plan: &Plan) -> SessionResult<()> {
        if self.pipeline.is_none() {
            let mut pipeline = CpuPipeline::new(plan, &self.inputs, self.options)?;
            for (stage, kernel) in &self.kernels {
                pipeline = pipeline.shared_custom(stage, kernel.clone())?;
            }
            self.pipeline = Some(match &self.group {
                Some((areas, device)) => pipeline.join(areas, *device),
                None => pipeline,
            });
        }
        Ok(())
    }

    pub(super) fn run(&mut self, plan: &Plan) -> SessionResult<()> {
        self.prepare(plan)?;
        self.current = false;
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
}

/// Verifies the last run of each device of a group.
pub(super) fn verify(graph: &Graph, group: &[&Host]) -> SessionResult<Vec<Vec<Accuracy>>> {
    let pipelines = group.iter().map(|host| host.pipeline.as_ref().filter(|_| host.current));
    let pipelines: Option<Vec<_>> = pipelines.collect();
    let pipelines = pipelines.ok_or(SessionError::Elsewhere(NOT_RUN))?;
    if group.iter().any(|host| host.runs > 1) && graph.tensors.iter().any(|tensor| tensor.state) {
        return Err(SessionError::Elsewhere(
            "the caches before this run are not known\n  help: only the first run of a pipeline with caches can \
             be verified",
        ));
    }
    let inputs = group.iter().map(|host| &host.inputs).collect();
    let judge = Judge::with_devices(graph, inputs, HashMap::new())?;
    let found = |device: usize, name: &str| pipelines[device].tensor(name).ok();
    (0..group.len()).map(|device| Ok(judge.compare_device(device, &found)?)).collect()
}
