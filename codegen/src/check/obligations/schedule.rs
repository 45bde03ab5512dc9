//! `bounds` and `order` of a schedule: the limits of the chain kernel, and every k-block of every tile exactly once.

use crate::check::parts::{Place, cluster_grid, describe, places};
use crate::check::{Candidate, How, Obligation, Refutation, StageKernel, StageLaunch, Subject};
use crate::device::ChainKernel;
use crate::graph::{Partition, Stage, StageId};
use crate::schedule::decode::COLUMN_TILE;
use crate::schedule::{Hand, Item, MAX_STAGES, Part, Schedule, may_share, units};

/// Maximum incoming and outgoing edges of a stage (`CUSYNC_MAX_WAITS`, `CUSYNC_MAX_POSTS`).
const MAX_EDGES: usize = 4;

/// The fault that prevents any further evaluation of the schedule.
pub(in crate::check) fn well_formed(c: &Candidate) -> Option<Refutation> {
    let silent = |launched: &&StageLaunch| launched.kernel != StageKernel::Ordered;
    let in_order = matches!(c.launch.how(), Some(How::Serial | How::Library));
    if let (Some(kernel), false) = (c.launch.kernels().iter().find(silent), in_order) {
        let name = &c.graph.stages[kernel.stage.0].name;
        let message = format!("`{name}` has a kernel of its own, which waits for no other stage");
        let refutation = Refutation::new(Obligation::Bounds, Subject::Stage(kernel.stage), message);
        return Some(refutation.help("launch the stages one after the other: serial"));
    }
    let schedule = c.launch.work()?;
    let view = View { c, schedule, places: places(schedule) };
    let stages = if c.launch.shares().is_some() { view.shares() } else { view.stages() };
    stages.or_else(|| view.bounds()).or_else(|| view.lists()).or_else(|| view.tiles())
}

struct View<'a> {
    c: &'a Candidate,
    schedule: &'a Schedule,
    places: Vec<Place>,
}

impl View<'_> {
    fn item_fault(&self, obligation: Obligation, index: u32, fault: &str) -> Refutation {
        let (item, place) = (&self.schedule.sequence[index as usize], self.places[index as usize]);
        Refutation::new(
            obligation,
            Subject::Item { stage: item.stage, place },
            format!("{place}, {}, {fault}", self.name(item)),
        )
    }

    fn name(&self, item: &Item) -> String {
        describe(&self.c.graph, self.schedule.cluster, item)
    }

    /// Stages that one kernel can run.
    fn stages(&self) -> Option<Refutation> {
        let (c, graph) = (self.c, &self.c.graph);
        let refute = |subject, message: String| Some(Refutation::new(Obligation::Bounds, subject, message));
        if c.device.arch != 90 {
            let message =
                format!("chain kernels are for sm_90a, and {} is sm_{}", c.device.name, c.device.arch);
            return refute(Subject::Pipeline, message);
        }
        if graph.stages.len() > MAX_STAGES {
            let message = format!("{} stages; a chain kernel takes {MAX_STAGES}", graph.stages.len());
            return refute(Subject::Pipeline, message);
        }
        let (rows, cols) = self.schedule.cluster;
        let mut operations = Vec::new();
        let tiled = |s: &&Stage| s.op.has_kernel_tiles();
        let first = graph.stages.iter().find(tiled);
        for (i, stage) in graph.stages.iter().enumerate() {
            operations.extend(stage.op.operation());
            let mut kernels = ChainKernel::running(operations.iter().copied().collect());
            let edges = |end: &dyn Fn(&crate::graph::Dependence) -> StageId| {
                graph.dependences.iter().filter(|d| end(d) == StageId(i)).count()
            };
            let other = first.filter(|first| tiled(&stage) && first.mma_tile != stage.mma_tile);
            let runs = |k: &ChainKernel| tiled(&stage) || k.cluster == (rows, cols);
            let fault = if stage.op.operation().is_none() || !kernels.any(runs) {
                let kind = stage.op.name();
                format!(
                    "is {kind}; no chain kernel of {rows} x {cols} CTAs a worker runs it beside the stages before"
                )
            } else if let Some(why) = stage.op.unfit(stage.mma_tile) {
                why.reason
            } else if let Some(why) = stage.op.unfit_beside_others().filter(|_| graph.stages.len() > 1) {
                why.reason
            } else if let Some(first) = other {
                let (a, b) = (stage.mma_tile, first.mma_tile);
                let first = &first.name;
                format!(
                    "has tiles of {} x {}, `{first}` of {} x {}: one kernel has one tile",
                    a.0, a.1, b.0, b.1
                )
            } else if stage.split_k > 1 {
                format!("is split into {} along k: in a schedule the items say so", stage.split_k)
            } else if edges(&|d| d.consumer).max(edges(&|d| d.producer)) > MAX_EDGES {
                format!("has more than {MAX_EDGES} edges")
            } else {
                continue;
            };
            return refute(Subject::Stage(StageId(i)), format!("`{}` {fault}", stage.name));
        }
        if rows == 0 || cols == 0 || rows.saturating_mul(cols) > 16 || self.schedule.lists.is_empty() {
            let workers = self.schedule.lists.len();
            return refute(
                Subject::Pipeline,
                format!("{workers} workers of clusters of {rows} x {cols} CTAs"),
            );
        }
        // The CTAs of a row share the rows of operand A; those of a column share the columns of operand B.
        let uneven = |s: &&Stage| {
            let (m, n) = s.out_tile();
            tiled(s) && (!m.is_multiple_of(cols) || !n.is_multiple_of(rows))
        };
        if let Some(stage) = graph.stages.iter().find(uneven) {
            let (m, n) = stage.out_tile();
            let message = format!(
                "the {rows} x {cols} CTAs of a worker cannot share loads of tiles of {m} x {n} of `{}` evenly",
                stage.name
            );
            return refute(Subject::Pipeline, message);
        }
        if self.schedule.mode == Hand::Drawn && rows * cols > 1 {
            let message =
                format!("each of the {rows} x {cols} CTAs of a worker would draw an item of its own");
            return refute(Subject::Pipeline, message);
        }
        None
    }

    /// Stages in even shares, each computed entirely by one CTA.
    fn shares(&self) -> Option<Refutation> {
        let Schedule { cluster, mode, sequence, lists, slabs, .. } = self.schedule;
        let plain = *cluster == (1, 1) && *mode == Hand::Fixed && *slabs == 0 && !lists.is_empty();
        if !plain || sequence.iter().any(|item| item.part != Part::Whole) {
            let message = "workers of a decode kernel are single CTAs that follow lists of whole shares";
            return Some(Refutation::new(Obligation::Bounds, Subject::Pipeline, message));
        }
        self.c.graph.stages.iter().enumerate().find_map(|(i, stage)| {
            let fault = if !stage.op.is_gemm() {
                let tiled = matches!(stage.partition, Partition::Tiles { .. }) && stage.split_k <= 1;
                if tiled && stage.k_blocks == 1 {
                    return None;
                }
                "is not cut into tiles of one k-block".into()
            } else if !matches!(stage.partition, Partition::Even { parts: 1.. }) {
                "is not cut into even shares".into()
            } else if stage.mma_tile.2 != COLUMN_TILE || stage.split_k > 1 {
                let (k, split) = (stage.mma_tile.2, stage.split_k);
                format!(
                    "has k-blocks of {k} in {split} slices; those of a decode kernel are {COLUMN_TILE} in one"
                )
            } else {
                return None;
            };
            let message = format!("`{}` {fault}", stage.name);
            Some(Refutation::new(Obligation::Bounds, Subject::Stage(StageId(i)), message))
        })
    }

    /// Items are inside their grids, slabs inside their array, and everything fits the fields of `cusync_item`.
    fn bounds(&self) -> Option<Refutation> {
        let graph = &self.c.graph;
        self.schedule.sequence.iter().enumerate().find_map(|(index, item)| {
            let Some(stage) = graph.stages.get(item.stage.0) else {
                let message = format!(
                    "{} is of stage {}, and there are {}",
                    self.places[index],
                    item.stage.0,
                    graph.stages.len()
                );
                return Some(Refutation::new(Obligation::Bounds, Subject::Pipeline, message));
            };
            let (rows, cols) = cluster_grid(graph, item.stage, self.schedule.cluster);
            let slabs = match item.part {
                Part::Whole => 0..0,
                Part::Contribute { slab } => u64::from(slab)..u64::from(slab) + 1,
                Part::Finish { first, slabs } => u64::from(first)..u64::from(first) + u64::from(slabs),
                Part::Share { first, parts, .. } => u64::from(first)..u64::from(first) + u64::from(parts),
            };
            let most = units(stage);
            let own_tiles = || !stage.op.has_kernel_tiles() && self.c.launch.shares().is_none();
            let fault = if item.part != Part::Whole && own_tiles() {
                format!("is a part of a tile: {} has none", stage.op.name())
            } else if item.m >= rows || item.n >= cols {
                format!("is outside the grid of {rows} x {cols}")
            } else if item.k_begin >= item.k_end || item.k_end > self.k_blocks(stage, item.m) {
                let k_blocks = self.k_blocks(stage, item.m);
                format!("covers k-blocks {}..{} of {k_blocks}", item.k_begin, item.k_end)
            } else if [item.m, item.n, item.k_begin, item.k_end].iter().any(|x| *x > u32::from(u16::MAX)) {
                "has a coordinate or k-block that 16 bits do not hold".into()
            } else if slabs.end - slabs.start > u64::from(u8::MAX) {
                format!("adds {} slabs, and 8 bits count them", slabs.end - slabs.start)
            } else if let Part::Share { parts, part, .. } = item.part
                && (!may_share(parts, most) || part >= parts)
            {
                format!("is part {part} of {parts} that share a tile of {most} units")
            } else if !slabs.is_empty() && slabs.end > u64::from(self.schedule.slabs) {
                format!("uses slab {}, and there are {}", slabs.end - 1, self.schedule.slabs)
            } else {
                return None;
            };
            Some(self.item_fault(Obligation::Bounds, index as u32, &fault))
        })
    }

    /// Static lists hold each item of the sequence once.
    fn lists(&self) -> Option<Refutation> {
        if self.schedule.mode == Hand::Drawn {
            return None;
        }
        let mut held: Vec<Option<(usize, usize)>> = vec![None; self.schedule.sequence.len()];
        for (worker, list) in self.schedule.lists.iter().enumerate() {
            for (at, index) in list.iter().enumerate() {
                let Some(holder) = held.get_mut(*index as usize) else {
                    let message = format!(
                        "item {at} of worker {worker} is number {index} of a sequence of {}",
                        self.schedule.sequence.len()
                    );
                    return Some(Refutation::new(Obligation::Order, Subject::Pipeline, message));
                };
                if let Some((other, before)) = holder.replace((worker, at)) {
                    let fault = format!("is also item {before} of worker {other}");
                    return Some(self.item_fault(Obligation::Order, *index, &fault));
                }
            }
        }
        let missing = held.iter().position(Option::is_none)?;
        Some(self.item_fault(Obligation::Order, missing as u32, "is in no worker's list"))
    }

    /// The items of each tile cover each of its k-blocks once, and one of them finishes it.
    fn tiles(&self) -> Option<Refutation> {
        let graph = &self.c.graph;
        let mut by_tile: Vec<u32> = (0..self.schedule.sequence.len() as u32).collect();
        let item = |index: &u32| -> &Item { &self.schedule.sequence[*index as usize] };
        by_tile.sort_by_key(|i| (item(i).stage, item(i).m, item(i).n, item(i).k_begin, *i));
        let mut tiles = by_tile.chunk_by(|a, b| {
            let (a, b) = (item(a), item(b));
            (a.stage, a.m, a.n) == (b.stage, b.m, b.n)
        });
        for (s, stage) in graph.stages.iter().enumerate() {
            let (rows, cols) = cluster_grid(graph, StageId(s), self.schedule.cluster);
            for (m, n) in (0..rows).flat_map(|m| (0..cols).map(move |n| (m, n))) {
                // Sorted and inside the grids, so either the next tile is this one, or this one is missing.
                let parts = tiles.next().unwrap_or(&[]);
                let first = parts.first().map(item);
                if first.is_none_or(|i| (i.stage, i.m, i.n) != (StageId(s), m, n)) {
                    let whole = Item {
                        stage: StageId(s),
                        m,
                        n,
                        k_begin: 0,
                        k_end: self.k_blocks(stage, m),
                        part: Part::Whole,
                    };
                    let message = format!("no item computes {}", self.name(&whole));
                    return Some(
                        Refutation::new(Obligation::Order, Subject::Stage(StageId(s)), message)
                            .help("a schedule computes each tile of each grid exactly once"),
                    );
                }
                if let Some(fault) = self.tile(parts, self.k_blocks(stage, m)) {
                    return Some(fault.help(
                        "the items of a tile cover each of its k-blocks exactly once, and one finishes it",
                    ));
                }
            }
        }
        None
    }

    /// k-blocks of the tiles in row `m` of the grid of cluster tiles.
    fn k_blocks(&self, stage: &Stage, m: u32) -> u32 {
        stage.k_blocks_of(m * self.schedule.cluster.0)
    }

    /// One tile's items, by first k-block.
    fn tile(&self, parts: &[u32], k_blocks: u32) -> Option<Refutation> {
        let item = |index: u32| -> &Item { &self.schedule.sequence[index as usize] };
        let refute = |index: u32, fault: String| Some(self.item_fault(Obligation::Order, index, &fault));
        let mut done = 0;
        let mut before: Option<u32> = None;
        for &index in parts {
            let part = item(index);
            if part.k_begin != done {
                let other = before.map_or_else(
                    || "no item comes before it".into(),
                    |b| format!("{} ends at k-block {done}", self.places[b as usize]),
                );
                let fault = if part.k_begin > done { "leaves out" } else { "computes again" };
                let (from, to) = (part.k_begin.min(done), part.k_begin.max(done));
                return refute(index, format!("{fault} k-blocks {from}..{to}: {other}"));
            }
            done = part.k_end;
            before = Some(index);
        }
        let last = before?;
        if done != k_blocks {
            return refute(last, format!("is the last of its tile and ends at k-block {done} of {k_blocks}"));
        }
        if parts.len() > 1
            && let Some(whole) = parts.iter().find(|i| item(**i).part == Part::Whole)
        {
            return refute(*whole, format!("is said to be whole and is one of {} parts", parts.len()));
        }
        let shares = |i: &u32| match item(*i).part {
            Part::Share { first, parts, part } => Some((first, parts, part)),
            _ => None,
        };
        if let Some((first, count, _)) = parts.iter().find_map(shares) {
            let mut taken = vec![None; count as usize];
            for &index in parts {
                let Some((_, _, part)) = shares(&index).filter(|(f, c, _)| (*f, *c) == (first, count)) else {
                    return refute(
                        index,
                        format!("is not of the {count} parts at slab {first} that share its tile"),
                    );
                };
                if let Some(other) = taken[part as usize].replace(index) {
                    let other = self.places[other as usize];
                    return refute(index, format!("takes share {part} of its tile, which {other} takes too"));
                }
            }
            let missing = taken.iter().position(Option::is_none)?;
            return refute(
                last,
                format!("shares its tile with {count} parts, and share {missing} is no item's"),
            );
        }
        let finishes = |i: &u32| item(*i).part.finishes();
        let mut finishers = parts.iter().copied().filter(finishes);
        match (finishers.next(), finishers.next()) {
            (None, _) => refute(last, "leaves its sums in a slab, and no item finishes the tile".into()),
            (Some(one), Some(two)) => {
                refute(two, format!("finishes a tile that {} finishes too", self.places[one as usize]))
            }
            (Some(_), None) => None,
        }
    }
}
