//! Which tiles are known to be done once a wait has ended: the tiles that post the slot, the tiles they waited for,
//! and so on. Release and acquire are cumulative, so the results of these tiles are visible too.
//!
//! A tile is done when all its posts are made. Every step of its items comes before that, except the steps of a
//! contributing part after it has left its sums. In static lists, one warp of each CTA makes posts in list order, so a
//! finished tile implies that the tiles before it in its list are done.
//!
//! A bulk store is complete in global memory only after the issuing warp has waited for it in full, which it does
//! before it posts, for all its earlier stores. A tile without posts is done with its loads when the next tile of its
//! list stores; its own stores are complete only when a later tile of the list posts.
//!
//! Which decode worker finishes an attention tile is decided on the device, by sequence lengths, not by its lists. So
//! the position of such a tile in a list implies nothing.
//!
//! The loading warps of a CTA do not wait for each other, so a load is ordered only after the waits of its own warp.
//! An epilogue is ordered after the waits of all of them and, if stores are ordinary stores completed by a barrier and
//! a release, after those of the worker's earlier items.

use std::collections::{HashMap, HashSet};

use super::grid_tiles;
use crate::check::{Candidate, Event, StoreCompletion, TileProgram};
use crate::graph::{Partition, StageId, When};
use crate::schedule::{Hand, Part, Schedule};
use crate::sync::Tile;

/// A tile of a stage.
pub(super) type TileNode = (StageId, Tile);

/// A slot of an edge.
pub(super) type Slot = (usize, u32);

/// A position in the events of a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Up to this event, exclusive.
    Event(usize),
    /// Up to the first store.
    Store,
    /// Up to the point where it leaves its sums, or to its end if it leaves none.
    Sums,
    /// To its end if it stores; otherwise up to the point where it leaves its sums.
    Done,
}

/// See the module documentation.
pub(super) struct Before<'a> {
    c: &'a Candidate,
    p: &'a dyn TileProgram,
    /// For each edge and slot, the posts per run and the tiles that make them.
    posters: Vec<HashMap<u32, (u64, Vec<Tile>)>>,
    /// Each item's worker, its position in the list, and its index among the items of its tile.
    items: Vec<(usize, usize, u32)>,
    /// Items of each cluster tile, ordered by first k-block.
    of_tile: HashMap<(StageId, u32, u32), Vec<u32>>,
    memo: HashMap<TileNode, Vec<TileNode>>,
    /// For each stage, the number of its first tile and its columns.
    first: Vec<(usize, usize)>,
    /// For each tile number, everything known to be done when that tile is, if the graph is small enough to store it.
    closures: Vec<Option<Tiles>>,
    /// The last tile queried about its store, whether stores or only reads were queried, and everything known to be
    /// done by then.
    stored: Option<((TileNode, bool), Tiles)>,
}

/// A set of tiles of all stages, one bit per tile.
type Tiles = Vec<u64>;

/// Above this number of tiles, no sets are stored: at the limit they take 50 MB.
const MAX_KEPT: usize = 20_000;

impl<'a> Before<'a> {
    pub(super) fn new(c: &'a Candidate, p: &'a dyn TileProgram) -> Self {
        let posters = c.graph.dependences.iter().enumerate().map(|(edge, d)| {
            let mut slots: HashMap<u32, (u64, Vec<Tile>)> = HashMap::new();
            for tile in grid_tiles(&c.graph.stages[d.producer.0]) {
                p.posts(edge, tile, &mut |slot, amount| {
                    let (total, tiles) = slots.entry(slot).or_default();
                    *total += u64::from(amount);
                    if amount > 0 {
                        tiles.push(tile);
                    }
                });
            }
            slots
        });
        let posters = posters.collect();
        let mut before = Before {
            c,
            p,
            posters,
            items: Vec::new(),
            of_tile: HashMap::new(),
            memo: HashMap::new(),
            first: Vec::new(),
            closures: Vec::new(),
            stored: None,
        };
        let mut tiles = 0;
        for stage in &c.graph.stages {
            before.first.push((tiles, stage.grid.1 as usize));
            tiles += stage.tiles() as usize;
        }
        before.closures = vec![None; tiles];
        if let Some(schedule) = before.lists() {
            before.items = vec![(0, 0, 0); schedule.sequence.len()];
            for (worker, list) in schedule.lists.iter().enumerate() {
                for (place, item) in list.iter().enumerate() {
                    let at = schedule.sequence[*item as usize];
                    before.items[*item as usize] = (worker, place, 0);
                    before.of_tile.entry((at.stage, at.m, at.n)).or_default().push(*item);
                }
            }
            for items in before.of_tile.values_mut() {
                items.sort_by_key(|item| schedule.sequence[*item as usize].k_begin);
                items.iter().enumerate().for_each(|(n, item)| before.items[*item as usize].2 = n as u32);
            }
        }
        before
    }

    /// The schedule, if it fixes the order in which each worker posts.
    fn lists(&self) -> Option<&'a Schedule> {
        self.c.launch.work().filter(|s| s.mode == Hand::Fixed)
    }

    /// Whether the plan fixes which worker runs an item.
    fn settled(&self, item: u32) -> bool {
        let stage = |schedule: &Schedule| schedule.sequence[item as usize].stage;
        let tiled = |s: StageId| matches!(self.c.graph.stages[s.0].partition, Partition::Tiles { .. });
        self.c.launch.shares().is_none() || !self.lists().map(stage).is_some_and(tiled)
    }

    /// Whether an event belongs to a slice's epilogue.
    fn of_epilogue(&self, stage: StageId, event: &Event) -> bool {
        let operand = match event {
            Event::Wait { edge, .. } => {
                let d = &self.c.graph.dependences[*edge];
                if d.consumer != stage {
                    return false;
                }
                d.operand
            }
            Event::Load { operand, .. } | Event::Multicast { operand, .. } => *operand,
            Event::Warp { .. } => return false,
            Event::Contribute { .. } | Event::Await { .. } | Event::Add { .. } | Event::Store { .. } => {
                return true;
            }
        };
        self.c.graph.stages[stage.0].operands[operand].kind.when() == When::Epilogue
    }

    /// The warp that makes an event which follows one of `warp`; `None` is the epilogue.
    fn next(&self, stage: StageId, event: &Event, warp: Option<u32>) -> Option<u32> {
        match event {
            Event::Warp { warp: next } => warp.map(|_| *next),
            event => warp.filter(|_| !self.of_epilogue(stage, event)),
        }
    }

    /// The warp that makes a load; `None` if the epilogue makes it.
    fn warp_of(&self, (stage, tile): TileNode, slice: u32, event: usize) -> Option<u32> {
        let (mut at, mut warp) = (0, Some(0));
        self.p.events(stage, tile, slice, &mut |e| {
            at += 1;
            if at <= event + 1 {
                warp = self.next(stage, &e, warp);
            }
        });
        warp
    }

    /// The slots that a slice has waited for in full at that point. With `by`, only those that this loading warp has
    /// waited for.
    fn waits(&self, (stage, tile): TileNode, slice: u32, until: Until, by: Option<u32>) -> Vec<Slot> {
        let mut slots = Vec::new();
        let (mut at, mut over, mut leaves, mut stores) = (0, false, None, false);
        let mut warp = Some(0);
        self.p.events(stage, tile, slice, &mut |event| {
            over |= until == Until::Event(at);
            at += 1;
            warp = self.next(stage, &event, warp);
            match event {
                Event::Wait { edge, slot, value } => {
                    let total = self.posters[edge].get(&slot).map_or(0, |(total, _)| *total);
                    if !over && u64::from(value) >= total && (by.is_none() || by == warp) {
                        slots.push((edge, slot));
                    }
                }
                Event::Contribute { .. } => {
                    leaves.get_or_insert(slots.len());
                    over |= until == Until::Sums;
                }
                Event::Store { .. } => {
                    stores = true;
                    over |= until == Until::Store;
                }
                _ => {}
            }
        });
        if let (Until::Done, false, Some(leaves)) = (until, stores, leaves) {
            slots.truncate(leaves);
        }
        slots
    }

    /// The tiles that post slots.
    fn posters(&self, slots: &[Slot]) -> Vec<TileNode> {
        let posting = |(edge, slot): &Slot| {
            let stage = self.c.graph.dependences[*edge].producer;
            let tiles = self.posters[*edge].get(slot).map_or(&[][..], |(_, tiles)| tiles);
            tiles.iter().map(move |tile| (stage, *tile))
        };
        slots.iter().flat_map(posting).collect()
    }

    fn slices(&self, (stage, tile): TileNode) -> u32 {
        self.p.slices(&self.c.graph, stage, tile)
    }

    /// The items of a tile, and the index of the CTA within its worker that computes the tile.
    fn items_of(&self, (stage, tile): TileNode) -> (&[u32], u32) {
        let Some(schedule) = self.lists() else { return (&[], 0) };
        let (rows, cols) = schedule.cluster;
        let items = self.of_tile.get(&(stage, tile.m / rows, tile.n / cols));
        (items.map_or(&[], Vec::as_slice), tile.m % rows * cols + tile.n % cols)
    }

    /// The same CTA's tile of another item, and that item's index among the items of the tile.
    fn tile_of(&self, schedule: &Schedule, item: u32, cta: u32) -> (TileNode, u32) {
        let (rows, cols) = schedule.cluster;
        let at = &schedule.sequence[item as usize];
        let tile = Tile { m: at.m * rows + cta / cols, n: at.n * cols + cta % cols };
        ((at.stage, tile), self.items[item as usize].2)
    }

    /// The tiles before an item in its list that a single item finished.
    fn earlier(&self, item: u32, cta: u32) -> Vec<TileNode> {
        let Some(schedule) = self.lists() else { return Vec::new() };
        let (worker, place, _) = self.items[item as usize];
        let alone =
            |i: &&u32| matches!(schedule.sequence[**i as usize].part, Part::Whole | Part::Finish { .. });
        let settled = |i: &&u32| self.settled(item) && self.settled(**i);
        let before = schedule.lists[worker][..place].iter().filter(alone).filter(settled);
        let (gm, gn) = (
            |n: &TileNode| self.c.graph.stages[n.0.0].grid.0,
            |n: &TileNode| self.c.graph.stages[n.0.0].grid.1,
        );
        before.map(|i| self.tile_of(schedule, *i, cta).0).filter(|n| n.1.m < gm(n) && n.1.n < gn(n)).collect()
    }

    /// Tiles directly known to be done when a tile is, without the closure.
    fn direct(&mut self, node: TileNode) -> Vec<TileNode> {
        if let Some(known) = self.memo.get(&node) {
            return known.clone();
        }
        let mut slots = Vec::new();
        for slice in 0..self.slices(node) {
            slots.extend(self.waits(node, slice, Until::Done, None));
        }
        slots.sort_unstable();
        slots.dedup();
        let mut known = self.posters(&slots);
        let (items, cta) = self.items_of(node);
        if let Some(schedule) = self.lists() {
            for item in items.iter().filter(|i| schedule.sequence[**i as usize].part.finishes()) {
                known.extend(self.earlier(*item, cta));
            }
        }
        self.memo.insert(node, known.clone());
        known
    }

    fn reaches(&mut self, open: Vec<TileNode>, target: TileNode) -> bool {
        self.known(open, Some(target)).contains(&target)
    }

    /// Everything known to be done when these tiles are; stops early once a target is found.
    fn known(&mut self, open: Vec<TileNode>, target: Option<TileNode>) -> HashSet<TileNode> {
        let mut seen: HashSet<TileNode> = open.iter().copied().collect();
        let mut open = open;
        while let Some(at) = open.pop() {
            if target == Some(at) {
                break;
            }
            for next in self.direct(at) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    }

    /// Whether `first` is known to be done when a slice makes the load with event number `event`: through its own
    /// waits or the earlier waits of its worker's loads.
    pub(super) fn load(&mut self, first: TileNode, reader: TileNode, slice: u32, event: usize) -> bool {
        let warp = self.warp_of(reader, slice, event);
        let mut known = Vec::new();
        let mut slots = self.waits(reader, slice, Until::Event(event), warp);
        let (items, cta) = self.items_of(reader);
        if let (Some(schedule), Some(item)) = (self.lists(), items.get(slice as usize)) {
            let ordered = self.c.contract.stores == StoreCompletion::Barrier && self.c.contract.post_releases;
            if warp.is_none() && ordered {
                known = self.earlier(*item, cta);
                if known.contains(&first) {
                    return true;
                }
            }
            let (worker, place, _) = self.items[*item as usize];
            let settled = |i: &&u32| self.settled(*item) && self.settled(**i);
            for earlier in schedule.lists[worker][..place].iter().filter(settled) {
                let (node, slice) = self.tile_of(schedule, *earlier, cta);
                slots.extend(self.waits(node, slice, Until::Sums, warp));
            }
        }
        known.extend(self.posters(&slots));
        self.reaches(known, first)
    }

    fn number(&self, (stage, tile): TileNode) -> usize {
        let (first, columns) = self.first[stage.0];
        first + tile.m as usize * columns + tile.n as usize
    }

    fn node(&self, number: usize) -> TileNode {
        let stage = self.first.partition_point(|(first, _)| *first <= number) - 1;
        let (first, columns) = self.first[stage];
        let at = number - first;
        (StageId(stage), Tile { m: (at / columns) as u32, n: (at % columns) as u32 })
    }

    /// Everything known to be done when these tiles are.
    fn all(&mut self, open: &[TileNode]) -> Tiles {
        let mut all = vec![0; self.closures.len().div_ceil(64)];
        if self.closures.len() > MAX_KEPT {
            for node in self.known(open.to_vec(), None) {
                let number = self.number(node);
                all[number / 64] |= 1 << (number % 64);
            }
            return all;
        }
        for node in open {
            let number = self.number(*node);
            self.close(number);
            self.closures[number].iter().for_each(|more| unite(&mut all, more));
        }
        all
    }

    /// Stores everything known to be done when a tile is. For tiles on a cycle of waits, only the tile itself is
    /// stored.
    fn close(&mut self, root: usize) {
        let mut under_way = HashSet::from([root]);
        let mut path: Vec<(usize, Vec<usize>, usize)> = Vec::new();
        let mut next = self.closures[root].is_none().then_some(root);
        while let Some(node) = next.take() {
            let direct = self.direct(self.node(node));
            let mut direct: Vec<usize> = direct.into_iter().map(|n| self.number(n)).collect();
            direct.sort_unstable();
            direct.dedup();
            path.push((node, direct, 0));
            while let Some((node, direct, at)) = path.last_mut() {
                if let Some(&before) = direct.get(*at) {
                    *at += 1;
                    if self.closures[before].is_none() && under_way.insert(before) {
                        next = Some(before);
                        break;
                    }
                    continue;
                }
                let mut all = vec![0; self.closures.len().div_ceil(64)];
                for member in direct.iter().chain([&*node]) {
                    all[member / 64] |= 1 << (member % 64);
                    self.closures[*member].iter().for_each(|more| unite(&mut all, more));
                }
                self.closures[*node] = Some(all);
                path.pop();
            }
        }
    }

    /// Whether, when a tile stores, `first` is known to have finished its reads or, if `wrote`, its stores.
    pub(super) fn store(&mut self, first: TileNode, writer: TileNode, wrote: bool) -> bool {
        if self.stored.as_ref().is_none_or(|(query, _)| *query != (writer, wrote)) {
            let open = self.before_store(writer, wrote);
            let known = self.all(&open);
            self.stored = Some(((writer, wrote), known));
        }
        let number = self.number(first);
        self.stored.as_ref().is_some_and(|(_, known)| known[number / 64] >> (number % 64) & 1 == 1)
    }

    /// Tiles directly known to be done when a tile stores, without the closure; with `wrote`, done with their stores
    /// too.
    fn before_store(&self, writer: TileNode, wrote: bool) -> Vec<TileNode> {
        let mut slots = Vec::new();
        let (items, cta) = self.items_of(writer);
        let mut known = Vec::new();
        let stores: Vec<u32> = (0..self.slices(writer)).filter(|slice| self.stores(writer, *slice)).collect();
        let split = self.c.launch.work().is_some();
        // Without a schedule, the last slice to arrive stores, whichever that is. Parts that share a tile each store
        // separately, after the others have left their sums.
        for slice in 0..self.slices(writer) {
            let alone = !split || stores == [slice];
            let until = if alone { Until::Store } else { Until::Sums };
            slots.extend(self.waits(writer, slice, until, None));
            if let (true, Some(item)) = (stores == [slice], items.get(slice as usize)) {
                let mut earlier = self.earlier(*item, cta);
                if wrote && self.c.contract.stores != StoreCompletion::Barrier {
                    // Stores after the last post may still be in flight, but earlier waits are satisfied.
                    for loose in earlier.drain(self.complete(&earlier)..) {
                        for slice in 0..self.slices(loose) {
                            slots.extend(self.waits(loose, slice, Until::Done, None));
                        }
                    }
                }
                known.extend(earlier);
            }
        }
        known.extend(self.posters(&slots));
        known
    }

    /// How many of the tiles before one in its list have completed all their stores: up to the last one that posts or,
    /// with deferred posts, the last one that posts and has a successor.
    fn complete(&self, earlier: &[TileNode]) -> usize {
        let posts = |(stage, tile): &TileNode| {
            let outgoing = self.c.graph.dependences.iter().enumerate().filter(|(_, d)| d.producer == *stage);
            let mut some = false;
            outgoing.for_each(|(edge, _)| self.p.posts(edge, *tile, &mut |_, amount| some |= amount > 0));
            some
        };
        let sure = earlier.len() - usize::from(self.c.contract.deferred_post && !earlier.is_empty());
        earlier[..sure].iter().rposition(posts).map_or(0, |last| last + 1)
    }

    fn stores(&self, (stage, tile): TileNode, slice: u32) -> bool {
        let mut stores = false;
        self.p.stores(stage, tile, slice, &mut |_, _| stores = true);
        stores
    }
}

fn unite(all: &mut [u64], more: &[u64]) {
    all.iter_mut().zip(more).for_each(|(all, more)| *all |= more);
}
