//! `cusync check`.

use cusync::runtime::executor_name;
use cusync_gen::check::Executor;
use cusync_gen::graph::Graph;
use cusync_gen::schedule::decode::{COLUMN_TILE, Decode};
use cusync_gen::schedule::{Mode, Part, Schedule};

use super::fault::Fault;
use super::prove::Proof;
use super::report::{CheckReport, DecodeReport, ScheduleReport};
use super::request::Target;

/// The executor that a device is planned for where none is stated.
pub(crate) fn usual_executor(target: &Target) -> Executor {
    let by_arch = if target.device.arch >= 90 { Executor::Programmatic } else { Executor::Streams };
    target.executor.unwrap_or(by_arch)
}

/// Dims by name.
pub(crate) fn dims(graph: &Graph) -> std::collections::BTreeMap<String, u32> {
    graph.dims.iter().cloned().collect()
}

pub(crate) fn check(target: &Target) -> Result<CheckReport, Fault> {
    let executor = usual_executor(target);
    let proof = Proof::of(target, executor)?;
    let graph = &proof.candidate().graph;
    let schedule = schedule(graph, proof.candidate().schedule.as_ref());
    let decode = decode(proof.candidate().decode.as_ref());
    Ok(CheckReport {
        verdict: if proof.proved() { "proved" } else { "refuted" },
        pipeline: graph.name.clone(),
        dims: dims(graph),
        device: target.device.name.into(),
        executor: executor_name(executor),
        obligations: proof.obligations,
        schedule,
        decode,
        refutations: proof.refutations,
    })
}

/// A schedule in numbers.
pub(crate) fn schedule(graph: &Graph, schedule: Option<&Schedule>) -> Option<ScheduleReport> {
    let schedule = schedule?;
    let tile = graph.stages.first()?.mma_tile;
    let count = |of: &dyn Fn(&Part) -> bool| schedule.sequence.iter().filter(|i| of(&i.part)).count();
    Some(ScheduleReport {
        mode: match schedule.mode {
            Mode::Static => "static",
            Mode::Dynamic => "dynamic",
        },
        tile: [tile.0, tile.1, tile.2],
        cluster: [schedule.cluster.0, schedule.cluster.1],
        workers: schedule.lists.len(),
        items: schedule.sequence.len(),
        longest_list: schedule.lists.iter().map(Vec::len).max().unwrap_or(0),
        split_tiles: count(&|part| matches!(part, Part::Finish { .. } | Part::Share { part: 0, .. })),
        parts: count(&|part| *part != Part::Whole),
        slabs: schedule.slabs,
        predicted_us: schedule.predicted_us,
    })
}

/// A decode plan in numbers.
pub(crate) fn decode(decode: Option<&Decode>) -> Option<DecodeReport> {
    decode.map(|d| DecodeReport {
        workers: d.workers,
        width: d.width,
        column_tile: COLUMN_TILE,
        slots: d.slot_count(),
        predicted_us: d.predicted_us,
    })
}
