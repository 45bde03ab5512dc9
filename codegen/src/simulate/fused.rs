//! Timelines of chain and decode kernels.

use super::{PredictedRun, TileRun};
use crate::check::Candidate;
use crate::device::Profile;
use crate::graph::{Graph, StageId};
use crate::schedule::decode::{Decode, spans};
use crate::schedule::{Breakdown, Schedule, ScheduleRequest, time};
use crate::sync::Tile;

/// One tile run per item: `sm` and `slots` count workers, and a split tile has one run per part.
pub(super) fn chain(graph: &Graph, device: &Profile, schedule: &Schedule) -> PredictedRun {
    let cost = device.cost_model(graph.operations());
    let request = ScheduleRequest {
        workers: schedule.lists.len() as u32,
        cluster: schedule.cluster,
        mode: schedule.mode,
        splits: schedule.slabs > 0,
        cost: &cost,
    };
    timeline(schedule, &time(graph, &request, schedule))
}

fn timeline(schedule: &Schedule, why: &Breakdown) -> PredictedRun {
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
    PredictedRun {
        total_us: why.total_us,
        stages: why.stages.clone(),
        tiles: runs.collect(),
        slots: schedule.lists.len() as u32,
    }
}

/// One tile run per item: a worker's share of a stage, or each of its tiles. A stage's weights are streamed while its
/// activations are awaited, so a worker waits only for the end of the previous stage.
pub(super) fn decode(candidate: &Candidate, plan: &Decode) -> PredictedRun {
    let stages = spans(&candidate.graph, &candidate.device);
    let mut tiles = Vec::new();
    for (s, &(begin, end)) in stages.iter().enumerate() {
        for (sm, list) in (0..).zip(&plan.work.lists) {
            let items = list.iter().map(|item| &plan.work.sequence[*item as usize]);
            let stage_items: Vec<_> = items.filter(|item| item.stage == StageId(s)).collect();
            let each = (end - begin) / stage_items.len().max(1) as f64;
            tiles.extend(stage_items.iter().enumerate().map(|(at, item)| TileRun {
                stage: item.stage,
                tile: Tile { m: item.m, n: item.n },
                sm,
                start: begin + at as f64 * each,
                wait: 0.0,
                end: if at + 1 == stage_items.len() { end } else { begin + (at + 1) as f64 * each },
            }));
        }
    }
    let total_us = stages.last().map_or(0.0, |(_, end)| *end);
    PredictedRun { total_us, stages, tiles, slots: plan.workers() }
}
