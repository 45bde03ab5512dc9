//! A plan's work items as straight-line code: the order of waits, reads, stores and posts.

mod loads;
mod order;

use cusync_gen::check::{Candidate, Event, TileProgram};
use cusync_gen::graph::{Graph, StageId};
use cusync_gen::schedule::{Hand, Part};
use cusync_gen::sync::Tile;

use order::worst_order;

use super::Violation;
use super::memory::{Cells, Layout};
use super::shapes;

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Wait until a slot has this many posts of this run.
    Wait { slot: u32, value: u32 },
    /// Read and compare with the expected contents.
    Load(Cells),
    /// Leave the item's sums in a slab.
    Leave { slab: u32 },
    /// Set a slab's flag.
    SetFlag { slab: u32 },
    /// Wait for a slab's flag.
    SeeFlag { slab: u32 },
    /// Add a slab to the item's sums.
    Add { slab: u32 },
    /// Store units (a bit mask) out of all units of the tile.
    Store { cells: Cells, tile: u32, units: u64, all: u64 },
    /// Add to a slot.
    Post { slot: u32, amount: u32 },
    /// A non-atomic post: read the slot, then store the sum.
    LookAtSlot { slot: u32 },
    /// See [`Op::LookAtSlot`].
    OverwriteSlot { slot: u32, amount: u32 },
    /// Continue when the waits of the worker's next item are satisfied.
    NextUnderWay,
}

/// One CTA's work on an item. The loaders run ahead of the finisher, including into later items, and proceed
/// independently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cta {
    /// Steps of each loading warp.
    pub(crate) loaders: Vec<Vec<Op>>,
    pub(crate) finisher: Vec<Op>,
    /// Unordered stores: they complete at any time after the epilogue.
    pub(crate) late: Vec<Op>,
    /// The tile's number; `None` for a CTA that only loads for others.
    pub(crate) tile: Option<u32>,
}

/// One item of work.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) ctas: Vec<Cta>,
    pub(crate) k: (u32, u32),
    /// k-blocks of the whole tile.
    pub(crate) k_blocks: u32,
    /// Slices of the tile that are combined before the last of them stores it; 1 in a schedule.
    pub(crate) slices: u32,
}

/// All the work of a run.
pub(crate) struct Program {
    pub(crate) layout: Layout,
    pub(crate) work: Vec<Work>,
    /// Each stage's items in draw order. Empty in a schedule.
    pub(crate) stages: Vec<Vec<u32>>,
    /// The total a run adds to each slot.
    pub(crate) posts: Vec<u32>,
    pub(crate) slabs: u32,
    /// Loading warps per CTA.
    pub(crate) warps: usize,
    /// Whether there are semaphores at all.
    pub(crate) semaphores: bool,
}

fn bits(units: &std::ops::Range<u32>) -> u64 {
    units.clone().filter(|u| *u < 63).fold(0, |bits, u| bits | 1 << u)
}

struct Builder<'a> {
    c: &'a Candidate,
    p: &'a dyn TileProgram,
    layout: Layout,
    bases: Vec<u32>,
    counts: Vec<u32>,
    fault: Option<Violation>,
}

impl Program {
    /// # Errors
    /// A fault that exists before execution: an index outside its array, or data that is never loaded.
    pub(crate) fn new(c: &Candidate, p: &dyn TileProgram) -> Result<Program, Violation> {
        let counts: Vec<u32> = c.slot_maps().iter().map(|map| map.slot_count).collect();
        let bases = counts.iter().scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n))).collect();
        let slots: u32 = counts.iter().sum();
        let semaphores = c.launch.has_semaphores();
        let mut b =
            Builder { c, p, layout: Layout::new(&c.graph, c.launch.cluster()), bases, counts, fault: None };
        let (mut work, mut stages) = (Vec::new(), vec![Vec::new(); c.graph.stages.len()]);
        match c.launch.work() {
            Some(_) => b.schedule(&mut work)?,
            None => {
                for (s, drawn) in stages.iter_mut().enumerate() {
                    b.stage(StageId(s), &mut work, drawn)?;
                }
            }
        }
        if let Some(fault) = b.fault {
            return Err(fault);
        }
        let slabs = c.launch.work().map_or(0, |s| s.slabs);
        let mut posts = vec![0u32; slots as usize];
        let mut seen = std::collections::HashSet::new();
        for work in &work {
            // Only one slice of a tile posts.
            let mut counts = |cta: &&Cta| work.slices == 1 || seen.insert(cta.tile);
            for op in work.ctas.iter().filter(|cta| counts(cta)).flat_map(|cta| &cta.finisher) {
                if let Op::Post { slot, amount } | Op::OverwriteSlot { slot, amount } = op {
                    posts[*slot as usize] += amount;
                }
            }
        }
        let ctas = work.iter().flat_map(|work| &work.ctas);
        let warps = ctas.map(|cta| cta.loaders.len()).max().unwrap_or(1);
        Ok(Program { layout: b.layout, work, stages, posts, slabs, warps, semaphores })
    }
}

impl Builder<'_> {
    fn stage(&mut self, stage: StageId, work: &mut Vec<Work>, drawn: &mut Vec<u32>) -> Result<(), Violation> {
        let (gm, gn) = shapes::grid(&self.c.graph, stage);
        let split = self.c.graph.stages[stage.0].split_k.max(1);
        let each = shapes::most_k_blocks(&self.c.graph, stage).div_ceil(split);
        for step in 0..gm * gn {
            let tile = self.c.launch.order(stage).tile_at((gm, gn), step).ok_or(Violation::Outside)?;
            if tile.m >= gm || tile.n >= gn {
                return Err(Violation::Outside);
            }
            // The last slices may have no work left.
            let k_blocks = shapes::k_blocks(&self.c.graph, stage, tile);
            let slices = k_blocks.div_ceil(each);
            for slice in 0..slices {
                let k = ((slice * each).min(k_blocks), ((slice + 1) * each).min(k_blocks));
                let cta = self.cta(stage, tile, slice, k, (1, 1));
                let posts = self.posts(stage, tile);
                let cta = worst_order(self.c, cta, posts, true, slices);
                drawn.push(work.len() as u32);
                work.push(Work { ctas: vec![cta], k, k_blocks, slices });
            }
        }
        Ok(())
    }

    fn schedule(&mut self, work: &mut Vec<Work>) -> Result<(), Violation> {
        let schedule = self.c.launch.work().ok_or(Violation::Outside)?;
        let (rows, cols) = schedule.cluster;
        for (at, item) in schedule.sequence.iter().enumerate() {
            if item.stage.0 >= self.c.graph.stages.len() {
                return Err(Violation::Outside);
            }
            let (gm, gn) = shapes::grid(&self.c.graph, item.stage);
            // Chain kernels run only GEMMs; their tiles are alike.
            let k_blocks = shapes::most_k_blocks(&self.c.graph, item.stage);
            if item.m >= gm.div_ceil(rows) || item.n >= gn.div_ceil(cols) || item.k_end > k_blocks {
                return Err(Violation::Outside);
            }
            // A tile's items are its slices, ordered by their first k-block.
            let same = |i: &&usize| {
                let other = &schedule.sequence[**i];
                (other.stage, other.m, other.n) == (item.stage, item.m, item.n)
            };
            let all: Vec<usize> = (0..schedule.sequence.len()).collect();
            let mut siblings: Vec<usize> = all.iter().filter(same).copied().collect();
            siblings.sort_by_key(|i| schedule.sequence[*i].k_begin);
            let slice = siblings.iter().position(|i| *i == at).unwrap_or(0) as u32;
            let finishers: Vec<usize> = siblings
                .iter()
                .copied()
                .filter(|i| !matches!(schedule.sequence[*i].part, Part::Contribute { .. }))
                .collect();
            let k = (item.k_begin, item.k_end);
            let mut ctas = Vec::new();
            for cta in 0..rows * cols {
                let tile = Tile { m: item.m * rows + cta / cols, n: item.n * cols + cta % cols };
                let one = self.cta(item.stage, tile, slice, k, (rows, cols));
                let inside = tile.m < gm && tile.n < gn;
                let mut posts = Vec::new();
                if let (true, Some(rank)) = (inside, finishers.iter().position(|i| *i == at)) {
                    // The n-th post of an edge belongs to the n-th finisher; the last finisher gets the rest.
                    let last = finishers.len() - 1;
                    for mut edge in self.edge_posts(item.stage, tile) {
                        let rest = edge.split_off(rank.min(edge.len()));
                        posts.extend(if rank == last { rest } else { rest.into_iter().take(1).collect() });
                    }
                }
                ctas.push(worst_order(self.c, one, posts, inside, 1));
            }
            self.shared_loads(item.stage, (item.m, item.n), slice, k, (rows, cols));
            work.push(Work { ctas, k, k_blocks, slices: 1 });
        }
        Ok(())
    }

    /// A tile's posts, edge by edge.
    fn edge_posts(&mut self, stage: StageId, tile: Tile) -> Vec<Vec<Op>> {
        let edges = self.c.graph.dependences.iter().enumerate().filter(|(_, d)| d.producer == stage);
        let edges: Vec<usize> = edges.map(|(e, _)| e).collect();
        let mut all = Vec::new();
        for edge in edges {
            let mut posts = Vec::new();
            self.p.posts(edge, tile, &mut |slot, amount| posts.push((slot, amount)));
            let posts = posts.into_iter().map(|(slot, amount)| {
                let slot = self.slot(edge, slot);
                Op::Post { slot, amount }
            });
            all.push(posts.collect());
        }
        all
    }

    fn posts(&mut self, stage: StageId, tile: Tile) -> Vec<Op> {
        self.edge_posts(stage, tile).into_iter().flatten().collect()
    }

    fn slot(&mut self, edge: usize, slot: u32) -> u32 {
        if slot >= self.counts[edge] {
            self.fault = Some(Violation::Outside);
        }
        self.bases[edge] + slot
    }

    /// A CTA's steps without its posts, and whether it loads everything its tile needs.
    fn cta(&mut self, stage: StageId, tile: Tile, slice: u32, k: (u32, u32), cluster: (u32, u32)) -> Cta {
        let graph = &self.c.graph;
        let (gm, gn) = shapes::grid(graph, stage);
        let inside = tile.m < gm && tile.n < gn;
        let number = self.layout.tile(stage, tile);
        let (mut loaders, mut finisher) = (vec![Vec::new()], Vec::new());
        let mut warp = 0;
        let (mut events, mut late) = (Vec::new(), false);
        self.p.events(stage, tile, slice, &mut |event| events.push(event));
        let kind = |operand: usize| graph.stages[stage.0].operands[operand].kind;
        let mut loaded = Vec::new();
        let in_time = in_time(graph, stage, &events);
        for (event, in_time) in events.into_iter().zip(in_time) {
            late |= match &event {
                Event::Wait { edge, .. } => {
                    let d = &graph.dependences[*edge];
                    d.consumer == stage && shapes::in_epilogue(kind(d.operand))
                }
                Event::Load { operand, .. } | Event::Multicast { operand, .. } => {
                    shapes::in_epilogue(kind(*operand))
                }
                Event::Warp { .. } => false,
                _ => true,
            };
            // A load after all sums are complete counts as part of the next stage.
            if !in_time && self.c.launch.shares().is_some() {
                self.fault = Some(Violation::WrongSum);
            }
            if let Event::Warp { warp: next } = event {
                warp = next as usize;
                loaders.resize(loaders.len().max(warp + 1), Vec::new());
                continue;
            }
            let steps = if late { &mut finisher } else { &mut loaders[warp] };
            match event {
                Event::Warp { .. } => {}
                Event::Wait { edge, slot, value } => {
                    let slot = self.slot(edge, slot);
                    steps.push(Op::Wait { slot, value });
                }
                Event::Load { operand, k_block } => {
                    let tensor = graph.stages[stage.0].operands[operand].tensor;
                    // A load after everything is stored has no effect.
                    let areas = shapes::reads(graph, stage, operand, tile, k_block);
                    let areas = areas.iter().filter(|_| in_time);
                    steps.extend(areas.map(|area| Op::Load(self.layout.cells(tensor, area))));
                    loaded.extend(in_time.then_some((operand, k_block)));
                }
                // The shapes determine the region, not the program.
                Event::Multicast { operand, k_block, .. } => {
                    let area = self.shared_area(stage, tile, operand, k_block, cluster);
                    let tensor = graph.stages[stage.0].operands[operand].tensor;
                    steps.extend(in_time.then(|| Op::Load(self.layout.cells(tensor, &area))));
                    loaded.extend(in_time.then_some((operand, k_block)));
                }
                Event::Contribute { slab } => steps.extend([Op::Leave { slab }, Op::SetFlag { slab }]),
                Event::Await { slab } => steps.push(Op::SeeFlag { slab }),
                Event::Add { slab } => steps.push(Op::Add { slab }),
                Event::Store { units, of } => {
                    let cells =
                        self.layout.cells(graph.stages[stage.0].out, &shapes::written(graph, stage, tile));
                    steps.push(Op::Store { cells, tile: number, units: bits(&units), all: bits(&(0..of)) });
                }
            }
        }
        // A share sums what its warps load, in any order, so loading a block twice is an error.
        let twice = |at: usize| loaded[..at].contains(&loaded[at]);
        if shapes::shares(graph, stage).is_some() && (0..loaded.len()).any(twice) {
            self.fault = Some(Violation::WrongSum);
        }
        let finishes = finisher.iter().any(|op| matches!(op, Op::Store { .. }));
        let (_, columns) = shapes::written(graph, stage, tile);
        if inside && !columns.is_empty() && !self.all_loaded(stage, tile, k, finishes, cluster, &loaded) {
            self.fault = Some(Violation::NeverLoaded);
        }
        Cta { loaders, finisher, late: Vec::new(), tile: inside.then_some(number) }
    }
}

/// For each event, whether its load can still reach a contribution or a store.
fn in_time(graph: &Graph, stage: StageId, events: &[Event]) -> Vec<bool> {
    let (mut left, mut stored) = (false, false);
    let mut judge = |event: &Event| {
        (left, stored) = match event {
            Event::Contribute { .. } => (true, stored),
            Event::Store { .. } => (left, true),
            _ => (left, stored),
        };
        match event {
            Event::Load { operand, .. } | Event::Multicast { operand, .. } => {
                let kind = graph.stages[stage.0].operands[*operand].kind;
                !stored && (!left || shapes::in_epilogue(kind))
            }
            _ => true,
        }
    };
    events.iter().map(&mut judge).collect()
}

/// Whether the shared counter hands out items.
pub(crate) fn draws(c: &Candidate) -> bool {
    c.launch.lists().is_some_and(|s| s.mode == Hand::Drawn)
}
