//! Comparing a pipeline's outputs with a reference chain.
//!
//! The reference shares nothing with the kernels under test. GEMMs run on the same GPU: plain CUDA cores, one thread an
//! output, float32 accumulation. Other operations follow their definition on the host ([`crate::reference`]). Each stage's result is rounded once through the element type before the next stage
//! reads it, and before the comparison, because the pipeline stores it so. Without that rounding the bound below
//! would say nothing for bf16, whose spacing (2^-8 relative) is already larger.
//!
//! Two norms are bounded. The relative L2 norm ||x - y|| / ||y|| by 2e-3 for both element types: what remains in
//! it is the order of summation, orders of magnitude below. The largest single difference, max |x - y| / max |y|, by
//! 2e-3 plus one spacing of the element type (2^-10 or 2^-7 of the largest value at most), because two sums that
//! differ in the last bit of float32 may round to neighbouring values.

use std::sync::Arc;

use cusync_gen::graph::{DataType, Element, Graph, Op, OperandKind, Rotated, Stage, TensorId};
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::desc::element_code;
use super::error::{Error, Result};
use super::pipeline::{Pipeline, Tensor};
use crate::device::{DeviceBuffer, Role, Stream, helpers};
use crate::element::Bits;
use crate::ffi;
pub use crate::reference::TOLERANCE;
use crate::reference::{self, Matrix};

/// Bound of the largest difference relative to the largest value.
pub fn max_tolerance(element: Element) -> f64 {
    TOLERANCE
        + match element {
            Element::F16 => 2f64.powi(-10),
            Element::Bf16 => 2f64.powi(-7),
        }
}

/// How far one output is from its reference.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Accuracy {
    /// The tensor.
    pub tensor: String,
    /// ||x - y|| / ||y||; NaN when the output holds one, as a poisoned output that was not written does.
    pub relative_l2: f64,
    /// max |x - y| / max |y|.
    pub relative_max: f64,
    /// Whether both are within bounds.
    pub verified: bool,
}

/// Results of the reference chain for one set of inputs.
#[derive(Debug)]
pub struct Reference {
    graph: Graph,
    outputs: Vec<(TensorId, DeviceBuffer<f32>)>,
}

impl Reference {
    /// Runs the chain. Takes about a second at the largest sizes.
    pub fn new(pipeline: &mut Pipeline, set: usize) -> Result<Reference> {
        pipeline.prepare()?;
        // The reference reads gate and up interleaved, whatever the pipeline reads.
        pipeline.pack(set)?;
        let graph = pipeline.plan().graph().clone();
        // What later stages read: the reference's own results, never the pipeline's.
        let mut rounded: Vec<Option<Tensor>> = vec![None; graph.tensors.len()];
        let mut outputs = Vec::new();
        for (index, stage) in graph.stages.iter().enumerate() {
            let result = match &stage.op {
                Op::Gemm(_) | Op::GatedGemm => on_gpu(pipeline, set, (index, stage), true, &rounded)?,
                Op::RotatedGemm(shape) => {
                    let sums = on_gpu(pipeline, set, (index, stage), false, &rounded)?;
                    rotated(pipeline, set, stage, shape, sums)?
                }
                Op::Conv2d(_) | Op::Attention(_) | Op::Attend(_) | Op::Norm(_) | Op::Pool(_) => {
                    on_host(pipeline, set, stage, &rounded)?
                }
                Op::Custom => {
                    let why = format!("stage {}: its arithmetic is not in the spec", stage.name);
                    return Err(Error::Unsupported(why));
                }
            };
            pipeline.synchronize()?;
            if graph.stages.iter().any(|s| s.operands.iter().any(|o| o.tensor == stage.out)) {
                rounded[stage.out.0] = Some(to_element(pipeline, &result, graph.element)?);
            }
            outputs.push((stage.out, result));
        }
        Ok(Reference { graph, outputs })
    }

    /// Compares what the pipeline's last run left in its outputs. Waits for it. Outputs whose memory a later stage
    /// overwrites are left out.
    pub fn compare(&self, pipeline: &mut Pipeline) -> Result<Vec<Accuracy>> {
        pipeline.synchronize()?;
        let memory = |tensor: TensorId| pipeline.memory(0, tensor);
        let mut list = Vec::new();
        for (place, (tensor, _)) in self.outputs.iter().enumerate() {
            let output = memory(*tensor)?;
            let later = self.outputs[place + 1..].iter().map(|(later, _)| memory(*later));
            if later.collect::<Result<Vec<_>>>()?.iter().any(|later| Arc::ptr_eq(later, &output)) {
                continue;
            }
            list.push(self.judge(*tensor, &output, pipeline.stream())?);
        }
        Ok(list)
    }

    /// Compares a buffer, whose writers are done, with the reference of a tensor that a stage produces.
    pub fn judge(&self, tensor: TensorId, output: &DeviceBuffer<u16>, stream: &Stream) -> Result<Accuracy> {
        let name = self.graph.tensors[tensor.0].name.clone();
        let Some((_, reference)) = self.outputs.iter().find(|(t, _)| *t == tensor) else {
            return Err(Error::Unsupported(format!("no stage produces {name}")));
        };
        let element = element_code(self.graph.element);
        let (difference, largest_difference) = sums(output, reference, element, stream)?;
        let zeros = DeviceBuffer::zeroed(output.device(), output.len(), "zeros")?;
        let (_, largest) = sums(&zeros, reference, element, stream)?;
        let relative_l2 = (difference.0 / difference.1).sqrt();
        let relative_max = largest_difference / largest;
        // NaN compares as false.
        let verified = relative_l2 <= TOLERANCE && relative_max <= max_tolerance(self.graph.element);
        Ok(Accuracy { tensor: name, relative_l2, relative_max, verified })
    }
}

/// The result of a GEMM, before any rotation, by plain CUDA cores: `rounded` are the reference's own results, by tensor.
fn on_gpu(
    pipeline: &mut Pipeline,
    set: usize,
    (index, stage): (usize, &Stage),
    rounds: bool,
    rounded: &[Option<Tensor>],
) -> Result<DeviceBuffer<f32>> {
    let mut bound = pipeline.bound_stage(set, index)?;
    if let Op::RotatedGemm(_) = stage.op {
        bound.operation = ffi::CUSYNC_GEMM;
    }
    for operand in &stage.operands {
        let Some(own) = rounded[operand.tensor.0].clone() else { continue };
        let role = match operand.kind {
            OperandKind::A => Role::A,
            OperandKind::B => Role::B,
            OperandKind::Bias => Role::Bias,
            OperandKind::Residual => Role::Residual,
            // A GEMM has no other operands but the up weights, and `Pipeline::new` refuses one whose weights are produced.
            OperandKind::Up
            | OperandKind::Query
            | OperandKind::Key
            | OperandKind::Value
            | OperandKind::Gain
            | OperandKind::CachedKeys
            | OperandKind::CachedValues
            | OperandKind::Lengths
            | OperandKind::Pages
            | OperandKind::Rotary
            | OperandKind::Custom(_) => continue,
        };
        bound.set(role, own);
    }
    let len = stage.m as usize * stage.n as usize;
    let result = DeviceBuffer::new(pipeline.device(), len, &format!("the reference of {}", stage.name))?;
    helpers::reference_gemm(&bound, &result, rounds, pipeline.stream())?;
    Ok(result)
}

/// Queries and keys of a product rotated on the host, and all of it rounded.
fn rotated(
    pipeline: &mut Pipeline,
    set: usize,
    stage: &Stage,
    shape: &Rotated,
    sums: DeviceBuffer<f32>,
) -> Result<DeviceBuffer<f32>> {
    pipeline.synchronize()?;
    let element = pipeline.plan().graph().element;
    let mut qkv = Matrix { rows: stage.m as usize, cols: stage.n as usize, data: vec![0.0; sums.len()] };
    sums.download(&mut qkv.data)?;
    let Some(angles) = stage.operand(OperandKind::Rotary) else {
        return Err(Error::Unsupported(format!("stage {} has no angles", stage.name)));
    };
    let table = pipeline.memory(set, angles.tensor)?;
    let (rows, cols) = (table.len() / shape.heads.dim as usize, shape.heads.dim as usize);
    let mut bits = vec![0u16; table.len()];
    table.download(&mut bits)?;
    let mut table = Matrix { rows, cols, data: vec![0.0; bits.len()] };
    element.widen(&bits, &mut table.data);
    let mut result = reference::attention::rotate(shape, qkv, &table);
    reference::round(element, &mut result.data);
    Ok(DeviceBuffer::from_slice(
        pipeline.device(),
        &result.data,
        &format!("the reference of {}", stage.name),
    )?)
}

/// The result of any other operation, from its definition on the host.
fn on_host(
    pipeline: &mut Pipeline,
    set: usize,
    stage: &Stage,
    rounded: &[Option<Tensor>],
) -> Result<DeviceBuffer<f32>> {
    pipeline.synchronize()?;
    let graph = pipeline.plan().graph();
    let mut values = Vec::new();
    for operand in &stage.operands {
        let shape = &graph.tensors[operand.tensor.0];
        let (rows, cols) = (shape.rows as usize, shape.cols as usize);
        if shape.data == DataType::Int32 {
            let mut numbers = vec![0i32; rows * cols];
            pipeline.integers(set, operand.tensor)?.download(&mut numbers)?;
            let data = numbers.iter().map(|x| *x as f32).collect();
            values.push((operand.kind, Matrix { rows, cols, data }));
            continue;
        }
        let tensor = match &rounded[operand.tensor.0] {
            Some(own) => own.clone(),
            None => pipeline.memory(set, operand.tensor)?,
        };
        let mut bits = vec![0u16; tensor.len()];
        tensor.download(&mut bits)?;
        let mut data = vec![0.0; bits.len()];
        graph.element.widen(&bits, &mut data);
        values.push((operand.kind, Matrix { rows, cols, data }));
    }
    let value = |kind| Ok(values.iter().find(|(of, _)| *of == kind).map(|(_, matrix)| matrix.clone()));
    let result =
        reference::apply(stage, graph.element, &value).map_err(|e| Error::Unsupported(e.to_string()))?;
    Ok(DeviceBuffer::from_slice(
        pipeline.device(),
        &result.data,
        &format!("the reference of {}", stage.name),
    )?)
}

/// ((sum (x - y)^2, sum y^2), max |x - y|).
fn sums(
    x: &DeviceBuffer<u16>,
    y: &DeviceBuffer<f32>,
    element: u32,
    stream: &Stream,
) -> Result<((f64, f64), f64)> {
    let out = DeviceBuffer::<f32>::zeroed(x.device(), 3, "sums of a comparison")?;
    helpers::compare(x, y, element, &out, stream)?;
    stream.synchronize()?;
    let mut host = [0f32; 3];
    out.download(&mut host)?;
    Ok(((host[0].into(), host[1].into()), host[2].into()))
}

/// The values as 16-bit floats; exact, for they were rounded already.
fn to_element(pipeline: &Pipeline, values: &DeviceBuffer<f32>, element: Element) -> Result<Tensor> {
    let mut host = vec![0f32; values.len()];
    values.download(&mut host)?;
    let mut bits = vec![0u16; host.len()];
    const CHUNK: usize = 1 << 16;
    bits.par_chunks_mut(CHUNK).zip(host.par_chunks(CHUNK)).for_each(|(to, from)| match element {
        Element::F16 => {
            let mut half = vec![half::f16::ZERO; from.len()];
            half.convert_from_f32_slice(from);
            to.iter_mut().zip(half).for_each(|(t, h)| *t = h.to_bits());
        }
        Element::Bf16 => {
            to.iter_mut().zip(from).for_each(|(t, &f)| *t = half::bf16::from_f32(f).to_bits());
        }
    });
    Ok(Arc::new(DeviceBuffer::from_slice(pipeline.device(), &bits, "a rounded reference")?))
}

/// The worst of several outputs, as one pair (relative L2, relative maximum); NaN wins.
pub fn worst(list: &[Accuracy]) -> (f64, f64) {
    let worse = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    list.iter().fold((0.0, 0.0), |(l2, max), a| (worse(a.relative_l2, l2), worse(a.relative_max, max)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accuracy(relative_l2: f64, relative_max: f64) -> Accuracy {
        Accuracy { tensor: "Y".into(), relative_l2, relative_max, verified: true }
    }

    #[test]
    fn the_worst_is_taken_of_each_norm_and_nan_is_worst() {
        let (l2, max) = worst(&[accuracy(1e-4, 3e-3), accuracy(2e-4, 1e-3)]);
        assert_eq!((l2, max), (2e-4, 3e-3));
        let nan = worst(&[accuracy(f64::NAN, 0.0), accuracy(1.0, 1.0)]);
        assert!(nan.0.is_nan(), "a NaN must not be hidden by a later number: {nan:?}");
    }
}
