//! A tile of a normalization: a block of whole rows, each with its own mean and scale, or one group of channels.

use cusync_gen::graph::{Activation, GroupNorm, Norm, OperandKind};

use super::CpuPipeline;
use super::activation::activate;
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop};

impl CpuPipeline {
    /// Computes and stores a tile of rows.
    pub(super) fn normalise_rows(
        &self,
        place: &Place<'_>,
        shape: &Norm,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        self.normalise(place, shape, (place.at.cols, Activation::Identity), scratch)
    }

    /// Computes and stores a group of channels of an image.
    pub(super) fn normalise_group(
        &self,
        place: &Place<'_>,
        shape: &GroupNorm,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let norm = Norm::new(true, shape.epsilon);
        self.normalise(place, &norm, (place.at.rows * place.at.cols, shape.activation), scratch)
    }

    /// Computes and stores a tile in which every `together` elements share a mean and a scale.
    fn normalise(
        &self,
        place: &Place<'_>,
        shape: &Norm,
        (together, activation): (usize, Activation),
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let Place { work, stage, at, .. } = place;
        self.wait_for(place, work.k.start, &work.k, |_| true, scratch)?;
        let load = |kind: OperandKind, at: Box2, otherwise: f32| {
            let mut values = vec![otherwise; at.rows * at.cols];
            if let Some(operand) = stage.operand(kind) {
                self.memory.load_operand(operand, at, &mut values);
            }
            values
        };
        let line = Box2 { row: 0, rows: 1, ..*at };
        let (mut gain, bias) = (load(OperandKind::Gain, line, 1.0), load(OperandKind::Bias, line, 0.0));
        if shape.one_plus_gain {
            gain.iter_mut().for_each(|gain| *gain += 1.0);
        }
        let mut values = load(OperandKind::A, *at, 0.0);
        for elements in values.chunks_mut(together.max(1)) {
            let (mean, scale) = measure(elements, shape);
            let columns = gain.iter().zip(&bias).cycle();
            let each = elements.iter_mut().zip(columns);
            each.for_each(|(x, (g, b))| *x = (*x - mean) * scale * g + b);
        }
        activate(activation, &mut values);
        if stage.operand(OperandKind::Residual).is_some() {
            let residual = load(OperandKind::Residual, *at, 0.0);
            values.iter_mut().zip(residual).for_each(|(x, residual)| *x += residual);
        }
        self.memory.store(stage.out, *at, &values);
        Ok(())
    }
}

/// Offset subtracted from elements that share it, and the factor applied to them.
fn measure(elements: &[f32], shape: &Norm) -> (f32, f32) {
    let count = elements.len() as f32;
    let mean = if shape.centred { elements.iter().sum::<f32>() / count } else { 0.0 };
    let squares: f32 = elements.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, 1.0 / (squares / count + shape.epsilon).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_to_mean_zero_and_scale_one_and_a_row_of_zeros_to_zero() {
        let row = [1.0f32, 3.0, 5.0, 7.0];
        let (mean, scale) = measure(&row, &Norm::new(true, 1e-12));
        assert!((mean - 4.0).abs() < 1e-6 && (scale - 1.0 / 5f32.sqrt()).abs() < 1e-6, "{mean} {scale}");
        let (mean, scale) = measure(&row, &Norm::new(false, 1e-12));
        assert!(mean == 0.0 && (scale - 1.0 / 21f32.sqrt()).abs() < 1e-6, "{mean} {scale}");
        let (mean, scale) = measure(&[0.0; 4], &Norm::new(true, 1e-4));
        assert!(mean == 0.0 && (scale - 100.0).abs() < 1e-3, "{mean} {scale}");
    }
}
