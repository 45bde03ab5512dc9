//! GEMMs: products in float64, and their epilogues.

use cusync_gen::graph::{
    Activation, Element, Epilogue, Heads, Norm, NormedGemm, OperandKind, Rotated, Stage,
};
use rayon::prelude::*;

use super::activation::activated;
use super::bound::{Expected, SIGMAS, UNIT, inner_underflow, rounding_deviation, sum_error};
use super::norm::{normalise, normalise_head};
use super::{Matrix, Operands, ReferenceError};
use crate::device::host_gemm::add_product_f64;

/// The product of two matrices.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Its sums.
    pub values: Matrix,
    /// Upper bound of the magnitudes of each sum's partial sums.
    pub largest: Vec<f32>,
}

impl Sums {
    /// Adds the sums of another part of the reduction.
    pub(super) fn add(&mut self, other: &Sums) {
        let pairs = |to: &mut [f32], from: &[f32]| to.iter_mut().zip(from).for_each(|(to, x)| *to += x);
        pairs(&mut self.values.data, &other.values.data);
        pairs(&mut self.largest, &other.largest);
    }
}

/// Rows of operand B multiplied at once, and columns per thread. Partial sums within these rows are only
/// bounded, by a product of two norms, so the rows must be few.
const DEPTH: usize = 64;
const STRIP: usize = 256;

/// The product a b, summed from the last row of b to the first, opposite to the executors.
pub(crate) fn product(a: &Matrix, b: &Matrix) -> Sums {
    let (rows, cols) = (a.rows, b.cols);
    let strips: Vec<usize> = (0..cols).step_by(STRIP).collect();
    let made: Vec<_> = strips.into_par_iter().map(|from| strip(a, b, from, STRIP.min(cols - from))).collect();
    let mut sums = vec![0.0; rows * cols];
    let mut largest = vec![0.0; rows * cols];
    for (strip, (values, most)) in made.iter().enumerate() {
        let width = STRIP.min(cols - strip * STRIP);
        for row in 0..rows {
            let to = row * cols + strip * STRIP;
            let from = row * width..(row + 1) * width;
            let narrow = |x: &f64| *x as f32;
            sums[to..to + width].iter_mut().zip(&values[from.clone()]).for_each(|(to, x)| *to = narrow(x));
            largest[to..to + width].copy_from_slice(&most[from]);
        }
    }
    Sums { values: Matrix { rows, cols, data: sums }, largest }
}

/// `width` columns of a product from column `from` on, row by row, and their largest partial sums.
fn strip(a: &Matrix, b: &Matrix, from: usize, width: usize) -> (Vec<f64>, Vec<f32>) {
    let rows = a.rows;
    let (mut sums, mut largest) = (vec![0.0; rows * width], vec![0f32; rows * width]);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for begin in (0..a.cols).step_by(DEPTH).rev() {
        let depth = DEPTH.min(a.cols - begin);
        left.clear();
        right.clear();
        (0..rows)
            .for_each(|r| left.extend(a.data[r * a.cols + begin..][..depth].iter().map(|x| f64::from(*x))));
        (begin..begin + depth)
            .for_each(|k| right.extend(b.data[k * b.cols + from..][..width].iter().map(|x| f64::from(*x))));
        add_product_f64(&mut sums, &left, &right, (rows, width, depth));
        let of_rows = left.chunks(depth).map(|row| norm(row.iter().copied()));
        let of_columns: Vec<f64> =
            (0..width).map(|c| norm(right.iter().skip(c).step_by(width).copied())).collect();
        let lines = largest.chunks_mut(width).zip(sums.chunks(width));
        for ((largest, sums), of_row) in lines.zip(of_rows) {
            for ((most, sum), of_column) in largest.iter_mut().zip(sums).zip(&of_columns) {
                *most = most.max((sum.abs() + of_row * of_column) as f32);
            }
        }
    }
    (sums, largest)
}

/// The Euclidean norm.
pub(super) fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

/// Sums of `k` products each, before a stage's epilogue. If a second kernel computes that, they are first rounded
/// to `rounds`.
pub fn summed(sums: Sums, k: usize, rounds: Option<Element>) -> Expected {
    let slack = sums.largest.iter().map(|most| sum_error(k, f64::from(*most)) as f32).collect();
    let mut made = Expected { values: sums.values, slack };
    rounds.into_iter().for_each(|element| made.round_once_more(element));
    made
}

/// A GEMM. `rounds`: see [`summed`].
pub(super) fn plain(
    stage: &Stage,
    epilogue: Epilogue,
    operands: &dyn Operands,
    rounds: Option<Element>,
) -> Result<Expected, ReferenceError> {
    let terms = stage.k as usize * stage.devices as usize;
    let sums = summed(operands.product(stage, OperandKind::B)?, terms, rounds);
    ended(sums, epilogue, stage, operands)
}

/// [`finish`] with a stage's operands.
pub(super) fn ended(
    sums: Expected,
    epilogue: Epilogue,
    stage: &Stage,
    operands: &dyn Operands,
) -> Result<Expected, ReferenceError> {
    let bias = operands.of_stage(stage, OperandKind::Bias)?;
    let residual = operands.of_stage(stage, OperandKind::Residual)?;
    Ok(finish(sums, epilogue, bias.as_ref(), residual.as_ref()))
}

/// Bias, activation and residual.
pub fn finish(
    mut made: Expected,
    epilogue: Epilogue,
    bias: Option<&Matrix>,
    residual: Option<&Matrix>,
) -> Expected {
    let cols = made.values.cols.max(1);
    let rows = made.values.data.par_chunks_mut(cols).zip(made.slack.par_chunks_mut(cols)).enumerate();
    rows.for_each(|(row, (values, slack))| {
        for (col, (value, slack)) in values.iter_mut().zip(slack).enumerate() {
            let (mut x, mut off) = (f64::from(*value), f64::from(*slack));
            let add = |x: &mut f64, off: &mut f64, other: Option<f32>| {
                let Some(other) = other else { return };
                *x += f64::from(other);
                *off += UNIT * x.abs();
            };
            add(&mut x, &mut off, bias.map(|bias| bias.data[col]));
            let other = residual.map(|residual| residual.data[row * cols + col]);
            if epilogue.residual_first {
                add(&mut x, &mut off, other);
            }
            (x, off) = activated(epilogue.activation, x, off);
            if !epilogue.residual_first {
                add(&mut x, &mut off, other);
            }
            (*value, *slack) = (x as f32, off as f32);
        }
    });
    made
}

/// A gated GEMM: activation(gate) * up.
pub fn gated(activation: Activation, mut gate: Expected, up: &Expected) -> Expected {
    let gates = gate.values.data.par_iter_mut().zip(gate.slack.par_iter_mut());
    gates.zip(up.values.data.par_iter().zip(&up.slack)).for_each(|((g, off), (u, off_up))| {
        let (x, up, off_up) = (f64::from(*g), f64::from(*u), f64::from(*off_up));
        let (factor, off_factor) = activated(activation, x, f64::from(*off));
        let value = factor * up;
        *off = (off_factor * (up.abs() + off_up) + factor.abs() * off_up + UNIT * value.abs()) as f32;
        *g = value as f32;
    });
    gate
}

/// A GEMM, or a gated one, of normalized rows. Kernels round the product of weights and gain.
pub(super) fn normed(
    stage: &Stage,
    shape: &NormedGemm,
    operands: &dyn Operands,
    element: Element,
) -> Result<Expected, ReferenceError> {
    let need = |kind| operands.needed(stage, kind);
    let root = Norm::new(false, shape.epsilon);
    let rows = normalise(&root, &need(OperandKind::A)?, &need(OperandKind::Gain)?, [None, None]);
    // Rows are off by a factor; roundings of weights are independent.
    let off = |(slack, value): (&f32, &f32)| if *value == 0.0 { 0.0 } else { slack / value.abs() };
    let off_rows = rows.slack.iter().zip(&rows.values.data).map(off).fold(0.0, f32::max);
    let squared = |m: &Matrix| Matrix { data: m.data.iter().map(|x| x * x).collect(), ..*m };
    let deviation = SIGMAS * rounding_deviation(element);
    let lengths = rows.values.data.chunks(rows.values.cols.max(1));
    let underflow = |row: &[f32]| SIGMAS * inner_underflow(element) * norm(row.iter().map(|x| f64::from(*x)));
    let underflows: Vec<f64> = lengths.map(underflow).collect();
    let sums = |kind| -> Result<Expected, ReferenceError> {
        let weights = need(kind)?;
        let mut sums = summed(product(&rows.values, &weights), stage.k as usize, None);
        let squares = product(&squared(&rows.values), &squared(&weights)).values;
        let cols = sums.values.cols.max(1);
        for (i, off) in sums.slack.iter_mut().enumerate() {
            let rounded = deviation * f64::from(squares.data[i]).sqrt() + underflows[i / cols];
            *off += off_rows * sums.values.data[i].abs() + rounded as f32;
        }
        Ok(sums)
    };
    match shape.gated {
        true => Ok(gated(shape.epilogue.activation, sums(OperandKind::B)?, &sums(OperandKind::Up)?)),
        false => ended(sums(OperandKind::B)?, shape.epilogue, stage, operands),
    }
}

/// A GEMM with rotated queries and keys, each row by the position of its token.
pub(super) fn rotated(
    stage: &Stage,
    shape: &Rotated,
    operands: &dyn Operands,
    rounds: Option<Element>,
) -> Result<Expected, ReferenceError> {
    let mut made = plain(stage, Activation::Identity.into(), operands, None)?;
    // A kernel that rotates what another one stored reads the product with its bias.
    rounds.into_iter().for_each(|element| made.round_once_more(element));
    let table = operands.needed(stage, OperandKind::Rotary)?;
    let lengths = operands.of_stage(stage, OperandKind::Lengths)?;
    let norm = HeadNorm::read(stage, &shape.heads, operands)?;
    let cols = made.values.cols;
    let rows = made.values.data.par_chunks_mut(cols).zip(made.slack.par_chunks_mut(cols)).enumerate();
    rows.for_each(|(token, (values, slack))| {
        let past = lengths.as_ref().map_or(0.0, |lengths| lengths.data[token / shape.tokens as usize]);
        let position = (past as usize) + token % shape.tokens as usize;
        // A sequence that leaves the table is left out by the attention behind.
        if past < 0.0 || position >= table.rows {
            return;
        }
        let angles = &table.data[position * table.cols..][..table.cols];
        let Heads { dim, query, .. } = shape.heads;
        let turned = shape.columns() as usize;
        let heads = values[..turned].chunks_mut(dim as usize).zip(slack[..turned].chunks_mut(dim as usize));
        heads.enumerate().for_each(|(head, (values, slack))| {
            if let Some(norm) = &norm {
                norm.apply(head < query as usize, values, slack);
            }
            rotate(values, slack, angles);
        });
    });
    Ok(made)
}

/// Norm of the heads of queries and keys.
pub(super) struct HeadNorm {
    epsilon: f32,
    /// Gain of queries, then of keys.
    gains: [Matrix; 2],
}

impl HeadNorm {
    /// The norm of a stage's heads; `None` if they have none.
    pub(super) fn read(
        stage: &Stage,
        heads: &Heads,
        operands: &dyn Operands,
    ) -> Result<Option<HeadNorm>, ReferenceError> {
        let Some(epsilon) = heads.norm else { return Ok(None) };
        let gain = |kind| operands.needed(stage, kind);
        Ok(Some(HeadNorm { epsilon, gains: [gain(OperandKind::QueryGain)?, gain(OperandKind::KeyGain)?] }))
    }

    /// Normalizes a head of queries or keys.
    pub(super) fn apply(&self, query: bool, values: &mut [f32], slack: &mut [f32]) {
        normalise_head(values, slack, self.epsilon, &self.gains[usize::from(!query)].data);
    }
}

/// Rotates the pairs (i, i + dim / 2) of a head by angles, cosines before sines, with their error bounds.
pub(super) fn rotate(values: &mut [f32], slack: &mut [f32], angles: &[f32]) {
    let half = values.len() / 2;
    for i in 0..half {
        let [c, s] = [angles[i], angles[half + i]].map(f64::from);
        let [x, y] = [values[i], values[half + i]].map(f64::from);
        let [off_x, off_y] = [slack[i], slack[half + i]].map(f64::from);
        let off = |a: f64, b: f64, a_off: f64, b_off: f64| {
            (a_off * c.abs() + b_off * s.abs() + 2.0 * UNIT * ((a * c).abs() + (b * s).abs())) as f32
        };
        (slack[i], slack[half + i]) = (off(x, y, off_x, off_y), off(y, x, off_y, off_x));
        (values[i], values[half + i]) = ((x * c - y * s) as f32, (y * c + x * s) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_three_loops_and_partial_sums_are_seen() {
        let (m, n, k) = (3, STRIP + 5, 2 * DEPTH + 9);
        let matrix = |rows: usize, cols: usize, step: usize| Matrix {
            rows,
            cols,
            data: (0..rows * cols).map(|i| (i * step % 17) as f32 - 8.0).collect(),
        };
        let (a, b) = (matrix(m, k, 5), matrix(k, n, 3));
        let made = product(&a, &b);
        for (row, col) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
            let sum: f32 = (0..k).map(|l| a.data[row * k + l] * b.data[l * n + col]).sum();
            assert_eq!(made.values.data[row * n + col], sum, "exact in integers");
            assert!(made.largest[row * n + col] >= sum.abs());
        }
        // 1e4 at the end of k and -1e4 before cancel, but were partial sums.
        let (mut a, b) = (matrix(1, k, 0), Matrix { rows: k, cols: 1, data: vec![1.0; k] });
        a.data.fill(0.0);
        (a.data[0], a.data[k - 1]) = (-1e4, 1e4);
        let made = product(&a, &b);
        assert!(made.values.data[0] == 0.0 && (1e4..=1e5).contains(&made.largest[0]), "{made:?}");
    }

    #[test]
    fn a_rotation_turns_bounds_too() {
        let (mut values, mut slack) = ([1.0f32, 2.0, 3.0, 4.0], [0.5f32, 0.0, 0.25, 0.0]);
        // A quarter turn for the first pair, none for the second.
        rotate(&mut values, &mut slack, &[0.0, 1.0, 1.0, 0.0]);
        assert_eq!(values, [-3.0, 2.0, 1.0, 4.0]);
        assert!(
            (slack[0] - 0.25).abs() < 1e-6 && (slack[2] - 0.5).abs() < 1e-6 && slack[1] < 1e-6,
            "{slack:?}"
        );
    }
}
