//! Hybrid Stream-K: tiles split along k into the workers' gaps, so that all workers end together.
//!
//! The split follows the wrap-around rule of preemptive scheduling: workers are filled one after another up to a
//! deadline, and the rest of a tile goes to the front of the next worker's gap. So the parts of a tile that end early
//! leave their sums in slabs, and the part at the end of a gap finishes the tile. The deadline starts at the even
//! share of the work and is raised by the evenly divided remainder until everything fits.

use super::Part;
use super::place::{Board, Current, Piece};
use super::problem::TileAt;
use super::workers::Time;

/// Maximum deadlines tried.
const TRIES: u32 = 24;
/// Precision of the earliest deadline: microseconds, and fraction of it.
const EXACT: (f64, f64) = (0.1, 2e-4);
/// Largest first step between deadlines, microseconds. Waits can move the end far beyond the even share, so steps may
/// grow.
const STEP_US: f64 = 2.0;
const GROWTH: f64 = 1.5;

/// Tiles to split, and the deadline of workers.
pub(super) struct SplitRegion<'t> {
    pub(super) tiles: &'t [TileAt],
    /// The last worker's deadline is this much later than the first one's: tiles in low columns are done a little
    /// earlier so that the next stage can begin with them.
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
    /// Splits the region's tiles. Returns `false`, with nothing changed, if they do not fit or workers would end after
    /// `limit_us`.
    pub(super) fn place_split(&mut self, now: &Current, region: &SplitRegion, limit_us: f64) -> bool {
        let workers = self.workers.by_free_time();
        let k_blocks = self.problem.stages[now.stage].k_blocks;
        let whole = now.cost.whole_us(k_blocks);
        let share = 1.0 / workers.len() as f64;
        let free: f64 = self.workers.free.iter().sum();
        let mut low = (free + region.tiles.len() as f64 * whole) * share - 0.5 * region.ramp_us;
        let mut high = low;
        let fill = Fill { board: self, now, region, workers: &workers };
        let (mut best, mut trial) = (Vec::new(), Vec::new());
        let exact = EXACT.0 + EXACT.1 * low;
        let (mut least, mut most) = (exact, STEP_US.max(exact));
        let mut left = fill.by(high, &mut best);
        for _ in 0..TRIES {
            if left == 0 || high > limit_us {
                break;
            }
            low = high;
            high += (f64::from(left) * whole * share / f64::from(k_blocks)).clamp(least, most);
            (least, most) = (least * GROWTH, most * GROWTH);
            left = fill.by(high, &mut best);
        }
        if left > 0 {
            return false;
        }
        while high - low > exact {
            let middle = 0.5 * (low + high);
            if fill.by(middle, &mut trial) == 0 {
                std::mem::swap(&mut best, &mut trial);
                high = middle;
            } else {
                low = middle;
            }
        }
        self.commit(now, region, best);
        true
    }

    /// Puts parts on the board: contributions first, then whole tiles, then finishing parts.
    fn commit(&mut self, now: &Current, region: &SplitRegion, cuts: Vec<Cut>) {
        let k_blocks = self.problem.stages[now.stage].k_blocks;
        // Contributions by tile and end: slabs are read in the order in which they arrive.
        let end = |cut: &Cut| {
            let class = region.tiles[cut.tile].class as usize;
            Time(now.ready.math_end(class, cut.k0, cut.k1, cut.free, &now.cost))
        };
        let leaving = cuts.iter().enumerate().filter(|(_, cut)| !cut.finishes);
        let mut leaving: Vec<_> = leaving.map(|(i, cut)| (cut.tile, end(cut), i)).collect();
        leaving.sort_unstable();
        // The first slab of each tile, and its number of slabs.
        let mut slabs = vec![(0, 0); region.tiles.len()];
        for (tile, _, i) in leaving {
            let slab = self.take_slabs(1);
            let (first, count) = &mut slabs[tile];
            *first = slab - *count;
            *count += 1;
            self.put_cut(now, region, &cuts[i], Part::Contribute { slab });
        }
        let finishing = cuts.iter().filter(|cut| cut.finishes);
        let (whole, partial): (Vec<&Cut>, Vec<&Cut>) =
            finishing.partition(|cut| cut.k0 == 0 && cut.k1 == k_blocks);
        whole.into_iter().for_each(|cut| self.put_cut(now, region, cut, Part::Whole));
        for cut in partial {
            let (first, slabs) = slabs[cut.tile];
            self.put_cut(now, region, cut, Part::Finish { first, slabs });
        }
    }

    fn put_cut(&mut self, now: &Current, region: &SplitRegion, cut: &Cut, part: Part) {
        let piece = Piece { ks: cut.k0..cut.k1, part, worker: cut.worker, free: cut.free };
        self.workers.free[cut.worker as usize] = self.put(now, region.tiles[cut.tile], &[piece]);
    }
}

/// The wrap-around rule for one region.
struct Fill<'a> {
    board: &'a Board<'a>,
    now: &'a Current,
    region: &'a SplitRegion<'a>,
    workers: &'a [(Time, u32)],
}

impl Fill<'_> {
    /// Writes the parts to `cuts` when the first worker must end by `deadline`; returns the k-blocks that do not fit.
    fn by(&self, deadline: f64, cuts: &mut Vec<Cut>) -> u32 {
        let k_blocks = self.board.problem.stages[self.now.stage].k_blocks;
        cuts.clear();
        // The worker being filled, and when it is free.
        let mut at = self.gap(0);
        for (index, tile) in self.region.tiles.iter().enumerate() {
            loop {
                let Some(gap) = at else { return (self.region.tiles.len() - index) as u32 * k_blocks };
                let begun = cuts.len();
                if let Some(next) = self.cut(index, tile.class as usize, gap, deadline, cuts) {
                    at = Some(next);
                    break;
                }
                // Nothing useful fits the rest of this gap.
                cuts.truncate(begun);
                at = self.gap(gap.index + 1);
            }
        }
        0
    }

    fn gap(&self, index: usize) -> Option<Gap> {
        self.workers.get(index).map(|w| Gap { index, free: w.0.0 })
    }

    fn deadline(&self, index: usize, first: f64) -> f64 {
        first + self.region.ramp_us * index as f64 / self.workers.len() as f64
    }

    /// Places one tile starting at gap `at`: whole if it fits, otherwise with a finishing part here and the rest in
    /// the next gaps. Returns where the next tile begins, or `None` if this one cannot begin here.
    fn cut(&self, tile: usize, class: usize, at: Gap, first: f64, cuts: &mut Vec<Cut>) -> Option<Gap> {
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
            cuts.push(cut(at, 0, k_blocks, true));
            return Some(Gap { free: whole_end, ..at });
        }
        let limits = self.board.problem.cost;
        let min_part = limits.min_part.max(1);
        let begun = cuts.len();
        // Upper bound on the capacity of the next gaps; it rules out most numbers of parts.
        let mut room = 0;
        'slabs: for slabs in 1..limits.max_parts.max(1) {
            let next = at.index + slabs as usize;
            if let Some(gap) = self.gap(next) {
                // Its read turn does not depend on the following parts.
                let turn = deadline - cost.epilogue_us - f64::from(slabs) * cost.slab_read_us + 1e-6;
                let by = turn.min(self.deadline(next, first)) - limits.handoff_us - cost.slab_write_us;
                room += ready.room_by(class, gap.free, by, cost);
            }
            let math_by = deadline - cost.epilogue_us - f64::from(slabs) * cost.slab_read_us;
            let own = ready
                .blocks_by(class, k_blocks, at.free, math_by, cost)
                .min(k_blocks.saturating_sub(min_part));
            if own < min_part {
                return None;
            }
            if own + room < k_blocks {
                continue;
            }
            cuts.truncate(begun);
            cuts.push(cut(at, k_blocks - own, k_blocks, true));
            let mut rest = k_blocks - own;
            let mut gap = at;
            for i in 0..slabs {
                let Some(next) = self.gap(gap.index + 1) else { continue 'slabs };
                gap = next;
                // The slab that arrives first is read first; the one that fills a gap may arrive as late as its turn.
                let turn = math_by + f64::from(slabs - 1 - i) * cost.slab_read_us;
                let by = turn.min(self.deadline(gap.index, first)) - limits.handoff_us - cost.slab_write_us;
                let fits = ready.blocks_by(class, rest, gap.free, by, cost);
                let takes = if fits >= rest { rest } else { fits.min(rest.saturating_sub(min_part)) };
                if takes < min_part {
                    continue 'slabs;
                }
                cuts.push(cut(gap, rest - takes, rest, false));
                rest -= takes;
                if rest == 0 {
                    let end = ready.math_end(class, 0, takes, gap.free, cost) + cost.slab_write_us;
                    return Some(Gap { index: gap.index, free: end });
                }
            }
        }
        None
    }
}

/// The rest of a worker's gap.
#[derive(Clone, Copy)]
struct Gap {
    index: usize,
    free: f64,
}
