//! One walk over the posts, waits and loads of all tiles, shared by all obligations about them.
//!
//! The walk does not build explanations: for each obligation it finds the first tile that may violate it. The code
//! that builds the explanation starts at that tile.
//!
//! # Skipped tiles
//!
//! Most GEMM tiles use operand A like their left neighbor, and operand B like the tile above. If a program's strands
//! are independent ([`Strands`]), each edge is judged separately, and a tile is skipped for an edge if the program has
//! the same strand there as in an earlier tile and the stage reads the same region:
//!
//! * The verdict on a strand is a function of the strand and of the regions its loads read. A wait is checked for a
//!   slot inside the edge's array and for the slot's posts per run; both are part of the wait. A load is covered if,
//!   for each producer tile that it reads, some slot that this tile posts has been waited for in full; that depends on
//!   earlier waits on its own edge and on the load's region. The region of an [`Event::Load`] follows from operand,
//!   k-block and tile, by [`crate::graph::Stage::reads`]; it is equal for tiles of a row, or of a column, where
//!   [`crate::graph::Stage::reads_by`] says so. So alike tiles have the same verdict.
//! * A tile is compared with the tile to its left or above, which precedes it row by row and was itself judged or
//!   skipped. By induction each class of alike tiles is judged at its first tile, and the first faulty tile overall is
//!   judged, not skipped: the refutation names the same tile as without classes.
//! * Behind a causal mask, a tile extends the strand of the tile above it. Only the extension is judged, given the
//!   waits of the tile above: a fault in the shared part would also be a fault of the tile above, which comes first.
//!   So the k-blocks of a column are judged once, not once per tile.
//! * Whether a strand loads each k-block that its tile needs follows from the strand too, and is judged with it.
//!
//! The program is trusted about which tiles are alike, but not about its arithmetic: a generated program compares all
//! inputs of the function that makes a strand. A program without strands is judged tile by tile.

use std::ops::Range;

use super::loads::{self, Rect, regions};
use super::posts::Posts;
use super::{StageTile, extent_tiles};
use crate::check::parts::Parts;
use crate::check::{Candidate, Event, Strands, TileProgram, slice_k_blocks};
use crate::graph::{Dependence, StageId, When};
use crate::sync::Tile;

/// Results of the walk. Without semaphores there is nothing to walk, and all fields are empty.
#[derive(Default)]
pub(in crate::check) struct Scan {
    /// The posts of each edge.
    pub(super) posts: Vec<Posts>,
    /// The number of slots of each edge.
    slots: Vec<u32>,
    /// Whether a tile posts a slot outside its edge's array.
    pub(super) posts_outside: bool,
    /// The first tile that waits for a slot outside its edge's array.
    pub(super) outside: Option<StageTile>,
    /// The first tile with a wait value other than the posts of a run.
    pub(super) miscounted: Option<StageTile>,
    /// The first tile with a load that its own waits do not cover.
    pub(super) uncovered: Option<StageTile>,
    /// The first tile that misses a load of a k-block written by another stage: tile, slice, edge, k-block.
    pub(super) unloaded: Option<(StageTile, u32, usize, u32)>,
    /// Stages that wait on edges of other stages, and those edges, ascending.
    pub(super) foreign: Vec<(StageId, usize)>,
    /// Whether the launch uses semaphores.
    semaphores: bool,
    /// The items of each tile of a chain kernel.
    parts: Option<Parts>,
    /// Waits that suffice for shares, by edge and k-block: all shares load the same k-blocks, and a normalization
    /// loads as many rows as there are tokens.
    enough: Vec<Vec<Option<Enough>>>,
    /// Whether a share may fail to load each k-block that other stages write exactly once before it stores.
    pub(super) unshared: bool,
}

/// The last loaded region, and slots that together guarantee that all of it is done. Other slots may guarantee it too,
/// if a tile posts several. `None` if a tile posts none.
struct Enough {
    region: Rect,
    slots: Option<Vec<u32>>,
}

/// State of the current slice.
struct Seen {
    waits: Marks,
    /// The k-blocks loaded in time, by edge.
    loads: Marks,
    /// Number of loads, and whether one had an invalid k-block, was a duplicate, or came after a store.
    loaded: usize,
    amiss: bool,
    /// An edge, and a region in which all tiles are done after the waits so far. Most loads read inside it.
    done: Option<(usize, Rect)>,
    /// Whether a tile of the stage reads the same region at several k-blocks.
    repeats: bool,
    /// If so, a tile, an operand and k-blocks with loads known to be covered because they read the same region.
    covered: Option<(Tile, usize, Range<u32>)>,
    /// Whether it has left its sums, and whether it has stored.
    left: bool,
    stored: bool,
}

impl Seen {
    fn next(&mut self) {
        self.waits.next();
        self.loads.next();
        (self.done, self.covered) = (None, None);
        (self.loaded, self.amiss, self.left, self.stored) = (0, false, false, false);
    }
}

impl Scan {
    pub(in crate::check) fn new(c: &Candidate, p: &dyn TileProgram) -> Scan {
        let (edges, semaphores) = (c.graph.dependences.len(), c.launch.has_semaphores());
        let posts: Vec<Posts> =
            (0..edges).filter(|_| semaphores).map(|edge| Posts::for_edge(c, p, edge)).collect();
        let slots: Vec<u32> = c.slot_counts();
        let posts_outside =
            posts.iter().zip(&slots).any(|(posts, slots)| posts.totals.len() > *slots as usize);
        let parts = c.launch.work().map(|schedule| Parts::new(&c.graph, schedule));
        let shared = c.launch.shares().is_some();
        let enough = (0..edges).filter(|_| shared).map(|_| Vec::new()).collect();
        // The loads of a share are counted over all its edges.
        let unshared = shared && p.strands().is_some();
        let mut scan =
            Scan { posts, slots, posts_outside, semaphores, parts, enough, unshared, ..Scan::default() };
        let k_blocks = |d: &Dependence| c.graph.stages[d.consumer.0].k_blocks.max(1) as usize;
        let mut seen = Seen {
            waits: Marks::for_slots(&scan.posts),
            loads: Marks::new(c.graph.dependences.iter().map(k_blocks)),
            loaded: 0,
            amiss: false,
            done: None,
            repeats: false,
            covered: None,
            left: false,
            stored: false,
        };
        for stage in (0..c.graph.stages.len()).map(StageId) {
            let edges: Vec<usize> =
                (0..edges).filter(|e| c.graph.dependences[*e].consumer == stage).collect();
            let this_stage = &c.graph.stages[stage.0];
            seen.repeats =
                (0..this_stage.operands.len()).any(|operand| this_stage.reads_again(operand, 0).len() > 1);
            match p.strands() {
                Some(strands) => {
                    edges.iter().for_each(|edge| scan.strands(c, (p, strands), stage, *edge, &mut seen));
                }
                None => scan.tiles(c, p, stage, &edges, &mut seen),
            }
        }
        scan
    }

    /// Judges one edge of a stage, skipping alike tiles.
    fn strands(
        &mut self,
        c: &Candidate,
        (p, strands): (&dyn TileProgram, &dyn Strands),
        stage: StageId,
        edge: usize,
        seen: &mut Seen,
    ) {
        let (by_m, by_n) = c.graph.stages[stage.0].reads_by(c.graph.dependences[edge].operand);
        let ((rows, cols), (gm, gn)) = (strands.period(), p.extent(&c.graph, stage));
        for n in 0..gn {
            // The tile that the marks belong to.
            let mut marked = None;
            for tile in (0..gm).map(|m| Tile { m, n }) {
                let left = tile.n.checked_sub(cols).filter(|_| !by_n).map(|n| Tile { n, ..tile });
                let above = tile.m.checked_sub(rows).filter(|_| !by_m).map(|m| Tile { m, ..tile });
                if left.is_some_and(|left| strands.alike(edge, tile, left)) {
                    continue;
                }
                if above.is_some_and(|above| strands.alike(edge, tile, above)) {
                    marked = marked.filter(|last| Some(*last) == above).map(|_| tile);
                    continue;
                }
                let grows = above.filter(|above| marked == Some(*above));
                let grows = grows.and_then(|above| strands.grows(edge, above, tile));
                for slice in 0..self.slices(c, p, (stage, tile)) {
                    if grows.is_none() {
                        seen.next();
                    }
                    let from = grows.unwrap_or(0);
                    strands.strand(edge, tile, slice, from, &mut |event| {
                        self.judge(c, (stage, tile), &[edge], event, seen);
                    });
                    self.complete(c, p, (stage, tile), (slice, from), &[edge], seen);
                }
                marked = Some(tile);
            }
        }
    }

    /// Judges all edges of a stage at all its tiles.
    fn tiles(
        &mut self,
        c: &Candidate,
        p: &dyn TileProgram,
        stage: StageId,
        edges: &[usize],
        seen: &mut Seen,
    ) {
        let mut others = vec![false; c.graph.dependences.len()];
        for tile in extent_tiles(c, p, stage) {
            for slice in 0..self.slices(c, p, (stage, tile)) {
                seen.next();
                p.events(stage, tile, slice, &mut |event| {
                    if let Event::Wait { edge, .. } = event {
                        others[edge] |= c.graph.dependences[edge].consumer != stage;
                    }
                    self.judge(c, (stage, tile), edges, event, seen);
                });
                self.complete(c, p, (stage, tile), (slice, 0), edges, seen);
            }
        }
        let others = others.iter().enumerate().filter(|(_, waits)| **waits);
        self.foreign.extend(others.map(|(edge, _)| (stage, edge)));
    }

    /// Slices that a tile has, or should have.
    pub(super) fn slices(&self, c: &Candidate, p: &dyn TileProgram, (stage, tile): StageTile) -> u32 {
        let should = match &self.parts {
            Some(parts) => parts.count(stage, tile),
            None => c.graph.stages[stage.0].split_k.max(1),
        };
        p.slices(&c.graph, stage, tile).max(should)
    }

    /// The k-blocks that a slice sums up, and whether it finishes its tile.
    pub(super) fn sums(&self, c: &Candidate, (stage, tile): StageTile, slice: u32) -> (Range<u32>, bool) {
        match (&self.parts, c.launch.work()) {
            (Some(parts), Some(schedule)) => parts.item(stage, tile, slice).map_or((0..0, false), |item| {
                let item = &schedule.sequence[item as usize];
                (item.k_begin..item.k_end, item.part.finishes())
            }),
            _ => {
                let this_stage = &c.graph.stages[stage.0];
                let (ks, last) = (slice_k_blocks(this_stage, slice), this_stage.k_blocks_of(tile.m));
                let ks = ks.start.min(last)..ks.end.min(last);
                let some = !ks.is_empty();
                (ks, some)
            }
        }
    }

    /// Records a fault if a slice, from k-block `from` on, has not loaded everything it needs from other stages.
    /// Shares have a stricter check of their own.
    fn complete(
        &mut self,
        c: &Candidate,
        p: &dyn TileProgram,
        at: StageTile,
        (slice, from): (u32, u32),
        edges: &[usize],
        seen: &Seen,
    ) {
        let (stage, known) = (&c.graph.stages[at.0.0], self.unloaded.is_some_and(|(first, ..)| first <= at));
        if c.launch.shares().is_some() {
            let loads = |edge: &usize| loads::k_blocks(c, *edge) as usize;
            let all: usize = edges.iter().map(loads).sum();
            let stores = slice == 0 && !stage.writes(at.1).1.is_empty();
            self.unshared |= stores && (seen.amiss || seen.loaded != all);
            return;
        }
        if known || edges.is_empty() {
            return;
        }
        let (ks, finishes) = self.sums(c, at, slice);
        let inside = at.1.m < stage.grid.0 && at.1.n < stage.grid.1;
        for &edge in edges {
            let kind = stage.operands[c.graph.dependences[edge].operand].kind;
            let has = |k: &u32| seen.loads.any(edge, &[*k]);
            let missing = match kind.when() {
                _ if !inside => None,
                When::Each => (ks.start.max(from)..ks.end).find(|k| !has(k)),
                When::First => (!ks.is_empty() && !ks.clone().any(|k| has(&k))).then_some(ks.start),
                When::Epilogue => (finishes && !has(&0)).then_some(0),
            };
            let missing = missing.or_else(|| {
                let shared = c.launch.cluster() != (1, 1) && kind.when() != When::Epilogue;
                shared.then(|| loads::together(c, p, at, slice, edge, &ks)).flatten()
            });
            if let Some(k_block) = missing {
                self.unloaded = Some((at, slice, edge, k_block));
                return;
            }
        }
    }

    fn judge(&mut self, c: &Candidate, at: StageTile, edges: &[usize], event: Event, seen: &mut Seen) {
        match event {
            Event::Wait { .. } if !self.semaphores => {}
            Event::Wait { edge, slot, value } => {
                let total = self.posts[edge].total(slot);
                if slot >= self.slots[edge] {
                    first(&mut self.outside, at);
                }
                if u64::from(value) != total {
                    first(&mut self.miscounted, at);
                }
                if u64::from(value) >= total {
                    seen.waits.set(edge, slot);
                }
            }
            Event::Load { operand, k_block } | Event::Multicast { operand, k_block, .. } => {
                for &edge in edges.iter().filter(|e| c.graph.dependences[**e].operand == operand) {
                    let kind = c.graph.stages[at.0.0].operands[operand].kind;
                    let outside = || k_block >= loads::k_blocks(c, edge);
                    seen.amiss |= seen.stored || outside() || seen.loads.any(edge, &[k_block]);
                    seen.loaded += 1;
                    // Later loads do not reach any stored result.
                    if !seen.stored && (!seen.left || kind.when() == When::Epilogue) {
                        seen.loads.set(edge, k_block);
                    }
                }
                if !self.semaphores {
                    return;
                }
                // Reads of a stage without edges are judged by `forgotten`.
                if edges.is_empty() || self.uncovered.is_some_and(|known| known <= at) {
                    return;
                }
                let again = |(tile, read, ks): &(Tile, usize, Range<u32>)| {
                    (*tile, *read) == (at.1, operand) && ks.contains(&k_block)
                };
                if seen.covered.as_ref().is_some_and(again) {
                    return;
                }
                let mut covered = true;
                regions(c, at.0, at.1, &event, &mut |operand, k_block, region| {
                    let of_operand = |e: &&usize| c.graph.dependences[**e].operand == operand;
                    for edge in edges.iter().filter(of_operand) {
                        covered = covered && self.covers(c, *edge, k_block, &region, seen);
                    }
                });
                if !covered {
                    first(&mut self.uncovered, at);
                } else if seen.repeats && matches!(event, Event::Load { .. }) {
                    let ks = c.graph.stages[at.0.0].reads_again(operand, k_block);
                    seen.covered = Some((at.1, operand, ks));
                }
            }
            // The new warp does not inherit the waits of other warps.
            Event::Warp { .. } => {
                seen.waits.next();
                (seen.done, seen.covered) = (None, None);
            }
            Event::Contribute { .. } => seen.left = true,
            Event::Store { .. } => seen.stored = true,
            Event::Await { .. } | Event::Add { .. } => {}
        }
    }

    /// Whether all tiles that write into a region are done after the waits so far.
    fn covers(&mut self, c: &Candidate, edge: usize, k_block: u32, region: &Rect, seen: &mut Seen) -> bool {
        let holds =
            |outer: &Range<u32>, inner: &Range<u32>| outer.start <= inner.start && inner.end <= outer.end;
        if let Some((done_edge, (rows, cols))) = &seen.done
            && *done_edge == edge
            && holds(rows, &region.0)
            && holds(cols, &region.1)
        {
            return true;
        }
        let (posts, waits) = (&self.posts[edge], &seen.waits);
        let enough =
            self.enough.get_mut(edge).and_then(|known| enough(c, edge, posts, known, k_block, region));
        if enough.is_some_and(|slots| slots.iter().all(|slot| waits.any(edge, &[*slot]))) {
            return true;
        }
        if uncovered(c, edge, region, |tile| waits.any(edge, posts.of_tile(tile))).is_some() {
            return false;
        }
        let (mut rows, cols) = c.graph.stages[c.graph.dependences[edge].producer.0].around(region);
        if let Some((done_edge, (before, same))) = &seen.done
            && (*done_edge, same) == (edge, &cols)
            && before.start <= rows.end
            && rows.start <= before.end
        {
            rows = before.start.min(rows.start)..before.end.max(rows.end);
        }
        seen.done = Some((edge, (rows, cols)));
        true
    }
}

/// Slots that suffice for a region, cached if the k-block had the same region the last time.
fn enough<'a>(
    c: &Candidate,
    edge: usize,
    posts: &Posts,
    known: &'a mut Vec<Option<Enough>>,
    k_block: u32,
    region: &Rect,
) -> Option<&'a [u32]> {
    // Loads of invalid k-blocks are rejected elsewhere.
    if k_block >= loads::k_blocks(c, edge) {
        return None;
    }
    let at = k_block as usize;
    if known.len() <= at {
        known.resize_with(at + 1, || None);
    }
    if known[at].as_ref().is_none_or(|enough| enough.region != *region) {
        let producer = &c.graph.stages[c.graph.dependences[edge].producer.0];
        let posted: Vec<&[u32]> = producer.writers(&region.0, &region.1).map(|t| posts.of_tile(t)).collect();
        // Tiles that share a slot need no other.
        let of_all = |slot: &&u32| posted.iter().all(|slots| slots.contains(slot));
        let one = posted.first().and_then(|slots| slots.iter().find(of_all));
        let slots = match one {
            Some(slot) => Some(vec![*slot]),
            None => posted.iter().map(|slots| slots.first().copied()).collect(),
        };
        known[at] = Some(Enough { region: region.clone(), slots });
    }
    known[at].as_ref()?.slots.as_deref()
}

fn first(known: &mut Option<StageTile>, at: StageTile) {
    *known = Some(known.map_or(at, |before| before.min(at)));
}

/// Marks of the current slice for each edge: the slots waited for in full, or the k-blocks loaded.
pub(super) struct Marks {
    /// Number of the last slice that set each mark, per edge.
    slices: Vec<Vec<u32>>,
    slice: u32,
}

impl Marks {
    pub(super) fn for_slots(posts: &[Posts]) -> Marks {
        Marks::new(posts.iter().map(|p| p.totals.len()))
    }

    fn new(lengths: impl Iterator<Item = usize>) -> Marks {
        Marks { slices: lengths.map(|length| vec![0; length]).collect(), slice: 0 }
    }

    /// Begins a slice.
    pub(super) fn next(&mut self) {
        match self.slice.checked_add(1) {
            Some(slice) => self.slice = slice,
            None => {
                self.slices.iter_mut().for_each(|marks| marks.fill(0));
                self.slice = 1;
            }
        }
    }

    /// Marks a wait or a load; a wait for a slot without posts guarantees nothing.
    pub(super) fn set(&mut self, edge: usize, at: u32) {
        if let Some(mark) = self.slices[edge].get_mut(at as usize) {
            *mark = self.slice;
        }
    }

    /// Whether any of these is marked for an edge.
    pub(super) fn any(&self, edge: usize, these: &[u32]) -> bool {
        these.iter().any(|at| self.slices[edge][*at as usize] == self.slice)
    }
}

/// The first producer tile in a load's region that is not known to be done.
pub(super) fn uncovered(
    c: &Candidate,
    edge: usize,
    (rows, cols): &Rect,
    mut done: impl FnMut(Tile) -> bool,
) -> Option<Tile> {
    let producer = &c.graph.stages[c.graph.dependences[edge].producer.0];
    producer.writers(rows, cols).find(|tile| !done(*tile))
}
