//! The tensors that no stage writes, on the host.

use std::sync::Arc;

use cusync_gen::graph::{Graph, OperandKind, TensorId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;

use super::cpu::{CpuError, ensure_memory};
use super::element::Bits;

/// Values of a graph's inputs and weights, one entry a tensor, row-major, as bits of the graph's element type. Shared,
/// because weights are large.
#[derive(Clone, Debug)]
pub struct Inputs {
    tensors: Vec<Option<Arc<Vec<u16>>>>,
}

/// Elements that one random stream fills: fixed, so that values do not depend on the number of threads.
const STREAM: usize = 1 << 16;

impl Inputs {
    /// Uniform random values; the same seed gives the same values on every machine. Weights are scaled by
    /// sqrt(3 / K), which keeps the variance of a sum of K products at that of its other operand.
    pub fn random(graph: &Graph, seed: u64) -> Self {
        let tensors = graph.tensors.iter().enumerate().map(|(id, tensor)| {
            if tensor.producer.is_some() {
                return None;
            }
            let length = tensor.rows as usize * tensor.cols as usize;
            Some(Arc::new(random_bits(graph, length, amplitude(graph, TensorId(id)), seed, id as u64)))
        });
        Inputs { tensors: tensors.collect() }
    }

    /// [`Inputs::random`], refused before anything is allocated when the machine cannot hold the pipeline's tensors.
    ///
    /// # Errors
    /// [`CpuError::NoMemory`].
    pub fn checked_random(graph: &Graph, seed: u64) -> Result<Self, CpuError> {
        ensure_memory(&format!("pipeline `{}`", graph.name), graph)?;
        Ok(Inputs::random(graph, seed))
    }

    /// The bits of a tensor; `None` for a tensor that a stage writes.
    pub fn bits(&self, tensor: TensorId) -> Option<&Arc<Vec<u16>>> {
        self.tensors.get(tensor.0)?.as_ref()
    }

    /// Replaces the values of an input. Returns false, changing nothing, when a stage writes the tensor or the length
    /// differs.
    pub fn set(&mut self, tensor: TensorId, bits: Vec<u16>) -> bool {
        match self.tensors.get_mut(tensor.0) {
            Some(Some(old)) if old.len() == bits.len() => {
                *old = Arc::new(bits);
                true
            }
            _ => false,
        }
    }
}

/// Largest magnitude of a tensor's random values.
fn amplitude(graph: &Graph, tensor: TensorId) -> f32 {
    let weight_of = graph.stages.iter().find(|stage| {
        stage
            .operands
            .iter()
            .any(|o| o.tensor == tensor && matches!(o.kind, OperandKind::B | OperandKind::Up))
    });
    weight_of.map_or(1.0, |stage| (3.0 / stage.k.max(1) as f32).sqrt())
}

fn random_bits(graph: &Graph, length: usize, amplitude: f32, seed: u64, tensor: u64) -> Vec<u16> {
    let mut bits = vec![0; length];
    bits.par_chunks_mut(STREAM).enumerate().for_each(|(chunk, out)| {
        let stream = seed ^ (tensor << 48) ^ (chunk as u64);
        let mut rng = SmallRng::seed_from_u64(stream);
        let values: Vec<f32> = (0..out.len()).map(|_| rng.random_range(-amplitude..amplitude)).collect();
        graph.element.round(&values, out);
    });
    bits
}
