//! A tile of an attention: a block of queries of one head, step by step over its keys and values, with a running softmax.

use cusync_gen::graph::{Attention, Heads};

use super::CpuPipeline;
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop};
use crate::device::host_gemm::{MatMut, MatRef, Threads, gemm_f32};

/// What a query has seen so far: the largest score, and the sum of exponentials relative to it.
#[derive(Clone, Copy)]
struct Seen {
    largest: f32,
    sum: f32,
}

impl CpuPipeline {
    /// Computes and stores a tile.
    pub(super) fn attend(
        &self,
        place: &Place<'_>,
        shape: &Attention,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let Place { work, stage, tile, at } = place;
        let Heads { query, kv, dim } = shape.heads;
        let (dim, step, tokens) = (dim as usize, stage.mma_tile.2 as usize, stage.k as usize);
        let qkv = stage.operands[0].tensor;
        // Columns are the heads of queries, of keys, of values.
        let (heads, kv_heads) = (query as usize, kv as usize);
        let head = tile.n as usize;
        let shared = head / (heads / kv_heads);
        let load = |row: usize, rows: usize, column: usize| {
            let mut values = vec![0.0; rows * dim];
            self.memory.load(qkv, Box2 { row, col: column * dim, rows, cols: dim }, &mut values);
            values
        };
        let mut queries = Vec::new();
        let mut out = vec![0.0; at.rows * dim];
        let mut seen = vec![Seen { largest: f32::NEG_INFINITY, sum: 0.0 }; at.rows];
        for k in work.k.clone() {
            self.wait_for(place, k, &work.k, |_| true, scratch)?;
            if k == work.k.start {
                queries = load(at.row, at.rows, head);
                let scale = 1.0 / (dim as f32).sqrt();
                queries.iter_mut().for_each(|q| *q *= scale);
            }
            let first = k as usize * step;
            let count = step.min(tokens - first);
            let keys = transposed(&load(first, count, heads + shared), dim);
            let values = load(first, count, heads + kv_heads + shared);
            let mut scores = vec![0.0; at.rows * count];
            gemm_f32(
                MatMut::new(&mut scores, at.rows, count, count),
                MatRef::new(&queries, at.rows, dim, dim),
                MatRef::new(&keys, dim, count, count),
                false,
                Threads::Caller,
            );
            for (i, (seen, scores)) in seen.iter_mut().zip(scores.chunks_mut(count)).enumerate() {
                let visible = if shape.causal { (at.row + i + 1).saturating_sub(first) } else { count };
                let shrink = weigh(seen, scores, visible.min(count));
                out[i * dim..(i + 1) * dim].iter_mut().for_each(|x| *x *= shrink);
            }
            gemm_f32(
                MatMut::new(&mut out, at.rows, dim, dim),
                MatRef::new(&scores, at.rows, count, count),
                MatRef::new(&values, count, dim, dim),
                true,
                Threads::Caller,
            );
        }
        for (seen, row) in seen.iter().zip(out.chunks_mut(dim)) {
            row.iter_mut().for_each(|x| *x /= seen.sum);
        }
        self.memory.store(stage.out, *at, &out);
        Ok(())
    }
}

/// Turns the first `visible` scores into weights relative to the largest so far, the others into zeros. Returns the factor
/// that brings earlier sums to the new scale.
fn weigh(seen: &mut Seen, scores: &mut [f32], visible: usize) -> f32 {
    let (shown, hidden) = scores.split_at_mut(visible);
    hidden.fill(0.0);
    if shown.is_empty() {
        return 1.0;
    }
    let largest = shown.iter().fold(seen.largest, |a, b| a.max(*b));
    let shrink = (seen.largest - largest).exp();
    shown.iter_mut().for_each(|s| *s = (*s - largest).exp());
    *seen = Seen { largest, sum: seen.sum * shrink + shown.iter().sum::<f32>() };
    shrink
}

/// `cols` columns as rows.
fn transposed(matrix: &[f32], cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|c| matrix.iter().skip(c).step_by(cols).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_two_steps_are_those_of_one() {
        let scores = [0.5f32, -1.0, 3.0, 2.0, 4.0];
        let whole: f32 = scores.iter().map(|s| (s - 4.0).exp()).sum();
        let mut seen = Seen { largest: f32::NEG_INFINITY, sum: 0.0 };
        let mut first = [0.5, -1.0, 3.0];
        assert_eq!(weigh(&mut seen, &mut first, 3), 0.0, "there was nothing to shrink");
        let mut second = [2.0, 4.0, 100.0];
        let shrink = weigh(&mut seen, &mut second, 2);
        assert!((shrink - (-1.0f32).exp()).abs() < 1e-6 && second[2] == 0.0, "a hidden score has no weight");
        assert!((seen.sum - whole).abs() < 1e-5 && (first[0] * shrink - (0.5f32 - 4.0).exp()).abs() < 1e-6);
        assert_eq!(weigh(&mut seen, &mut [9.0], 0), 1.0, "a step that is hidden changes nothing");
    }
}
