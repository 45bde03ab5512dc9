//! Convolutions and attentions from their definitions: no tiles, no matrix product, sums in float64.

use cusync_gen::graph::{Attention, Conv};
use rayon::prelude::*;

use super::Matrix;

/// Every output pixel as the sum over the taps of the filter that lie on the image.
pub(super) fn convolve(shape: &Conv, images: &Matrix, filter: &Matrix) -> Matrix {
    let [h_len, w_len] = [shape.input.0, shape.input.1].map(i64::from);
    let [p_len, q_len] = [shape.output.0, shape.output.1].map(i64::from);
    let (channels, features) = (images.cols, filter.cols);
    let rows = (i64::from(shape.images) * p_len * q_len) as usize;
    let mut out = Matrix { rows, cols: features, data: vec![0.0; rows * features] };
    out.data.par_chunks_mut(features).enumerate().for_each(|(pixel, out)| {
        let pixel = pixel as i64;
        let (b, p, q) = (pixel / (p_len * q_len), (pixel / q_len) % p_len, pixel % q_len);
        let mut sums = vec![0.0f64; features];
        for r in 0..i64::from(shape.filter.0) {
            for s in 0..i64::from(shape.filter.1) {
                let h = p * i64::from(shape.stride.0) + r - i64::from(shape.padding.0);
                let w = q * i64::from(shape.stride.1) + s - i64::from(shape.padding.1);
                if h < 0 || h >= h_len || w < 0 || w >= w_len {
                    continue;
                }
                let x = &images.data[((b * h_len + h) * w_len + w) as usize * channels..][..channels];
                let tap = (r * i64::from(shape.filter.1) + s) as usize * channels;
                for (c, x) in x.iter().enumerate() {
                    let f = &filter.data[(tap + c) * features..][..features];
                    sums.iter_mut().zip(f).for_each(|(sum, f)| *sum += f64::from(*x) * f64::from(*f));
                }
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
    });
    out
}

/// softmax(Q K^T / sqrt(d)) V, query by query.
pub(super) fn attend(shape: &Attention, qkv: &Matrix) -> Matrix {
    let dim = shape.dim as usize;
    let (heads, kv_heads) = (shape.heads as usize, shape.kv_heads as usize);
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
    use cusync_gen::graph::Activation;

    #[test]
    fn a_convolution_by_hand() {
        // One image of 2 x 3 pixels with one channel, a 2 x 2 filter, one row of zeros above and below.
        let shape = Conv {
            activation: Activation::Identity,
            images: 1,
            input: (2, 3),
            channels: 1,
            output: (3, 2),
            filter: (2, 2),
            stride: (1, 1),
            padding: (1, 0),
        };
        let images = Matrix { rows: 6, cols: 1, data: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
        let filter = Matrix { rows: 4, cols: 1, data: vec![1.0, 10.0, 100.0, 1000.0] };
        let expected = [2100.0, 3200.0, 21.0 + 5400.0, 32.0 + 6500.0, 54.0, 65.0];
        assert_eq!(convolve(&shape, &images, &filter).data, expected);
    }

    #[test]
    fn attention_by_hand() {
        // Two tokens, two heads of one column that share keys and values: columns are q0, q1, k, v.
        let shape = Attention { heads: 2, kv_heads: 1, dim: 1, causal: true };
        let qkv = Matrix { rows: 2, cols: 4, data: vec![1.0, 5.0, 0.5, 3.0, 2.0, 0.0, 1.5, 7.0] };
        let weight = (2.0f64 * 0.5).exp() / ((2.0f64 * 0.5).exp() + (2.0f64 * 1.5).exp());
        let mixed = (weight * 3.0 + (1.0 - weight) * 7.0) as f32;
        // The first token sees itself only; a query of zero weighs both tokens alike.
        assert_eq!(attend(&shape, &qkv).data, [3.0, 3.0, mixed, 5.0]);
        let open = attend(&Attention { causal: false, ..shape }, &qkv).data;
        assert!(open[0] > 3.0 && open[3] == 5.0, "{open:?}");
    }
}
