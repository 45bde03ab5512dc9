//! Tiles shared along k by workers that finish them together: for stages with fewer tiles than workers.

use super::Part;
use super::place::{Board, Current, Place};
use super::problem::TileAt;

impl Board<'_> {
    /// Cuts every tile evenly into `parts` shares, each on a worker of its own; `false` when there are too few workers, units
    /// of the tile or k-blocks, and then nothing has changed.
    pub(super) fn place_shared(&mut self, now: &Current, tiles: &[TileAt], parts: u32) -> bool {
        let (stage, limits) = (&self.problem.stages[now.stage], self.problem.cost);
        let (k_blocks, count) = (stage.k_blocks, parts as usize);
        let few = tiles.len() * count > self.free.len() || k_blocks < parts * limits.min_part.max(1);
        if parts < 2 || parts > stage.units || few {
            return false;
        }
        let workers = self.by_free_time();
        let cut = |part: u32| k_blocks * part / parts;
        let share = f64::from(parts - 1) / f64::from(parts);
        let (write, read) = (now.cost.slab_write_us * share, now.cost.slab_read_us * share);
        for (tile, workers) in tiles.iter().zip(workers.chunks_exact(count)) {
            let (class, first) = (tile.class as usize, self.slabs);
            let (mut key, mut seen) = (0.0f64, 0.0f64);
            for (part, (free, _)) in (0..parts).zip(workers) {
                let (k0, k1) = (cut(part), cut(part + 1));
                let left = now.ready.math_end(class, k0, k1, free.0, &now.cost) + write;
                seen = seen.max(left + limits.handoff_us);
                // Of all parts the latest: so they follow each other in the sequence.
                key = key.max(free.0).max(now.ready.key(class, k0, k1, true));
            }
            let end = (seen + read).max(now.ready.late_us(class)) + now.cost.epilogue_us / f64::from(parts);
            self.slabs += parts;
            self.clock.complete(now.stage, tile.index as usize, end + limits.post_us);
            self.clock.set_key(now.stage, tile.index as usize, key);
            for (index, (free, worker)) in (0..parts).zip(workers) {
                self.free[*worker as usize] = end;
                let part = Part::Share { first, parts, part: index };
                let ks = cut(index)..cut(index + 1);
                let time = now.time(free.0, ks.end - ks.start, part, end);
                self.push(now, *tile, ks, part, Place { worker: *worker, key, time });
            }
        }
        true
    }
}
