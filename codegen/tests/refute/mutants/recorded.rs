//! A tile program written out, so that single events can be changed.

use cusync_gen::check::{Candidate, Event, Generated, Place, TileProgram};
use cusync_gen::graph::{Graph, StageId};
use cusync_gen::sync::Tile;

/// A slice of a tile: its events, and its position in a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) events: Vec<Event>,
    place: Option<Place>,
}

/// All posts and events of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The slot and amount of each producer tile's post to an edge.
    pub(crate) posts: Vec<Vec<Vec<(u32, u32)>>>,
    /// One entry per tile of each stage, row by row.
    pub(crate) slices: Vec<Vec<Vec<Slice>>>,
    extents: Vec<(u32, u32)>,
    grids: Vec<(u32, u32)>,
}

impl Recorded {
    /// The program that the kernels run for a candidate.
    pub(crate) fn new(c: &Candidate) -> Recorded {
        let p = Generated::new(c);
        let tiles = |(gm, gn): (u32, u32)| (0..gm).flat_map(move |m| (0..gn).map(move |n| Tile { m, n }));
        let posts = c.graph.dependences.iter().enumerate().map(|(edge, d)| {
            let posts_of = |tile| {
                let mut posts = Vec::new();
                p.posts(edge, tile, &mut |slot, amount| posts.push((slot, amount)));
                posts
            };
            tiles(c.graph.stages[d.producer.0].grid).map(posts_of).collect()
        });
        let stages = || (0..c.graph.stages.len()).map(StageId);
        let extents: Vec<(u32, u32)> = stages().map(|s| p.extent(&c.graph, s)).collect();
        let slices = stages().map(|stage| {
            let slices_of = |tile| {
                let slices = 0..p.slices(&c.graph, stage, tile);
                let recorded = |slice| {
                    let mut events = Vec::new();
                    p.events(stage, tile, slice, &mut |event| events.push(event));
                    Slice { events, place: p.place(stage, tile, slice) }
                };
                slices.map(recorded).collect()
            };
            tiles(extents[stage.0]).map(slices_of).collect()
        });
        let grids = c.graph.dependences.iter().map(|d| c.graph.stages[d.producer.0].grid).collect();
        Recorded { posts: posts.collect(), slices: slices.collect(), extents: extents.clone(), grids }
    }

    /// All slices: stage, tile number, slice number.
    pub(crate) fn all(&self) -> Vec<(usize, usize, usize)> {
        let of_tile = |(s, t, tile): (usize, usize, &Vec<Slice>)| {
            (0..tile.len()).map(move |i| (s, t, i)).collect::<Vec<_>>()
        };
        let of_stage = |(s, tiles): (usize, &Vec<Vec<Slice>>)| {
            tiles.iter().enumerate().flat_map(|(t, tile)| of_tile((s, t, tile))).collect::<Vec<_>>()
        };
        self.slices.iter().enumerate().flat_map(of_stage).collect()
    }

    fn slice(&self, stage: StageId, tile: Tile, slice: u32) -> Option<&Slice> {
        let at = tile.m * self.extents[stage.0].1 + tile.n;
        self.slices[stage.0].get(at as usize)?.get(slice as usize)
    }
}

impl TileProgram for Recorded {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        let at = (tile.m * self.grids[edge].1 + tile.n) as usize;
        self.posts[edge][at].iter().for_each(|(slot, amount)| f(*slot, *amount));
    }
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.slice(stage, tile, slice).into_iter().flat_map(|s| &s.events).for_each(|e| f(e.clone()));
    }
    fn extent(&self, _graph: &Graph, stage: StageId) -> (u32, u32) {
        self.extents[stage.0]
    }
    fn slices(&self, _graph: &Graph, stage: StageId, tile: Tile) -> u32 {
        let at = tile.m * self.extents[stage.0].1 + tile.n;
        self.slices[stage.0].get(at as usize).map_or(0, Vec::len) as u32
    }
    fn place(&self, stage: StageId, tile: Tile, slice: u32) -> Option<Place> {
        self.slice(stage, tile, slice)?.place
    }
}
