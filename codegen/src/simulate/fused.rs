//! The timelines of chain and decode kernels.

use super::{TileRun, Timeline};
use crate::check::Candidate;
use crate::graph::StageId;
use crate::schedule::decode::{Decode, spans};
use crate::schedule::{Breakdown, Request, Schedule, time};
use crate::sync::Tile;

/// One tile run an item: workers are what `sm` and `slots` count, and a tile that is cut has a run for each part.
pub(super) fn chain(candidate: &Candidate, schedule: &Schedule) -> Timeline {
    let cost = candidate.device.cost_model();
    let request = Request {
        workers: schedule.lists.len() as u32,
        cluster: schedule.cluster,
        mode: schedule.mode,
        splits: schedule.slabs > 0,
        cost: &cost,
    };
    of(schedule, &time(&candidate.graph, &request, schedule))
}

fn of(schedule: &Schedule, why: &Breakdown) -> Timeline {
    let runs =
        schedule.sequence.iter().zip(&why.items).zip(schedule.worker_of()).map(|((item, time), sm)| {
            TileRun {
                stage: item.stage,
                tile: Tile { m: item.m, n: item.n },
                sm,
                start: time.begin_us,
                wait: time.wait_us,
                end: time.end_us(),
            }
        });
    Timeline {
        total_us: why.total_us,
        stages: why.stages.clone(),
        tiles: runs.collect(),
        slots: schedule.lists.len() as u32,
    }
}

/// One tile run a worker and stage; its tile is `(0, worker)`. Weights of a stage are streamed while its activations are
/// awaited, so a worker waits for the end of the stage before only.
pub(super) fn decode(candidate: &Candidate, plan: &Decode) -> Timeline {
    let spans = spans(&candidate.graph, &candidate.device);
    let runs = |(s, &(start, end)): (usize, &(f64, f64))| {
        (0..plan.workers()).map(move |sm| TileRun {
            stage: StageId(s),
            tile: Tile { m: 0, n: sm },
            sm,
            start,
            wait: 0.0,
            end,
        })
    };
    Timeline {
        total_us: plan.work.predicted_us,
        tiles: spans.iter().enumerate().flat_map(runs).collect(),
        stages: spans,
        slots: plan.workers(),
    }
}
