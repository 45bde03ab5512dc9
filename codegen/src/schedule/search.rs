//! Candidate strategies, and the best of them.

use super::place::{Board, Placed};
use super::problem::Problem;
use super::split::Region;

/// How the tiles of a stage are cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cutting {
    /// Not at all.
    None,
    /// Those that would end after the balance, and `waves` more waves of tiles.
    Balance {
        waves: u32,
        /// Parts that the stage's tiles are taken in, each balanced by itself, by the order of tiles: the next stage begins
        /// with the first ones.
        groups: u32,
        ramp_us: f64,
    },
}

/// A way to schedule a graph.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Strategy {
    /// Rows (columns) of cluster tiles that are taken at a time.
    pub(super) group: u32,
    /// By stage.
    pub(super) cuttings: Vec<Cutting>,
}

impl std::fmt::Display for Cutting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Cutting::None => write!(f, "whole tiles"),
            Cutting::Balance { waves, groups, ramp_us } => {
                write!(f, "balanced")?;
                if waves > 0 {
                    write!(f, " with {waves} more waves")?;
                }
                if groups > 1 {
                    write!(f, " in {groups} groups")?;
                }
                if ramp_us > 0.0 {
                    write!(f, " over {ramp_us} us")?;
                }
                Ok(())
            }
        }
    }
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "groups of {}", self.group)?;
        self.cuttings.iter().try_for_each(|cutting| write!(f, "; {cutting}"))
    }
}

/// What became of a strategy.
pub(super) struct Attempt {
    pub(super) placed: Vec<Placed>,
    pub(super) slabs: u32,
    pub(super) total_us: f64,
    pub(super) strategy: Strategy,
}

/// Cuts that are tried for the stages before the last, and for the last one.
const BALANCE: Cutting = Cutting::Balance { waves: 0, groups: 1, ramp_us: 0.0 };
const BALANCE_MORE: Cutting = Cutting::Balance { waves: 1, groups: 1, ramp_us: 0.0 };
const RAMP: Cutting = Cutting::Balance { waves: 0, groups: 1, ramp_us: 3.0 };
const TWO_GROUPS: Cutting = Cutting::Balance { waves: 0, groups: 2, ramp_us: 0.0 };

/// Tiles that may be placed, over all attempts, after the first of them: keeps a search near a millisecond.
const BUDGET: u32 = 12_000;

/// The best of the strategies tried; the first is unsplit and row by row.
pub(super) fn search(problem: &Problem, splits: bool) -> Attempt {
    let stages = problem.stages.len();
    let tiles: u32 = problem.stages.iter().map(|s| s.tiles()).sum();
    let last = |inner: Cutting, outer: Cutting| {
        let mut cuttings = vec![inner; stages];
        if let Some(end) = cuttings.last_mut() {
            *end = outer;
        }
        cuttings
    };
    let mut best = attempt(problem, &Strategy { group: 1, cuttings: last(Cutting::None, Cutting::None) });
    let most =
        problem.stages.iter().map(|s| if s.by_columns { s.grid.1 } else { s.grid.0 }).max().unwrap_or(1);
    let mut groups: Vec<u32> = [4, 8, 2, 1, 16].into_iter().map(|g: u32| g.min(most)).collect();
    groups.push(most);
    let mut seen = Vec::new();
    groups.retain(|g| {
        !seen.contains(g) && {
            seen.push(*g);
            true
        }
    });
    let outer = if splits { BALANCE } else { Cutting::None };
    let mut left = BUDGET;
    let mut consider = |best: &mut Attempt, strategy: Strategy| {
        if best.strategy == strategy || left < tiles {
            return;
        }
        left -= tiles;
        let found = attempt(problem, &strategy);
        if found.total_us < best.total_us {
            *best = found;
        }
    };
    for group in groups {
        consider(&mut best, Strategy { group, cuttings: last(Cutting::None, outer) });
    }
    if !splits {
        return best;
    }
    let group = best.strategy.group;
    for (inner, outer) in [
        (BALANCE, BALANCE),
        (Cutting::None, BALANCE_MORE),
        (RAMP, BALANCE),
        (TWO_GROUPS, BALANCE),
        (BALANCE, BALANCE_MORE),
        (BALANCE_MORE, BALANCE),
        (BALANCE_MORE, BALANCE_MORE),
        (RAMP, BALANCE_MORE),
        (TWO_GROUPS, BALANCE_MORE),
    ] {
        consider(&mut best, Strategy { group, cuttings: last(inner, outer) });
    }
    best
}

/// Schedules by one strategy.
pub(super) fn attempt(problem: &Problem, strategy: &Strategy) -> Attempt {
    let mut board = Board::new(problem);
    for (stage, cutting) in strategy.cuttings.iter().enumerate() {
        let shape = &problem.stages[stage];
        let order = problem.order(stage, strategy.group);
        let tiles: Vec<u32> = (0..shape.tiles())
            .filter_map(|i| order.tile_at(shape.grid, i))
            .map(|tile| tile.m * shape.grid.1 + tile.n)
            .collect();
        let cost = problem.item_cost(stage, strategy.group, *cutting != Cutting::None);
        let now = board.stage(stage, cost);
        let Cutting::Balance { waves, groups, ramp_us } = *cutting else {
            board.place_whole(&now, &tiles);
            continue;
        };
        for tiles in tiles.chunks(tiles.len().div_ceil(groups.max(1) as usize).max(1)) {
            let whole_us = now.cost.whole_us(shape.k_blocks);
            let whole = tiles_by_balance(&board.free, tiles.len(), whole_us)
                .saturating_sub((waves * problem.workers) as usize);
            let (first, rest) = tiles.split_at(whole);
            board.place_whole(&now, first);
            if !rest.is_empty() && !board.place_split(&now, &Region { tiles: rest, ramp_us }) {
                board.place_whole(&now, rest);
            }
        }
    }
    Attempt {
        total_us: board.total_us(),
        placed: board.placed,
        slabs: board.slabs,
        strategy: strategy.clone(),
    }
}

/// Whole tiles that workers free at `free` can end before they all would end together.
fn tiles_by_balance(free: &[f64], tiles: usize, tile_us: f64) -> usize {
    let balance = (free.iter().sum::<f64>() + tiles as f64 * tile_us) / free.len() as f64;
    let each = free.iter().map(|at| ((balance - at) / tile_us + 1e-9).floor().max(0.0) as usize);
    each.sum::<usize>().min(tiles)
}
