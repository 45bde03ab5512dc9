//! Normalisations from their definition, row by row, in float64.

use cusync_gen::graph::Norm;
use rayon::prelude::*;

use super::Matrix;

/// `(x - mean) / sqrt(variance + epsilon) * gain + bias` of every row; without a mean where rows are not centred.
pub(super) fn normalise(shape: &Norm, x: &Matrix, gain: &Matrix, bias: Option<&Matrix>) -> Matrix {
    let mut out = x.clone();
    out.data.par_chunks_mut(x.cols.max(1)).for_each(|row| {
        let wide: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / wide.len() as f64;
        let mean = if shape.centred { average(&mut wide.iter().copied()) } else { 0.0 };
        let variance = average(&mut wide.iter().map(|x| (x - mean).powi(2)));
        for (i, (out, x)) in row.iter_mut().zip(&wide).enumerate() {
            let bias = bias.map_or(0.0, |bias| f64::from(bias.data[i]));
            let scaled = (x - mean) / (variance + f64::from(shape.epsilon)).sqrt();
            *out = (scaled * f64::from(gain.data[i]) + bias) as f32;
        }
    });
    out
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
        assert!(layer.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{layer:?}");
        // The squares are 21 on average, with 4 for epsilon: divided by 5.
        let rms = normalise(&Norm { centred: false, epsilon: 4.0 }, &x, &gain, None);
        let expected = [0.2, 1.2, 1.0, 2.8, 0.0, 0.0, 0.0, 0.0];
        assert!(rms.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{rms:?}");
    }
}
