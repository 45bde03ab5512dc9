//! One complete pipeline run on a GPU: random inputs, verification, timing.

use std::time::Instant;

use cusync_gen::check::{Executor, Plan};

use super::copilot::{JobSession, Settings};
use super::error::{Result, executor_name};
use super::options::Options;
use super::pipeline::{Kernels, Pipeline};
use super::sets::InputSets;
use super::verify::{self, Accuracy, Reference};
use crate::device::{Device, Event, KernelCode};

/// Options of [`run_gpu`].
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Index of the GPU.
    pub gpu: u32,
    /// Executor; `None` for the one that the plan was proved for.
    pub executor: Option<Executor>,
    /// Weight sets in rotation.
    pub sets: usize,
    /// Timed samples; each is one graph with one run per set.
    pub samples: usize,
    /// Seed of the random inputs.
    pub seed: u32,
    /// Pipeline options.
    pub pipeline: Options,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { gpu: 0, executor: None, sets: 4, samples: 15, seed: 1, pipeline: Options::default() }
    }
}

/// Result of [`run_gpu`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct GpuRunReport {
    /// Pipeline.
    pub pipeline: String,
    /// Executor.
    pub executor: String,
    /// GPU.
    pub device: String,
    /// Whether every output of an eager run and of a graph replay is correct.
    pub verified: bool,
    /// Largest difference relative to the largest value, over all outputs.
    pub max_rel_err: f64,
    /// Largest relative L2 norm of the difference.
    pub l2_rel_err: f64,
    /// Each output of the eager run.
    pub outputs: Vec<Accuracy>,
    /// Median time of a run, as a graph with the weight sets in rotation, microseconds.
    pub time_us: f64,
    /// Tenth percentile.
    pub p10_us: f64,
    /// Ninetieth percentile.
    pub p90_us: f64,
    /// CTAs and CTAs per SM, by stage.
    pub grids: Vec<(u32, u32)>,
}

/// Runs a plan on a GPU with random inputs, verifies an eager run and a graph replay, and times replays.
/// Under `copilot`, runs are jobs of a session, timed by the host.
pub fn run_gpu(plan: &Plan, options: RunOptions) -> Result<GpuRunReport> {
    run_gpu_with(plan, options, &[])
}

/// [`run_gpu`] with the kernels of Custom stages, by stage. Their results are taken as given
/// ([`Reference::new`]).
pub fn run_gpu_with(
    plan: &Plan,
    options: RunOptions,
    kernels: &[(String, KernelCode)],
) -> Result<GpuRunReport> {
    let device = Device::open(options.gpu)?;
    let executor = options.executor.unwrap_or(plan.executor());
    let checked = Options { check_pages: true, ..options.pipeline };
    let mut pipeline = Pipeline::with_options(plan, &device, checked)?;
    kernels.iter().try_for_each(|(stage, code)| pipeline.set_kernel(stage, code))?;
    let inputs = InputSets::random(plan.graph(), &device, options.sets.max(1), options.seed)?;
    inputs.bind(&mut pipeline)?;
    let reference = Reference::new(&mut pipeline, 0)?;
    if executor == Executor::Copilot {
        return run_jobs(&mut pipeline, &reference, options);
    }

    pipeline.poison_outputs()?;
    pipeline.run(executor)?;
    let outputs = reference.compare(&mut pipeline)?;

    let graph = pipeline.capture(executor, &[0])?;
    pipeline.poison_outputs()?;
    pipeline.replay(&graph)?;
    let replayed = reference.compare(&mut pipeline)?;

    let sets: Vec<usize> = (0..pipeline.sets()).collect();
    let rotation = pipeline.capture(executor, &sets)?;
    let (begin, end) = (Event::timing(&device)?, Event::timing(&device)?);
    let mut times = Vec::new();
    for sample in 0..options.samples.max(1) + 1 {
        pipeline.stream().record(&begin)?;
        pipeline.replay(&rotation)?;
        pipeline.stream().record(&end)?;
        pipeline.synchronize()?;
        // The first replay also uploads the graph.
        if sample > 0 {
            times.push(end.us_since(&begin)? / sets.len() as f64);
        }
    }
    let all = [outputs.clone(), replayed].concat();
    let (l2_rel_err, max_rel_err) = verify::worst(&all);
    let kernels = pipeline.kernels(0)?;
    let grids = match &*kernels {
        Kernels::One(kernel) => vec![kernel.grid(); plan.graph().stages.len()],
        Kernels::Stages(stages) => {
            let mut grids = vec![(0, 0); stages.len()];
            for kernel in stages {
                let tiled = kernel.tiled.as_ref().filter(|_| executor != Executor::Serial);
                grids[kernel.stage] = tiled.unwrap_or(&kernel.serial).grid();
            }
            grids
        }
    };
    Ok(GpuRunReport {
        pipeline: plan.graph().name.clone(),
        executor: executor_name(executor).into(),
        device: device.name().into(),
        verified: !all.is_empty() && all.iter().all(|a| a.verified),
        max_rel_err,
        l2_rel_err,
        outputs,
        time_us: super::stats::percentile(&mut times, 0.5),
        p10_us: super::stats::percentile(&mut times, 0.1),
        p90_us: super::stats::percentile(&mut times, 0.9),
        grids,
    })
}

/// Jobs of a session with all rows: one is verified after the next overwrites it, and the rest are timed from
/// `submit` until the host sees the end.
fn run_jobs(pipeline: &mut Pipeline, reference: &Reference, options: RunOptions) -> Result<GpuRunReport> {
    const JOBS: usize = 20;
    let rows = pipeline.plan().graph().stages.iter().map(|s| s.m).min().unwrap_or(0);
    let mut times = Vec::new();
    let mut outputs = Vec::new();
    for verified in [true, false] {
        pipeline.poison_outputs()?;
        pipeline.synchronize()?;
        let (sets, samples) = (pipeline.sets(), options.samples.max(1));
        let mut session = JobSession::open(pipeline, Settings::default())?;
        for job in 0..if verified { 1 } else { samples * JOBS + 1 } {
            let begin = Instant::now();
            let submitted = session.submit(job % sets, rows)?;
            session.wait(submitted)?;
            // The first job launches the kernel.
            if job > 0 {
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        if !verified {
            let last = session.submit(0, rows)?;
            session.wait(last)?;
        }
        session.close()?;
        outputs.push(reference.compare(pipeline)?);
    }
    let (l2_rel_err, max_rel_err) = verify::worst(&outputs.concat());
    let all = outputs.concat();
    let workers = pipeline.plan().launch().shares().map_or(0, |shares| shares.workers());
    Ok(GpuRunReport {
        pipeline: pipeline.plan().graph().name.clone(),
        executor: executor_name(Executor::Copilot).into(),
        device: pipeline.device().name().into(),
        verified: !all.is_empty() && all.iter().all(|a| a.verified),
        max_rel_err,
        l2_rel_err,
        outputs: outputs.swap_remove(0),
        time_us: super::stats::percentile(&mut times, 0.5),
        p10_us: super::stats::percentile(&mut times, 0.1),
        p90_us: super::stats::percentile(&mut times, 0.9),
        grids: vec![(workers, 1); pipeline.plan().graph().stages.len()],
    })
}
