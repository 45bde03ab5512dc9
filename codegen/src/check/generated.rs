//! Behavior of this project's kernels: the tile program of a candidate's policies and schedule.

use std::ops::Range;

use super::Candidate;
use super::launch::How;
use super::parts::{Parts, Place};
use super::program::{Event, Exchange, Strands, TileProgram, slice_k_blocks};
use crate::graph::{
    Dependence, EdgeNumbers, Footprint, Graph, Operand, OperandKind, Partition, Stage, StageId, WaitWalk,
    When,
};
use crate::schedule::decode::{Decode, is_in_pairs, k_tiles, rounds_in};
use crate::schedule::{POST_WEIGHT, Part, units};
use crate::sync::{SlotMap, Tile, WaitAt};

/// The program of the kernels in `csrc/kernels`, which follow `policy.hpp`.
pub struct Generated<'a> {
    candidate: &'a Candidate,
    numbers: Vec<EdgeNumbers>,
    /// Edges of each stage's main loop and of its epilogue.
    edges: Vec<(Vec<usize>, Vec<usize>)>,
    /// Whether an edge's events depend on the tile's row, and on its column; one entry per edge.
    by: Vec<(bool, bool)>,
    /// The events of each k-block, for edges whose events are the same in every share of a decode kernel; else empty.
    shared: Vec<Vec<Vec<Event>>>,
    /// The items of each tile of a chain kernel.
    parts: Option<Parts>,
}

/// Everything that determines the events of an edge in a slice. Slices with equal sights have equal events.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sight {
    /// Coordinates that do not matter are 0.
    tile: Tile,
    /// The k-blocks at which the slice waits or loads: a single one for an operand that is read once.
    ks: Range<u32>,
    /// Number of CTAs that share the load, and this CTA's index among them.
    share: (u32, u32),
    /// The CTA loads only for others.
    idle: bool,
}

/// The events of an edge in a slice.
struct Strand<'a> {
    graph: &'a Graph,
    edge: usize,
    sight: Sight,
    slots: &'a SlotMap,
    waits: WaitWalk<'a>,
    /// Sum of a tile's posts.
    weight: u32,
}

impl Strand<'_> {
    /// The events of a k-block. K-blocks must be requested in order.
    fn step(&mut self, k: u32, f: &mut dyn FnMut(Event)) {
        if !self.sight.ks.contains(&k) {
            return;
        }
        self.wait(k, f);
        let Dependence { consumer, operand, .. } = self.graph.dependences[self.edge];
        let Sight { tile, share, idle, .. } = &self.sight;
        if share.0 > 1 {
            f(multicast(self.graph, operand, &self.graph.stages[consumer.0], *tile, k, *share));
        } else if !idle {
            f(Event::Load { operand, k_block: k });
        }
    }

    /// All waits, from the first k-block on.
    fn waits(&mut self, f: &mut dyn FnMut(Event)) {
        for k in self.sight.ks.clone() {
            self.wait(k, f);
            if self.waits.settled() {
                return;
            }
        }
    }

    fn wait(&mut self, k: u32, f: &mut dyn FnMut(Event)) {
        let (edge, slots, weight) = (self.edge, self.slots, self.weight);
        let tiles = self.waits.at(k);
        if !tiles.is_empty() {
            slots.each_covering(&tiles, &mut |slot| {
                f(Event::Wait { edge, slot, value: slots.posts_of(slot) * weight });
            });
        }
    }
}

impl<'a> Generated<'a> {
    /// The program of a candidate's policies and, if present, its schedule.
    pub fn new(candidate: &'a Candidate) -> Self {
        let graph = &candidate.graph;
        let parts = candidate.launch.work().map(|s| Parts::new(graph, s));
        let numbers = candidate.edge_numbers();
        let mut edges = vec![(Vec::new(), Vec::new()); graph.stages.len()];
        for (edge, dependence) in graph.dependences.iter().enumerate() {
            let (main, last) = &mut edges[dependence.consumer.0];
            if when(graph, dependence) == When::Epilogue { last } else { main }.push(edge);
        }
        let cluster = parts.as_ref().map_or(1, |parts| parts.cluster().0);
        let by = graph.dependences.iter().zip(&numbers).map(|(dependence, numbers)| {
            let stage = &graph.stages[dependence.consumer.0];
            let waits = Footprint { rows: numbers.rows, cols: numbers.cols }.varies();
            let reads = stage.reads_by(dependence.operand);
            let one_row = stage.grid.0.max(cluster) == 1;
            (!one_row && (waits.0 || reads.0), waits.1 || reads.1)
        });
        let by = by.collect();
        let mut generated = Generated { candidate, numbers, edges, by, shared: Vec::new(), parts };
        generated.shared = (0..graph.dependences.len()).map(|edge| generated.in_every_share(edge)).collect();
        generated
    }

    /// The events of each k-block of an edge, if every share has the same.
    fn in_every_share(&self, edge: usize) -> Vec<Vec<Event>> {
        let stage = &self.candidate.graph.stages[self.candidate.graph.dependences[edge].consumer.0];
        let same = self.candidate.launch.shares().is_some() && self.by[edge] == (false, false);
        let events = |k_block| {
            let mut events = Vec::new();
            self.load(edge, Tile { m: 0, n: 0 }, k_block, &mut |event| events.push(event));
            events
        };
        (0..stage.k_blocks).filter(|_| same).map(events).collect()
    }

    /// A share waits for and loads one k-block.
    fn load(&self, edge: usize, tile: Tile, k_block: u32, f: &mut dyn FnMut(Event)) {
        if let Some(events) = self.shared.get(edge).and_then(|shared| shared.get(k_block as usize)) {
            return events.iter().cloned().for_each(f);
        }
        let sight = Sight { tile, ks: k_block..k_block + 1, share: (1, 0), idle: false };
        self.strand_of(edge, sight).step(k_block, f);
    }

    fn cluster(&self) -> (u32, u32) {
        self.parts.as_ref().map_or((1, 1), Parts::cluster)
    }

    /// The k-blocks of a slice and the use of its sums; `None` if a CTA has no such slice.
    fn slice(&self, stage: StageId, tile: Tile, slice: u32) -> Option<(Range<u32>, Part)> {
        let (ks, part) = match (&self.parts, self.candidate.launch.work()) {
            (Some(parts), Some(schedule)) => {
                let item = &schedule.sequence[parts.item(stage, tile, slice)? as usize];
                (item.k_begin..item.k_end, item.part)
            }
            _ => {
                let this_stage = &self.candidate.graph.stages[stage.0];
                let (ks, last) = (slice_k_blocks(this_stage, slice), this_stage.k_blocks_of(tile.m));
                (ks.start.min(last)..ks.end.min(last), Part::Whole)
            }
        };
        (!ks.is_empty()).then_some((ks, part))
    }

    /// Events of a decode kernel's CTA for its share. Loading warps bring the activations, each k-tile once all owners
    /// of its columns have posted; the epilogue follows and reads only the CTA's own results. For an attention tile,
    /// one warp loads the queries, one the keys and one the values. For work split over a pair of CTAs, the warps of
    /// both CTAs work on both shares; then each CTA leaves sums for the other and awaits the other's.
    fn share(&self, stage: StageId, tile: Tile, f: &mut dyn FnMut(Event)) {
        let graph = &self.candidate.graph;
        let this_stage = &graph.stages[stage.0];
        if this_stage.writes(tile).1.is_empty() {
            return;
        }
        let (main, last) = &self.edges[stage.0];
        match this_stage.partition {
            Partition::Even { parts } => {
                let workers = self.candidate.launch.shares().map_or(parts, Decode::workers);
                let (own, paired) =
                    (tile.n / rounds_in(this_stage, workers).max(1), is_in_pairs(graph, this_stage, workers));
                let both = [own, own ^ 1].into_iter().take(1 + usize::from(paired));
                for (warp, tiles) in (0..).zip(both.flat_map(|w| k_tiles(graph, this_stage, workers, w))) {
                    f(Event::Warp { warp });
                    for &edge in main {
                        tiles.iter().for_each(|k| self.load(edge, tile, *k, f));
                    }
                }
                if paired {
                    let slab = |worker| stage.0 as u32 * workers + worker;
                    f(Event::Contribute { slab: slab(own) });
                    f(Event::Await { slab: slab(own ^ 1) });
                }
            }
            Partition::Tiles { .. } => {
                for (warp, &edge) in (0..).zip(main) {
                    f(Event::Warp { warp });
                    self.load(edge, tile, 0, f);
                }
            }
        }
        last.iter().for_each(|&edge| self.load(edge, tile, 0, f));
        f(Event::Store { units: 0..1, of: 1 });
    }

    /// Events of a slice after its k-blocks are summed.
    fn epilogue(
        &self,
        stage: StageId,
        tile: Tile,
        (ks, part): (&Range<u32>, Part),
        f: &mut dyn FnMut(Event),
    ) {
        if self.idle(stage, tile) {
            return;
        }
        let add = |slab: u32, f: &mut dyn FnMut(Event)| {
            f(Event::Await { slab });
            f(Event::Add { slab });
        };
        match part {
            Part::Contribute { slab } => return f(Event::Contribute { slab }),
            Part::Finish { first, slabs } => (0..slabs).for_each(|s| add(first.saturating_add(s), f)),
            Part::Share { first, parts, part } => {
                f(Event::Contribute { slab: first.saturating_add(part) });
                (0..parts).filter(|p| *p != part).for_each(|p| add(first.saturating_add(p), f));
            }
            Part::Whole => {}
        }
        for &edge in &self.edges[stage.0].1 {
            if let Some(sight) = self.sight(edge, tile, ks, part) {
                self.strand_of(edge, sight).step(0, f);
            }
        }
        let (units, all) = stored(&self.candidate.graph.stages[stage.0], part);
        f(Event::Store { units, of: all });
    }

    /// Whether a tile is outside its grid; its CTA only fills up a cluster.
    fn idle(&self, stage: StageId, tile: Tile) -> bool {
        let (gm, gn) = self.candidate.graph.stages[stage.0].grid;
        tile.m >= gm || tile.n >= gn
    }

    /// The sight of an edge for a slice with these k-blocks and this part; `None` if the slice does nothing for the
    /// edge.
    fn sight(&self, edge: usize, tile: Tile, ks: &Range<u32>, part: Part) -> Option<Sight> {
        let graph = &self.candidate.graph;
        let dependence = &graph.dependences[edge];
        let (by_m, by_n) = self.by[edge];
        let seen = Tile { m: if by_m { tile.m } else { 0 }, n: if by_n { tile.n } else { 0 } };
        let idle = self.idle(dependence.consumer, tile);
        let ks = match when(graph, dependence) {
            When::Epilogue => {
                let finishes = !idle && !matches!(part, Part::Contribute { .. });
                return finishes.then_some(Sight { tile: seen, ks: 0..1, share: (1, 0), idle });
            }
            When::First => ks.start..ks.start + 1,
            When::Each => ks.clone(),
        };
        let kind = graph.stages[dependence.consumer.0].operands[dependence.operand].kind;
        Some(Sight { tile: seen, ks, share: sharing(self.cluster(), kind, tile), idle })
    }

    /// The strand of an edge: a function of the sight alone.
    fn strand_of(&self, edge: usize, sight: Sight) -> Strand<'_> {
        let (graph, numbers) = (&self.candidate.graph, &self.numbers[edge]);
        let made = graph.stages[graph.dependences[edge].producer.0].partition;
        let (slots, waits) = (&numbers.policy, WaitWalk::new(numbers, made, sight.tile, sight.ks.clone()));
        let weight = if self.candidate.launch.lists().is_some() { POST_WEIGHT } else { 1 };
        Strand { graph, edge, sight, slots, waits, weight }
    }

    fn sight_of(&self, edge: usize, tile: Tile, slice: u32) -> Option<Sight> {
        let (ks, part) = self.slice(self.candidate.graph.dependences[edge].consumer, tile, slice)?;
        self.sight(edge, tile, &ks, part)
    }
}

/// The units of its tile that an item stores, and the number of units in the tile.
fn stored(stage: &Stage, part: Part) -> (Range<u32>, u32) {
    let all = units(stage);
    let units = match part {
        // Unit u belongs to part u * parts / units.
        Part::Share { parts, part, .. } => {
            let begin = |p: u32| (p * all).div_ceil(parts.max(1));
            begin(part)..begin(part + 1)
        }
        Part::Whole | Part::Finish { .. } => 0..all,
        Part::Contribute { .. } => 0..0,
    };
    (units, all)
}

/// When a tile reads the tensor of a dependence.
fn when(graph: &Graph, dependence: &Dependence) -> When {
    graph.stages[dependence.consumer.0].operands[dependence.operand].kind.when()
}

/// Number of CTAs of a cluster that read the same tile of an operand, and the index of `tile` among them: each loads
/// one slice of it for all. Operand A is shared along N, operand B along M.
fn sharing(cluster: (u32, u32), kind: OperandKind, tile: Tile) -> (u32, u32) {
    match kind {
        OperandKind::A => (cluster.1, tile.n % cluster.1),
        OperandKind::B | OperandKind::Up => (cluster.0, tile.m % cluster.0),
        _ => (1, 0),
    }
}

/// Slice `index` of `ctas` of an operand's tile at a k-block: A is split by rows, B by columns.
fn multicast(
    graph: &Graph,
    operand: usize,
    stage: &Stage,
    tile: Tile,
    k_block: u32,
    (ctas, index): (u32, u32),
) -> Event {
    let Operand { kind, tensor, .. } = &stage.operands[operand];
    let (mut rows, mut cols) = (0..0, 0..0);
    // A tile reads one box of each GEMM operand.
    let read = &mut |r, c| (rows, cols) = (r, c);
    stage.reads(operand, &graph.tensors[tensor.0], (tile.m, tile.n), k_block, read);
    let slice = |range: &Range<u32>, whole: u32| {
        let share = whole / ctas;
        let at = |i: u32| (range.start + share * i).min(range.end);
        at(index)..at(index + 1)
    };
    match kind {
        OperandKind::A => rows = slice(&rows, stage.out_tile().0),
        _ => cols = slice(&cols, stage.out_tile().1),
    }
    Event::Multicast { operand, k_block, rows, cols }
}

impl TileProgram for Generated<'_> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        let stage = self.candidate.graph.dependences[edge].producer;
        let slots = self.numbers[edge].policy.posted_by(tile);
        if self.parts.is_none() || self.candidate.launch.shares().is_some() {
            // The last slice of a split-K tile outside a schedule posts it.
            return slots.for_each(|slot| f(slot, 1));
        }
        let slot = slots.start;
        for slice in 0..self.slices(&self.candidate.graph, stage, tile) {
            if let Some((_, part)) = self.slice(stage, tile, slice)
                && part.finishes()
            {
                f(slot, part.weight());
            }
        }
    }

    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        if self.candidate.launch.shares().is_some() {
            return self.share(stage, tile, f);
        }
        let Some((ks, part)) = self.slice(stage, tile, slice) else { return };
        let strand = |edge: &usize| Some(self.strand_of(*edge, self.sight(*edge, tile, &ks, part)?));
        let mut strands: Vec<Strand> = self.edges[stage.0].0.iter().filter_map(strand).collect();
        if !strands.is_empty() {
            for k in ks.clone() {
                strands.iter_mut().for_each(|strand| strand.step(k, f));
            }
        }
        self.epilogue(stage, tile, (&ks, part), f);
    }

    fn holds(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        let f = &mut |event| {
            if matches!(event, Event::Wait { .. } | Event::Contribute { .. } | Event::Await { .. }) {
                f(event);
            }
        };
        if self.candidate.launch.shares().is_some() {
            return self.share(stage, tile, f);
        }
        let Some((ks, part)) = self.slice(stage, tile, slice) else { return };
        let sight = |edge: &usize| Some((*edge, self.sight(*edge, tile, &ks, part)?));
        let sights = self.edges[stage.0].0.iter().filter_map(sight);
        sights.for_each(|(edge, sight)| self.strand_of(edge, sight).waits(f));
        self.epilogue(stage, tile, (&ks, part), f);
    }

    /// Decode kernels and host threads send a tile's sums to all devices, and add those of all in the order of devices.
    fn exchanges(&self, stage: StageId, _: Tile, device: u32, f: &mut dyn FnMut(Exchange)) {
        let launch = &self.candidate.launch;
        if launch.shares().is_none() && launch.how() != Some(How::Host) {
            return;
        }
        let devices = self.candidate.graph.stages[stage.0].devices;
        (0..devices).for_each(|to| f(Exchange::Send { to, place: device }));
        (0..devices).for_each(|place| f(Exchange::Receive { place }));
    }

    fn extent(&self, graph: &Graph, stage: StageId) -> (u32, u32) {
        let (m, n) = graph.stages[stage.0].grid;
        let (rows, cols) = self.cluster();
        (m.next_multiple_of(rows), n.next_multiple_of(cols))
    }

    fn slices(&self, graph: &Graph, stage: StageId, tile: Tile) -> u32 {
        match &self.parts {
            Some(parts) => parts.count(stage, tile),
            None => graph.stages[stage.0].split_k.max(1),
        }
    }

    fn place(&self, stage: StageId, tile: Tile, slice: u32) -> Option<Place> {
        let parts = self.parts.as_ref()?;
        Some(parts.place(parts.item(stage, tile, slice)?))
    }

    fn stores(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Range<u32>, u32)) {
        if self.candidate.launch.shares().is_some() {
            let some = !self.candidate.graph.stages[stage.0].writes(tile).1.is_empty();
            return (0..u32::from(some)).for_each(|_| f(0..1, 1));
        }
        if let Some((_, part)) = self.slice(stage, tile, slice).filter(|_| !self.idle(stage, tile))
            && part.finishes()
        {
            let (units, all) = stored(&self.candidate.graph.stages[stage.0], part);
            f(units, all);
        }
    }

    fn strands(&self) -> Option<&dyn Strands> {
        // The strands of a share are spread over several warps.
        self.candidate.launch.shares().is_none().then_some(self as &dyn Strands)
    }
}

impl Strands for Generated<'_> {
    fn strand(&self, edge: usize, tile: Tile, slice: u32, from: u32, f: &mut dyn FnMut(Event)) {
        if let Some(sight) = self.sight_of(edge, tile, slice) {
            let ks = sight.ks.clone();
            let mut strand = self.strand_of(edge, sight);
            let from = from.clamp(ks.start, ks.end);
            strand.waits.skip_to(from);
            (from..ks.end).for_each(|k| strand.step(k, f));
        }
    }

    fn alike(&self, edge: usize, a: Tile, b: Tile) -> bool {
        let graph = &self.candidate.graph;
        let stage = graph.dependences[edge].consumer;
        let slices = self.slices(graph, stage, a);
        slices == self.slices(graph, stage, b)
            && (0..slices).all(|slice| self.sight_of(edge, a, slice) == self.sight_of(edge, b, slice))
    }

    fn grows(&self, edge: usize, shorter: Tile, longer: Tile) -> Option<u32> {
        let graph = &self.candidate.graph;
        let stage = graph.dependences[edge].consumer;
        let one = |tile| self.slices(graph, stage, tile) == 1;
        // When all k-blocks are waited for at the start, the wait depends on the last one.
        if self.numbers[edge].wait_at != WaitAt::PerKBlock || !one(shorter) || !one(longer) {
            return None;
        }
        let (a, b) = (self.sight_of(edge, shorter, 0)?, self.sight_of(edge, longer, 0)?);
        let end = a.ks.end;
        (end <= b.ks.end && Sight { ks: a.ks.start..b.ks.end, ..a } == b).then_some(end)
    }

    fn period(&self) -> (u32, u32) {
        self.cluster()
    }
}
