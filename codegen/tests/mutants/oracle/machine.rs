//! One execution of a program's runs, under one adversary.

use cusync_gen::check::{Candidate, EpochSource, Executor, StartGuarantee};
use cusync_gen::graph::StageId;
use cusync_gen::schedule::Mode;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::Violation;
use super::memory::Memory;
use super::program::{Op, Program};

/// Runs of an execution: the second starts from what the first leaves behind, the third from what that does.
const RUNS: u32 = 3;

/// Where an item is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before its first look or load.
    Loader,
    /// Before its epilogue.
    Finisher,
    /// When it has left its sums for others.
    Given,
    /// Before its last step.
    Last,
    /// When all is loaded: its worker draws no other item.
    Draw,
}

/// A part of an item that only moves when nothing else does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) work: u32,
    pub(crate) cta: usize,
    pub(crate) phase: Phase,
}

/// On which SM a CTA is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    First,
    Emptiest,
    Fullest,
    Any,
}

/// Who decides what comes next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adversary {
    pub(crate) hold: Option<Hold>,
    /// Turns, chunks and placements by lot.
    pub(crate) lot: Option<u64>,
    /// Later workers first.
    pub(crate) reverse: bool,
    /// Later stages are placed first.
    pub(crate) consumers_first: bool,
    pub(crate) fit: Fit,
    /// Threads of the `cpu` executor.
    pub(crate) workers: usize,
    /// Runs that have ended well before the first.
    pub(crate) before: u32,
}

impl Default for Adversary {
    fn default() -> Self {
        Adversary {
            hold: None,
            lot: None,
            reverse: false,
            consumers_first: false,
            fit: Fit::First,
            workers: 6,
            before: 1 << 20,
        }
    }
}

/// Where a worker's items come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    List,
    Shared,
    Stage(usize),
}

/// How far a CTA of a worker is: place in the worker's items, step.
#[derive(Clone, Copy, Default)]
struct At {
    item: usize,
    step: usize,
    /// Whether the epilogue has begun.
    begun: bool,
    /// Whether this slice has been counted among those of its tile.
    arrived: bool,
}

struct Worker {
    run: u32,
    source: Source,
    items: Vec<u32>,
    loaders: Vec<At>,
    finishers: Vec<At>,
    sm: Option<usize>,
    ended: bool,
}

/// A run under way.
#[derive(Default)]
struct Run {
    tickets: Vec<usize>,
    drawn: usize,
    /// CTAs to be placed, by stage; lists to be placed.
    pending: Vec<u32>,
    lists: Vec<usize>,
    /// Of a serial chain: the stage under way, as a place in the launch order.
    serial: usize,
}

pub(super) struct Machine<'a> {
    c: &'a Candidate,
    program: &'a Program,
    adversary: Adversary,
    rng: SmallRng,
    memory: Memory,
    slots: Vec<u32>,
    /// By slab and CTA: the last run that set the flag; whose sums are in it.
    flags: Vec<u32>,
    slabs: Vec<Option<Sums>>,
    ctas: usize,
    /// By run, item and CTA: k-blocks in its sums.
    sums: Vec<Vec<(u32, u32)>>,
    /// By run and tile: slices that have come together, units stored.
    arrived: Vec<u32>,
    stored: Vec<u64>,
    looked: Vec<u32>,
    shared: Vec<u32>,
    runs: Vec<Run>,
    workers: Vec<Worker>,
    /// Room on each SM, and what a CTA of each stage takes of it.
    room: Vec<u32>,
    takes: Vec<u32>,
    released: [bool; RUNS as usize],
    fault: Option<Violation>,
    /// Stores under way: run, item, CTA.
    late: Vec<(u32, u32, usize)>,
}

/// How often a run launches a stage: each time it draws all its tickets again.
fn launches(c: &Candidate, stage: usize) -> usize {
    c.launch_order.iter().filter(|o| o.0 == stage).count()
}

#[derive(Clone)]
struct Sums {
    run: u32,
    tile: u32,
    k: Vec<(u32, u32)>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(c: &'a Candidate, program: &'a Program, adversary: Adversary) -> Self {
        let ctas = c.schedule.as_ref().map_or(1, |s| (s.cluster.0 * s.cluster.1) as usize).max(1);
        let fused = c.executor == Executor::Fused;
        let all: u32 = c.ctas_per_sm.iter().product();
        let (sms, whole, takes) = if fused {
            (c.device.resident_clusters(ctas as u32), 1, Vec::new())
        } else {
            (c.device.sms, all, c.ctas_per_sm.iter().map(|n| all / n).collect())
        };
        let shared = c.launch_order.iter().flat_map(|s| program.stages[s.0].iter().copied());
        let shared = match &c.schedule {
            Some(schedule) => (0..schedule.sequence.len() as u32).collect(),
            None => shared.collect(),
        };
        let each = program.work.len() * ctas * RUNS as usize;
        Machine {
            memory: Memory::poisoned(&c.graph, &program.layout),
            slots: program.posts.iter().map(|posts| posts.wrapping_mul(adversary.before)).collect(),
            flags: vec![0; program.slabs as usize * ctas],
            slabs: vec![None; program.slabs as usize * ctas],
            ctas,
            sums: vec![Vec::new(); each],
            arrived: vec![0; (program.layout.tiles() * RUNS) as usize],
            stored: vec![0; (program.layout.tiles() * RUNS) as usize],
            looked: vec![0; each],
            shared,
            runs: Vec::new(),
            workers: Vec::new(),
            // More SMs than CTAs make no difference.
            room: vec![whole; (sms as usize).min(program.work.len().max(1) * RUNS as usize)],
            takes,
            released: [false; RUNS as usize],
            fault: None,
            late: Vec::new(),
            rng: SmallRng::seed_from_u64(adversary.lot.unwrap_or(0)),
            c,
            program,
            adversary,
        }
    }

    /// What goes wrong, if anything does.
    pub(super) fn run(mut self) -> Option<Violation> {
        let practice = &self.c.practice;
        let overlap = !practice.full_run_boundary || (practice.early_launch && !practice.dependency_wait);
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
            if let Some(fault) = self.incomplete(overlap) {
                return Some(fault);
            }
            if self.runs.len() as u32 == RUNS {
                return None;
            }
            self.launch();
        }
    }

    fn launch(&mut self) {
        let run = self.runs.len() as u32 + 1;
        let stages = self.program.stages.len();
        let mut state = Run { tickets: vec![0; stages], pending: vec![0; stages], ..Run::default() };
        match (&self.c.schedule, self.c.executor) {
            (Some(schedule), _) => {
                state.lists = (0..schedule.lists.len()).collect();
                // Placed from the end.
                if self.adversary.lot.is_some() {
                    state.lists.shuffle(&mut self.rng);
                } else if !self.adversary.reverse {
                    state.lists.reverse();
                }
            }
            (None, Executor::Cpu) if self.program.semaphores => {
                (0..self.adversary.workers).for_each(|_| self.spawn(run, Source::Shared, Vec::new(), None));
            }
            (None, _) if self.program.semaphores => {
                state.pending = self.program.stages.iter().map(|s| s.len() as u32).collect();
                // A stage that is launched twice, or never.
                for (s, pending) in state.pending.iter_mut().enumerate() {
                    *pending *= launches(self.c, s) as u32;
                }
            }
            (None, _) => self.spawn_stage(run, 0),
        }
        self.runs.push(state);
    }

    fn spawn(&mut self, run: u32, source: Source, items: Vec<u32>, sm: Option<usize>) {
        let at = vec![At::default(); self.ctas];
        self.workers.push(Worker {
            run,
            source,
            items,
            loaders: at.clone(),
            finishers: at,
            sm,
            ended: false,
        });
    }

    fn spawn_stage(&mut self, run: u32, place: usize) {
        if let Some(stage) = self.c.launch_order.get(place) {
            for item in self.program.stages[stage.0].clone() {
                self.spawn(run, Source::List, vec![item], None);
            }
        }
    }

    /// Of serial chains: begins the next stage.
    fn next_stage(&mut self) -> bool {
        if self.program.semaphores || self.c.schedule.is_some() {
            return false;
        }
        let mut began = false;
        for run in 0..self.runs.len() {
            if self.runs[run].serial < self.c.launch_order.len() {
                self.runs[run].serial += 1;
                let place = self.runs[run].serial;
                began |= place < self.c.launch_order.len();
                self.spawn_stage(run as u32 + 1, place);
            }
        }
        began
    }

    fn waiting(&self) -> bool {
        self.runs.iter().any(|r| !r.lists.is_empty() || r.pending.iter().any(|p| *p > 0))
    }

    /// Whether the start guarantee lets a CTA of a stage be placed.
    fn may_start(&self, run: usize, stage: usize) -> bool {
        let position = |s: usize| self.c.launch_order.iter().position(|o| o.0 == s);
        self.c.start == StartGuarantee::None
            || self.c.graph.dependences.iter().filter(|d| d.consumer == StageId(stage)).all(|d| {
                position(d.producer.0) >= position(stage) || self.runs[run].pending[d.producer.0] == 0
            })
    }

    /// Places CTAs and workers while there is room.
    fn place(&mut self) -> bool {
        let mut placed = false;
        for run in 0..self.runs.len() {
            while let Some(list) = self.runs[run].lists.last().copied()
                && let Some(sm) = self.fit(1)
            {
                self.runs[run].lists.pop();
                self.room[sm] -= 1;
                let schedule = self.c.schedule.as_ref().expect("lists are of a schedule");
                let (source, items) = match schedule.mode {
                    Mode::Static => (Source::List, schedule.lists[list].clone()),
                    Mode::Dynamic => (Source::Shared, Vec::new()),
                };
                self.spawn(run as u32 + 1, source, items, Some(sm));
                placed = true;
            }
            loop {
                let mut ready: Vec<usize> = (0..self.runs[run].pending.len())
                    .filter(|s| self.runs[run].pending[*s] > 0 && self.may_start(run, *s))
                    .collect();
                if self.adversary.lot.is_some() {
                    ready.shuffle(&mut self.rng);
                } else if self.adversary.consumers_first {
                    ready.reverse();
                }
                let Some((stage, sm)) = ready.into_iter().find_map(|s| Some((s, self.fit(self.takes[s])?)))
                else {
                    break;
                };
                self.runs[run].pending[stage] -= 1;
                self.room[sm] -= self.takes[stage];
                self.spawn(run as u32 + 1, Source::Stage(stage), Vec::new(), Some(sm));
                placed = true;
                if self.adversary.lot.is_some() && self.rng.random_ratio(1, 4) {
                    break;
                }
            }
        }
        placed
    }

    fn fit(&mut self, takes: u32) -> Option<usize> {
        let fits = |(_, room): &(usize, &u32)| **room >= takes;
        let all = || self.room.iter().enumerate().filter(fits);
        match self.adversary.fit {
            Fit::First => all().next().map(|(sm, _)| sm),
            Fit::Emptiest => all().max_by_key(|(_, room)| **room).map(|(sm, _)| sm),
            Fit::Fullest => all().min_by_key(|(_, room)| **room).map(|(sm, _)| sm),
            Fit::Any => {
                let fitting: Vec<usize> = all().map(|(sm, _)| sm).collect();
                (!fitting.is_empty()).then(|| fitting[self.rng.random_range(0..fitting.len())])
            }
        }
    }

    fn held(&self, run: u32, work: u32, cta: usize, phase: Phase) -> bool {
        !self.released[run as usize - 1]
            && self.adversary.hold.is_some_and(|h| (h.work, h.cta, h.phase) == (work, cta, phase))
    }

    /// Gives a worker its next item; whether it has one.
    fn draw(&mut self, worker: usize) -> bool {
        let Worker { run, source, ref items, ref loaders, ref finishers, .. } = self.workers[worker];
        // A thread of the `cpu` executor does one thing after another; a CTA loads ahead.
        let at = if self.c.executor == Executor::Cpu { finishers } else { loaders };
        if at.iter().any(|a| a.item < items.len()) {
            return false;
        }
        if let Some(last) = items.last()
            && (0..self.ctas).any(|cta| self.held(run, *last, cta, Phase::Draw))
        {
            return false;
        }
        // Nor does one whose epilogue is held back: the tiles that it took would be held back behind it.
        let held = |(cta, at): (usize, &At)| {
            let of = |item: &u32| {
                [Phase::Finisher, Phase::Given, Phase::Last].iter().any(|p| self.held(run, *item, cta, *p))
            };
            items.get(at.item).is_some_and(of)
        };
        if finishers.iter().enumerate().any(held) {
            return false;
        }
        let state = &mut self.runs[run as usize - 1];
        let next = match source {
            Source::List => None,
            Source::Shared => self.shared.get(state.drawn).inspect(|_| state.drawn += 1).copied(),
            Source::Stage(s) => {
                let (ticket, tiles) = (state.tickets[s], &self.program.stages[s]);
                (ticket < tiles.len() * launches(self.c, s)).then(|| {
                    state.tickets[s] += 1;
                    tiles[ticket % tiles.len()]
                })
            }
        };
        self.workers[worker].items.extend(next);
        next.is_some()
    }

    fn exhausted(&self, worker: &Worker) -> bool {
        let state = &self.runs[worker.run as usize - 1];
        match worker.source {
            Source::List => true,
            Source::Shared => state.drawn >= self.shared.len(),
            Source::Stage(s) => state.tickets[s] >= self.program.stages[s].len() * launches(self.c, s),
        }
    }

    /// A worker goes on, as far as it can or, when `short`, a few steps; whether it moved.
    fn turn(&mut self, worker: usize, short: bool) -> bool {
        let mut left = if short { self.rng.random_range(1..6) } else { usize::MAX };
        let mut any = false;
        let mut moved = true;
        while moved && left > 0 && self.fault.is_none() {
            moved = self.draw(worker);
            for cta in 0..self.ctas {
                while left > 0 && (self.load(worker, cta) || self.finish(worker, cta)) {
                    moved = true;
                    left -= 1;
                }
            }
            any |= moved;
        }
        let w = &self.workers[worker];
        let done = |at: &[At]| at.iter().all(|a| a.item == w.items.len());
        if done(&w.loaders) && done(&w.finishers) && self.exhausted(w) {
            if let Some(sm) = w.sm {
                self.room[sm] += if let Source::Stage(s) = w.source { self.takes[s] } else { 1 };
            }
            self.workers[worker].ended = true;
            any = true;
        }
        any
    }

    fn load(&mut self, worker: usize, cta: usize) -> bool {
        let (w, program) = (&self.workers[worker], self.program);
        let (run, at) = (w.run, w.loaders[cta]);
        let Some(&item) = w.items.get(at.item) else { return false };
        if at.step == 0 && self.held(run, item, cta, Phase::Loader) {
            return false;
        }
        let steps = &program.work[item as usize].ctas[cta].loader;
        let next = match steps.get(at.step) {
            None => At { item: at.item + 1, ..At::default() },
            Some(op) if self.perform(op, worker, item, cta) => At { step: at.step + 1, ..at },
            Some(_) => return false,
        };
        self.workers[worker].loaders[cta] = next;
        true
    }

    fn finish(&mut self, worker: usize, cta: usize) -> bool {
        let (w, program) = (&self.workers[worker], self.program);
        let (run, mut at) = (w.run, w.finishers[cta]);
        let Some(&item) = w.items.get(at.item) else { return false };
        // CTAs of a cluster load for each other.
        if w.loaders.iter().any(|l| l.item <= at.item) {
            return false;
        }
        let work = &program.work[item as usize];
        let steps = &work.ctas[cta].finisher;
        let given = at.step > 0 && matches!(steps[at.step - 1], Op::SetFlag { .. });
        if at.step == 0 && self.held(run, item, cta, Phase::Finisher)
            || work.ctas[cta].late.is_empty()
                && at.step + 1 == steps.len()
                && self.held(run, item, cta, Phase::Last)
            || given && self.held(run, item, cta, Phase::Given)
        {
            return false;
        }
        if !std::mem::replace(&mut at.begun, true) && !steps.is_empty() {
            let sums = self.sums_of(run, item, cta);
            if !self.sums[sums].is_empty() {
                self.fault = Some(Violation::Twice);
            }
            self.sums[sums] = vec![work.k];
        }
        match steps.get(at.step) {
            None => {
                at = At { item: at.item + 1, ..At::default() };
                if !work.ctas[cta].late.is_empty() {
                    self.late.push((run, item, cta));
                }
            }
            Some(op) => {
                let last = matches!(op, Op::Store { .. } | Op::Post { .. } | Op::LookAtSlot { .. });
                if last && work.slices > 1 && !at.arrived {
                    at.arrived = true;
                    let tile =
                        work.ctas[cta].tile.map_or(0, |t| (run - 1) * program.layout.tiles() + t) as usize;
                    self.arrived[tile] += 1;
                    if self.arrived[tile] < work.slices {
                        at.step = steps.len();
                        self.workers[worker].finishers[cta] = at;
                        return true;
                    }
                }
                if !self.perform(op, worker, item, cta) {
                    self.workers[worker].finishers[cta] = at;
                    return false;
                }
                at.step += 1;
            }
        }
        self.workers[worker].finishers[cta] = at;
        true
    }

    fn sums_of(&self, run: u32, item: u32, cta: usize) -> usize {
        ((run as usize - 1) * self.program.work.len() + item as usize) * self.ctas + cta
    }

    /// For a part that stores only some units of its tile: the tile's tag, and those units.
    fn sibling(&self, item: u32, cta: usize, run: u32) -> Option<(u32, u64)> {
        self.program.work[item as usize].ctas[cta].finisher.iter().find_map(|op| match op {
            Op::Store { tile, units, all, .. } if units != all => {
                Some((self.program.layout.tag(run, *tile), *units))
            }
            _ => None,
        })
    }

    /// Makes one step; `false`: it has to wait.
    fn perform(&mut self, op: &Op, worker: usize, item: u32, cta: usize) -> bool {
        let run = self.workers[worker].run;
        self.perform_in(op, run, Some(worker), item, cta)
    }

    /// Stores that nothing orders are complete, but for the one that is held back and, by lot, some others.
    fn complete_stores(&mut self, by_lot: bool) -> bool {
        let (mut done, program) = (false, self.program);
        for (run, item, cta) in std::mem::take(&mut self.late) {
            if self.held(run, item, cta, Phase::Last) || by_lot && self.rng.random() {
                self.late.push((run, item, cta));
                continue;
            }
            for op in &program.work[item as usize].ctas[cta].late {
                self.perform_in(op, run, None, item, cta);
            }
            done = true;
        }
        done
    }

    fn perform_in(&mut self, op: &Op, run: u32, worker: Option<usize>, item: u32, cta: usize) -> bool {
        let own = self.sums_of(run, item, cta);
        let (tile, tiles) = (self.program.work[item as usize].ctas[cta].tile, self.program.layout.tiles());
        let slab_at = |slab: u32| slab as usize * self.ctas + cta;
        match *op {
            Op::Wait { .. } | Op::Post { .. } | Op::LookAtSlot { .. } | Op::OverwriteSlot { .. }
                if !self.program.semaphores => {}
            Op::Wait { slot, value } => {
                let practice = &self.c.practice;
                let baked = practice.epoch == EpochSource::LaunchParameter && practice.graph_replay;
                let epoch = self.adversary.before.wrapping_add(if baked { 1 } else { run });
                // Counters wrap; what is compared is the difference, with its sign.
                return self.slots[slot as usize].wrapping_sub(epoch.wrapping_mul(value)) as i32 >= 0;
            }
            Op::Load(ref cells) => {
                if !cells.is_empty()
                    && !self.memory.holds(&self.program.layout, cells, run, self.sibling(item, cta, run))
                {
                    self.fault = Some(Violation::Stale);
                }
            }
            Op::Leave { slab } => match tile {
                Some(tile) if slab_at(slab) < self.slabs.len() => {
                    let k = vec![self.program.work[item as usize].k];
                    self.slabs[slab_at(slab)] = Some(Sums { run, tile, k });
                }
                _ => self.fault = Some(Violation::Outside),
            },
            Op::SetFlag { slab } => match self.flags.get_mut(slab_at(slab)) {
                Some(flag) => *flag = run,
                None => self.fault = Some(Violation::Outside),
            },
            Op::SeeFlag { slab } => {
                let Some(flag) = self.flags.get(slab_at(slab)) else {
                    self.fault = Some(Violation::Outside);
                    return true;
                };
                return if self.c.practice.slabs.flag_is_epoch { *flag >= run } else { *flag > 0 };
            }
            Op::Add { slab } => match self.slabs.get(slab_at(slab)).cloned() {
                Some(Some(sums)) if sums.run == run && Some(sums.tile) == tile => {
                    self.sums[own].extend(sums.k)
                }
                Some(_) => self.fault = Some(Violation::Stale),
                None => self.fault = Some(Violation::Outside),
            },
            Op::Store { ref cells, tile, units, all } => {
                let work = &self.program.work[item as usize];
                let mut k = self.sums[own].clone();
                k.sort_unstable();
                let end = k.iter().try_fold(0, |end, (a, b)| (*a == end).then_some(*b));
                if work.slices == 1 && units != 0 && end != Some(work.of) {
                    self.fault = Some(Violation::WrongSum);
                }
                let stored = &mut self.stored[((run - 1) * tiles + tile) as usize];
                if *stored & units != 0 {
                    self.fault = Some(Violation::Twice);
                }
                *stored |= if (*stored | units) == all { u64::MAX } else { units };
                self.memory.store(
                    &self.program.layout,
                    cells,
                    self.program.layout.tag(run, tile),
                    units,
                    all,
                );
            }
            Op::Post { slot, amount } => {
                let count = &mut self.slots[slot as usize];
                *count = count.wrapping_add(amount);
            }
            Op::LookAtSlot { slot } => self.looked[own] = self.slots[slot as usize],
            Op::OverwriteSlot { slot, amount } => {
                self.slots[slot as usize] = self.looked[own].wrapping_add(amount);
            }
            Op::NextUnderWay => {
                let Some(w) = worker.map(|w| &self.workers[w]) else { return true };
                let here = w.finishers[cta].item;
                return if here + 1 < w.items.len() {
                    w.loaders.iter().all(|l| l.item > here + 1)
                } else {
                    self.exhausted(w)
                };
            }
        }
        true
    }

    /// A tile that is not there after a run, or a tensor that is not what its stage wrote.
    fn incomplete(&self, overlap: bool) -> Option<Violation> {
        let run = self.runs.len();
        let tiles = self.program.layout.tiles() as usize;
        if self.stored[..run * tiles].iter().any(|units| *units != u64::MAX) {
            return Some(Violation::Missing);
        }
        let graph = &self.c.graph;
        let memory = |t: usize| super::shapes::memory_of(graph, cusync_gen::graph::TensorId(t));
        let last = |t: &usize| {
            let newer =
                |u: usize| memory(u) == memory(*t) && graph.tensors[u].producer > graph.tensors[*t].producer;
            !(0..graph.tensors.len()).any(newer)
        };
        let whole = |t: usize| {
            let tensor = &graph.tensors[t];
            let area = (0..tensor.rows, 0..tensor.cols);
            let cells = self.program.layout.cells(cusync_gen::graph::TensorId(t), &area);
            self.memory.holds(&self.program.layout, &cells, run as u32, None)
        };
        (!overlap && !(0..graph.tensors.len()).filter(last).all(whole)).then_some(Violation::Stale)
    }
}
