//! The predicted times of an existing schedule, no matter how it was made.

use std::collections::BTreeMap;

use super::place::{Board, Piece};
use super::problem::{ItemCost, Problem};
use super::{Breakdown, Hand, ItemTime, Part, Schedule, ScheduleRequest};
use crate::graph::Graph;

/// Times every item of a schedule in sequence order, each on the worker that has it in its list or, if items are
/// drawn, on the first free worker. Items must come after those they need.
pub fn time(graph: &Graph, request: &ScheduleRequest, schedule: &Schedule) -> Breakdown {
    let problem = Problem::new(graph, request);
    let costs: Vec<ItemCost> = (0..problem.stages.len()).map(|s| item_cost(&problem, schedule, s)).collect();
    let mut board = Board::new(&problem, schedule.lists.len().max(1), true);
    board.take_slabs(schedule.slabs);
    let worker_of = schedule.worker_of();
    let mut items = vec![ItemTime::default(); schedule.sequence.len()];
    let mut lists = vec![Vec::new(); board.workers.free.len()];
    // Parts of a tile that wait for each other, by the tile's first slab: their ends are known once all of them have
    // left their sums, and until then their workers take nothing.
    let mut held: BTreeMap<u32, Vec<(usize, Piece)>> = BTreeMap::new();
    for (i, item) in schedule.sequence.iter().enumerate() {
        let worker = match schedule.mode {
            Hand::Fixed => worker_of[i],
            Hand::Drawn => board.workers.first(),
        };
        lists[worker as usize].push(i as u32);
        let free = std::mem::replace(&mut board.workers.free[worker as usize], f64::INFINITY);
        let piece = Piece { ks: item.k_begin..item.k_end, part: item.part, worker, free };
        let together = match item.part {
            Part::Share { first, parts, .. } => {
                let of_tile = held.entry(first).or_default();
                of_tile.push((i, piece));
                if of_tile.len() < parts as usize {
                    continue;
                }
                std::mem::take(of_tile)
            }
            Part::Whole | Part::Contribute { .. } | Part::Finish { .. } => vec![(i, piece)],
        };
        let (together, pieces): (Vec<usize>, Vec<Piece>) = together.into_iter().unzip();
        let end = board.put_alone(item, costs[item.stage.0], &pieces);
        for ((i, piece), placed) in together.into_iter().zip(pieces).zip(board.placed.drain(..)) {
            board.workers.free[piece.worker as usize] = end;
            items[i] = placed.time;
        }
    }
    let timed = Schedule { predicted_us: board.total_us(), lists, ..schedule.clone() };
    Breakdown::new(&timed, items, problem.floor_us(), "as given".into())
}

/// Cost of a stage's items in the order the schedule takes them: as many lines at a time as the first wave covers.
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
