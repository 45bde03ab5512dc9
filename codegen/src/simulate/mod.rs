//! A discrete-event model of a chain on a GPU: SM slots, waves, kernel boundaries, tile times, waits.
//!
//! It serves choices and explanations, so it is built for speed: events are tiles and, inside a tile, only the
//! k-blocks at which a wait enters new slots. Its constants are in [`crate::device`]; profiles mark the measured ones.
//!
//! ```
//! use cusync_gen::check::{Candidate, How};
//! use cusync_gen::{device::Profile, graph::gemm_chain, simulate};
//!
//! let graph = gemm_chain("chain", 512, &[1024, 1024, 1024]).graph(&[(128, 128, 64); 2])?;
//! let h200 = Profile::named("h200").expect("it ships");
//! let candidate = Candidate::new(graph, h200.clone(), How::Programmatic);
//! let times = simulate::predict(&candidate);
//! assert!(times.synchronised_us < times.serial_us);
//! assert_eq!(simulate::simulate(&candidate).total_us, times.synchronised_us);
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

mod alone;
mod cost;
mod fused;
mod library;
mod sketch;
mod waits;

pub use cost::{TileCost, ctas_per_sm};
pub use sketch::sketch;
pub(crate) use waits::Waiting;

use crate::check::{Candidate, How, Launch, Prediction, StageKernel, StageLaunch};
use crate::graph::StageId;
use crate::schedule::WorkerTimes;
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
pub struct PredictedRun {
    /// Length, microseconds.
    pub total_us: f64,
    /// Start of the first and end of the last tile of each stage.
    pub stages: Vec<(f64, f64)>,
    /// All tiles, stage by stage in start order.
    pub tiles: Vec<TileRun>,
    /// SM slots of the device.
    pub slots: u32,
}

/// A wait inside a tile of a predicted run that was not satisfied when the tile reached it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileWait {
    /// Index into [`PredictedRun::tiles`].
    pub tile: usize,
    /// Index into the graph's dependences.
    pub edge: usize,
    /// The slot of the edge's policy that was filled last.
    pub slot: u32,
    /// Begin and end of the wait, microseconds from the start of the run.
    pub begin: f64,
    /// See `begin`.
    pub end: f64,
}

/// Both times of a candidate: with kernels run one after another, and as planned.
pub fn predict(candidate: &Candidate) -> Prediction {
    let serial_us = simulate_serial(candidate).total_us;
    Prediction { serial_us, synchronised_us: simulate(candidate).total_us }
}

/// Conditions under which a time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Back-to-back runs, long enough that the power limit lowers the clock; otherwise after a rest.
    pub sustained: bool,
    /// A run of chain or decode kernels, or one launch of it, begins before the previous one ends (programmatic edges
    /// inside a graph).
    pub overlap: bool,
}

/// The time per run of a candidate over many runs, microseconds.
pub fn expected_us(candidate: &Candidate, conditions: Conditions) -> f64 {
    let device = &candidate.device;
    let timeline = simulate(candidate);
    let mut total_us = timeline.total_us;
    let chains = candidate.launch.is_one_kernel() || candidate.launch.is_in_turn();
    if !(chains && conditions.overlap) {
        total_us += device.boundary_us;
    } else {
        // Library kernels begin after the previous kernel has ended; they have no tiles in a timeline.
        let ours = |kernel: &&StageLaunch| timeline.tiles.iter().any(|tile| tile.stage == kernel.stage);
        let early = candidate.launch.kernels().iter().skip(1).filter(ours).count();
        total_us -= early as f64 * device.boundary_us;
    }
    if conditions.sustained {
        // The fraction of time in which the tensor cores are busy determines how far the clock drops.
        let matrix_us = candidate.graph.flop() / (device.tflops * 1e6);
        let clock = 1.0 - (1.0 - device.sustained) * (matrix_us / total_us).min(1.0);
        total_us += matrix_us * (1.0 / clock - 1.0);
    }
    total_us
}

/// Simulates a candidate as it is launched. Host threads are simulated as streams, as the plan would run on the
/// device.
pub fn simulate(candidate: &Candidate) -> PredictedRun {
    observe(candidate, &mut |_| {})
}

/// Simulates the stages of a candidate one kernel after another, with its tiles and orders.
pub fn simulate_serial(candidate: &Candidate) -> PredictedRun {
    match &candidate.launch {
        Launch::Stages { stages, .. } => kernels(candidate, stages, (None, true), &mut |_| {}),
        Launch::Lists(_) | Launch::Shares(_) => {
            let launch = Launch::stages(&candidate.graph, How::Serial);
            kernels(candidate, launch.kernels(), (None, true), &mut |_| {})
        }
    }
}

/// Like [`simulate`], for kernels launched one by one; also reports every wait that blocked. The waits of a tile are
/// reported in time order.
pub fn observe(candidate: &Candidate, blocked: &mut impl FnMut(TileWait)) -> PredictedRun {
    match &candidate.launch {
        Launch::Lists(schedule) => fused::chain(&candidate.graph, &candidate.device, schedule),
        Launch::Shares(decode) => fused::decode(candidate, decode),
        Launch::Stages { how, stages } if how.overlaps() => {
            kernels(candidate, stages, (Some(&Waiting::new(candidate)), true), blocked)
        }
        Launch::Stages { how, stages } => {
            let serial = kernels(candidate, stages, (None, true), blocked);
            if *how == How::Library { library::chain(candidate, serial) } else { serial }
        }
    }
}

/// The length that [`simulate`] predicts for kernels launched one by one, microseconds. `waiting` holds previously
/// computed waits, which are the same for all orders.
pub(crate) fn simulated_us(candidate: &Candidate, waiting: Option<&Waiting>) -> f64 {
    kernels(candidate, candidate.launch.kernels(), (waiting, false), &mut |_| {}).total_us
}

/// A lower bound for these kernels: the time of all tiles without waits, spread evenly over all slots.
pub(crate) fn least_us(candidate: &Candidate) -> f64 {
    let (graph, device) = (&candidate.graph, &candidate.device);
    let launched = candidate.launch.kernels();
    let per_sm = launched.iter().map(|kernel| kernel.ctas_per_sm).max().unwrap_or(1).max(1);
    let kernel_us = |StageLaunch { stage, order, .. }: &StageLaunch| {
        let stage = &graph.stages[stage.0];
        let coupled = candidate.launch.has_semaphores();
        let cost = TileCost::new(graph, stage, order, device, (per_sm, coupled));
        let row = |m| {
            f64::from(stage.grid.1)
                * cost.least_us(f64::from(stage.k_blocks_of(m)) / f64::from(stage.k_blocks.max(1)))
        };
        // Tiles of a last wave may have the GPU to themselves if the stage does not share it.
        let last = if coupled { 0 } else { stage.tiles() % (device.sms * per_sm) };
        (0..stage.grid.0).map(row).sum::<f64>() - f64::from(last) * cost.gained_us()
    };
    launched.iter().map(kernel_us).sum::<f64>() / f64::from(device.sms * per_sm)
}

/// Simulates kernels one by one; without `waiting`, each starts after the previous one has ended. The timeline
/// contains tiles only if `recorded`.
fn kernels(
    candidate: &Candidate,
    launched: &[StageLaunch],
    (waiting, recorded): (Option<&Waiting>, bool),
    blocked: &mut impl FnMut(TileWait),
) -> PredictedRun {
    let graph = &candidate.graph;
    let serial = waiting.is_none();
    let device = &candidate.device;
    let edges = waiting.map_or(&[][..], |w| &w.edges);
    let per_sm = launched.iter().map(|kernel| kernel.ctas_per_sm).max().unwrap_or(1).max(1);
    let slots = device.sms * per_sm;
    let mut workers = WorkerTimes::new(slots as usize, 0.0);
    // When each slot of each edge has all its posts.
    let mut ready: Vec<Vec<f64>> = edges.iter().map(|e| vec![0.0; e.policy.slot_count as usize]).collect();
    let mut timeline = PredictedRun {
        total_us: 0.0,
        stages: vec![(f64::INFINITY, 0.0); graph.stages.len()],
        tiles: Vec::new(),
        slots,
    };
    for StageLaunch { stage: stage_id, order, kernel, .. } in launched {
        let stage_id = *stage_id;
        let stage = &graph.stages[stage_id.0];
        if serial {
            // The end of the previous kernel, then the boundary.
            let end = workers.end();
            let boundary = if end > 0.0 { device.boundary_us } else { 0.0 };
            workers = WorkerTimes::new(slots as usize, end + boundary);
        }
        if *kernel == StageKernel::Alone {
            let (begin, us) = (workers.end(), alone::stage_us(stage, device));
            workers = WorkerTimes::new(slots as usize, begin + us);
            timeline.stages[stage_id.0] = (begin, begin + us);
            continue;
        }
        if let Some(schedule) = kernel.lists() {
            let begin = workers.end();
            let alone = fused::chain(&graph.only(stage_id), device, schedule);
            let turned_us = library::rotation_us(stage, device);
            workers = WorkerTimes::new(slots as usize, begin + alone.total_us + turned_us);
            timeline.stages[stage_id.0] = (begin + alone.stages[0].0, begin + alone.stages[0].1 + turned_us);
            let later = |run: TileRun| TileRun {
                stage: stage_id,
                start: begin + run.start,
                end: begin + run.end,
                ..run
            };
            timeline.tiles.extend(alone.tiles.into_iter().map(later));
            continue;
        }
        let cost = TileCost::new(graph, stage, order, device, (per_sm, !serial));
        let mut opened = vec![false; slots as usize];
        let last_wave = stage.tiles() - stage.tiles() % slots;
        // All earlier stages have run.
        let before = ready.clone();
        let posted = waiting.map(|w| w.stages[stage_id.0].posted(&before, device));
        let tiles = (0..stage.tiles()).map_while(|step| Some((step, order.tile_at(stage.grid, step)?)));
        workers.hand_out(tiles, |(step, tile), sm, free| {
            let opens = !std::mem::replace(&mut opened[sm as usize], true);
            let start = free + if opens { device.launch_us } else { 0.0 };
            let (end, wait) = match &posted {
                None => {
                    let share = f64::from(stage.k_blocks_of(tile.m)) / f64::from(stage.k_blocks.max(1));
                    (start + cost.tile_us(stage_id, tile, share, step >= last_wave), 0.0)
                }
                Some(posted) => {
                    let index = timeline.tiles.len();
                    let mut note =
                        |edge, slot, begin, end| blocked(TileWait { tile: index, edge, slot, begin, end });
                    posted.run((stage_id, tile), start, &cost, &mut note)
                }
            };
            for (index, edge) in edges.iter().enumerate() {
                if graph.dependences[index].producer == stage_id {
                    let at = &mut ready[index][edge.policy.slot_of(tile) as usize];
                    *at = at.max(end);
                }
            }
            let span = &mut timeline.stages[stage_id.0];
            *span = (span.0.min(start), span.1.max(end));
            if recorded {
                timeline.tiles.push(TileRun { stage: stage_id, tile, sm, start, wait, end });
            }
            end
        });
    }
    timeline.total_us = workers.end();
    timeline
}
