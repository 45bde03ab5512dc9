//! Convolutions by definition: no tiles, no matrix product, sums in float64.

use cusync_gen::graph::Sliding;
use rayon::prelude::*;

use super::Matrix;
use super::gemm::{Sums, norm};

/// Every output pixel as the sum over the filter taps that are on the image, for each group of channels.
pub(super) fn convolve(shape: &Sliding, groups: usize, images: &Matrix, filter: &Matrix) -> Sums {
    let [h_len, w_len] = [shape.input.0, shape.input.1].map(i64::from);
    let [p_len, q_len] = [shape.output.0, shape.output.1].map(i64::from);
    let (features, all) = (filter.cols, images.cols);
    // Input and output channels of a group.
    let (channels, width) = (all / groups, features / groups);
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
                let (down, right) = (r * i64::from(shape.dilation.0), s * i64::from(shape.dilation.1));
                let h = p * i64::from(shape.stride.0) + down - i64::from(shape.padding.0);
                let w = q * i64::from(shape.stride.1) + right - i64::from(shape.padding.1);
                if h < 0 || h >= h_len || w < 0 || w >= w_len {
                    continue;
                }
                let x = &images.data[((b * h_len + h) * w_len + w) as usize * all..][..all];
                let tap = (r * i64::from(shape.filter.1) + s) as usize;
                for (group, x) in x.chunks(channels).enumerate() {
                    let (own, of_pixel) = (group * width.., norm(x.iter().map(|x| f64::from(*x))));
                    let sums = &mut sums[own.clone()][..width];
                    for (c, x) in x.iter().enumerate() {
                        let f = &filter.data[(tap * channels + c) * features..][own.clone()][..width];
                        sums.iter_mut().zip(f).for_each(|(sum, f)| *sum += f64::from(*x) * f64::from(*f));
                    }
                    let norms = &norms[tap][own.clone()];
                    for ((most, sum), of_feature) in largest[own].iter_mut().zip(&*sums).zip(norms) {
                        *most = most.max((sum.abs() + of_pixel * of_feature) as f32);
                    }
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

    #[test]
    fn a_convolution_by_hand() {
        // One image of 2 x 3 pixels with one channel, a 2 x 2 filter, one row of zeros above and below.
        let shape = Sliding {
            images: 1,
            input: (2, 3),
            output: (3, 2),
            filter: (2, 2),
            stride: (1, 1),
            padding: (1, 0),
            dilation: (1, 1),
        };
        let images = Matrix { rows: 6, cols: 1, data: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
        let filter = Matrix { rows: 4, cols: 1, data: vec![1.0, 10.0, 100.0, 1000.0] };
        let expected = [2100.0, 3200.0, 21.0 + 5400.0, 32.0 + 6500.0, 54.0, 65.0];
        let sums = convolve(&shape, 1, &images, &filter);
        assert_eq!(sums.values.data, expected);
        let bounded = sums.largest.iter().zip(expected).all(|(most, sum)| (sum..=2.0 * sum).contains(most));
        assert!(bounded, "all terms are positive: {:?}", sums.largest);
        // Columns two apart: the first and the third.
        let shape = Sliding { output: (3, 1), dilation: (1, 2), ..shape };
        assert_eq!(convolve(&shape, 1, &images, &filter).values.data, [3100.0, 31.0 + 6400.0, 64.0]);
    }

    #[test]
    fn groups_by_hand() {
        // One image of one pixel with four channels in two groups; each has two taps, one of them beside the image, and
        // three output channels.
        let shape = Sliding {
            images: 1,
            input: (1, 1),
            output: (1, 1),
            filter: (1, 2),
            stride: (2, 2),
            padding: (0, 1),
            dilation: (1, 1),
        };
        let images = Matrix { rows: 1, cols: 4, data: vec![1.0, 2.0, 3.0, 4.0] };
        let beside = [9.0; 12];
        let on_it = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
        let filter = Matrix { rows: 4, cols: 6, data: [beside, on_it].concat() };
        let sums = convolve(&shape, 2, &images, &filter);
        let second = [12.0 + 160.0, 15.0 + 200.0, 18.0 + 240.0];
        assert_eq!(sums.values.data, [[21.0, 42.0, 63.0], second].concat());
        let mut bounded = sums.largest.iter().zip(&sums.values.data);
        // The product of two norms is above the sum of two terms.
        assert!(bounded.all(|(most, sum)| (2.0 * sum..=2.2 * sum).contains(most)), "{:?}", sums.largest);
    }
}
