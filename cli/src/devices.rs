//! Pipelines that several devices run at once: their reports, and runs of all devices on host threads.

use std::time::Instant;

use cusync::device::Device;
use cusync::reference::Accuracy;
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
    let named = |(device, list): (usize, Vec<Accuracy>)| {
        let name =
            move |one: Accuracy| Accuracy { tensor: format!("{} of device {device}", one.tensor), ..one };
        list.into_iter().map(name)
    };
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

/// GPUs do not run several devices in this command.
pub(crate) fn only_on_host(resolved: &Resolved) -> Fault {
    let devices = resolved.devices();
    let have = (0..devices).take_while(|number| Device::open(*number).is_ok()).count();
    let message = format!(
        "the pipeline runs on {devices} devices, which `cusync run` takes from the host; this machine has {}",
        counted(have, "usable GPU")
    );
    Fault::input("unsupported", message).help("use --executor cpu")
}
