//! A schedule indexed by tile: the items of each tile, and the position of each item.

use std::fmt;

use crate::graph::{Graph, Partition, Stage, StageId};
use crate::schedule::{Hand, Item, Part, Schedule};
use crate::sync::Tile;

/// Position of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The worker that has it in its list; `None`: the index is into the sequence that items are drawn from.
    pub worker: Option<u32>,
    /// Index in that list, or in the sequence.
    pub index: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.worker {
            Some(worker) => write!(f, "item {} of worker {worker}", self.index),
            None => write!(f, "item {} of the sequence", self.index),
        }
    }
}

/// The items of every cluster tile, ordered by first k-block.
pub(super) struct Parts {
    cluster: (u32, u32),
    /// For each stage, its cluster tiles along N and, for each cluster tile, the indices of its items in the sequence.
    stages: Vec<(u32, Vec<Vec<u32>>)>,
    places: Vec<Place>,
}

/// Cluster tiles of a stage along M and N.
pub(super) fn cluster_grid(graph: &Graph, stage: StageId, cluster: (u32, u32)) -> (u32, u32) {
    let (m, n) = graph.stages[stage.0].grid;
    (m.div_ceil(cluster.0), n.div_ceil(cluster.1))
}

/// The position of each item of the sequence; an item in no list is identified by its index in the sequence.
pub(super) fn places(schedule: &Schedule) -> Vec<Place> {
    let mut places: Vec<Place> =
        (0..schedule.sequence.len()).map(|i| Place { worker: None, index: i as u32 }).collect();
    if schedule.mode == Hand::Fixed {
        for (worker, list) in schedule.lists.iter().enumerate() {
            for (index, item) in list.iter().enumerate() {
                if let Some(place) = places.get_mut(*item as usize) {
                    *place = Place { worker: Some(worker as u32), index: index as u32 };
                }
            }
        }
    }
    places
}

impl Parts {
    /// Items outside their stage's grid are left out: `bounds` rejects them.
    pub(super) fn new(graph: &Graph, schedule: &Schedule) -> Parts {
        let cluster = (schedule.cluster.0.max(1), schedule.cluster.1.max(1));
        let mut stages: Vec<(u32, Vec<Vec<u32>>)> = (0..graph.stages.len())
            .map(|s| {
                let (rows, cols) = cluster_grid(graph, StageId(s), cluster);
                (cols, vec![Vec::new(); rows as usize * cols as usize])
            })
            .collect();
        for (index, item) in schedule.sequence.iter().enumerate() {
            if let Some((cols, tiles)) = stages.get_mut(item.stage.0)
                && item.n < *cols
                && let Some(tile) = tiles.get_mut(item.m as usize * *cols as usize + item.n as usize)
            {
                tile.push(index as u32);
            }
        }
        for (_, tiles) in &mut stages {
            tiles.iter_mut().for_each(|tile| tile.sort_by_key(|i| schedule.sequence[*i as usize].k_begin));
        }
        Parts { cluster, stages, places: places(schedule) }
    }

    pub(super) fn cluster(&self) -> (u32, u32) {
        self.cluster
    }

    /// The number of a cluster tile of a stage; `None` outside the grid.
    pub(super) fn number(&self, stage: StageId, (m, n): (u32, u32)) -> Option<usize> {
        let cols = self.stages[stage.0].0;
        (n < cols).then(|| m as usize * cols as usize + n as usize)
    }

    /// The items of the cluster tile that contains `tile`.
    pub(super) fn items(&self, stage: StageId, tile: Tile) -> &[u32] {
        let tiles = &self.stages[stage.0].1;
        let number = self.number(stage, (tile.m / self.cluster.0, tile.n / self.cluster.1));
        number.and_then(|number| tiles.get(number)).map_or(&[], Vec::as_slice)
    }

    /// Number of items of each cluster tile of each stage.
    pub(super) fn counts(&self) -> Vec<Vec<u32>> {
        let count =
            |(_, tiles): &(u32, Vec<Vec<u32>>)| tiles.iter().map(|items| items.len() as u32).collect();
        self.stages.iter().map(count).collect()
    }

    pub(super) fn item(&self, stage: StageId, tile: Tile, slice: u32) -> Option<u32> {
        self.items(stage, tile).get(slice as usize).copied()
    }

    pub(super) fn count(&self, stage: StageId, tile: Tile) -> u32 {
        self.items(stage, tile).len() as u32
    }

    pub(super) fn place(&self, item: u32) -> Place {
        self.places[item as usize]
    }
}

/// An item in words: `down(1, 3), k-blocks 0..48`; with clusters, the coordinates are cluster tiles.
pub(super) fn describe(graph: &Graph, cluster: (u32, u32), item: &Item) -> String {
    let tile = Tile { m: item.m, n: item.n };
    let name = graph.stages.get(item.stage.0).map_or("?".into(), |s| tile_name(s, tile));
    let cluster = if cluster == (1, 1) { "" } else { "cluster tile " };
    let ks = match item.part {
        Part::Whole => String::new(),
        _ => format!(", k-blocks {}..{}", item.k_begin, item.k_end),
    };
    format!("{cluster}{name}{ks}")
}

/// A tile of a stage in words: `down(1, 3)`, or `share 3 of down`.
pub(super) fn tile_name(stage: &Stage, tile: Tile) -> String {
    match stage.partition {
        Partition::Tiles { .. } => format!("{}({}, {})", stage.name, tile.m, tile.n),
        Partition::Even { .. } => format!("share {} of {}", tile.n, stage.name),
    }
}
