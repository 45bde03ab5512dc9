//! Attention from its definition, query by query, in float64.

use cusync_gen::graph::{Attention, Heads};
use rayon::prelude::*;

use super::Matrix;

/// softmax(Q K^T / sqrt(d)) V, query by query.
pub(super) fn attend(shape: &Attention, qkv: &Matrix) -> Matrix {
    let Heads { query, kv, dim } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    let slice = |token: usize, column: usize| &qkv.data[token * qkv.cols + column * dim..][..dim];
    let mut out = Matrix { rows: qkv.rows, cols: heads * dim, data: vec![0.0; qkv.rows * heads * dim] };
    out.data.par_chunks_mut(dim).enumerate().for_each(|(at, out)| {
        let (token, head) = (at / heads, at % heads);
        let kv = head * kv_heads / heads;
        let seen = if shape.causal { token + 1 } else { qkv.rows };
        let query = slice(token, head);
        let scores: Vec<f64> = (0..seen)
            .map(|other| {
                let key = slice(other, heads + kv);
                let dot: f64 = query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                dot / (dim as f64).sqrt()
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (d, out) in out.iter_mut().enumerate() {
            let sum: f64 = weights
                .iter()
                .enumerate()
                .map(|(other, weight)| weight * f64::from(slice(other, heads + kv_heads + kv)[d]))
                .sum();
            *out = (sum / total) as f32;
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_by_hand() {
        // Two tokens, two heads of one column that share keys and values: columns are q0, q1, k, v.
        let heads = Heads { query: 2, kv: 1, dim: 1 };
        let shape = Attention { heads, causal: true, sequences: 1, tokens: 2, cache: None, rotary: false };
        let qkv = Matrix { rows: 2, cols: 4, data: vec![1.0, 5.0, 0.5, 3.0, 2.0, 0.0, 1.5, 7.0] };
        let weight = (2.0f64 * 0.5).exp() / ((2.0f64 * 0.5).exp() + (2.0f64 * 1.5).exp());
        let mixed = (weight * 3.0 + (1.0 - weight) * 7.0) as f32;
        // The first token sees itself only; a query of zero weighs both tokens alike.
        assert_eq!(attend(&shape, &qkv).data, [3.0, 3.0, mixed, 5.0]);
        let open = attend(&Attention { causal: false, ..shape }, &qkv).data;
        assert!(open[0] > 3.0 && open[3] == 5.0, "{open:?}");
    }
}
