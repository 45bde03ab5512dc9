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

#[cfg(test)]
mod tests {
    use super::*;

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
