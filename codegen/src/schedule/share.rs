//! Tiles shared along k by workers that finish them together, for stages with fewer tiles than workers.

use super::Part;
use super::place::{Board, Current, Piece};
use super::problem::TileAt;
use super::workers::Time;

impl Board<'_> {
    /// Splits every tile evenly into `parts` shares, each on its own worker. Returns `false`, with nothing changed, if
    /// there are too few workers, units of the tile or k-blocks.
    pub(super) fn place_shared(&mut self, now: &Current, tiles: &[TileAt], parts: u32) -> bool {
        let (stage, limits) = (&self.problem.stages[now.stage], self.problem.cost);
        let (k_blocks, count) = (stage.k_blocks, parts as usize);
        let few = tiles.len() * count > self.workers.free.len() || k_blocks < parts * limits.min_part.max(1);
        if parts < 2 || !super::may_share(parts, stage.units) || few {
            return false;
        }
        let workers = self.workers.by_free_time();
        let cut = |part: u32| k_blocks * part / parts;
        for (tile, workers) in tiles.iter().zip(workers.chunks_exact(count)) {
            let first = self.take_slabs(parts);
            let piece = |(part, (free, worker)): (u32, &(Time, u32))| Piece {
                ks: cut(part)..cut(part + 1),
                part: Part::Share { first, parts, part },
                worker: *worker,
                free: free.0,
            };
            let pieces: Vec<Piece> = (0..parts).zip(workers).map(piece).collect();
            let end = self.put(now, *tile, &pieces);
            workers.iter().for_each(|(_, worker)| self.workers.free[*worker as usize] = end);
        }
        true
    }
}
