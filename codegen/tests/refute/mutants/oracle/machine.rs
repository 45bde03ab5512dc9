//! One execution of a program's runs under one adversary: an interleaving of its workers. `effect.rs` implements the
//! effects of their steps.

mod place;
mod worker;

use cusync_gen::check::Candidate;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::Violation;
use super::adversary::{Adversary, Phase};
use super::effect::{Effects, Site};
use super::program::{Op, Program};
use super::room::{self, Room};

/// Runs per execution: each starts from the state that the previous one leaves.
const RUNS: u32 = 3;

/// The source of a worker's items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    List,
    Shared,
    Stage(usize),
}

/// Progress of a CTA of a worker: item position, step.
#[derive(Clone, Copy, Default)]
struct At {
    item: usize,
    step: usize,
    /// Whether the epilogue has begun.
    begun: bool,
    /// Whether this slice has been counted for its tile.
    arrived: bool,
}

struct Worker {
    run: u32,
    source: Source,
    items: Vec<u32>,
    /// Position of each CTA's loading warps.
    loaders: Vec<At>,
    finishers: Vec<At>,
    sm: Option<usize>,
    ended: bool,
}

/// A run in progress.
#[derive(Default)]
struct Run {
    tickets: Vec<usize>,
    drawn: usize,
    /// CTAs not yet placed, by stage; lists not yet placed.
    pending: Vec<u32>,
    lists: Vec<usize>,
    /// The current stage of a serial chain, as a position in the launch order.
    serial: usize,
}

pub(super) struct Machine<'a> {
    c: &'a Candidate,
    program: &'a Program,
    adversary: Adversary,
    rng: SmallRng,
    effects: Effects<'a>,
    /// CTAs per worker.
    ctas: usize,
    /// For each run's tiles, the number of slices that have arrived.
    arrived: Vec<u32>,
    /// Items in the order the shared counter hands them out.
    shared: Vec<u32>,
    runs: Vec<Run>,
    workers: Vec<Worker>,
    /// Free resources of each SM, and the resources that a CTA of each stage takes.
    room: Vec<Room>,
    takes: Vec<Room>,
    released: [bool; RUNS as usize],
    fault: Option<Violation>,
    /// Sites with stores in flight.
    late: Vec<Site>,
}

/// How many times a run launches a stage; each launch draws all tickets again.
fn launches(c: &Candidate, stage: usize) -> usize {
    c.launch.kernels().iter().filter(|k| k.stage.0 == stage).count()
}

impl<'a> Machine<'a> {
    pub(super) fn new(c: &'a Candidate, program: &'a Program, adversary: Adversary) -> Self {
        let cluster = c.launch.cluster();
        let ctas = ((cluster.0 * cluster.1) as usize).max(1);
        let mut rng = SmallRng::seed_from_u64(adversary.lot.unwrap_or(0));
        let (sms, whole, takes) = if c.launch.is_one_kernel() {
            (c.device.resident_clusters(ctas as u32), room::WORKER, Vec::new())
        } else {
            (c.device.sms, room::of_sm(c), room::takes(c, adversary.lot.is_some().then_some(&mut rng)))
        };
        let shared = c.launch.kernels().iter().flat_map(|k| program.stages[k.stage.0].iter().copied());
        let shared = match c.launch.work() {
            Some(schedule) => (0..schedule.sequence.len() as u32).collect(),
            None => shared.collect(),
        };
        Machine {
            effects: Effects::new(c, program, adversary.before, ctas, RUNS),
            ctas,
            arrived: vec![0; (program.layout.tiles() * RUNS) as usize],
            shared,
            runs: Vec::new(),
            workers: Vec::new(),
            // More SMs than CTAs make no difference.
            room: vec![whole; (sms as usize).min(program.work.len().max(1) * RUNS as usize)],
            takes,
            released: [false; RUNS as usize],
            fault: None,
            late: Vec::new(),
            rng,
            c,
            program,
            adversary,
        }
    }

    /// Runs the execution; returns the violation, if any.
    pub(super) fn run(mut self) -> Option<Violation> {
        let contract = &self.c.contract;
        let overlap = !contract.full_run_boundary || (contract.overlap && !contract.dependency_wait);
        self.launch();
        while overlap && (self.runs.len() as u32) < RUNS {
            self.launch();
        }
        let mut lazy = self.adversary.lot.is_some();
        loop {
            let mut moved = self.place();
            let mut turns: Vec<usize> = (0..self.workers.len()).filter(|w| !self.workers[*w].ended).collect();
            if self.adversary.lot.is_some() {
                turns.shuffle(&mut self.rng);
            } else if self.adversary.reverse {
                turns.reverse();
            }
            for worker in turns {
                if lazy && self.rng.random_ratio(1, 3) {
                    continue;
                }
                moved |= self.turn(worker, lazy);
                if self.fault.is_some() {
                    return self.fault;
                }
            }
            moved |= self.complete_stores(lazy);
            if self.fault.is_some() {
                return self.fault;
            }
            if moved {
                lazy = self.adversary.lot.is_some();
                continue;
            }
            if std::mem::take(&mut lazy) {
                continue;
            }
            if let (Some(_), Some(at)) = (self.adversary.hold, self.released.iter().position(|r| !r))
                && at < self.runs.len()
            {
                self.released[at] = true;
                continue;
            }
            if self.workers.iter().any(|w| !w.ended) || self.waiting() || !self.late.is_empty() {
                return Some(Violation::Stuck);
            }
            if self.next_stage() {
                continue;
            }
            if let Some(fault) = self.effects.incomplete(self.runs.len() as u32, overlap) {
                return Some(fault);
            }
            if self.runs.len() as u32 == RUNS {
                return None;
            }
            self.launch();
        }
    }

    /// Performs one step; `false` if it must wait.
    fn perform(&mut self, op: &Op, site: Site) -> bool {
        self.effects.perform(op, site).unwrap_or_else(|fault| {
            self.fault = Some(fault);
            true
        })
    }

    /// Completes unordered stores, except the one held back and, at random, some others.
    fn complete_stores(&mut self, by_lot: bool) -> bool {
        let (mut done, program) = (false, self.program);
        for site in std::mem::take(&mut self.late) {
            if self.held(site, Phase::Last) || by_lot && self.rng.random() {
                self.late.push(site);
                continue;
            }
            for op in &program.work[site.item as usize].ctas[site.cta].late {
                self.perform(op, site);
            }
            done = true;
        }
        done
    }
}
