//! Candidate strategies, and the best of them.

use std::ops::Range;

use super::place::{Board, Placed};
use super::problem::{Problem, StageCost};
use super::split::SplitRegion;

/// How the tiles of a stage are split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cutting {
    /// Not at all.
    None,
    /// Each into this many parts, on workers that finish the tile together.
    Share(u32),
    /// Splits the tiles that would end after the balance, and those of `waves` more waves.
    Balance {
        waves: u32,
        /// Groups of the stage's tiles in tile order, each balanced separately: the next stage begins with the first
        /// ones.
        groups: u32,
        ramp_us: f64,
    },
}

/// A scheduling strategy for a graph.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Strategy {
    /// Rows (columns) of cluster tiles taken at a time.
    pub(super) group: u32,
    /// How each stage is split.
    pub(super) cuttings: Vec<Cutting>,
}

impl std::fmt::Display for Cutting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Cutting::None => write!(f, "whole tiles"),
            Cutting::Share(parts) => write!(f, "tiles shared by {parts}"),
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

/// Result of a strategy.
pub(super) struct Attempt {
    pub(super) placed: Vec<Placed>,
    pub(super) slabs: u32,
    pub(super) total_us: f64,
    pub(super) strategy: Strategy,
}

/// Workers end together; the last wave is split.
const BALANCE: Cutting = balance(0, 1, 0.0);
/// The same, with one more wave split: fewer parts per tile.
const BALANCE_MORE: Cutting = balance(1, 1, 0.0);
/// Splits that may help a stage; for the last stage, which has no consumers, only the first three.
const INNER: [Cutting; 7] = [
    Cutting::None,
    BALANCE,
    BALANCE_MORE,
    balance(0, 1, 3.0),
    balance(0, 1, 6.0),
    balance(0, 1, 12.0),
    balance(0, 2, 0.0),
];

const fn balance(waves: u32, groups: u32, ramp_us: f64) -> Cutting {
    Cutting::Balance { waves, groups, ramp_us }
}

/// A stage before the last with more waves than this gains little from splits.
const MANY_WAVES: u32 = 4;
/// Graphs with more stages are searched by kinds of stages, because each attempt places all of them.
const FEW_STAGES: usize = 4;
/// In graphs with at most this many waves, every order is also tried without splits.
const FEW_WAVES: u32 = 8;

/// The best of the tried strategies, which include the one that goes row by row and splits nothing.
pub(super) fn search(problem: &Problem, splits: bool) -> Attempt {
    let last = problem.stages.len().saturating_sub(1);
    let mut best = Best::new(problem, Strategy { group: 1, cuttings: vec![Cutting::None; last + 1] });
    let lines = |s: &StageCost| if s.by_columns { s.grid.1 } else { s.grid.0 };
    let most = problem.stages.iter().map(lines).max().unwrap_or(1);
    // While searching for the order, split only where the gain is certain: the end, and stages that leave workers
    // idle.
    let mut cuttings = vec![Cutting::None; last + 1];
    if splits {
        for (stage, cutting) in cuttings.iter_mut().enumerate() {
            let shape = &problem.stages[stage];
            if shape.may_cut() && (stage == last || shape.tiles() < 2 * problem.workers) {
                *cutting = BALANCE;
            }
        }
    }
    // Likely groups first: an attempt that can no longer win stops early.
    let mut groups: Vec<u32> = [4, 8, 2, 16, 1].into_iter().filter(|g| *g < most).collect();
    groups.push(most);
    for &group in &groups {
        best.consider(Strategy { group, cuttings: cuttings.clone() });
        if problem.stages.iter().map(StageCost::tiles).sum::<u32>() <= FEW_WAVES * problem.workers {
            best.consider(Strategy { group, cuttings: vec![Cutting::None; last + 1] });
        }
    }
    if splits {
        // Stage by stage, starting with the last, which ends the schedule; in long graphs, alike stages together.
        best.consider_stages(&[last]);
        if last < FEW_STAGES {
            for stage in (0..last).rev() {
                best.consider_shares(stage);
                best.consider_stages(&[stage]);
            }
        } else {
            alike(problem).iter().rev().for_each(|stages| best.consider_stages(stages));
        }
        best.consider_stages(&[last]);
        // With the splits of a long graph, another order may be better.
        if last >= FEW_STAGES {
            for group in groups {
                best.consider(Strategy { group, ..best.strategy.clone() });
            }
        }
    }
    attempt(problem, &best.strategy, f64::INFINITY, true)
}

/// All stages but the last, grouped by shape, in the order of each group's first stage.
fn alike(problem: &Problem) -> Vec<Vec<usize>> {
    let shape = |stage: usize| {
        let shape = &problem.stages[stage];
        (shape.grid, shape.k_blocks, shape.may_cut())
    };
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for stage in 0..problem.stages.len().saturating_sub(1) {
        match kinds.iter_mut().find(|stages| shape(stages[0]) == shape(stage)) {
            Some(stages) => stages.push(stage),
            None => kinds.push(vec![stage]),
        }
    }
    kinds
}

/// The best strategy so far.
struct Best<'a> {
    problem: &'a Problem<'a>,
    strategy: Strategy,
    /// Its length times the handicap for its splits.
    score_us: f64,
    /// A prefix of stages as this strategy places them, reused by strategies that differ only from there on.
    begun: Option<(usize, Board<'a>)>,
}

impl Strategy {
    /// Factor applied to lengths for comparison.
    fn handicap(&self, problem: &Problem) -> f64 {
        let cut = self.cuttings.iter().filter(|c| **c != Cutting::None).count();
        problem.cost.handicap(cut, self.cuttings.len())
    }
}

impl<'a> Best<'a> {
    fn new(problem: &'a Problem<'a>, strategy: Strategy) -> Best<'a> {
        let score_us =
            attempt(problem, &strategy, f64::INFINITY, false).total_us * strategy.handicap(problem);
        Best { problem, strategy, score_us, begun: None }
    }

    fn consider(&mut self, strategy: Strategy) {
        if strategy == self.strategy {
            return;
        }
        let handicap = strategy.handicap(self.problem);
        let limit_us = self.score_us / handicap;
        let (first, mut board) = match &self.begun {
            Some((first, board)) => (*first, board.clone()),
            None => (0, Board::new(self.problem, self.problem.workers as usize, false)),
        };
        let in_time = place(&mut board, &strategy, first..strategy.cuttings.len(), limit_us);
        let score_us = if in_time { board.total_us() * handicap } else { f64::INFINITY };
        if score_us < self.score_us {
            (self.strategy, self.score_us) = (strategy, score_us);
        }
    }

    /// The same strategy with every promising cutting of some stages.
    fn consider_stages(&mut self, stages: &[usize]) {
        let Some(&first) = stages.first() else { return };
        self.begin(first);
        for cutting in cuttings(self.problem, first) {
            let mut strategy = self.strategy.clone();
            stages.iter().for_each(|stage| strategy.cuttings[*stage] = cutting);
            self.consider(strategy);
        }
        self.begun = None;
    }

    /// The following strategies do not differ before this stage.
    fn begin(&mut self, stage: usize) {
        let mut board = Board::new(self.problem, self.problem.workers as usize, false);
        place(&mut board, &self.strategy, 0..stage, f64::INFINITY);
        self.begun = Some((stage, board));
    }

    /// The same strategy with shared tiles in one stage, and whole or shared ones in the next: a stage that ends on
    /// all workers together is best followed by another such stage.
    fn consider_shares(&mut self, stage: usize) {
        let base = self.strategy.clone();
        self.begin(stage);
        for first in shares(self.problem, stage) {
            for second in shares(self.problem, stage + 1).chain([Cutting::None]) {
                let mut strategy = base.clone();
                strategy.cuttings[stage..stage + 2].copy_from_slice(&[first, second]);
                self.consider(strategy);
            }
        }
        self.begun = None;
    }
}

/// The cuttings that may help a stage.
fn cuttings(problem: &Problem, stage: usize) -> Vec<Cutting> {
    let shape = &problem.stages[stage];
    if !shape.may_cut() {
        return vec![Cutting::None];
    }
    let few = shape.tiles() <= MANY_WAVES * problem.workers;
    let mut list = match stage + 1 == problem.stages.len() {
        true => INNER[..3].to_vec(),
        false if few => INNER.to_vec(),
        false => INNER[..2].to_vec(),
    };
    list.extend(shares(problem, stage));
    list
}

/// The ways to share the tiles of a stage, if all parts fit at once.
fn shares(problem: &Problem, stage: usize) -> impl Iterator<Item = Cutting> {
    let shape = &problem.stages[stage];
    let (tiles, most) = (shape.tiles(), if problem.may_share { shape.units } else { 0 });
    // If parts finish less than a block each, half of the workers should run the next stage; using all workers loses
    // time.
    let room = if shape.whole_units() { problem.workers } else { problem.workers / 2 };
    (2..=most)
        .filter(move |parts| super::may_share(*parts, most) && tiles * parts <= room)
        .map(Cutting::Share)
}

/// Schedules by one strategy; keeps the items if `record` is set. The length is infinite if it is found to exceed
/// `limit_us`.
pub(super) fn attempt(problem: &Problem, strategy: &Strategy, limit_us: f64, record: bool) -> Attempt {
    let mut board = Board::new(problem, problem.workers as usize, record);
    let in_time = place(&mut board, strategy, 0..strategy.cuttings.len(), limit_us);
    let total_us = if in_time { board.total_us() } else { f64::INFINITY };
    Attempt { total_us, slabs: board.slabs(), placed: board.placed, strategy: strategy.clone() }
}

/// Places some stages by one strategy, after the stages before them; `false` if the schedule is found to exceed
/// `limit_us`.
fn place(board: &mut Board, strategy: &Strategy, stages: Range<usize>, limit_us: f64) -> bool {
    let problem = board.problem;
    let mut in_time = true;
    for stage in stages {
        // Later stages only add to it.
        if board.total_us() > limit_us {
            return false;
        }
        let (cutting, shape) = (&strategy.cuttings[stage], &problem.stages[stage]);
        let tiles = problem.order(stage, strategy.group);
        let cost = problem.item_cost(stage, strategy.group, *cutting != Cutting::None);
        let now = board.stage(stage, cost);
        let (waves, groups, ramp_us) = match *cutting {
            Cutting::Balance { waves, groups, ramp_us } => (waves, groups, ramp_us),
            Cutting::Share(parts) if board.place_shared(&now, &tiles, parts) => continue,
            Cutting::None | Cutting::Share(_) => {
                board.place_whole(&now, &tiles);
                continue;
            }
        };
        // Only the last stage's end is the end of the schedule.
        let last = stage + 1 == strategy.cuttings.len();
        let limit_us = if last { limit_us - problem.cost.post_us } else { f64::INFINITY };
        for tiles in tiles.chunks(tiles.len().div_ceil(groups.max(1) as usize).max(1)) {
            let whole_us = now.cost.whole_us(shape.k_blocks);
            let whole = tiles_by_balance(&board.workers.free, tiles.len(), whole_us)
                .saturating_sub((waves * problem.workers) as usize);
            let (first, rest) = tiles.split_at(whole);
            board.place_whole(&now, first);
            if rest.is_empty() || board.place_split(&now, &SplitRegion { tiles: rest, ramp_us }, limit_us) {
                continue;
            }
            in_time &= limit_us.is_infinite();
            board.place_whole(&now, rest);
        }
    }
    in_time
}

/// Number of whole tiles that workers, free at `free`, can end before the balanced end of all tiles.
fn tiles_by_balance(free: &[f64], tiles: usize, tile_us: f64) -> usize {
    let balance = (free.iter().sum::<f64>() + tiles as f64 * tile_us) / free.len() as f64;
    let each = free.iter().map(|at| ((balance - at) / tile_us + 1e-9).floor().max(0.0) as usize);
    each.sum::<usize>().min(tiles)
}
