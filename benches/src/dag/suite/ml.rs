//! ML: ridge regression and naive Bayes vote on the classes of rows.

use cusync_dag::{DagError, Recording};

use super::{Case, Check, Want, hand, moving, one_each, uniform};

const FEATURES: usize = 200;
const CLASSES: usize = 10;

pub(super) fn ml(rows: usize) -> Result<Case, DagError> {
    let x = uniform(1, rows * FEATURES, 0.0, 4.0);
    let ridge = uniform(2, CLASSES * FEATURES, -0.1, 0.1);
    let intercepts = uniform(3, CLASSES, -1.0, 1.0);
    let bayes = uniform(4, CLASSES * FEATURES, -0.1, 0.1);
    let mut r = Recording::new("ML").built_for_programmatic_edges();
    let (data, ridge_w) = (r.floats("x", &x), r.floats("ridge", &ridge));
    let (offsets, bayes_w) = (r.floats("intercepts", &intercepts), r.floats("bayes", &bayes));
    let (z, r1) = (r.zeros("z", rows * FEATURES), r.zeros("r1", rows * CLASSES));
    let (r2, most) = (r.zeros("r2", rows * CLASSES), r.zeros("amax", rows));
    let (l, result) = (r.zeros("l", rows), r.zeros("r", rows));
    let (n, f) = (rows as u32, FEATURES as u32);
    let scores = one_each(rows * CLASSES, 128);
    let by_row = one_each(rows, 64);
    let small = moving(rows * CLASSES);
    // One column per thread, three passes, eight loads in flight.
    let pole = 4.0 + rows as f64 * 3.0 / 8.0 * 0.6;
    let product = 3.0 + 0.02 * FEATURES as f64;
    r.launch("ml_normalise", one_each(FEATURES, 32), pole, &[r.read(data), r.write(z), n.into(), f.into()])?;
    r.launch(
        "ml_scores",
        scores,
        product,
        &[r.read(data), r.read(bayes_w), r.write(r1), n.into(), f.into()],
    )?;
    r.launch("ml_scores", scores, product, &[r.read(z), r.read(ridge_w), r.write(r2), n.into(), f.into()])?;
    r.launch("ml_row_max", by_row, small, &[r.read(r1), r.write(most), n.into()])?;
    r.launch("ml_intercept", scores, small, &[r.update(r2), r.read(offsets), n.into()])?;
    r.launch("ml_log_sum", by_row, small, &[r.read(r1), r.read(most), r.write(l), n.into()])?;
    r.launch("ml_softmax", by_row, small, &[r.update(r2), n.into()])?;
    r.launch("ml_exponential", scores, small, &[r.update(r1), r.read(l), n.into()])?;
    r.launch("ml_softmax", by_row, small, &[r.update(r1), n.into()])?;
    r.launch("ml_argmax", by_row, small, &[r.read(r1), r.read(r2), r.write(result), n.into()])?;

    let [first, second] = reference(&x, &ridge, &intercepts, &bayes, FEATURES);
    let both: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
    let class = Want::Class { scores: both, classes: CLASSES, tolerance: 1e-4 };
    let checks = vec![
        Check { name: "r1", buffer: r1, want: Want::F32(first, 1e-4) },
        Check { name: "r2", buffer: r2, want: Want::F32(second, 1e-4) },
        Check { name: "r", buffer: result, want: class },
    ];
    Ok(Case {
        name: "ML",
        size: format!("{rows} rows x {FEATURES} features"),
        hand: hand::ml(),
        recording: r,
        checks,
    })
}

/// Distributions of naive Bayes and of ridge regression, row by row.
fn reference(x: &[f32], ridge: &[f32], intercepts: &[f32], bayes: &[f32], features: usize) -> [Vec<f64>; 2] {
    let rows = x.len() / features;
    let at = |row: usize, k: usize| f64::from(x[row * features + k]);
    let column = |k: usize| {
        let mean = (0..rows).map(|row| at(row, k)).sum::<f64>() / rows as f64;
        let variance = (0..rows).map(|row| (at(row, k) - mean).powi(2)).sum::<f64>() / rows as f64;
        (mean, variance.sqrt())
    };
    let columns: Vec<(f64, f64)> = (0..features).map(column).collect();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let dot = |weights: &[f32], class: usize, value: &dyn Fn(usize) -> f64| -> f64 {
            (0..features).map(|k| value(k) * f64::from(weights[class * features + k])).sum()
        };
        let classes = intercepts.len();
        let raw: Vec<f64> = (0..classes).map(|c| dot(bayes, c, &|k| at(row, k))).collect();
        // Two exponentials: the classifier's own, then the vote's.
        first.extend(softmax(&softmax(&raw)));
        let scaled = |k: usize| (at(row, k) - columns[k].0) / columns[k].1;
        let raw: Vec<f64> = (0..classes).map(|c| dot(ridge, c, &scaled) + f64::from(intercepts[c])).collect();
        second.extend(softmax(&raw));
    }
    [first, second]
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
    scores.iter().map(|s| (s - most).exp() / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let half = softmax(&[0.0, 3.0_f64.ln()]);
        assert!((half[0] - 0.25).abs() < 1e-12 && (half[1] - 0.75).abs() < 1e-12);
        // Two rows, one feature, two classes: columns become -1 and 1.
        let [first, second] = reference(&[1.0, 3.0], &[0.5, -0.5], &[0.0, 1.0], &[1.0, 1.0], 1);
        assert!(first.iter().all(|p| (p - 0.5).abs() < 1e-12), "equal weights vote equally: {first:?}");
        // Row 0: scores -0.5 and 1.5; row 1: 0.5 and 0.5.
        assert!((second[0] - 1.0 / (1.0 + 2.0_f64.exp())).abs() < 1e-9);
        assert!((second[2] - 0.5).abs() < 1e-9);
    }
}
