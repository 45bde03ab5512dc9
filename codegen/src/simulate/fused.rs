//! The timelines of chain and decode kernels.

use super::{TileRun, Timeline};
use crate::check::Candidate;
use crate::graph::{Graph, Stage, StageId};
use crate::schedule::decode::{Decode, stage_us};
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
    let mut worker_of = vec![0; schedule.sequence.len()];
    for (worker, list) in schedule.lists.iter().enumerate() {
        list.iter().for_each(|i| worker_of[*i as usize] = worker as u32);
    }
    let runs = schedule.sequence.iter().zip(&why.items).zip(&worker_of).map(|((item, time), &sm)| TileRun {
        stage: item.stage,
        tile: Tile { m: item.m, n: item.n },
        sm,
        start: time.begin_us,
        wait: time.wait_us,
        end: time.end_us(),
    });
    Timeline {
        total_us: why.total_us,
        stages: why.stages.clone(),
        tiles: runs.collect(),
        slots: schedule.lists.len() as u32,
    }
}

/// One tile run an item: a worker's share of a stage, or each of its tiles. Weights of a stage are streamed while its
/// activations are awaited, so a worker waits for the end of the stage before only.
pub(super) fn decode(candidate: &Candidate, plan: &Decode) -> Timeline {
    let (graph, device) = (&candidate.graph, &candidate.device);
    let mut now = device.decode.launch_us;
    let mut timeline =
        Timeline { total_us: 0.0, stages: Vec::new(), tiles: Vec::new(), slots: plan.workers() };
    for (s, stage) in graph.stages.iter().enumerate() {
        let begin = now;
        now += stage_us(graph, stage, device);
        timeline.stages.push((begin, now));
        for (sm, list) in (0..).zip(&plan.work.lists) {
            let items = list.iter().map(|item| &plan.work.sequence[*item as usize]);
            let mine: Vec<_> = items.filter(|item| item.stage == StageId(s)).collect();
            let each = (now - begin) / mine.len().max(1) as f64;
            timeline.tiles.extend(mine.iter().enumerate().map(|(at, item)| TileRun {
                stage: item.stage,
                tile: Tile { m: item.m, n: item.n },
                sm,
                start: begin + at as f64 * each,
                wait: 0.0,
                end: if at + 1 == mine.len() { now } else { begin + (at + 1) as f64 * each },
            }));
        }
    }
    timeline.total_us = now;
    timeline
}

/// Multiplications and additions of all stages, in units of 1e12.
pub(super) fn teraflops(graph: &Graph) -> f64 {
    let of = |s: &Stage| 2.0 * f64::from(s.m) * f64::from(s.n) * f64::from(s.k) * s.op.products();
    graph.stages.iter().map(of).sum::<f64>() * 1e-12
}
