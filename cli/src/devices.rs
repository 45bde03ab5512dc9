//! Pipelines that several devices run at once: their reports, and their runs on host threads or GPUs.

use std::collections::HashMap;
use std::time::Instant;

use cusync::device::Device;
use cusync::inputs::Inputs;
use cusync::reference::{Accuracy, Judge};
use cusync::runtime::Options;
use cusync::runtime::cpu::CpuOptions;
use cusync::{Group, SessionError, SessionResult};
use cusync_gen::check::Plan;
use cusync_gen::graph::{Graph, Resolved, Stage};
use serde::Serialize;

use super::fault::Fault;
use super::memory::too_large;
use super::report::counted;
use super::target::Target;

/// Devices of a pipeline with sums over them.
#[derive(Serialize)]
pub(crate) struct DevicesReport {
    pub(crate) count: u32,
    /// Stages that are summed.
    pub(crate) summed: Vec<String>,
    /// Words that a device sends to each other device in a run.
    pub(crate) words: u64,
    /// Bytes that it sends to all others in a run.
    pub(crate) bytes: u64,
}

impl DevicesReport {
    /// `None` for one device.
    pub(crate) fn of_graph(graph: &Graph) -> Option<DevicesReport> {
        let count = graph.devices();
        let summed = graph.stages.iter().filter(|stage| stage.devices > 1);
        let words = graph.stages.iter().map(Stage::summed_words).sum();
        (count > 1).then(|| DevicesReport {
            count,
            summed: summed.map(|stage| stage.name.clone()).collect(),
            words,
            bytes: words * 8 * u64::from(count - 1),
        })
    }
}

pub(crate) fn devices_line(d: &DevicesReport) -> String {
    format!(
        "{} devices sum {}: each sends {} words to each other a run, {} bytes in all",
        d.count,
        d.summed.join(", "),
        d.words,
        d.bytes
    )
}

/// Runs all devices of a plan on host threads, and verifies them: seconds, and every tensor of every device.
pub(crate) fn run(plan: &Plan, options: CpuOptions, seed: u64) -> SessionResult<(f64, Vec<Accuracy>)> {
    let mut group = Group::of_plan(plan, options);
    group.set_random(seed)?;
    let begin = Instant::now();
    group.run()?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok((seconds, group.verify()?.into_iter().enumerate().flat_map(named).collect()))
}

/// The fault of a run of all devices.
pub(crate) fn fault(error: SessionError, target: &Target) -> Fault {
    match error {
        SessionError::Host(error) => too_large(error, target),
        SessionError::Device { .. } => Fault { status: 1, ..error.into() },
        other => other.into(),
    }
}

/// The GPUs of this machine that run the devices of a pipeline.
///
/// # Errors
/// There are too few.
pub(crate) fn gpus(resolved: &Resolved) -> Result<Vec<Device>, Fault> {
    let devices = resolved.devices();
    let found: Vec<Device> = (0..devices).map_while(|number| Device::open(number).ok()).collect();
    if found.len() == devices as usize {
        return Ok(found);
    }
    let have = counted(found.len(), "usable GPU");
    let message = format!("the pipeline runs on {devices} devices, and this machine has {have}");
    Err(Fault::input("unsupported", message).help("use --executor cpu"))
}

/// Runs a plan on GPUs, one for each device, and verifies them. Returns the median time of a run of all, in seconds, and
/// every tensor of every device.
pub(crate) fn run_on_gpus(plan: &Plan, gpus: &[Device], seed: u64) -> SessionResult<(f64, Vec<Accuracy>)> {
    const RUNS: usize = 200;
    let (graph, options) = (plan.graph(), Options::default());
    let mut group = Group::of_plan_on_gpus(plan, gpus, options)?;
    group.set_random(seed)?;
    group.run()?;
    let inputs =
        (0..gpus.len()).map(|device| Inputs::checked_random(graph, seed.wrapping_add(device as u64)));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let judge = Judge::with_devices(graph, inputs.iter().collect(), HashMap::new())?;
    let found = |device, name: &str| group.session(device).ok()?.read_f32(name).ok();
    let judged = (0..gpus.len()).map(|device| Ok((device, judge.compare_device(device, &found)?)));
    let judged = judged.collect::<SessionResult<Vec<_>>>()?;
    let mut times = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        group.each(&|_, session| {
            let executor = session.executor();
            let pipeline = session.pipeline()?;
            (0..RUNS).try_for_each(|_| pipeline.run(executor))?;
            Ok(pipeline.synchronize()?)
        })?;
        times.push(begin.elapsed().as_secs_f64() / RUNS as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], judged.into_iter().flat_map(named).collect()))
}

/// What a device has computed, with its number.
fn named((device, list): (usize, Vec<Accuracy>)) -> impl Iterator<Item = Accuracy> {
    let name = move |one: Accuracy| Accuracy { tensor: format!("{} of device {device}", one.tensor), ..one };
    list.into_iter().map(name)
}
