//! Values of tensors that no stage writes, on the host.
//!
//! ```
//! use cusync::codegen::check::Executor;
//! use cusync::codegen::device::Profile;
//! use cusync::inputs::Inputs;
//! use cusync::runtime::{Overrides, plan_text, shipped};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let plan = plan_text(shipped("two_gemms").expect("it ships"), "two_gemms", &Overrides::default(), h200, Executor::Cpu)?;
//! let inputs = Inputs::random(plan.graph(), 1);
//! let tensors = plan.graph().tensors.iter().enumerate();
//! for (at, tensor) in tensors {
//!     let values = inputs.bits(cusync::codegen::graph::TensorId(at));
//!     assert_eq!(values.is_some(), tensor.producer.is_none());
//! }
//! # Ok::<(), cusync::runtime::Error>(())
//! ```

pub(crate) mod cached;
pub(crate) mod sequences;

use std::sync::Arc;

use cusync_gen::graph::{Graph, Op, OperandKind, Stage, TensorId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;

use crate::element::Bits;

/// Values of a graph's inputs and weights, one entry per tensor, row-major. Shared, because weights are
/// large.
#[derive(Clone, Debug)]
pub struct Inputs {
    tensors: Vec<Option<Values>>,
}

/// Values of a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Bits of the graph's element type.
    Bits(Arc<Vec<u16>>),
    /// Lengths or page numbers.
    Integers(Arc<Vec<i32>>),
}

/// Elements per random stream; fixed, so that values do not depend on the number of threads.
const STREAM: usize = 1 << 16;

impl Inputs {
    /// Uniform random values up to 1, and weights up to 3 / sqrt(K) or a quarter of it; the same seed gives
    /// the same values on every machine. Cache lengths are random too, pages are dealt to the sequences, and
    /// rotary tables have their true values.
    pub fn random(graph: &Graph, seed: u64) -> Self {
        let tensors = graph.tensors.iter().enumerate().map(|(id, tensor)| {
            if tensor.producer.is_some() {
                return None;
            }
            if let Some(values) = cached::values(graph, TensorId(id), seed) {
                return Some(values);
            }
            let amplitude = weight_scale(graph, TensorId(id)).unwrap_or(1.0);
            let length = tensor.elements() as usize;
            Some(Values::Bits(Arc::new(random_bits(graph, length, amplitude, seed, id as u64))))
        });
        Inputs { tensors: tensors.collect() }
    }

    /// Inputs without values; pipelines refuse them.
    pub(crate) fn none(graph: &Graph) -> Self {
        Inputs { tensors: vec![None; graph.tensors.len()] }
    }

    /// Sets the values of a tensor; the caller has checked length and type.
    pub(crate) fn put(&mut self, tensor: TensorId, values: Values) {
        if let Some(old) = self.tensors.get_mut(tensor.0) {
            *old = Some(values);
        }
    }

    /// Bits of a tensor; `None` if a stage writes it or it holds integers.
    pub fn bits(&self, tensor: TensorId) -> Option<&Arc<Vec<u16>>> {
        match self.tensors.get(tensor.0)?.as_ref()? {
            Values::Bits(bits) => Some(bits),
            Values::Integers(_) => None,
        }
    }

    /// Integers of a tensor of lengths or page numbers; `None` for others.
    pub fn integers(&self, tensor: TensorId) -> Option<&Arc<Vec<i32>>> {
        match self.tensors.get(tensor.0)?.as_ref()? {
            Values::Integers(integers) => Some(integers),
            Values::Bits(_) => None,
        }
    }

    /// Replaces the values of an input. Returns false and changes nothing if a stage writes the tensor, it
    /// holds integers, or the length differs.
    pub fn set(&mut self, tensor: TensorId, bits: Vec<u16>) -> bool {
        match self.tensors.get_mut(tensor.0) {
            Some(Some(Values::Bits(old))) if old.len() == bits.len() => {
                *old = Arc::new(bits);
                true
            }
            _ => false,
        }
    }

    /// Replaces lengths or page numbers, as [`Inputs::set`] replaces bits.
    pub fn set_integers(&mut self, tensor: TensorId, integers: Vec<i32>) -> bool {
        match self.tensors.get_mut(tensor.0) {
            Some(Some(Values::Integers(old))) if old.len() == integers.len() => {
                *old = Arc::new(integers);
                true
            }
            _ => false,
        }
    }
}

/// Largest magnitude of a weight's random values, for every executor; `None` if the tensor is not a weight,
/// in which case values go up to 1. With 3 / sqrt(K), sums of K products have unit variance: no overflow in
/// fp16, and the activation functions are fully exercised. Weights of a stage that adds a residual use a
/// quarter of that, since a stack of residual blocks would otherwise grow by that much per block.
pub(crate) fn weight_scale(graph: &Graph, tensor: TensorId) -> Option<f32> {
    let weight = |kind| matches!(kind, OperandKind::B | OperandKind::Up | OperandKind::Down);
    let read = |stage: &Stage| {
        let read = stage.operands.iter().find(|o| o.tensor == tensor && weight(o.kind));
        read.map(|operand| operand.kind)
    };
    graph.stages.iter().find_map(|stage| Some((stage, read(stage)?))).map(|(stage, kind)| {
        let residual = stage.operands.iter().any(|o| o.kind == OperandKind::Residual);
        let scale = if residual { 0.75 } else { 3.0 };
        let length = match &stage.op {
            Op::Experts(experts) if kind == OperandKind::Down => experts.features,
            _ => stage.k,
        };
        scale / (length.max(1) as f32).sqrt()
    })
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

#[cfg(test)]
mod tests {
    use cusync_gen::graph::gemm_chain;

    use super::*;

    #[test]
    fn weights_give_sums_of_unit_variance_and_nothing_else_is_scaled() {
        let graph = gemm_chain("c", 64, &[256, 128]).graph(&[(64, 128, 64)]).expect("small");
        let inputs = Inputs::random(&graph, 5);
        let values = |id: usize| {
            let bits = inputs.bits(TensorId(id)).expect("an input");
            let mut values = vec![0.0; bits.len()];
            graph.element.widen(bits, &mut values);
            values
        };
        let largest = |values: &[f32]| values.iter().fold(0f32, |a, b| a.max(b.abs()));
        let (x, w) = (values(0), values(1));
        assert_eq!([0, 1].map(|id| weight_scale(&graph, TensorId(id))), [None, Some(3.0 / 16.0)]);
        assert!((largest(&x) - 1.0).abs() < 0.01 && (largest(&w) - 3.0 / 16.0).abs() < 0.001);
        let sum = |row: usize, col: usize| (0..256).map(|k| x[row * 256 + k] * w[k * 128 + col]).sum::<f32>();
        let squares =
            (0..64).flat_map(|row| (0..128).map(move |col| (row, col))).map(|(r, c)| sum(r, c).powi(2));
        let variance = squares.sum::<f32>() / (64.0 * 128.0);
        assert!((0.8..1.2).contains(&variance), "{variance}");
    }
}
