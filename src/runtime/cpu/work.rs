//! Work of each worker, in order: whole tiles, or items of lists.

use std::ops::Range;

use cusync_gen::graph::{Graph, Stage};
use cusync_gen::schedule::{Hand, Item, Part, Schedule};
use cusync_gen::sync::Tile;

use super::Workers;
use super::memory::Box2;
use crate::device::host_policy::HostOrder;

/// A tile, or some k-blocks of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    /// Index of the stage.
    pub(super) stage: usize,
    pub(super) tile: Tile,
    /// Elements of the output.
    pub(super) at: Box2,
    pub(super) k: Range<u32>,
    pub(super) part: Part,
    /// Rank of the tile's CTA in its cluster: each has its own share of a slab.
    pub(super) cta: u32,
}

/// Lists, and the list that each worker draws from.
pub(super) struct Rota {
    pub(super) lists: Vec<Vec<Work>>,
    pub(super) teams: Vec<usize>,
}

impl Rota {
    /// Whole tiles, stage after stage in launch order.
    pub(super) fn of_tiles(
        graph: &Graph,
        launched: &[usize],
        orders: &[HostOrder],
        workers: Workers,
        threads: usize,
    ) -> Rota {
        let whole = |stage: usize| {
            (0..graph.stages[stage].tiles()).map(move |i| Work {
                stage,
                tile: orders[stage].tile_at(i),
                at: extent(&graph.stages[stage], orders[stage].tile_at(i)),
                k: 0..graph.stages[stage].k_blocks_of(orders[stage].tile_at(i).m),
                part: Part::Whole,
                cta: 0,
            })
        };
        let stages = launched.iter().copied();
        match workers {
            Workers::Pool => {
                Rota { lists: vec![stages.flat_map(whole).collect()], teams: vec![0; threads.max(1)] }
            }
            Workers::TeamPerStage => {
                let lists: Vec<Vec<Work>> = stages.map(|s| whole(s).collect()).collect();
                let teams = (0..threads.max(lists.len())).map(|w| w % lists.len().max(1)).collect();
                Rota { lists, teams }
            }
        }
    }

    /// The items of a schedule. Each thread represents a CTA: in static mode it follows the list of its
    /// worker, in dynamic mode all draw from the sequence.
    pub(super) fn of_schedule(graph: &Graph, schedule: &Schedule) -> Rota {
        let (rows, columns) = schedule.cluster;
        let ctas = rows * columns;
        let threads = schedule.lists.len() * ctas as usize;
        match schedule.mode {
            Hand::Fixed => {
                let list = |list: &Vec<u32>, cta: u32| {
                    let items = list.iter().map(|&i| &schedule.sequence[i as usize]);
                    items.filter_map(|item| share(graph, schedule.cluster, item, cta)).collect()
                };
                let lists = schedule.lists.iter().flat_map(|l| (0..ctas).map(move |cta| list(l, cta)));
                Rota { lists: lists.collect(), teams: (0..threads).collect() }
            }
            Hand::Drawn => {
                let items = schedule.sequence.iter();
                let shares =
                    items.flat_map(|i| (0..ctas).filter_map(move |c| share(graph, schedule.cluster, i, c)));
                Rota { lists: vec![shares.collect()], teams: vec![0; threads] }
            }
        }
    }
}

/// CTA `cta`'s share of an item; `None` if its tile is outside the grid, or the share is empty.
fn share(graph: &Graph, cluster: (u32, u32), item: &Item, cta: u32) -> Option<Work> {
    let (rows, columns) = cluster;
    let tile = Tile { m: item.m * rows + cta / columns, n: item.n * columns + cta % columns };
    let stage = &graph.stages[item.stage.0];
    (tile.m < stage.grid.0 && tile.n < stage.grid.1 && !stage.writes(tile).1.is_empty()).then(|| Work {
        stage: item.stage.0,
        tile,
        at: extent(stage, tile),
        k: item.k_begin..item.k_end,
        part: item.part,
        cta,
    })
}

/// Elements of a tile.
fn extent(stage: &Stage, tile: Tile) -> Box2 {
    let (rows, cols) = stage.writes(tile);
    Box2 { row: rows.start as usize, col: cols.start as usize, rows: rows.len(), cols: cols.len() }
}
