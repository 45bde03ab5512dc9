//! The predicted times of a schedule that is there already, whoever made it.

use super::problem::{ItemCost, Problem};
use super::{Breakdown, Hand, Item, ItemTime, Part, Request, Schedule};
use crate::graph::Graph;

/// Times every item of a schedule: in the order of its sequence, each on the worker whose list it is in or, where items are
/// drawn, on the one that is free first. The items must be in an order in which they come after what they need.
pub fn time(graph: &Graph, request: &Request, schedule: &Schedule) -> Breakdown {
    let problem = Problem::new(graph, request);
    let costs: Vec<ItemCost> = (0..problem.stages.len()).map(|s| item_cost(&problem, schedule, s)).collect();
    let mut run = Run {
        problem: &problem,
        free: vec![problem.cost.launch_us + problem.cost.fill_us; schedule.lists.len().max(1)],
        seen: problem.stages.iter().map(|s| vec![0.0; s.tiles() as usize]).collect(),
        slabs: vec![0.0; schedule.slabs as usize],
    };
    let mut worker_of = vec![0; schedule.sequence.len()];
    for (worker, list) in schedule.lists.iter().enumerate() {
        list.iter().for_each(|i| worker_of[*i as usize] = worker);
    }
    let mut times: Vec<ItemTime> = Vec::with_capacity(schedule.sequence.len());
    let mut sharers: Vec<(usize, f64)> = Vec::new();
    let (mut end_us, mut lists) = (0.0f64, vec![Vec::new(); run.free.len()]);
    for (i, item) in schedule.sequence.iter().enumerate() {
        let worker = match schedule.mode {
            Hand::Fixed => worker_of[i],
            Hand::Drawn => {
                (0..run.free.len()).min_by(|a, b| run.free[*a].total_cmp(&run.free[*b])).unwrap_or(0)
            }
        };
        lists[worker].push(i as u32);
        let (begin_us, cost) = (run.free[worker], &costs[item.stage.0]);
        let (mut end, late) = run.math_end(item, begin_us, cost);
        let mut time = ItemTime {
            begin_us,
            wait_us: 0.0,
            math_us: f64::from(item.k_end - item.k_begin) * cost.k_us,
            fixed_us: if item.part.finishes() { cost.epilogue_us } else { 0.0 },
            split_us: 0.0,
        };
        match item.part {
            Part::Whole => {}
            Part::Contribute { slab } => {
                time.split_us = cost.slab_write_us;
                end += time.split_us;
                run.slabs[slab as usize] = end + problem.cost.handoff_us;
            }
            Part::Finish { first, slabs } => {
                time.split_us = f64::from(slabs) * cost.slab_read_us;
                for slab in first..first + slabs {
                    end = end.max(run.slabs[slab as usize]) + cost.slab_read_us;
                }
            }
            Part::Share { parts, part, .. } => {
                let (count, others) = (f64::from(parts), f64::from(parts) - 1.0);
                let write = cost.slab_write_us * others / count;
                time.split_us = write + cost.slab_read_us * others / count;
                time.fixed_us = cost.epilogue_us / count;
                sharers.push((i, end + write + problem.cost.handoff_us));
                if part + 1 < parts {
                    // Its end is known when all parts have left their sums; until then its worker takes nothing.
                    run.free[worker] = f64::INFINITY;
                    times.push(time);
                    continue;
                }
                let left = sharers.iter().map(|s| s.1).fold(0.0, f64::max);
                end = left + time.split_us - write;
            }
        }
        if item.part.finishes() {
            end = end.max(late) + time.fixed_us;
            let seen = end + problem.cost.post_us + problem.cost.handoff_us;
            let width = problem.stages[item.stage.0].grid.1;
            run.seen[item.stage.0][(item.m * width + item.n) as usize] = seen;
        }
        times.push(time);
        let together = if sharers.is_empty() { vec![i] } else { sharers.drain(..).map(|s| s.0).collect() };
        for i in together {
            let time = &mut times[i];
            time.wait_us = (end - time.begin_us - time.math_us - time.fixed_us - time.split_us).max(0.0);
        }
        for (free, list) in run.free.iter_mut().zip(&lists) {
            if free.is_infinite() {
                *free = list.last().map_or(end, |i| times[*i as usize].end_us());
            }
        }
        run.free[worker] = end;
        end_us = end_us.max(end);
    }
    let timed = Schedule { predicted_us: end_us + problem.cost.post_us, lists, ..schedule.clone() };
    Breakdown::of(&timed, times, problem.floor_us(), "as given".into())
}

/// The state of a run.
struct Run<'a> {
    problem: &'a Problem<'a>,
    free: Vec<f64>,
    /// When the waiters of each stage's tiles can go on; tiles are row-major.
    seen: Vec<Vec<f64>>,
    slabs: Vec<f64>,
}

impl Run<'_> {
    /// End of an item's arithmetic on a worker that is free at `free`, and when what its epilogue reads is there.
    fn math_end(&self, item: &Item, free: f64, cost: &ItemCost) -> (f64, f64) {
        let shape = &self.problem.stages[item.stage.0];
        let mut end = free + f64::from(item.k_end - item.k_begin) * cost.k_us;
        let mut late = 0.0f64;
        for need in &shape.needs.classes[shape.needs.class_of(item.m, item.n)] {
            let at_the_end = need.ks.start >= shape.k_blocks;
            if !at_the_end && (need.ks.start >= item.k_end || need.ks.end <= item.k_begin) {
                continue;
            }
            let width = self.problem.stages[need.producer.0].grid.1;
            let tiles = &self.seen[need.producer.0];
            let row =
                |m: u32| &tiles[(m * width + need.cols.start) as usize..(m * width + need.cols.end) as usize];
            let seen = need.rows.clone().flat_map(row).copied().fold(0.0, f64::max);
            if at_the_end {
                late = late.max(seen);
            } else {
                let left = item.k_end - need.ks.start.max(item.k_begin);
                end = end.max(seen + cost.fill_us + f64::from(left) * cost.k_us);
            }
        }
        (end, late)
    }
}

/// What items of a stage cost in the order in which the schedule takes them: as many lines at a time as the first wave meets.
fn item_cost(problem: &Problem, schedule: &Schedule, stage: usize) -> ItemCost {
    let shape = &problem.stages[stage];
    let items = || schedule.sequence.iter().filter(|item| item.stage.0 == stage);
    let mut lines: Vec<u32> = Vec::new();
    for item in items().take(problem.workers as usize) {
        let line = if shape.by_columns { item.n } else { item.m };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    problem.item_cost(stage, lines.len() as u32, items().any(|item| item.part != Part::Whole))
}
