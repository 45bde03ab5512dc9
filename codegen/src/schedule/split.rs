//! Hybrid Stream-K: tiles cut along k into the gaps of the workers, so that all of them end together.
//!
//! The cut follows the wrap-around rule of preemptive scheduling: workers are filled one after the other up to a deadline,
//! and what is left of a tile goes to the front of the next worker's gap. So the parts of a tile that end early leave
//! their sums in slabs, and the part at the end of a gap finishes the tile. The earliest deadline for which everything
//! fits is found by bisection.

use super::Part;
use super::place::{Board, Current, Place, Time};

/// How many times the interval of deadlines is halved.
const STEPS: u32 = 10;

/// Tiles to be cut, and by when workers shall end.
pub(super) struct Region<'t> {
    pub(super) tiles: &'t [u32],
    /// The last worker's deadline is this much after the first one's: tiles of low columns are done a little earlier, so that
    /// the next stage can begin with them.
    pub(super) ramp_us: f64,
}

/// A part of a tile on a worker.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Index in the region.
    tile: usize,
    k0: u32,
    k1: u32,
    worker: u32,
    free: f64,
    finishes: bool,
}

impl Board<'_> {
    /// Cuts the region's tiles; `false` when they do not fit, and then nothing has changed.
    pub(super) fn place_split(&mut self, now: &Current, region: &Region) -> bool {
        let mut workers: Vec<(Time, u32)> =
            self.free.iter().enumerate().map(|(w, at)| (Time(*at), w as u32)).collect();
        workers.sort_unstable();
        let whole = now.cost.whole_us(self.problem.stages[now.stage].k_blocks);
        let free: f64 = self.free.iter().sum();
        let mut low = (free + region.tiles.len() as f64 * whole) / workers.len() as f64 - region.ramp_us;
        let mut high = low + whole + now.cost.slab_read_us * f64::from(self.problem.cost.max_parts);
        let fill = Fill { board: self, now, region, workers: &workers };
        // Waits can move the earliest end far behind the balance.
        let mut best = None;
        for _ in 0..4 {
            best = fill.by(high);
            if best.is_some() {
                break;
            }
            (low, high) = (high, high + 2.0 * (high - low));
        }
        let Some(mut best) = best else { return false };
        for _ in 0..STEPS {
            let middle = 0.5 * (low + high);
            match fill.by(middle) {
                Some(cuts) => (best, high) = (cuts, middle),
                None => low = middle,
            }
        }
        self.commit(now, region, best);
        true
    }

    /// Puts parts on the board: contributions first, then whole tiles, then the parts that finish.
    fn commit(&mut self, now: &Current, region: &Region, cuts: Vec<Cut>) {
        let shape = &self.problem.stages[now.stage];
        let (k_blocks, width) = (shape.k_blocks, shape.grid.1);
        // When the slab of each contribution can be read, by tile.
        let mut slabs: Vec<Vec<(Time, usize)>> = vec![Vec::new(); region.tiles.len()];
        let mut keys = vec![0.0f64; region.tiles.len()];
        for (i, cut) in cuts.iter().enumerate().filter(|(_, cut)| !cut.finishes) {
            let tile = region.tiles[cut.tile];
            let class = shape.needs.class_of(tile / width, tile % width);
            let end = now.ready.math_end(class, cut.k0, cut.k1, cut.free, &now.cost) + now.cost.slab_write_us;
            self.free[cut.worker as usize] = end;
            slabs[cut.tile].push((Time(end), i));
        }
        let mut first_slab = vec![0; region.tiles.len()];
        for (tile, slabs) in slabs.iter_mut().enumerate() {
            slabs.sort_unstable();
            first_slab[tile] = self.slabs;
            for (Time(end), i) in slabs.iter() {
                let cut = cuts[*i];
                let id = region.tiles[cut.tile];
                let class = shape.needs.class_of(id / width, id % width);
                let key = cut.free.max(now.ready.key(class, cut.k0, cut.k1, false));
                keys[tile] = keys[tile].max(key);
                let part = Part::Contribute { slab: self.slabs };
                self.slabs += 1;
                let time = now.time(cut.free, cut.k1 - cut.k0, part, *end);
                self.push(now, id, cut.k0..cut.k1, part, Place { worker: cut.worker, key, time });
            }
        }
        let finishing = cuts.iter().filter(|cut| cut.finishes);
        let (whole, partial): (Vec<&Cut>, Vec<&Cut>) =
            finishing.partition(|cut| cut.k0 == 0 && cut.k1 == k_blocks);
        for cut in whole {
            let end = self.put_whole(now, region.tiles[cut.tile], cut.worker, cut.free);
            self.free[cut.worker as usize] = end;
        }
        for cut in partial {
            let tile = region.tiles[cut.tile];
            let class = shape.needs.class_of(tile / width, tile % width);
            let mut end = now.ready.math_end(class, cut.k0, cut.k1, cut.free, &now.cost);
            for (Time(at), _) in &slabs[cut.tile] {
                end = end.max(*at + self.problem.cost.handoff_us) + now.cost.slab_read_us;
            }
            end = end.max(now.ready.late_us(class)) + now.cost.epilogue_us;
            let key = cut.free.max(keys[cut.tile]).max(now.ready.key(class, cut.k0, cut.k1, true));
            self.clock.complete(now.stage, tile as usize, end + self.problem.cost.post_us, key);
            self.free[cut.worker as usize] = end;
            let part = Part::Finish { first: first_slab[cut.tile], slabs: slabs[cut.tile].len() as u32 };
            let time = now.time(cut.free, cut.k1 - cut.k0, part, end);
            self.push(now, tile, cut.k0..cut.k1, part, Place { worker: cut.worker, key, time });
        }
    }
}

/// The wrap-around rule for one region.
struct Fill<'a> {
    board: &'a Board<'a>,
    now: &'a Current,
    region: &'a Region<'a>,
    workers: &'a [(Time, u32)],
}

impl Fill<'_> {
    /// The parts when the first worker must end by `deadline`; `None` when they do not fit.
    fn by(&self, deadline: f64) -> Option<Vec<Cut>> {
        let shape = &self.board.problem.stages[self.now.stage];
        let mut cuts: Vec<Cut> = Vec::with_capacity(self.workers.len() + self.region.tiles.len());
        // The worker being filled, and when it is free.
        let mut at = Gap { index: 0, free: self.workers.first()?.0.0 };
        for (index, &tile) in self.region.tiles.iter().enumerate() {
            let class = shape.needs.class_of(tile / shape.grid.1, tile % shape.grid.1);
            loop {
                if let Some((parts, next)) = self.cut(index, class, at, deadline) {
                    cuts.extend(parts);
                    at = next;
                    break;
                }
                // Nothing useful fits the rest of this gap.
                at = self.gap(at.index + 1)?;
            }
        }
        Some(cuts)
    }

    fn gap(&self, index: usize) -> Option<Gap> {
        self.workers.get(index).map(|w| Gap { index, free: w.0.0 })
    }

    fn deadline(&self, index: usize, first: f64) -> f64 {
        first + self.region.ramp_us * index as f64 / self.workers.len() as f64
    }

    /// One tile from the gap `at` on: whole if it fits, else with a finishing part here and the rest in the next gaps.
    /// `None` when it cannot begin here. Also returns where the next tile begins.
    fn cut(&self, tile: usize, class: usize, at: Gap, first: f64) -> Option<(Vec<Cut>, Gap)> {
        let (cost, ready) = (&self.now.cost, &self.now.ready);
        let k_blocks = self.board.problem.stages[self.now.stage].k_blocks;
        let deadline = self.deadline(at.index, first);
        let cut = |gap: Gap, k0, k1, finishes| Cut {
            tile,
            k0,
            k1,
            worker: self.workers[gap.index].1,
            free: gap.free,
            finishes,
        };
        let late = ready.late_us(class);
        if late + cost.epilogue_us > deadline {
            return None;
        }
        let whole_end = ready.math_end(class, 0, k_blocks, at.free, cost) + cost.epilogue_us;
        if whole_end <= deadline + 1e-6 {
            return Some((vec![cut(at, 0, k_blocks, true)], Gap { free: whole_end, ..at }));
        }
        let limits = self.board.problem.cost;
        let min_part = limits.min_part.max(1);
        'slabs: for slabs in 1..limits.max_parts.max(1) {
            let math_by = deadline - cost.epilogue_us - f64::from(slabs) * cost.slab_read_us;
            let mine = ready
                .blocks_by(class, k_blocks, at.free, math_by, cost)
                .min(k_blocks.saturating_sub(min_part));
            if mine < min_part {
                return None;
            }
            let mut parts = vec![cut(at, k_blocks - mine, k_blocks, true)];
            let mut rest = k_blocks - mine;
            let mut gap = at;
            for i in 0..slabs {
                let Some(next) = self.gap(gap.index + 1) else { continue 'slabs };
                gap = next;
                // The slab that comes first is read first; the one that fills a gap may come as late as its turn.
                let turn = math_by + f64::from(slabs - 1 - i) * cost.slab_read_us;
                let by = turn.min(self.deadline(gap.index, first)) - limits.handoff_us - cost.slab_write_us;
                let fits = ready.blocks_by(class, rest, gap.free, by, cost);
                let takes = if fits >= rest { rest } else { fits.min(rest.saturating_sub(min_part)) };
                if takes < min_part {
                    continue 'slabs;
                }
                parts.push(cut(gap, rest - takes, rest, false));
                rest -= takes;
                if rest == 0 {
                    let end = ready.math_end(class, 0, takes, gap.free, cost) + cost.slab_write_us;
                    return Some((parts, Gap { index: gap.index, free: end }));
                }
            }
        }
        None
    }
}

/// What is left of a worker's gap.
#[derive(Clone, Copy)]
struct Gap {
    index: usize,
    free: f64,
}
