//! A discrete-event model of a chain on a GPU: SM slots, waves, kernel boundaries, tile times, waits.
//!
//! It exists to choose and to explain, so it is built for speed: events are tiles, and inside a tile only the k-blocks
//! at which a wait enters new slots. Its constants are in [`crate::device`], measured where a profile says so.

pub mod against;
pub mod comparison;
mod cost;
mod fused;
mod sketch;
mod waits;

pub use cost::{TileCost, ctas_per_sm};
pub use sketch::sketch;
pub(crate) use waits::Waiting;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::check::{Candidate, Coupling, Executor, Prediction};
use crate::graph::StageId;
use crate::sync::Tile;

/// One tile of a predicted run; times in microseconds from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileRun {
    /// Stage.
    pub stage: StageId,
    /// Tile.
    pub tile: Tile,
    /// SM slot.
    pub sm: u32,
    /// When its CTA took it.
    pub start: f64,
    /// Time spent waiting for producers.
    pub wait: f64,
    /// When it was stored and posted.
    pub end: f64,
}

/// A predicted run.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Length, microseconds.
    pub total_us: f64,
    /// Start of the first and end of the last tile of each stage.
    pub stages: Vec<(f64, f64)>,
    /// All tiles, stage by stage in start order.
    pub tiles: Vec<TileRun>,
    /// SM slots of the device.
    pub slots: u32,
}

/// A wait inside a tile of a predicted run that was not satisfied when the tile came to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocked {
    /// Index into [`Timeline::tiles`].
    pub tile: usize,
    /// Index into the graph's dependences.
    pub edge: usize,
    /// The slot of the edge's policy that had its posts last.
    pub slot: u32,
    /// Begin and end of the wait, microseconds from the start of the run.
    pub begin: f64,
    /// See `begin`.
    pub end: f64,
}

/// A time, ordered: times are never NaN here.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Both times of a candidate: kernel after kernel, and as it stands.
pub fn predict(candidate: &Candidate) -> Prediction {
    let serial_us = simulate(candidate, Executor::Serial).total_us;
    Prediction { serial_us, synchronised_us: simulate(candidate, candidate.executor).total_us }
}

/// How a time is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Back to back for long, so that the power limit lowers the clock; else after a rest.
    pub sustained: bool,
    /// A run begins while the one before ends (programmatic edges between the runs of a graph).
    pub chained: bool,
}

/// The time of one of many runs of a candidate under its executor, microseconds.
pub fn expected_us(candidate: &Candidate, conditions: Conditions) -> f64 {
    let device = &candidate.device;
    let mut total_us = simulate(candidate, candidate.executor).total_us;
    if candidate.executor != Executor::Fused || !conditions.chained {
        total_us += device.boundary_us;
    }
    if conditions.sustained {
        // The share of the time that the tensor cores are at work decides how far the clock falls.
        let matrix_us = fused::teraflops(&candidate.graph) / device.tflops * 1e6;
        let clock = 1.0 - (1.0 - device.sustained) * (matrix_us / total_us).min(1.0);
        total_us += matrix_us * (1.0 / clock - 1.0);
    }
    total_us
}

/// Runs a candidate under an executor. `cpu` is predicted as `streams`: what the plan would do on the device. A candidate for
/// `fused` is predicted by its schedule or its decode plan.
pub fn simulate(candidate: &Candidate, executor: Executor) -> Timeline {
    observe(candidate, executor, &mut |_| {})
}

/// The same, telling of every wait that blocked; of kernels that are launched one by one. Those of a tile come in the order
/// of time.
pub fn observe(candidate: &Candidate, executor: Executor, blocked: &mut impl FnMut(Blocked)) -> Timeline {
    if executor == Executor::Fused {
        if let Some(schedule) = &candidate.schedule {
            return fused::chain(candidate, schedule);
        }
        if let Some(plan) = &candidate.decode {
            return fused::decode(candidate, plan);
        }
    }
    kernels(candidate, executor, None, blocked)
}

/// What [`simulate`] says of kernels that are launched one by one, with waits that were found before, as they are the same
/// for all orders.
pub(crate) fn simulate_kernels(
    candidate: &Candidate,
    executor: Executor,
    waiting: Option<&Waiting>,
) -> Timeline {
    kernels(candidate, executor, waiting, &mut |_| {})
}

fn kernels(
    candidate: &Candidate,
    executor: Executor,
    waiting: Option<&Waiting>,
    blocked: &mut impl FnMut(Blocked),
) -> Timeline {
    let graph = &candidate.graph;
    let serial = executor == Executor::Serial || candidate.coupling == Coupling::KernelBoundary;
    let device = &candidate.device;
    // A serial chain waits for nothing.
    let found = (!serial && waiting.is_none()).then(|| Waiting::of(candidate));
    let waiting = waiting.or(found.as_ref()).filter(|_| !serial);
    let maps = waiting.map_or(&[][..], |w| &w.maps);
    let per_sm = candidate.ctas_per_sm.iter().copied().max().unwrap_or(1).max(1);
    let slots = device.sms * per_sm;
    let mut free: Vec<f64> = vec![0.0; slots as usize];
    // When each slot of each edge has all its posts.
    let mut ready: Vec<Vec<f64>> = maps.iter().map(|m| vec![0.0; m.slot_count as usize]).collect();
    let mut timeline = Timeline {
        total_us: 0.0,
        stages: vec![(f64::INFINITY, 0.0); graph.stages.len()],
        tiles: Vec::new(),
        slots,
    };
    let mut queue: BinaryHeap<Reverse<(Time, u32)>> = BinaryHeap::new();
    for &stage_id in &candidate.launch_order {
        let stage = &graph.stages[stage_id.0];
        if serial {
            // The whole of the kernel before, then the boundary.
            let end = free.iter().copied().fold(0.0, f64::max);
            let boundary = if end > 0.0 { device.boundary_us } else { 0.0 };
            free.fill(end + boundary);
        }
        let cost = TileCost::of(graph, stage, &candidate.orders[stage_id.0], device, (per_sm, !serial));
        queue.clear();
        queue.extend(free.iter().enumerate().map(|(sm, at)| Reverse((Time(*at), sm as u32))));
        let mut opened = vec![false; slots as usize];
        let last_wave = stage.tiles() - stage.tiles() % slots;
        for step in 0..stage.tiles() {
            let Some(tile) = candidate.orders[stage_id.0].tile_at(stage.grid, step) else { break };
            let Some(Reverse((Time(at), sm))) = queue.pop() else { break };
            let start =
                at + if std::mem::replace(&mut opened[sm as usize], true) { 0.0 } else { device.launch_us };
            let (end, wait) = match waiting {
                None => {
                    let share = f64::from(stage.k_blocks_of(tile.m)) / f64::from(stage.k_blocks.max(1));
                    (start + cost.tile_us(stage_id, tile, share, step >= last_wave), 0.0)
                }
                Some(waiting) => {
                    let index = timeline.tiles.len();
                    let mut note =
                        |edge, slot, begin, end| blocked(Blocked { tile: index, edge, slot, begin, end });
                    let waits = &waiting.stages[stage_id.0];
                    waits.run((stage_id, tile), start, &cost, &ready, device, &mut note)
                }
            };
            for (edge, map) in maps.iter().enumerate() {
                if graph.dependences[edge].producer == stage_id {
                    let at = &mut ready[edge][map.slot_of(tile) as usize];
                    *at = at.max(end);
                }
            }
            free[sm as usize] = end;
            queue.push(Reverse((Time(end), sm)));
            let span = &mut timeline.stages[stage_id.0];
            *span = (span.0.min(start), span.1.max(end));
            timeline.tiles.push(TileRun { stage: stage_id, tile, sm, start, wait, end });
        }
    }
    timeline.total_us = free.iter().copied().fold(0.0, f64::max);
    timeline
}
