//! A tile of a mixture of experts: a block of whole rows, each computed by the experts that it chooses.

use cusync_gen::graph::{Experts, OperandKind};

use super::CpuPipeline;
use super::activation::activate;
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop};
use crate::device::host_gemm::{MatMut, MatRef, Threads, gemm_f32};
use crate::element::transposed;

/// A row of a tile and its weight, under an expert that it chose.
type Chosen = (usize, f32);

impl CpuPipeline {
    /// Computes and stores a tile of rows.
    pub(super) fn experts(
        &self,
        place: &Place<'_>,
        shape: &Experts,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let Place { work, stage, at, .. } = place;
        self.wait_for(place, work.k.start, &work.k, |_| true, scratch)?;
        let load = |kind: OperandKind, at: Box2| {
            let mut values = vec![0.0; at.rows * at.cols];
            if let Some(operand) = stage.operand(kind) {
                self.memory.load_operand(operand, at, &mut values);
            }
            values
        };
        let (width, features) = (shape.width as usize, shape.features as usize);
        let scores = load(OperandKind::Router, Box2 { col: 0, cols: shape.experts as usize, ..*at });
        let x = load(OperandKind::A, *at);
        let mut out = load(OperandKind::Residual, *at);
        for (expert, rows) in
            by_expert(&scores, shape).into_iter().enumerate().filter(|(_, rows)| !rows.is_empty())
        {
            let weights = |kind, rows, cols| load(kind, Box2 { row: expert * rows, col: 0, rows, cols });
            // Weights are rows of outputs, so they are on the left.
            let own: Vec<f32> =
                rows.iter().flat_map(|(row, _)| &x[row * width..][..width]).copied().collect();
            let own = transposed(&own, width);
            let product = |weights: &[f32], outputs: usize, right: &[f32]| {
                let (inputs, count) = (right.len() / rows.len(), rows.len());
                let mut sums = vec![0.0; outputs * count];
                gemm_f32(
                    MatMut::new(&mut sums, outputs, count, count),
                    MatRef::new(weights, outputs, inputs, inputs),
                    MatRef::new(right, inputs, count, count),
                    false,
                    Threads::Caller,
                );
                sums
            };
            let mut hidden = product(&weights(OperandKind::B, features, width), features, &own);
            activate(shape.activation, &mut hidden);
            let up = product(&weights(OperandKind::Up, features, width), features, &own);
            hidden.iter_mut().zip(&up).for_each(|(gate, up)| *gate *= up);
            let mut rounded = vec![0.0; hidden.len()];
            self.memory.rounded(&hidden, &mut rounded);
            let outputs = product(&weights(OperandKind::Down, width, features), width, &rounded);
            let mut rounded = vec![0.0; outputs.len()];
            self.memory.rounded(&outputs, &mut rounded);
            for (col, line) in rounded.chunks(rows.len()).enumerate() {
                line.iter().zip(&rows).for_each(|(y, (row, weight))| out[row * width + col] += weight * y);
            }
        }
        self.memory.store(stage.out, *at, &out);
        Ok(())
    }
}

/// The rows that choose each expert.
fn by_expert(scores: &[f32], shape: &Experts) -> Vec<Vec<Chosen>> {
    let mut rows = vec![Vec::new(); shape.experts as usize];
    for (row, scores) in scores.chunks(shape.experts as usize).enumerate() {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        // Stable: of equal scores the first are chosen.
        let rank = |expert: usize| {
            // Both zeros are equal, and a score that is not a number comes last.
            if scores[expert].is_nan() { f32::NEG_INFINITY } else { scores[expert] + 0.0 }
        };
        order.sort_by(|a, b| rank(*b).total_cmp(&rank(*a)));
        let chosen = &order[..shape.top_k as usize];
        let most = scores[order[0]];
        let weight = |expert: &usize| (scores[*expert] - most).exp();
        let whole: f32 = if shape.normalize { chosen } else { &order[..] }.iter().map(weight).sum();
        chosen.iter().for_each(|expert| rows[*expert].push((row, weight(expert) / whole)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use cusync_gen::graph::Activation;

    use super::*;

    #[test]
    fn the_first_of_equal_scores_are_chosen_and_weights_add_up_to_one() {
        let shape = Experts {
            experts: 4,
            top_k: 2,
            features: 8,
            width: 8,
            normalize: true,
            activation: Activation::Silu,
        };
        let rows = by_expert(&[0.5, 1.0, 1.0, 1.0, 3.0, -1.0, 3.0, 3.0], &shape);
        let chosen: Vec<Vec<usize>> =
            rows.iter().map(|rows| rows.iter().map(|(row, _)| *row).collect()).collect();
        assert_eq!(chosen, [vec![1], vec![0], vec![0, 1], vec![]]);
        assert!(rows.iter().flatten().all(|(_, weight)| *weight == 0.5));
        let zeros = by_expert(&[-0.0, 0.0, f32::NAN, -1.0], &Experts { top_k: 1, ..shape });
        assert_eq!(zeros[0], [(0, 1.0)]);
        let whole = by_expert(&[0.0, 2f32.ln(), 0.0, 0.0], &Experts { normalize: false, top_k: 1, ..shape });
        let [(row, weight)] = whole[1][..] else { panic!("{whole:?}") };
        assert!(row == 0 && (weight - 0.4).abs() < 1e-6, "{whole:?}");
    }
}
