//! Normalizations by definition, row by row, in float64.

use cusync_gen::graph::Norm;
use rayon::prelude::*;

use super::Matrix;
use super::bound::{Expected, UNIT, sum_error};

/// `(x - mean) / sqrt(variance + epsilon) * gain + bias` of every row; without the mean if rows are not
/// centered.
pub(super) fn normalise(shape: &Norm, x: &Matrix, gain: &Matrix, bias: Option<&Matrix>) -> Expected {
    let mut made = Expected::exact(x.clone());
    let cols = x.cols.max(1);
    let rows = made.values.data.par_chunks_mut(cols).zip(made.slack.par_chunks_mut(cols));
    rows.for_each(|(row, slack)| {
        let wide: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / wide.len() as f64;
        let mean = if shape.centred { average(&mut wide.iter().copied()) } else { 0.0 };
        let variance = average(&mut wide.iter().map(|x| (x - mean).powi(2)));
        let spread = variance + f64::from(shape.epsilon);
        // The error of the mean is that of the sum, and changes the variance by its square; squares add up
        // without canceling.
        let off_mean = match shape.centred {
            true => sum_error(wide.len(), average(&mut wide.iter().map(|x| x.abs()))) + UNIT * mean.abs(),
            false => 0.0,
        };
        let off_variance = sum_error(wide.len(), variance) + off_mean * off_mean;
        // Half of the relative error of the root's argument, plus the errors of the root, the factors and the
        // difference.
        let relative = 0.5 * off_variance / spread + 8.0 * UNIT;
        for (i, ((out, slack), x)) in row.iter_mut().zip(slack).zip(&wide).enumerate() {
            let bias = bias.map_or(0.0, |bias| f64::from(bias.data[i]));
            let gain = f64::from(gain.data[i]);
            let scaled = (x - mean) / spread.sqrt() * gain;
            let off = scaled.abs() * relative + gain.abs() * off_mean / spread.sqrt();
            *slack = (off + UNIT * (scaled + bias).abs()) as f32;
            *out = (scaled + bias) as f32;
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
        let layer = normalise(&Norm { centred: true, epsilon: 4.0 }, &x, &gain, Some(&bias));
        let expected = [-1.0, -2.0 / 3.0, 1.0 / 3.0 + 10.0, 12.0, 0.0, 0.0, 10.0, 10.0];
        assert!(layer.values.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{layer:?}");
        // The squares are 21 on average, with 4 for epsilon: divided by 5.
        let rms = normalise(&Norm { centred: false, epsilon: 4.0 }, &x, &gain, None);
        let expected = [0.2, 1.2, 1.0, 2.8, 0.0, 0.0, 0.0, 0.0];
        assert!(rms.values.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{rms:?}");
    }
}
