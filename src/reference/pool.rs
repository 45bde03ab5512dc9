//! Pools from their definition: no tiles, sums in float64.

use cusync_gen::graph::Pool;
use rayon::prelude::*;

use super::Matrix;

/// Every output pixel from the pixels of the image that lie under its window.
pub(super) fn pool(shape: &Pool, images: &Matrix) -> Matrix {
    let of = &shape.sliding;
    let [h_len, w_len] = [of.input.0, of.input.1].map(i64::from);
    let [p_len, q_len] = [of.output.0, of.output.1].map(i64::from);
    let channels = images.cols;
    let rows = (i64::from(of.images) * p_len * q_len) as usize;
    let mut out = Matrix { rows, cols: channels, data: vec![0.0; rows * channels] };
    out.data.par_chunks_mut(channels).enumerate().for_each(|(pixel, out)| {
        let pixel = pixel as i64;
        let (b, p, q) = (pixel / (p_len * q_len), (pixel / q_len) % p_len, pixel % q_len);
        let mut under: Vec<&[f32]> = Vec::new();
        for r in 0..i64::from(of.filter.0) {
            for s in 0..i64::from(of.filter.1) {
                let h = p * i64::from(of.stride.0) + r - i64::from(of.padding.0);
                let w = q * i64::from(of.stride.1) + s - i64::from(of.padding.1);
                if (0..h_len).contains(&h) && (0..w_len).contains(&w) {
                    under.push(&images.data[((b * h_len + h) * w_len + w) as usize * channels..][..channels]);
                }
            }
        }
        for (c, out) in out.iter_mut().enumerate() {
            let values = under.iter().map(|pixel| pixel[c]);
            *out = match shape.mean {
                true => (values.map(f64::from).sum::<f64>() / under.len() as f64) as f32,
                false => values.fold(f32::NEG_INFINITY, f32::max),
            };
        }
    });
    out
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
        };
        let images = Matrix { rows: 6, cols: 1, data: vec![-1.0, -2.0, 3.0, 4.0, -5.0, 6.0] };
        assert_eq!(pool(&Pool { mean: false, sliding }, &images).data, [-1.0, 6.0]);
        let sliding = Sliding { output: (1, 1), filter: (3, 2), padding: (0, 0), ..sliding };
        assert_eq!(pool(&Pool { mean: true, sliding }, &images).data, [5.0 / 6.0]);
    }
}
