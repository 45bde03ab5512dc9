//! A tile of an attention: a block of queries of one head, step by step over its keys and values, with a
//! running softmax.

use std::ops::Range;

use cusync_gen::graph::{Attention, Heads, OperandKind, PAGE, Scores, Stage};

use super::CpuPipeline;
use super::generate::Cached;
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop};
use crate::device::host_gemm::{MatMut, MatRef, Threads, gemm_f32};
use crate::element::transposed;

/// State of a query so far: the largest score, and the sum of exponentials relative to it.
#[derive(Clone, Copy)]
struct Seen {
    largest: f32,
    sum: f32,
}

/// Queries with a running softmax over tokens that arrive in steps.
pub(super) struct Softmax {
    queries: Vec<f32>,
    softcap: Option<f32>,
    dim: usize,
    out: Vec<f32>,
    seen: Vec<Seen>,
}

impl Softmax {
    /// `rows` queries of `dim` columns, not yet scaled.
    pub(super) fn new(mut queries: Vec<f32>, rows: usize, dim: usize, scores: &Scores) -> Self {
        queries.iter_mut().for_each(|q| *q *= scores.scale);
        let seen = vec![Seen { largest: f32::NEG_INFINITY, sum: 0.0 }; rows];
        Softmax { queries, softcap: scores.softcap, dim, out: vec![0.0; rows * dim], seen }
    }

    /// Adds `count` tokens; query i attends to those in `visible(i)`.
    pub(super) fn step(
        &mut self,
        keys: &[f32],
        values: &[f32],
        count: usize,
        visible: impl Fn(usize) -> Range<usize>,
    ) {
        let (rows, dim) = (self.seen.len(), self.dim);
        let keys = transposed(keys, dim);
        let mut scores = vec![0.0; rows * count];
        gemm_f32(
            MatMut::new(&mut scores, rows, count, count),
            MatRef::new(&self.queries, rows, dim, dim),
            MatRef::new(&keys, dim, count, count),
            false,
            Threads::Caller,
        );
        for (i, (seen, scores)) in self.seen.iter_mut().zip(scores.chunks_mut(count)).enumerate() {
            if let Some(softcap) = self.softcap {
                scores.iter_mut().for_each(|score| *score = softcap * (*score / softcap).tanh());
            }
            let seen_now = visible(i);
            let end = seen_now.end.min(count);
            let shrink = weigh(seen, scores, seen_now.start.min(end)..end);
            self.out[i * dim..(i + 1) * dim].iter_mut().for_each(|x| *x *= shrink);
        }
        gemm_f32(
            MatMut::new(&mut self.out, rows, dim, dim),
            MatRef::new(&scores, rows, count, count),
            MatRef::new(values, count, dim, dim),
            true,
            Threads::Caller,
        );
    }

    /// One row per query.
    pub(super) fn finish(mut self) -> Vec<f32> {
        for (seen, row) in self.seen.iter().zip(self.out.chunks_mut(self.dim)) {
            row.iter_mut().for_each(|x| *x /= seen.sum);
        }
        self.out
    }
}

/// Rotates the pairs (i, i + dim / 2) of rows of `dim` columns; `angles` gives cosines, then sines, of each
/// row.
pub(super) fn rotate<'a>(rows: &mut [f32], dim: usize, angles: impl Fn(usize) -> &'a [f32]) {
    for (at, row) in rows.chunks_mut(dim).enumerate() {
        let (cosines, sines) = angles(at).split_at(dim / 2);
        let (first, second) = row.split_at_mut(dim / 2);
        for (((x, y), c), s) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
            (*x, *y) = (*x * c - *y * s, *y * c + *x * s);
        }
    }
}

/// Normalizes rows of `dim` columns: divides by the root of the mean square plus epsilon, and multiplies by
/// the gain.
pub(super) fn normalise_heads(rows: &mut [f32], dim: usize, epsilon: f32, gain: &[f32]) {
    for row in rows.chunks_mut(dim) {
        let squares: f32 = row.iter().map(|x| x * x).sum();
        let scale = 1.0 / (squares / dim as f32 + epsilon).sqrt();
        row.iter_mut().zip(gain).for_each(|(x, gain)| *x *= scale * gain);
    }
}

impl CpuPipeline {
    /// Computes and stores a tile; the first of the query heads that share keys and values appends its
    /// tokens' to the cache. A sequence without room in the cache, or with a page outside the pool, gets zeros and appends
    /// nothing.
    pub(super) fn attend(
        &self,
        place: &Place<'_>,
        shape: &Attention,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let Place { work, stage, tile, at, .. } = place;
        let Heads { query, kv, dim, .. } = shape.heads;
        let (dim, step, tokens) = (dim as usize, stage.mma_tile.2 as usize, shape.tokens as usize);
        let qkv = &stage.operands[0];
        // Columns are the heads of queries, keys and values; rows are one sequence after another.
        let (heads, kv_heads) = (query as usize, kv as usize);
        let (head, group) = (tile.n as usize, heads / kv_heads);
        let shared = head / group;
        let sequence = at.row / tokens;
        let begin = sequence * tokens;
        let load = |row: usize, rows: usize, column: usize| {
            let mut values = vec![0.0; rows * dim];
            self.memory.load_operand(qkv, Box2 { row, col: column * dim, rows, cols: dim }, &mut values);
            values
        };
        let cached = shape.cache.as_ref().map(|cache| {
            let table = self.table(stage, cache, sequence);
            Cached { heads: &shape.heads, cache, sequence, head: shared, table }
        });
        let length = usize::try_from(self.length(stage, sequence)).ok();
        let left_out = match (&cached, length) {
            (Some(cached), Some(past)) => !cached.has_room(past + tokens),
            (Some(_), None) => true,
            (None, _) => false,
        };
        // A sequence that is left out still waits and posts, so that all counts agree.
        let past = length.filter(|_| !left_out).unwrap_or(0);
        let rotated = |first: usize, rows: usize, column: usize| {
            let mut values = load(begin + first, rows, column);
            if let Some(angles) = self.angles(stage, past + first, rows, dim) {
                rotate(&mut values, dim, |i| &angles[i * dim..(i + 1) * dim]);
            }
            values
        };
        let mut softmax = None;
        for k in work.k.clone() {
            self.wait_for(place, k, &work.k, |_| true, scratch)?;
            let softmax = softmax.get_or_insert_with(|| {
                let queries = rotated(at.row - begin, at.rows, head);
                let mut softmax = Softmax::new(queries, at.rows, dim, &shape.scores);
                if let Some(cached) = &cached {
                    let first = past + at.row - begin;
                    self.attend_cached(stage, cached, past, &mut softmax, |i| {
                        shape.scores.first_seen((first + i) as u32)
                    });
                }
                softmax
            });
            let first = k as usize * step;
            let count = step.min(tokens - first);
            let keys = rotated(first, count, heads + shared);
            let values = load(begin + first, count, heads + kv_heads + shared);
            softmax.step(&keys, &values, count, |i| {
                let position = at.row - begin + i;
                let from = shape.scores.first_seen((past + position) as u32) as usize;
                let end = if shape.causal { position + 1 } else { tokens };
                from.saturating_sub(past + first)..end.saturating_sub(first)
            });
        }
        let mut out = softmax.map(Softmax::finish).unwrap_or_default();
        if left_out {
            out.fill(0.0);
            self.memory.store(stage.out, *at, &out);
            return Ok(());
        }
        self.memory.store(stage.out, *at, &out);
        let Some(cached) = cached.filter(|_| head.is_multiple_of(group)) else { return Ok(()) };
        // The steps so far cover all of its own tokens.
        let new = [
            (OperandKind::CachedKeys, rotated(at.row - begin, at.rows, heads + shared)),
            (OperandKind::CachedValues, load(at.row, at.rows, heads + kv_heads + shared)),
        ];
        for (kind, values) in &new {
            let Some(id) = stage.operand(*kind).map(|o| o.tensor) else { continue };
            for (i, row) in values.chunks(dim).enumerate() {
                let Some(to) = cached.row(past + at.row - begin + i) else { continue };
                self.memory.store(id, Box2 { row: to, col: 0, rows: 1, cols: dim }, row);
            }
        }
        Ok(())
    }
}

impl CpuPipeline {
    /// Adds the first `past` tokens of a cache to a softmax, page by page. Query i attends to those from
    /// `first_seen(i)` on.
    fn attend_cached(
        &self,
        stage: &Stage,
        cached: &Cached<'_>,
        past: usize,
        softmax: &mut Softmax,
        first_seen: impl Fn(usize) -> u32,
    ) {
        let dim = cached.heads.dim as usize;
        for first in (0..past).step_by(PAGE as usize) {
            let count = (PAGE as usize).min(past - first);
            let Some(row) = cached.row(first) else { continue };
            let [keys, values] = [OperandKind::CachedKeys, OperandKind::CachedValues].map(|kind| {
                let mut rows = vec![0.0; count * dim];
                if let Some(operand) = stage.operand(kind) {
                    self.memory.load(operand.tensor, Box2 { row, col: 0, rows: count, cols: dim }, &mut rows);
                }
                rows
            });
            softmax.step(&keys, &values, count, |i| (first_seen(i) as usize).saturating_sub(first)..count);
        }
    }
}

/// Converts the `visible` scores to weights relative to the largest so far, the others to zeros.
/// Returns the factor that rescales earlier sums.
fn weigh(seen: &mut Seen, scores: &mut [f32], visible: Range<usize>) -> f32 {
    scores[..visible.start].fill(0.0);
    scores[visible.end..].fill(0.0);
    let shown = &mut scores[visible];
    if shown.is_empty() {
        return 1.0;
    }
    let largest = shown.iter().fold(seen.largest, |a, b| a.max(*b));
    let shrink = (seen.largest - largest).exp();
    shown.iter_mut().for_each(|s| *s = (*s - largest).exp());
    *seen = Seen { largest, sum: seen.sum * shrink + shown.iter().sum::<f32>() };
    shrink
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_half_a_head_apart() {
        let mut rows = [1.0f32, 2.0, 3.0, 4.0];
        // A quarter turn for the first pair, none for the second.
        rotate(&mut rows, 4, |_| &[0.0, 1.0, 1.0, 0.0]);
        assert_eq!(rows, [-3.0, 2.0, 1.0, 4.0]);
    }

    #[test]
    fn weights_of_two_steps_are_those_of_one() {
        let scores = [0.5f32, -1.0, 3.0, 2.0, 4.0];
        let whole: f32 = scores.iter().map(|s| (s - 4.0).exp()).sum();
        let mut seen = Seen { largest: f32::NEG_INFINITY, sum: 0.0 };
        let mut first = [0.5, -1.0, 3.0];
        assert_eq!(weigh(&mut seen, &mut first, 0..3), 0.0, "there was nothing to shrink");
        let mut second = [2.0, 4.0, 100.0];
        let shrink = weigh(&mut seen, &mut second, 0..2);
        assert!((shrink - (-1.0f32).exp()).abs() < 1e-6 && second[2] == 0.0, "a hidden score has no weight");
        assert!((seen.sum - whole).abs() < 1e-5 && (first[0] * shrink - (0.5f32 - 4.0).exp()).abs() < 1e-6);
        assert_eq!(weigh(&mut seen, &mut [9.0], 0..0), 1.0, "a step that is hidden changes nothing");
    }
}
