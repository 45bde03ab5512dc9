//! Convolutions by definition: no tiles, no matrix product, sums in float64.

use cusync_gen::graph::Conv;
use rayon::prelude::*;

use super::Matrix;
use super::gemm::{Sums, norm};

/// Every output pixel as the sum over the filter taps that are on the image.
pub(super) fn convolve(shape: &Conv, images: &Matrix, filter: &Matrix) -> Sums {
    let [h_len, w_len] = [shape.input.0, shape.input.1].map(i64::from);
    let [p_len, q_len] = [shape.output.0, shape.output.1].map(i64::from);
    let (channels, features) = (images.cols, filter.cols);
    let rows = (i64::from(shape.images) * p_len * q_len) as usize;
    let mut out = Matrix { rows, cols: features, data: vec![0.0; rows * features] };
    let mut largest = vec![0f32; rows * features];
    // Bound of the partial sums within a tap, by tap and feature: a norm of each side.
    let taps = filter.data.chunks((channels * features).max(1));
    let norms: Vec<Vec<f64>> = taps
        .map(|tap| {
            (0..features).map(|f| norm(tap.iter().skip(f).step_by(features).map(|x| f64::from(*x)))).collect()
        })
        .collect();
    let pixels = out.data.par_chunks_mut(features).zip(largest.par_chunks_mut(features));
    pixels.enumerate().for_each(|(pixel, (out, largest))| {
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
                let tap = (r * i64::from(shape.filter.1) + s) as usize;
                let of_pixel = norm(x.iter().map(|x| f64::from(*x)));
                for (c, x) in x.iter().enumerate() {
                    let f = &filter.data[(tap * channels + c) * features..][..features];
                    sums.iter_mut().zip(f).for_each(|(sum, f)| *sum += f64::from(*x) * f64::from(*f));
                }
                for ((most, sum), of_feature) in largest.iter_mut().zip(&sums).zip(&norms[tap]) {
                    *most = most.max((sum.abs() + of_pixel * of_feature) as f32);
                }
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
    });
    Sums { values: out, largest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cusync_gen::graph::{Activation, Sliding};

    #[test]
    fn a_convolution_by_hand() {
        // One image of 2 x 3 pixels with one channel, a 2 x 2 filter, one row of zeros above and below.
        let shape = Conv {
            epilogue: Activation::Identity.into(),
            sliding: Sliding {
                images: 1,
                input: (2, 3),
                output: (3, 2),
                filter: (2, 2),
                stride: (1, 1),
                padding: (1, 0),
            },
            channels: 1,
            window: None,
        };
        let images = Matrix { rows: 6, cols: 1, data: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
        let filter = Matrix { rows: 4, cols: 1, data: vec![1.0, 10.0, 100.0, 1000.0] };
        let expected = [2100.0, 3200.0, 21.0 + 5400.0, 32.0 + 6500.0, 54.0, 65.0];
        let sums = convolve(&shape, &images, &filter);
        assert_eq!(sums.values.data, expected);
        let bounded = sums.largest.iter().zip(expected).all(|(most, sum)| (sum..=2.0 * sum).contains(most));
        assert!(bounded, "all terms are positive: {:?}", sums.largest);
    }
}
