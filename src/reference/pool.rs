//! Pools by definition: no tiles, sums in float64.

use cusync_gen::graph::Pool;
use rayon::prelude::*;

use super::Matrix;
use super::bound::{Expected, sum_error};

/// Every output pixel from the image pixels in its window.
pub(super) fn pool(shape: &Pool, images: &Matrix) -> Expected {
    let sliding = &shape.sliding;
    let [h_len, w_len] = [sliding.input.0, sliding.input.1].map(i64::from);
    let [p_len, q_len] = [sliding.output.0, sliding.output.1].map(i64::from);
    let channels = images.cols;
    let rows = (i64::from(sliding.images) * p_len * q_len) as usize;
    let mut made = Expected::exact(Matrix { rows, cols: channels, data: vec![0.0; rows * channels] });
    let pixels = made.values.data.par_chunks_mut(channels).zip(made.slack.par_chunks_mut(channels));
    pixels.enumerate().for_each(|(pixel, (out, slack))| {
        let pixel = pixel as i64;
        let (b, p, q) = (pixel / (p_len * q_len), (pixel / q_len) % p_len, pixel % q_len);
        let mut under: Vec<&[f32]> = Vec::new();
        for r in 0..i64::from(sliding.filter.0) {
            for s in 0..i64::from(sliding.filter.1) {
                let h = p * i64::from(sliding.stride.0) + r - i64::from(sliding.padding.0);
                let w = q * i64::from(sliding.stride.1) + s - i64::from(sliding.padding.1);
                if (0..h_len).contains(&h) && (0..w_len).contains(&w) {
                    under.push(&images.data[((b * h_len + h) * w_len + w) as usize * channels..][..channels]);
                }
            }
        }
        for (c, (out, slack)) in out.iter_mut().zip(slack).enumerate() {
            let values = under.iter().map(|pixel| pixel[c]);
            if !shape.mean {
                *out = values.fold(f32::NEG_INFINITY, f32::max);
                continue;
            }
            let count = under.len() as f64;
            let (mean, magnitude) =
                values.map(f64::from).fold((0.0, 0.0), |(m, a), x| (m + x / count, a + x.abs() / count));
            // One more term for the division.
            (*out, *slack) = (mean as f32, sum_error(under.len() + 1, magnitude) as f32);
        }
    });
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use cusync_gen::graph::Sliding;

    #[test]
    fn pools_by_hand() {
        // One image of 3 x 2 pixels with one channel.
        let sliding = Sliding {
            images: 1,
            input: (3, 2),
            output: (2, 1),
            filter: (2, 2),
            stride: (2, 2),
            padding: (1, 0),
            dilation: (1, 1),
        };
        let images = Matrix { rows: 6, cols: 1, data: vec![-1.0, -2.0, 3.0, 4.0, -5.0, 6.0] };
        assert_eq!(pool(&Pool { mean: false, sliding }, &images).values.data, [-1.0, 6.0]);
        let sliding = Sliding { output: (1, 1), filter: (3, 2), padding: (0, 0), ..sliding };
        assert_eq!(pool(&Pool { mean: true, sliding }, &images).values.data, [5.0 / 6.0]);
    }
}
