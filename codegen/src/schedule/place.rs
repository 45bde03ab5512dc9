//! Placement of items on workers: worker, end time and position in the sequence. Both new and existing schedules are
//! timed here, and nowhere else.

use std::ops::Range;

use super::clock::{Clock, Readiness};
use super::problem::{ItemCost, Problem, TileAt};
use super::workers::WorkerTimes;
use super::{Item, ItemTime, Part};
use crate::graph::StageId;

/// An item with its worker and its key in the sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) item: Item,
    pub(super) worker: u32,
    /// The start that the model expects, or the latest start among the items this one needs. Sorting by it keeps
    /// needed items first, and the items of a worker in order.
    pub(super) key: f64,
    pub(super) time: ItemTime,
}

/// The part of a tile that a worker, free at `free`, computes.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) ks: Range<u32>,
    pub(super) part: Part,
    pub(super) worker: u32,
    pub(super) free: f64,
}

/// A schedule under construction. `placed` lists items after those they need.
#[derive(Clone)]
pub(super) struct Board<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) clock: Clock,
    pub(super) workers: WorkerTimes,
    /// Empty if only the length is needed.
    pub(super) placed: Vec<Placed>,
    /// When each slab can be read, and the key of its item.
    slabs: Vec<(f64, f64)>,
    record: bool,
}

/// The stage being placed.
pub(super) struct Current {
    pub(super) stage: usize,
    pub(super) cost: ItemCost,
    pub(super) ready: Readiness,
}

impl<'a> Board<'a> {
    /// An empty board for this many workers. Items are kept if `record` is set.
    pub(super) fn new(problem: &'a Problem<'a>, workers: usize, record: bool) -> Board<'a> {
        let items: usize = problem.stages.iter().map(|s| s.tiles() as usize).sum();
        let begin_us = problem.cost.launch_us + problem.cost.fill_us;
        Board {
            problem,
            clock: Clock::new(problem),
            workers: WorkerTimes::new(workers, begin_us),
            placed: Vec::with_capacity(if record { items + items / 2 } else { 0 }),
            slabs: Vec::new(),
            record,
        }
    }

    /// Begins a stage; its producers must be placed.
    pub(super) fn stage(&self, stage: usize, cost: ItemCost) -> Current {
        let shape = &self.problem.stages[stage];
        let ready = self.clock.ready(self.problem, &shape.needs.classes, shape.k_blocks, &cost);
        Current { stage, cost, ready }
    }

    /// Like [`Board::put`], for an item of a stage that is not placed as a whole: only the tiles that this item reads
    /// must be placed.
    pub(super) fn put_alone(&mut self, item: &Item, cost: ItemCost, pieces: &[Piece]) -> f64 {
        let shape = &self.problem.stages[item.stage.0];
        let needs = &shape.needs.classes[shape.needs.class_of(item.m, item.n)];
        let ready = self.clock.ready(self.problem, [needs], shape.k_blocks, &cost);
        let tile = TileAt { index: item.m * shape.grid.1 + item.n, class: 0 };
        self.put(&Current { stage: item.stage.0, cost, ready }, tile, pieces)
    }

    /// The length of the schedule so far: when the last tile is stored.
    pub(super) fn total_us(&self) -> f64 {
        self.workers.end() + self.problem.cost.post_us
    }

    /// Slabs so far.
    pub(super) fn slabs(&self) -> u32 {
        self.slabs.len() as u32
    }

    /// Allocates more slabs; returns the first.
    pub(super) fn take_slabs(&mut self, count: u32) -> u32 {
        let first = self.slabs();
        self.slabs.resize(self.slabs.len() + count as usize, (0.0, 0.0));
        first
    }

    /// Places tiles, each on the first free worker.
    pub(super) fn place_whole(&mut self, now: &Current, tiles: &[TileAt]) {
        let stage = &self.problem.stages[now.stage];
        let mut workers = std::mem::take(&mut self.workers);
        workers.hand_out(tiles, |tile, worker, free| {
            let ks = 0..stage.k_blocks;
            self.put(now, *tile, &[Piece { ks, part: Part::Whole, worker, free }])
        });
        self.workers = workers;
    }

    /// Puts a part of a tile on its worker, or all parts that share the tile on theirs; returns when these workers are
    /// free again.
    pub(super) fn put(&mut self, now: &Current, tile: TileAt, pieces: &[Piece]) -> f64 {
        let (class, cost, handoff_us) = (tile.class as usize, &now.cost, self.problem.cost.handoff_us);
        let (mut end, mut finishes) = (0.0f64, false);
        for Piece { ks, part, free, .. } in pieces {
            let math_end = now.ready.math_end(class, ks.start, ks.end, *free, cost);
            let left = match *part {
                Part::Whole => math_end,
                Part::Contribute { .. } => math_end + cost.beside(*part).write_us,
                Part::Finish { first, slabs } => {
                    let slabs = &self.slabs[first as usize..(first + slabs) as usize];
                    slabs.iter().fold(math_end, |end, (seen, _)| end.max(*seen) + cost.slab_read_us)
                }
                Part::Share { .. } => math_end + cost.beside(*part).write_us + handoff_us,
            };
            (end, finishes) = (end.max(left), part.finishes());
        }
        let Some(Piece { part, .. }) = pieces.first() else { return end };
        let beside = cost.beside(*part);
        if let Part::Share { .. } = part {
            end += beside.read_us;
        }
        if finishes {
            end = end.max(now.ready.late_us(class)) + beside.fixed_us;
            self.clock.complete(now.stage, tile.index as usize, end + self.problem.cost.post_us);
        }
        if let Part::Contribute { slab } = part {
            self.slabs[*slab as usize].0 = end + handoff_us;
        }
        if self.record {
            self.note(now, tile, pieces, end);
        }
        end
    }

    /// Records the items of a tile in the sequence.
    fn note(&mut self, now: &Current, tile: TileAt, pieces: &[Piece], end: f64) {
        // The latest key of all parts, so that they are adjacent in the sequence.
        let mut key = 0.0f64;
        for Piece { ks, part, free, .. } in pieces {
            key = key.max(*free).max(now.ready.key(tile.class as usize, ks.start, ks.end, part.finishes()));
            if let Part::Finish { first, slabs } = *part {
                let slabs = &self.slabs[first as usize..(first + slabs) as usize];
                key = slabs.iter().fold(key, |key, (_, of_slab)| key.max(*of_slab));
            }
        }
        let width = self.problem.stages[now.stage].grid.1;
        let (stage, m, n) = (StageId(now.stage), tile.index / width, tile.index % width);
        for Piece { ks, part, worker, free } in pieces {
            match part {
                Part::Contribute { slab } => self.slabs[*slab as usize].1 = key,
                Part::Whole | Part::Finish { .. } | Part::Share { .. } => {
                    self.clock.set_key(now.stage, tile.index as usize, key);
                }
            }
            let item = Item { stage, m, n, k_begin: ks.start, k_end: ks.end, part: *part };
            let time = now.cost.time(*free, ks.end - ks.start, *part, end);
            self.placed.push(Placed { item, worker: *worker, key, time });
        }
    }
}
