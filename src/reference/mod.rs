//! An independent reference: whole matrices, one stage after the other, no tiles, no semaphores.
//!
//! Sums of GEMMs are float32, all others float64; each stage's result is rounded once to the pipeline's element type, as a stage that stores it
//! would. It shares no arithmetic with the executors except the matrix product of the `gemm` crate, which a test here
//! compares with three loops.
//!
//! ```
//! use std::collections::HashMap;
//!
//! use cusync::codegen::check::Executor;
//! use cusync::codegen::device::Profile;
//! use cusync::inputs::Inputs;
//! use cusync::reference::evaluate;
//! use cusync::runtime::{Overrides, plan_text, shipped};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let small = Overrides { dims: vec![("M".into(), 8)], ..Overrides::default() };
//! let plan = plan_text(shipped("two_gemms").expect("it ships"), "two_gemms", &small, h200, Executor::Cpu)?;
//! let written = evaluate(plan.graph(), &Inputs::random(plan.graph(), 1), &HashMap::new())?;
//! assert_eq!(written.len(), plan.graph().stages.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod attention;
mod conv;
mod error;
mod gemm;
mod norm;
mod pool;

use std::collections::HashMap;

use cusync_gen::graph::{Activation, Element, Graph, Op, OperandKind, Stage, TensorId};
use rayon::prelude::*;

pub use error::{Difference, TOLERANCE, Tolerance, compare};

use crate::element::Bits;
use crate::inputs::Inputs;

/// A row-major float32 matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// `rows * cols` values.
    pub data: Vec<f32>,
}

/// The whole-matrix form of a custom stage: operands in the spec's order to output.
pub type CustomReference<'a> = Box<dyn Fn(&[Matrix]) -> Matrix + 'a>;

/// What a reference cannot be computed from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// An input was never given.
    #[error("input `{0}` has no values\n  help: give it rows x cols of them, with `Session::set_f32`")]
    NoInput(String),
    /// A custom stage without a whole-matrix form.
    #[error(
        "stage `{0}` is Custom: its arithmetic is not in the spec\n  help: give its whole-matrix form to `evaluate`"
    )]
    NoCustom(String),
    /// A custom stage whose result has the wrong shape.
    #[error("the reference of `{0}` has the wrong shape")]
    Shape(String),
}

/// The matrix that a stage reads as an operand; `None` where it has no such operand.
pub(crate) type Value<'a> = dyn Fn(OperandKind) -> Result<Option<Matrix>, ReferenceError> + 'a;

/// What a stage makes of its operands, not yet rounded.
///
/// # Errors
/// The stage is Custom, lacks an operand, or an operand cannot be had.
pub(crate) fn apply(stage: &Stage, element: Element, value: &Value<'_>) -> Result<Matrix, ReferenceError> {
    let need = |kind| value(kind)?.ok_or_else(|| ReferenceError::Shape(stage.name.clone()));
    match &stage.op {
        Op::Gemm(epilogue) => gemm::plain(stage, *epilogue, value),
        Op::GatedGemm => gemm::gated(stage, value),
        Op::RotatedGemm(shape) => {
            let sums = gemm::plain(stage, Activation::Identity.into(), value)?;
            Ok(attention::rotate(shape, sums, &need(OperandKind::Rotary)?))
        }
        Op::Conv2d(shape) => {
            let sums = conv::convolve(shape, &need(OperandKind::A)?, &need(OperandKind::B)?);
            gemm::finish(sums, shape.epilogue, value)
        }
        Op::Attention(shape) => with_reads(stage, value, |reads| attention::attend(shape, reads)),
        Op::Attend(shape) => with_reads(stage, value, |reads| attention::generate(shape, reads, element)),
        Op::Norm(shape) => {
            let (x, gain, bias) =
                (need(OperandKind::A)?, need(OperandKind::Gain)?, value(OperandKind::Bias)?);
            Ok(norm::normalise(shape, &x, &gain, bias.as_ref()))
        }
        Op::Pool(shape) => Ok(pool::pool(shape, &need(OperandKind::A)?)),
        Op::Custom => Err(ReferenceError::NoCustom(stage.name.clone())),
    }
}

/// What a stage makes of the operands that it changes in place, rounded: what the next run finds.
///
/// # Errors
/// As [`apply`].
pub(crate) fn changed(
    stage: &Stage,
    element: Element,
    value: &Value<'_>,
) -> Result<Vec<(OperandKind, Matrix)>, ReferenceError> {
    match &stage.op {
        Op::Attention(shape) => with_reads(stage, value, |reads| attention::filled(shape, reads, element)),
        Op::Attend(shape) => with_reads(stage, value, |reads| attention::appended(shape, reads, element)),
        Op::Gemm(_)
        | Op::GatedGemm
        | Op::RotatedGemm(_)
        | Op::Conv2d(_)
        | Op::Norm(_)
        | Op::Pool(_)
        | Op::Custom => Ok(Vec::new()),
    }
}

fn with_reads<T>(
    stage: &Stage,
    value: &Value<'_>,
    f: impl FnOnce(&attention::Reads<'_>) -> T,
) -> Result<T, ReferenceError> {
    let qkv = value(OperandKind::Query)?.ok_or_else(|| ReferenceError::Shape(stage.name.clone()))?;
    let (keys, values) = (value(OperandKind::CachedKeys)?, value(OperandKind::CachedValues)?);
    let (lengths, pages) = (value(OperandKind::Lengths)?, value(OperandKind::Pages)?);
    let rotary = value(OperandKind::Rotary)?;
    Ok(f(&attention::Reads {
        qkv: &qkv,
        cache: keys.as_ref().zip(values.as_ref()).map(|(k, v)| [k, v]),
        lengths: lengths.as_ref(),
        pages: pages.as_ref(),
        rotary: rotary.as_ref(),
    }))
}

/// The values of every tensor that a stage writes or changes, by name.
///
/// # Errors
/// An input has no values, or a custom stage has no form in `custom`.
pub fn evaluate(
    graph: &Graph,
    inputs: &Inputs,
    custom: &HashMap<String, CustomReference<'_>>,
) -> Result<HashMap<String, Vec<f32>>, ReferenceError> {
    let mut written: HashMap<TensorId, Matrix> = HashMap::new();
    fn value<'a>(
        (graph, inputs): (&'a Graph, &'a Inputs),
        written: &'a HashMap<TensorId, Matrix>,
        stage: &'a Stage,
    ) -> impl Fn(OperandKind) -> Result<Option<Matrix>, ReferenceError> + 'a {
        move |kind| stage.operand(kind).map(|o| matrix(graph, inputs, written, o.tensor)).transpose()
    }
    for stage in &graph.stages {
        let mut result = match custom.get(&stage.name).filter(|_| stage.op.is_custom()) {
            Some(form) => {
                let reads = stage.operands.iter().map(|o| matrix(graph, inputs, &written, o.tensor));
                form(&reads.collect::<Result<Vec<_>, _>>()?)
            }
            None => apply(stage, graph.element, &value((graph, inputs), &written, stage))?,
        };
        let shape = (stage.m as usize, stage.n as usize);
        if (result.rows, result.cols) != shape || result.data.len() != shape.0 * shape.1 {
            return Err(ReferenceError::Shape(stage.name.clone()));
        }
        round(graph.element, &mut result.data);
        let states = changed(stage, graph.element, &value((graph, inputs), &written, stage))?;
        for operand in &stage.operands {
            let state = states.iter().find(|(kind, _)| *kind == operand.kind);
            state.into_iter().for_each(|(_, after)| drop(written.insert(operand.tensor, after.clone())));
        }
        written.insert(stage.out, result);
    }
    let name = |id: TensorId| graph.tensors[id.0].name.clone();
    Ok(written.into_iter().map(|(id, m)| (name(id), m.data)).collect())
}

fn matrix(
    graph: &Graph,
    inputs: &Inputs,
    written: &HashMap<TensorId, Matrix>,
    id: TensorId,
) -> Result<Matrix, ReferenceError> {
    if let Some(matrix) = written.get(&id) {
        return Ok(matrix.clone());
    }
    let tensor = &graph.tensors[id.0];
    if let Some(numbers) = inputs.integers(id) {
        let data = numbers.iter().map(|x| *x as f32).collect();
        return Ok(Matrix { rows: tensor.rows as usize, cols: tensor.cols as usize, data });
    }
    let bits = inputs.bits(id).ok_or_else(|| ReferenceError::NoInput(tensor.name.clone()))?;
    let mut data = vec![0.0; bits.len()];
    const CHUNK: usize = 1 << 16;
    data.par_chunks_mut(CHUNK)
        .zip(bits.par_chunks(CHUNK))
        .for_each(|(out, bits)| graph.element.widen(bits, out));
    Ok(Matrix { rows: tensor.rows as usize, cols: tensor.cols as usize, data })
}

/// Rounds through the element type.
pub(crate) fn round(element: Element, values: &mut [f32]) {
    values.par_chunks_mut(1 << 12).for_each(|chunk| {
        let mut bits = vec![0; chunk.len()];
        element.round(chunk, &mut bits);
        element.widen(&bits, chunk);
    });
}
