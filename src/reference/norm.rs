//! Normalizations by definition, row by row or group by group, in float64.

use cusync_gen::graph::{GroupNorm, Norm};
use rayon::prelude::*;

use super::Matrix;
use super::activation::activated;
use super::bound::{Expected, UNIT, sum_error};

/// Mean and variance of elements that are normalized together, with the error bounds of float32.
struct Moments {
    mean: f64,
    off_mean: f64,
    /// The variance plus epsilon.
    spread: f64,
    /// Relative error of a scaled element, apart from that of the mean.
    relative: f64,
}

impl Moments {
    /// Moments of elements whose mean is subtracted if they are centered.
    fn new(elements: &[f64], centred: bool, epsilon: f32) -> Moments {
        let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / elements.len() as f64;
        let mean = if centred { average(&mut elements.iter().copied()) } else { 0.0 };
        let variance = average(&mut elements.iter().map(|x| (x - mean).powi(2)));
        let spread = variance + f64::from(epsilon);
        // The error of the mean is that of the sum, and changes the variance by its square; squares add up
        // without canceling.
        let off_mean = match centred {
            true => {
                sum_error(elements.len(), average(&mut elements.iter().map(|x| x.abs()))) + UNIT * mean.abs()
            }
            false => 0.0,
        };
        let off_variance = sum_error(elements.len(), variance) + off_mean * off_mean;
        // Half of the relative error of the root's argument, plus the errors of the root, the factors and the
        // difference.
        Moments { mean, off_mean, spread, relative: 0.5 * off_variance / spread + 8.0 * UNIT }
    }

    /// A normalized element and its error bound.
    fn scale(&self, x: f64, gain: f64, bias: f64) -> (f64, f64) {
        let scaled = (x - self.mean) / self.spread.sqrt() * gain;
        let off = scaled.abs() * self.relative + gain.abs() * self.off_mean / self.spread.sqrt();
        (scaled + bias, off + UNIT * (scaled + bias).abs())
    }
}

/// `(x - mean) / sqrt(variance + epsilon) * gain + bias + residual` of every row; without the mean if rows are not
/// centered, and by one plus the gain if the stage says so. `added`: bias and residual.
pub(super) fn normalise(shape: &Norm, x: &Matrix, gain: &Matrix, added: [Option<&Matrix>; 2]) -> Expected {
    let [bias, residual] = added;
    let one = f64::from(u8::from(shape.one_plus_gain));
    let mut made = Expected::exact(x.clone());
    let cols = x.cols.max(1);
    let rows = made.values.data.par_chunks_mut(cols).zip(made.slack.par_chunks_mut(cols));
    rows.enumerate().for_each(|(at, (row, slack))| {
        let wide: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        let moments = Moments::new(&wide, shape.centred, shape.epsilon);
        for (i, ((out, slack), x)) in row.iter_mut().zip(slack).zip(&wide).enumerate() {
            let bias = bias.map_or(0.0, |bias| f64::from(bias.data[i]));
            let (mut value, mut off) = moments.scale(*x, one + f64::from(gain.data[i]), bias);
            off += one * UNIT * value.abs();
            if let Some(residual) = residual {
                value += f64::from(residual.data[at * cols + i]);
                off += UNIT * value.abs();
            }
            (*out, *slack) = (value as f32, off as f32);
        }
    });
    made
}

/// The same for every group of channels of every image, with its mean, and an activation of the result.
pub(super) fn normalise_groups(shape: &GroupNorm, x: &Matrix, gain: &Matrix, bias: &Matrix) -> Expected {
    let mut made = Expected::exact(x.clone());
    let (cols, channels) = (x.cols.max(1), shape.channels as usize);
    let image = shape.pixels as usize * cols;
    let images = made.values.data.par_chunks_mut(image).zip(made.slack.par_chunks_mut(image));
    images.for_each(|(values, slack)| {
        for first in (0..cols).step_by(channels) {
            let places =
                || (0..shape.pixels as usize).flat_map(|p| (first..first + channels).map(move |c| (p, c)));
            let wide: Vec<f64> = places().map(|(p, c)| f64::from(values[p * cols + c])).collect();
            let moments = Moments::new(&wide, true, shape.epsilon);
            for ((pixel, channel), x) in places().zip(&wide) {
                let (gain, bias) = (f64::from(gain.data[channel]), f64::from(bias.data[channel]));
                let (mut value, mut off) = moments.scale(*x, gain, bias);
                (value, off) = activated(shape.activation, value, off);
                let at = pixel * cols + channel;
                (values[at], slack[at]) = (value as f32, off as f32);
            }
        }
    });
    made
}

/// Normalizes a head of queries or keys in place, with its error bounds: divides by the root of the mean square
/// plus epsilon, and multiplies by the gain.
pub(super) fn normalise_head(values: &mut [f32], slack: &mut [f32], epsilon: f32, gain: &[f32]) {
    let count = values.len() as f64;
    let pairs = || values.iter().zip(slack.iter()).map(|(x, off)| (f64::from(*x), f64::from(*off)));
    let squares = pairs().map(|(x, _)| x * x).sum::<f64>() / count;
    let off_squares = pairs().map(|(x, off)| (2.0 * x.abs() + off) * off).sum::<f64>() / count;
    let spread = squares + f64::from(epsilon);
    let relative = 0.5 * (off_squares + sum_error(values.len(), squares)) / spread + 8.0 * UNIT;
    let scale = 1.0 / spread.sqrt();
    for ((x, off), gain) in values.iter_mut().zip(slack).zip(gain) {
        let (value, gain) = (f64::from(*x), f64::from(*gain) * scale);
        *off = (gain.abs() * (f64::from(*off) * (1.0 + relative) + value.abs() * relative)) as f32;
        *x = (value * gain) as f32;
    }
}

#[cfg(test)]
mod tests {
    use cusync_gen::graph::Activation;

    use super::*;

    #[test]
    fn the_bound_of_a_head_covers_what_its_inputs_may_be() {
        let (values, gain) = ([3.0f32, -4.0, 0.5, 12.0], [1.0f32, 2.0, -1.0, 0.5]);
        let mut exact = values;
        normalise_head(&mut exact, &mut [0.0; 4], 0.75, &gain);
        // The squares are 42.3125 on average.
        assert!((exact[1] + 8.0 / 43.0625f32.sqrt()).abs() < 1e-6, "{exact:?}");
        let (mut bounded, mut slack) = (values, [0.01f32; 4]);
        normalise_head(&mut bounded, &mut slack, 0.75, &gain);
        for signs in 0..16 {
            let mut moved = values;
            moved
                .iter_mut()
                .enumerate()
                .for_each(|(i, x)| *x += if signs >> i & 1 == 0 { 0.01 } else { -0.01 });
            normalise_head(&mut moved, &mut [0.0; 4], 0.75, &gain);
            let within = moved.iter().zip(&exact).zip(&slack).all(|((m, e), off)| (m - e).abs() <= *off);
            assert!(within, "{moved:?} {exact:?} {slack:?}");
        }
        assert!(slack.iter().all(|off| *off < 0.01), "{slack:?}");
    }

    #[test]
    fn normalisations_by_hand() {
        let line = |data: Vec<f32>| Matrix { rows: 1, cols: data.len(), data };
        let x = Matrix { rows: 2, cols: 4, data: vec![1.0, 3.0, 5.0, 7.0, 0.0, 0.0, 0.0, 0.0] };
        let (gain, bias) = (line(vec![1.0, 2.0, 1.0, 2.0]), line(vec![0.0, 0.0, 10.0, 10.0]));
        // Mean 4 and variance 5, with 4 for epsilon: divided by 3.
        let layer = Norm::new(true, 4.0);
        let made = normalise(&layer, &x, &gain, [Some(&bias), None]);
        let expected = [-1.0, -2.0 / 3.0, 1.0 / 3.0 + 10.0, 12.0, 0.0, 0.0, 10.0, 10.0];
        assert!(made.values.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{made:?}");
        // Two images of two pixels, two groups of two channels: 1, 3, 0, 0 with mean 1 and variance 1.5, and 5, 7, 2, 2
        // with mean 4 and variance 4.5, then their mirror images.
        let x = Matrix {
            rows: 4,
            cols: 4,
            data: vec![1., 3., 5., 7., 0., 0., 2., 2., -1., -3., -5., -7., 0., 0., -2., -2.],
        };
        let shape = GroupNorm { pixels: 2, channels: 2, epsilon: 0.75, activation: Activation::Identity };
        let groups = normalise_groups(&shape, &x, &gain, &bias);
        let spread = [1.5f32, 4.5].map(|variance| (variance + 0.75).sqrt());
        let scaled = [0.0, 4.0, 1.0, 6.0, -1.0, -2.0, -2.0, -4.0];
        for (i, found) in groups.values.data.iter().enumerate() {
            let sign = if i < 8 { 1.0 } else { -1.0 };
            let wanted = sign * scaled[i % 8] / spread[i % 4 / 2] + bias.data[i % 4];
            assert!((found - wanted).abs() < 1e-6, "{i}: {found} {wanted}");
        }
        let silu = normalise_groups(&GroupNorm { activation: Activation::Silu, ..shape }, &x, &gain, &bias);
        for (with, without) in silu.values.data.iter().zip(&groups.values.data) {
            assert!((with - without / (1.0 + (-without).exp())).abs() < 1e-5, "{with} {without}");
        }
        // The squares are 21 on average, with 4 for epsilon: divided by 5.
        let x = Matrix { rows: 2, cols: 4, data: vec![1.0, 3.0, 5.0, 7.0, 0.0, 0.0, 0.0, 0.0] };
        let rms = Norm { centred: false, ..layer };
        let made = normalise(&rms, &x, &gain, [None, None]);
        let expected = [0.2, 1.2, 1.0, 2.8, 0.0, 0.0, 0.0, 0.0];
        assert!(made.values.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{made:?}");
        // By one plus the gain, and with x itself as the residual.
        let made = normalise(&Norm { one_plus_gain: true, ..rms }, &x, &gain, [None, Some(&x)]);
        let expected = [1.4, 4.8, 7.0, 11.2, 0.0, 0.0, 0.0, 0.0];
        assert!(made.values.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{made:?}");
    }
}
