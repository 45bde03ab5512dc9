//! Mixtures of experts by their definition: each expert's products of the rows that choose it.

use cusync_gen::graph::{Element, Experts};

use super::Matrix;
use super::bound::{Expected, SIGMAS, UNIT, rounding_variance};
use super::gemm::{gated, product, summed};
use crate::element::transposed;

/// Operands of a mixture of experts.
pub(super) struct ExpertReads {
    pub(super) x: Matrix,
    pub(super) router: Matrix,
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
    pub(super) residual: Option<Matrix>,
}

/// The outputs. Kernels round hidden rows, and the rows of each expert before they add them.
pub(super) fn mix(shape: &Experts, reads: &ExpertReads, element: Element) -> Expected {
    let (rows, width, features) = (reads.x.rows, shape.width as usize, shape.features as usize);
    let chosen: Vec<Vec<(usize, f64)>> =
        reads.router.data.chunks(shape.experts as usize).map(|scores| choose(shape, scores)).collect();
    let mut sums = vec![0f64; rows * width];
    // `off` adds up worst cases. Roundings are independent, so `variance` adds up their squares.
    let (mut off, mut variance) = (vec![0f64; rows * width], vec![0f64; rows * width]);
    for expert in 0..shape.experts as usize {
        let own: Vec<(usize, f64)> = chosen
            .iter()
            .enumerate()
            .filter_map(|(row, chosen)| Some((row, chosen.iter().find(|(e, _)| *e == expert)?.1)))
            .collect();
        if own.is_empty() {
            continue;
        }
        let x = Matrix {
            rows: own.len(),
            cols: width,
            data: own.iter().flat_map(|(row, _)| &reads.x.data[row * width..][..width]).copied().collect(),
        };
        let of_expert = |all: &Matrix, outputs: usize| Matrix {
            rows: all.cols,
            cols: outputs,
            data: transposed(&all.data[expert * outputs * all.cols..][..outputs * all.cols], all.cols),
        };
        let sum = |weights: &Matrix| summed(product(&x, &of_expert(weights, features)), width, None);
        let hidden = gated(shape.activation, sum(&reads.gate), &sum(&reads.up));
        let down = of_expert(&reads.down, width);
        // What errors of the hidden rows, and their rounding, change in the outputs.
        let magnitudes = Matrix { data: down.data.iter().map(|w| w.abs()).collect(), ..down };
        let inherited = product(&Matrix { data: hidden.slack.clone(), ..hidden.values }, &magnitudes).values;
        let variances: Vec<f32> = hidden
            .values
            .data
            .iter()
            .zip(&hidden.slack)
            .map(|(h, slack)| rounding_variance(element, f64::from(h.abs() + slack)) as f32)
            .collect();
        let squares = Matrix { data: down.data.iter().map(|w| w * w).collect(), ..down };
        let rounded = product(&Matrix { data: variances, ..hidden.values }, &squares).values;
        let outputs = summed(product(&hidden.values, &down), features, None);
        for (i, (row, weight)) in own.iter().enumerate() {
            for col in 0..width {
                let (from, to) = (i * width + col, row * width + col);
                let value = weight * f64::from(outputs.values.data[from]);
                sums[to] += value;
                off[to] += weight * f64::from(outputs.slack[from] + inherited.data[from])
                    + WEIGHT * UNIT * value.abs();
                let rounding = rounding_variance(element, f64::from(outputs.values.data[from].abs()));
                variance[to] += weight * weight * (f64::from(rounded.data[from]) + rounding);
            }
        }
    }
    let at = |i: usize| {
        let added = reads.residual.as_ref().map_or(0.0, |residual| f64::from(residual.data[i]));
        let value = sums[i] + added;
        let terms = f64::from(shape.top_k) + 1.0;
        (
            value,
            off[i] + SIGMAS * variance[i].sqrt() + terms * UNIT * (value.abs() + added.abs() + sums[i].abs()),
        )
    };
    let (values, slack) = (0..sums.len()).map(at).map(|(value, off)| (value as f32, off as f32)).unzip();
    Expected { values: Matrix { rows, cols: width, data: values }, slack }
}

/// Units of float32 by which a weight may be off: exponentials of rounded arguments, their sum and a quotient.
const WEIGHT: f64 = 64.0;

/// The experts of a row with their weights.
fn choose(shape: &Experts, scores: &[f32]) -> Vec<(usize, f64)> {
    let mut left: Vec<usize> = (0..scores.len()).collect();
    let most = scores.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let power = |expert: usize| f64::from(scores[expert] - most).exp();
    let mut chosen: Vec<(usize, f64)> = Vec::new();
    for _ in 0..shape.top_k {
        let best =
            left.iter().fold(left[0], |best, next| if scores[*next] > scores[best] { *next } else { best });
        left.retain(|expert| *expert != best);
        chosen.push((best, power(best)));
    }
    let whole: f64 = match shape.normalize {
        true => chosen.iter().map(|(_, power)| power).sum(),
        false => (0..scores.len()).map(power).sum(),
    };
    chosen.iter_mut().for_each(|(_, weight)| *weight /= whole);
    chosen
}

#[cfg(test)]
mod tests {
    use cusync_gen::graph::Activation;

    use super::*;

    /// Three experts of one hidden column, whose hidden values are products of x or of its sum, for rows of two elements.
    fn reads(x: &[f32], scores: &[f32], residual: Option<&[f32]>) -> ExpertReads {
        let matrix =
            |cols: usize, data: &[f32]| Matrix { rows: data.len() / cols, cols, data: data.to_vec() };
        ExpertReads {
            x: matrix(2, x),
            router: matrix(3, scores),
            gate: matrix(2, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
            up: matrix(2, &[0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
            down: matrix(1, &[1.0, 0.0, 0.0, 3.0, 1.0, -1.0]),
            residual: residual.map(|data| matrix(2, data)),
        }
    }

    #[test]
    fn experts_by_hand() {
        let shape = Experts {
            experts: 3,
            top_k: 2,
            features: 1,
            width: 2,
            normalize: true,
            activation: Activation::Identity,
        };
        let near = |mixed: &Expected, wanted: &[f32]| {
            let found = &mixed.values.data;
            assert_eq!(found.len(), wanted.len());
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {wanted:?}");
        };
        let third = 3f32.ln();
        // The last two with equal weights, hidden 2 and 9; the first two of three equal scores, hidden 2 each; the first two
        // with weights of 1/4 and 3/4, hidden 1 each.
        let x = [1.0, 2.0, 2.0, 1.0, 1.0, 1.0];
        let scores = [0.0, third, third, 5.0, 5.0, 5.0, 0.0, third, -40.0];
        let added = [0.0, 0.0, 10.0, 20.0, 0.0, 0.0];
        let mixed = mix(&shape, &reads(&x, &scores, Some(&added)), Element::F16);
        near(&mixed, &[4.5, -1.5, 11.0, 23.0, 0.25, 2.25]);
        assert!(mixed.slack.iter().all(|off| *off > 0.0 && *off < 0.05), "{:?}", mixed.slack);
        // One expert, whose weight is 3/5 of all or the whole.
        let one = Experts { top_k: 1, ..shape };
        let reads = reads(&[1.0, 1.0], &[0.0, third, 0.0], None);
        near(&mix(&one, &reads, Element::Bf16), &[0.0, 3.0]);
        near(&mix(&Experts { normalize: false, ..one }, &reads, Element::Bf16), &[0.0, 1.8]);
    }
}
