//! The effects of steps on memory shared by all CTAs: slots, flags, slabs, sums and tensors. Each step is atomic and
//! visible to all at once; the order of a program's steps already models weaker stores and loads.

use cusync_gen::check::{Candidate, EpochSource};
use cusync_gen::graph::TensorId;

use super::Violation;
use super::memory::{Memory, Tag};
use super::program::{Op, Program};
use super::shapes;

/// The origin of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// Counted from 1.
    pub(super) run: u32,
    pub(super) item: u32,
    pub(super) cta: usize,
}

/// The k-blocks summed in a slab, and their owner.
#[derive(Clone)]
struct Sums {
    run: u32,
    tile: u32,
    k: Vec<(u32, u32)>,
}

pub(super) struct Effects<'a> {
    c: &'a Candidate,
    program: &'a Program,
    /// Runs that have completed before the first.
    before: u32,
    ctas: usize,
    memory: Memory,
    slots: Vec<u32>,
    /// For each CTA: the last run that set each slab's flag, and the owner of the slab's sums.
    flags: Vec<u32>,
    slabs: Vec<Option<Sums>>,
    /// For each CTA: the k-blocks in the sums of each run's items, and the slot value it read.
    sums: Vec<Vec<(u32, u32)>>,
    looked: Vec<u32>,
    /// Units stored, for each run's tiles.
    stored: Vec<u64>,
}

impl<'a> Effects<'a> {
    /// `ctas`: CTAs per worker.
    pub(super) fn new(c: &'a Candidate, program: &'a Program, before: u32, ctas: usize, runs: u32) -> Self {
        let each = program.work.len() * ctas * runs as usize;
        let slabs = program.slabs as usize * ctas;
        Effects {
            memory: Memory::poisoned(&c.graph, &program.layout),
            slots: program.posts.iter().map(|posts| posts.wrapping_mul(before)).collect(),
            flags: vec![0; slabs],
            slabs: vec![None; slabs],
            sums: vec![Vec::new(); each],
            looked: vec![0; each],
            stored: vec![0; (program.layout.tiles() * runs) as usize],
            c,
            program,
            before,
            ctas,
        }
    }

    fn place(&self, site: Site) -> usize {
        ((site.run as usize - 1) * self.program.work.len() + site.item as usize) * self.ctas + site.cta
    }

    fn tile(&self, site: Site) -> Option<u32> {
        self.program.work[site.item as usize].ctas[site.cta].tile
    }

    /// Begins the epilogue: the sums now hold the item's own k-blocks.
    pub(super) fn begin_epilogue(&mut self, site: Site) -> Result<(), Violation> {
        let place = self.place(site);
        let sums = &mut self.sums[place];
        if !sums.is_empty() {
            return Err(Violation::Twice);
        }
        *sums = vec![self.program.work[site.item as usize].k];
        Ok(())
    }

    /// Performs one step; `false` if it must wait.
    pub(super) fn perform(&mut self, op: &Op, site: Site) -> Result<bool, Violation> {
        let (run, cta) = (site.run, site.cta);
        let own = self.place(site);
        let slab_at = |slab: u32| slab as usize * self.ctas + cta;
        match *op {
            Op::Wait { .. } | Op::Post { .. } | Op::LookAtSlot { .. } | Op::OverwriteSlot { .. }
                if !self.program.semaphores => {}
            Op::Wait { slot, value } => {
                let contract = &self.c.contract;
                let baked = contract.epoch == EpochSource::LaunchParameter && contract.graph_replay;
                let epoch = self.before.wrapping_add(if baked { 1 } else { run });
                // Counters wrap, so compare the signed difference.
                return Ok(self.slots[slot as usize].wrapping_sub(epoch.wrapping_mul(value)) as i32 >= 0);
            }
            Op::Load(ref cells) => {
                let sibling = self.sibling(site);
                if !cells.is_empty() && !self.memory.holds(&self.program.layout, cells, run, sibling) {
                    return Err(Violation::Stale);
                }
            }
            Op::Leave { slab } => {
                let (tile, at) = (self.tile(site), slab_at(slab));
                let (Some(tile), Some(sums)) = (tile, self.slabs.get_mut(at)) else {
                    return Err(Violation::Outside);
                };
                *sums = Some(Sums { run, tile, k: vec![self.program.work[site.item as usize].k] });
            }
            Op::SetFlag { slab } => {
                let at = slab_at(slab);
                *self.flags.get_mut(at).ok_or(Violation::Outside)? = run;
            }
            Op::SeeFlag { slab } => {
                let flag = *self.flags.get(slab_at(slab)).ok_or(Violation::Outside)?;
                return Ok(if self.c.contract.slabs.flag_is_epoch { flag >= run } else { flag > 0 });
            }
            Op::Add { slab } => match self.slabs.get(slab_at(slab)).ok_or(Violation::Outside)? {
                Some(sums) if sums.run == run && Some(sums.tile) == self.tile(site) => {
                    let k = sums.k.clone();
                    self.sums[own].extend(k);
                }
                _ => return Err(Violation::Stale),
            },
            Op::Store { ref cells, tile, units, all } => {
                let work = &self.program.work[site.item as usize];
                let mut k = self.sums[own].clone();
                k.sort_unstable();
                let end = k.iter().try_fold(0, |end, (a, b)| (*a == end).then_some(*b));
                if work.slices == 1 && units != 0 && end != Some(work.k_blocks) {
                    return Err(Violation::WrongSum);
                }
                let stored = &mut self.stored[((run - 1) * self.program.layout.tiles() + tile) as usize];
                if *stored & units != 0 {
                    return Err(Violation::Twice);
                }
                *stored |= if (*stored | units) == all { u64::MAX } else { units };
                let layout = &self.program.layout;
                self.memory.store(layout, cells, layout.tag(run, tile), units, all);
            }
            Op::Post { slot, amount } => {
                let count = &mut self.slots[slot as usize];
                *count = count.wrapping_add(amount);
            }
            Op::LookAtSlot { slot } => self.looked[own] = self.slots[slot as usize],
            Op::OverwriteSlot { slot, amount } => {
                self.slots[slot as usize] = self.looked[own].wrapping_add(amount);
            }
            // Depends on the worker's other items.
            Op::NextUnderWay => {}
        }
        Ok(true)
    }

    /// For a part that stores only some units of its tile: the tile's tag, and those units.
    fn sibling(&self, site: Site) -> Option<(Tag, u64)> {
        let cta = &self.program.work[site.item as usize].ctas[site.cta];
        cta.finisher.iter().chain(&cta.late).find_map(|op| match op {
            Op::Store { tile, units, all, .. } if units != all => {
                Some((self.program.layout.tag(site.run, *tile), *units))
            }
            _ => None,
        })
    }

    /// A tile that is missing after `run` runs, or a tensor that differs from its stage's output; overlapping runs may
    /// already have begun to overwrite it.
    pub(super) fn incomplete(&self, run: u32, overlap: bool) -> Option<Violation> {
        let tiles = (run * self.program.layout.tiles()) as usize;
        let nothing = |tile: usize| self.program.layout.is_empty(tile as u32 % self.program.layout.tiles());
        if (0..tiles).any(|tile| self.stored[tile] != u64::MAX && !nothing(tile)) {
            return Some(Violation::Missing);
        }
        let graph = &self.c.graph;
        let memory = |t: usize| shapes::memory_of(graph, TensorId(t));
        let last = |t: &usize| {
            let newer =
                |u: usize| memory(u) == memory(*t) && graph.tensors[u].producer > graph.tensors[*t].producer;
            !(0..graph.tensors.len()).any(newer)
        };
        let whole = |t: usize| {
            let tensor = &graph.tensors[t];
            let area = (0..tensor.rows, 0..tensor.cols);
            let cells = self.program.layout.cells(TensorId(t), &area);
            self.memory.holds(&self.program.layout, &cells, run, None)
        };
        (!overlap && !(0..graph.tensors.len()).filter(last).all(whole)).then_some(Violation::Stale)
    }
}
