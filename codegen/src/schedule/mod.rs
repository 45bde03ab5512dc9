//! Work lists of the `fused` executor: the tiles, or k-ranges of tiles, that each worker computes, in order.
//!
//! A schedule is untrusted: no matter how it was made, [`crate::check`] proves that every tile is computed once, that
//! split tiles are combined, and that the lists cannot deadlock.
//!
//! ```
//! use cusync_gen::device::{Operations, Profile};
//! use cusync_gen::graph::gemm_chain;
//! use cusync_gen::schedule::{Hand, ScheduleRequest, build};
//!
//! let graph = gemm_chain("chain", 512, &[512, 1024, 512]).graph(&[(128, 128, 64); 2])?;
//! let h200 = Profile::named("h200").expect("it ships");
//! let cost = h200.cost_model(Operations::products());
//! let request = ScheduleRequest { workers: 132, cluster: (1, 1), mode: Hand::Fixed, splits: false, cost: &cost };
//! let schedule = build(&graph, &request);
//! assert_eq!((schedule.sequence.len(), schedule.slabs), (32 + 16, 0));
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

pub mod decode;

mod breakdown;
mod clock;
mod digest;
mod needs;
mod pick;
mod place;
mod problem;
mod search;
mod share;
mod split;
mod timing;
mod workers;

use serde::{Deserialize, Serialize};

use crate::device::CostModel;
use crate::graph::{Graph, Op, Stage, StageId};
use crate::obstacle::Obstacle;
use problem::Problem;

pub use breakdown::{Breakdown, ItemTime, Totals};
pub use pick::{Chosen, Wanted, choose};
pub use timing::time;
pub(crate) use workers::WorkerTimes;

/// How workers get their items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hand {
    /// Each worker follows its own list.
    #[serde(rename = "static")]
    Fixed,
    /// Workers draw from [`Schedule::sequence`] through a device counter; a worker that finishes early takes more.
    #[serde(rename = "dynamic")]
    Drawn,
}

impl Hand {
    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Hand::Fixed => "static",
            Hand::Drawn => "dynamic",
        }
    }
}

/// How an item uses its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The item covers all of k and finishes its tile.
    Whole,
    /// Leaves its sums in a slab.
    Contribute {
        /// The slab; it has one writer and one reader per run.
        slab: u32,
    },
    /// Adds `slabs` slabs, from `first`, to its own sums and finishes the tile: epilogue, store, post.
    Finish {
        /// First slab.
        first: u32,
        /// Number of slabs.
        slabs: u32,
    },
    /// One of `parts` parts that finish a tile together: leaves its sums in slab `first + part` for the others, adds
    /// the others' sums for its own share of the output, and finishes that share. All parts must run at the same time.
    Share {
        /// The slab of part 0.
        first: u32,
        /// Parts of the tile, at most [`units`].
        parts: u32,
        /// Index of this part.
        part: u32,
    },
}

impl Part {
    /// Whether the item stores and posts a tile or a share of one.
    pub fn finishes(self) -> bool {
        !matches!(self, Part::Contribute { .. })
    }

    /// The item's posts to its tile's slot; a tile posts [`POST_WEIGHT`] in total.
    pub fn weight(self) -> u32 {
        match self {
            Part::Whole | Part::Finish { .. } => POST_WEIGHT,
            Part::Contribute { .. } => 0,
            Part::Share { parts, .. } => POST_WEIGHT / parts.max(1),
        }
    }
}

/// Maximum stages of one kernel (`CUSYNC_MAX_STAGES`).
pub const MAX_STAGES: usize = 64;

/// Posts of a chain kernel's tile to its slot, divided evenly among the parts that finish it (`CUSYNC_POST_WEIGHT`).
/// It is divisible by any number of parts up to four, and by 6, 8, 12 and 16.
pub const POST_WEIGHT: u32 = 48;

/// The units in which a chain kernel finishes a tile of a stage: 64 x 64 blocks, where the blocks of two warpgroups
/// side by side count once. Parts that share a tile take whole units, or sixteenths of a block for the smallest tile of
/// pixels.
pub fn units(stage: &Stage) -> u32 {
    let sixteenths = matches!(stage.op, Op::Conv2d(_)) && (stage.mma_tile.0, stage.mma_tile.1) == (64, 64);
    blocks(stage).saturating_mul(if sixteenths { 16 } else { 1 })
}

/// The 64 x 64 blocks of a tile that a warpgroup finishes one after another.
fn blocks(stage: &Stage) -> u32 {
    let tile = stage.mma_tile;
    let warpgroups = match tile.0 {
        192 => 3,
        128.. => 2,
        _ => 1,
    };
    (tile.0 / (64 * warpgroups)).max(1).saturating_mul((tile.1 / 64).max(1))
}

/// Whether this many parts can share a tile of `units` units evenly.
pub(crate) fn may_share(parts: u32, units: u32) -> bool {
    (1..=units).contains(&parts) && POST_WEIGHT.is_multiple_of(parts)
}

/// Why items of a stage, in a grid of clusters of this shape, cannot address all of its tiles and k-blocks:
/// `cusync_item` has 16 bits for each number.
pub(crate) fn uncounted(stage: &Stage, cluster: (u32, u32)) -> Option<Obstacle> {
    let most = u32::from(u16::MAX);
    let (rows, cols) = (stage.grid.0.div_ceil(cluster.0), stage.grid.1.div_ceil(cluster.1));
    // Tiles are numbered from 0; k-blocks are counted up to the end of a range.
    [
        (rows, most + 1, "rows of tiles"),
        (cols, most + 1, "columns of tiles"),
        (stage.k_blocks, most, "k-blocks"),
    ]
    .into_iter()
    .find(|(have, limit, _)| have > limit)
    .map(|(have, limit, noun)| {
        Obstacle::new(format!("has {have} {noun}, and items of a list count {limit} in 16 bits"))
            .numbers(have, limit)
            .help("run fewer rows at a time")
            .of_stage(&stage.name)
    })
}

/// k-blocks `k_begin .. k_end` of one cluster tile of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// Stage.
    pub stage: StageId,
    /// Row in the grid of cluster tiles.
    pub m: u32,
    /// Column in the grid of cluster tiles.
    pub n: u32,
    /// First k-block.
    pub k_begin: u32,
    /// One past the last.
    pub k_end: u32,
    /// How the item uses its sums.
    pub part: Part,
}

/// A schedule of every stage of a graph over the workers of one persistent kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// CTAs per worker along M and N; a cluster tile is that many tiles.
    pub cluster: (u32, u32),
    /// How items are handed out.
    pub mode: Hand,
    /// All items, ordered so that every item comes after those it needs. [`Hand::Drawn`] hands them out in this order.
    pub sequence: Vec<Item>,
    /// Each worker's items, as indices into `sequence`. [`Hand::Fixed`] follows them. For [`Hand::Drawn`], the number
    /// of lists is the number of workers, and the lists are the model's expectation.
    pub lists: Vec<Vec<u32>>,
    /// Slabs of partial sums.
    pub slabs: u32,
    /// Predicted length, microseconds.
    pub predicted_us: f64,
}

impl Schedule {
    /// The worker of each item of the sequence, as assigned or expected.
    pub(crate) fn worker_of(&self) -> Vec<u32> {
        let mut worker_of = vec![0; self.sequence.len()];
        for (worker, list) in self.lists.iter().enumerate() {
            list.iter().for_each(|i| worker_of[*i as usize] = worker as u32);
        }
        worker_of
    }

    /// Whether no tile is split, so no worker waits for another's sums.
    pub fn is_whole(&self) -> bool {
        self.sequence.iter().all(|item| item.part == Part::Whole)
    }

    /// The predicted length with its handicap, for comparison with other schedules.
    fn score_us(&self, cost: &CostModel) -> f64 {
        let parts = self.sequence.iter().filter(|item| item.part != Part::Whole);
        let cut: std::collections::BTreeSet<usize> = parts.map(|item| item.stage.0).collect();
        let stages = self.sequence.iter().map(|item| item.stage.0 + 1).max().unwrap_or(0);
        self.predicted_us * cost.handicap(cut.len(), stages)
    }
}

/// Inputs for building a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleRequest<'a> {
    /// Workers: clusters that are resident at the same time.
    pub workers: u32,
    /// CTAs per worker along M and N.
    pub cluster: (u32, u32),
    /// How items are handed out.
    pub mode: Hand,
    /// Whether tiles may be split along k. Without splits, results are bit-identical however items are handed out.
    pub splits: bool,
    /// The cost model.
    pub cost: &'a CostModel,
}

/// The shortest schedule by prediction among those tried. All stages should have one tile shape.
pub fn build(graph: &Graph, request: &ScheduleRequest) -> Schedule {
    explain(graph, request).0
}

/// The schedule that [`build`] returns, and the breakdown of its predicted time.
pub fn explain(graph: &Graph, request: &ScheduleRequest) -> (Schedule, Breakdown) {
    let problem = Problem::new(graph, request);
    let found = search::search(&problem, request.splits);
    let mut placed = found.placed;
    // The sort is stable: `placed` already lists needed items first.
    placed.sort_by(|a, b| a.key.total_cmp(&b.key));
    let mut lists = vec![Vec::new(); problem.workers as usize];
    placed.iter().enumerate().for_each(|(i, p)| lists[p.worker as usize].push(i as u32));
    let schedule = Schedule {
        cluster: request.cluster,
        mode: request.mode,
        sequence: placed.iter().map(|p| p.item).collect(),
        lists,
        slabs: found.slabs,
        predicted_us: found.total_us,
    };
    let strategy = found.strategy.to_string();
    let items = placed.iter().map(|p| p.time).collect();
    let breakdown = Breakdown::new(&schedule, items, problem.floor_us(), strategy);
    (schedule, breakdown)
}

/// A lower bound on schedules, microseconds: launch, then arithmetic and traffic of all stages divided evenly over the
/// workers.
pub fn floor_us(graph: &Graph, request: &ScheduleRequest) -> f64 {
    Problem::new(graph, request).floor_us()
}
