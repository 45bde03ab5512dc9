//! List scheduling: whole tiles go to the worker that is free first.

use std::collections::VecDeque;
use std::ops::Range;

use super::clock::{Clock, Readiness};
use super::problem::{ItemCost, Problem, TileAt};
use super::{Item, ItemTime, Part};
use crate::graph::StageId;

/// A time in microseconds, ordered; never NaN here.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Time(pub(super) f64);

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

/// An item with its worker and its place in the sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) item: Item,
    pub(super) worker: u32,
    /// The start that the model expects, or the latest start among the items that this one needs: sorting by it keeps
    /// needed items first, and the items of a worker in their order.
    pub(super) key: f64,
    pub(super) time: ItemTime,
}

/// Where and when an item is placed.
pub(super) struct Place {
    pub(super) worker: u32,
    pub(super) key: f64,
    pub(super) time: ItemTime,
}

/// A schedule in the making. `placed` is in an order in which items come after those that they need.
pub(super) struct Board<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) clock: Clock,
    /// When each worker is free.
    pub(super) free: Vec<f64>,
    /// Empty where only the length is wanted.
    pub(super) placed: Vec<Placed>,
    pub(super) slabs: u32,
    record: bool,
}

/// The stage that is being placed.
pub(super) struct Current {
    pub(super) stage: usize,
    pub(super) cost: ItemCost,
    pub(super) ready: Readiness,
}

impl Current {
    /// The times of an item of `blocks` k-blocks: what is neither arithmetic nor a fixed cost is waiting.
    pub(super) fn time(&self, begin_us: f64, blocks: u32, part: Part, end_us: f64) -> ItemTime {
        let cost = &self.cost;
        let math_us = f64::from(blocks) * cost.k_us;
        let (fixed_us, split_us) = match part {
            Part::Whole => (cost.epilogue_us, 0.0),
            Part::Contribute { .. } => (0.0, cost.slab_write_us),
            Part::Finish { slabs, .. } => (cost.epilogue_us, f64::from(slabs) * cost.slab_read_us),
            // Of each of the slabs, and of the tile, a share.
            Part::Share { parts, .. } => {
                let (parts, others) = (f64::from(parts), f64::from(parts) - 1.0);
                let slabs_us = (cost.slab_write_us + cost.slab_read_us) * others / parts;
                (cost.epilogue_us / parts, slabs_us)
            }
        };
        let wait_us = (end_us - begin_us - math_us - fixed_us - split_us).max(0.0);
        ItemTime { begin_us, wait_us, math_us, fixed_us, split_us }
    }
}

impl<'a> Board<'a> {
    /// Nothing is placed yet. Items are kept if `record` is set.
    pub(super) fn new(problem: &'a Problem<'a>, record: bool) -> Board<'a> {
        let items: usize = problem.stages.iter().map(|s| s.tiles() as usize).sum();
        Board {
            problem,
            clock: Clock::new(problem),
            free: vec![problem.cost.launch_us + problem.cost.fill_us; problem.workers as usize],
            placed: Vec::with_capacity(if record { items + items / 2 } else { 0 }),
            slabs: 0,
            record,
        }
    }

    /// Begins a stage; its producers are placed.
    pub(super) fn stage(&self, stage: usize, cost: ItemCost) -> Current {
        Current { stage, cost, ready: self.clock.readiness(self.problem, stage, &cost) }
    }

    /// The length of the schedule so far: the last tile stored.
    pub(super) fn total_us(&self) -> f64 {
        self.free.iter().copied().fold(0.0, f64::max) + self.problem.cost.post_us
    }

    /// Places tiles, each on the worker that is free first.
    pub(super) fn place_whole(&mut self, now: &Current, tiles: &[TileAt]) {
        // Ends mostly come in order, so a sorted queue beats a heap.
        let mut queue: VecDeque<(Time, u32)> = self.by_free_time().into();
        for &tile in tiles {
            let Some((Time(free), worker)) = queue.pop_front() else { return };
            let end = Time(self.put_whole(now, tile, worker, free));
            self.free[worker as usize] = end.0;
            if queue.back().is_none_or(|last| last.0 <= end) {
                queue.push_back((end, worker));
            } else {
                queue.insert(queue.partition_point(|other| other.0 <= end), (end, worker));
            }
        }
    }

    /// Workers with the times at which they are free, ascending.
    pub(super) fn by_free_time(&self) -> Vec<(Time, u32)> {
        let mut workers: Vec<(Time, u32)> =
            self.free.iter().enumerate().map(|(w, at)| (Time(*at), w as u32)).collect();
        workers.sort_unstable();
        workers
    }

    /// Puts a whole tile on a worker that is free at `free`; returns when it is free again.
    pub(super) fn put_whole(&mut self, now: &Current, tile: TileAt, worker: u32, free: f64) -> f64 {
        let (class, k_blocks) = (tile.class as usize, self.problem.stages[now.stage].k_blocks);
        let math_end = now.ready.math_end(class, 0, k_blocks, free, &now.cost);
        let end = math_end.max(now.ready.late_us(class)) + now.cost.epilogue_us;
        self.clock.complete(now.stage, tile.index as usize, end + self.problem.cost.post_us);
        if self.record {
            let key = free.max(now.ready.key(class, 0, k_blocks, true));
            self.clock.set_key(now.stage, tile.index as usize, key);
            let time = now.time(free, k_blocks, Part::Whole, end);
            self.push(now, tile, 0..k_blocks, Part::Whole, Place { worker, key, time });
        }
        end
    }

    /// Notes an item of the stage that is being placed.
    pub(super) fn push(&mut self, now: &Current, tile: TileAt, ks: Range<u32>, part: Part, place: Place) {
        if !self.record {
            return;
        }
        let width = self.problem.stages[now.stage].grid.1;
        let item = Item {
            stage: StageId(now.stage),
            m: tile.index / width,
            n: tile.index % width,
            k_begin: ks.start,
            k_end: ks.end,
            part,
        };
        self.placed.push(Placed { item, worker: place.worker, key: place.key, time: place.time });
    }
}
