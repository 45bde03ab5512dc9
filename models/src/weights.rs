//! Weights of a model: from a checkpoint, or random.

use std::path::Path;

use cusync::codegen::graph::Element;
use cusync::element::Bits;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;

use crate::architecture::{Decoder, Rows, Weight};
use crate::checkpoint::{Block, Checkpoint, joined, stacked};
use crate::error::Result;

/// Progress of opening a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Layers whose weights are in place, on every device.
    pub layers: usize,
    /// Layers of the model, times its devices.
    pub total: usize,
}

/// Source of a model's weights.
#[derive(Debug)]
pub(crate) enum Weights {
    /// Files.
    Files(Checkpoint),
    /// Random values that keep hidden states near 1: times do not depend on values.
    Random,
}

impl Weights {
    /// Opens the checkpoint in a folder.
    ///
    /// # Errors
    /// A file is missing or is not a safetensors file.
    pub(crate) fn open(folder: &Path) -> Result<Weights> {
        Ok(Weights::Files(Checkpoint::open(folder)?))
    }

    /// Checks that every weight of a decoder is there.
    ///
    /// # Errors
    /// The first that is missing, or has another shape or type.
    pub(crate) fn check(&self, decoder: &Decoder) -> Result<()> {
        let Weights::Files(files) = self else { return Ok(()) };
        files.check([&decoder.embedding()])?;
        let layers = (0..decoder.layers).flat_map(|layer| decoder.layer_weights(layer));
        let mut all = layers.chain(decoder.head_weights());
        all.try_for_each(|weight| files.check(&weight.rows))
    }

    /// Elements of a weight of a page, in `width` columns: see [`joined`].
    ///
    /// # Errors
    /// The weight cannot be read.
    pub(crate) fn read(&self, weight: &Weight, width: usize, element: Element) -> Result<Vec<u16>> {
        let blocks = match self {
            Weights::Files(files) => files.blocks(weight)?,
            Weights::Random => weight.rows.iter().map(|rows| random(rows, element)).collect(),
        };
        if weight.as_rows {
            return Ok(stacked(&blocks, element));
        }
        if (weight.added, weight.factor) == (0.0, 1.0) {
            return Ok(joined(&blocks, width, element));
        }
        let changed = |block: Block| block.map(|value| (value + weight.added) * weight.factor);
        Ok(joined(&blocks.into_iter().map(changed).collect::<Vec<_>>(), width, element))
    }

    /// Hidden states of all tokens.
    ///
    /// # Errors
    /// The embedding cannot be read.
    pub(crate) fn embedding(&self, decoder: &Decoder, element: Element) -> Result<Vec<u16>> {
        let rows = decoder.embedding();
        let mut table = match self {
            Weights::Files(files) => files.table(&rows, element)?,
            Weights::Random => {
                let mut out = vec![0; rows.count * decoder.width];
                let rows = out.par_chunks_mut(decoder.width).enumerate();
                rows.for_each(|(token, row)| random_row(token as u64, element, row));
                out
            }
        };
        table.par_chunks_mut(decoder.width).for_each(|row| multiply(decoder.embedding_factor, element, row));
        Ok(table)
    }

    /// Hidden state of a token: its row of the embedding.
    ///
    /// # Errors
    /// There is no such token, or the file cannot be read.
    pub(crate) fn embed(
        &self,
        decoder: &Decoder,
        token: u32,
        element: Element,
        out: &mut [u16],
    ) -> Result<()> {
        match self {
            Weights::Files(files) => files.row(&decoder.embedding(), token as usize, element, out)?,
            Weights::Random => random_row(u64::from(token), element, out),
        }
        multiply(decoder.embedding_factor, element, out);
        Ok(())
    }
}

/// Multiplies elements by a factor that is rounded to their type.
fn multiply(factor: Option<f32>, element: Element, row: &mut [u16]) {
    let Some(factor) = factor else { return };
    let (mut rounded, mut values) = ([factor], vec![0.0; row.len()]);
    let mut bits = [0];
    element.round(&rounded, &mut bits);
    element.widen(&bits, &mut rounded);
    element.widen(row, &mut values);
    values.iter_mut().for_each(|value| *value *= rounded[0]);
    element.round(&values, row);
}

/// Gains of 1, matrices of variance 1 / K, and biases of up to a tenth. Each row of a tensor has a stream of its own, so
/// that the parts of several devices are those of one tensor.
fn random(rows: &Rows, element: Element) -> Block {
    let (k, cols) = (rows.shape.get(1).copied(), rows.columns.len());
    let seed = rows.tensor.bytes().fold(0u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let scale = k.map_or(0.1, |k| (3.0 / k as f32).sqrt());
    let mut bits = vec![0; rows.count * cols];
    bits.par_chunks_mut(cols).enumerate().for_each(|(n, out)| {
        let mut row = vec![0; k.unwrap_or(1)];
        if rows.tensor.contains("norm") {
            element.round(&vec![1.0; row.len()], &mut row);
        } else {
            fill(seed.wrapping_add(((rows.first + n) as u64) << 32), scale, element, &mut row);
        }
        out.copy_from_slice(&row[rows.columns.clone()]);
    });
    Block::new(&bits, cols, element)
}

/// The row of a token, the same on the host, which needs few rows, and on a GPU, which holds the table.
fn random_row(token: u64, element: Element, out: &mut [u16]) {
    fill(token, 1.0, element, out);
}

/// Uniform values up to `scale`.
fn fill(seed: u64, scale: f32, element: Element, out: &mut [u16]) {
    let mut random = SmallRng::seed_from_u64(seed);
    let values: Vec<f32> = out.iter().map(|_| random.random_range(-scale..scale)).collect();
    element.round(&values, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    #[test]
    fn a_random_table_has_the_rows_that_the_host_embeds() {
        let config = r#"{"hidden_size": 24, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 1, "vocab_size": 5, "rms_norm_eps": 1e-5, "max_position_embeddings": 8}"#;
        let plain = ModelConfig::from_json(config).and_then(|config| Decoder::new(&config)).expect("valid");
        let table = |decoder: &Decoder| {
            let table = Weights::Random.embedding(decoder, Element::Bf16).expect("random");
            for (token, expected) in table.chunks(24).enumerate() {
                let mut row = [0; 24];
                Weights::Random.embed(decoder, token as u32, Element::Bf16, &mut row).expect("random");
                assert_eq!(row, expected, "token {token}");
            }
            let mut values = vec![0.0; table.len()];
            Element::Bf16.widen(&table, &mut values);
            values
        };
        let values = table(&plain);
        assert_ne!(values[..24], values[24..48]);
        // In bf16 the root of 3584 is 59.75.
        let large = table(&Decoder { embedding_factor: Some(3584f32.sqrt()), ..plain });
        let near = |(large, value): (&f32, &f32)| (large - 59.75 * value).abs() <= large.abs() / 256.0;
        assert!(large.iter().zip(&values).all(near), "{large:?}");
        let sums = [&large, &values].map(|values| values.iter().map(|v| f64::from(v.abs())).sum::<f64>());
        assert!((sums[0] / sums[1] - 59.75).abs() < 0.05, "{sums:?}");
    }

    #[test]
    fn gains_are_changed_before_they_are_rounded() {
        let rows = vec![Rows::whole("norm", vec![4])];
        let weight = Weight { added: 1.0, factor: 0.1, ..Weight::new("g", rows) };
        let bits = Weights::Random.read(&weight, 4, Element::F16).expect("random");
        let mut values = [0.0; 4];
        Element::F16.widen(&bits, &mut values);
        // Random gains are one.
        assert!(values.iter().all(|value| (value - 0.2).abs() < 1e-4), "{values:?}");
    }
}
