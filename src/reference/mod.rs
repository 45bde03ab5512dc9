//! An independent reference: whole matrices, one stage after the other, no tiles, no semaphores.
//!
//! Sums are float32; each stage's result is rounded once to the pipeline's element type, as a stage that stores it
//! would. It shares no arithmetic with the executors except the matrix product of the `gemm` crate, which a test here
//! compares with three loops.

mod error;
mod general;

use std::collections::HashMap;

use cusync_gen::graph::{Activation, Graph, Op, OperandKind, Stage, TensorId};
use rayon::prelude::*;

pub use error::{Difference, Tolerance, compare};

use crate::device::host_gemm::{MatMut, MatRef, Threads, gemm_f32};
use crate::runtime::element::Bits;
use crate::runtime::inputs::Inputs;

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
    #[error("input `{0}` has no values\n  help: give it rows x cols of them with `Inputs::set`")]
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

/// The values of every tensor that a stage writes, by name.
///
/// # Errors
/// An input has no values, or a custom stage has no form in `custom`.
pub fn evaluate(
    graph: &Graph,
    inputs: &Inputs,
    custom: &HashMap<String, CustomReference<'_>>,
) -> Result<HashMap<String, Vec<f32>>, ReferenceError> {
    let mut written: HashMap<TensorId, Matrix> = HashMap::new();
    for stage in &graph.stages {
        let mut result = {
            let value = |kind: OperandKind| -> Result<Option<Matrix>, ReferenceError> {
                let operand = stage.operands.iter().find(|o| o.kind == kind);
                operand.map(|o| matrix(graph, inputs, &written, o.tensor)).transpose()
            };
            match stage.op {
                Op::Gemm { activation } => plain(stage, activation, &value)?,
                Op::GatedGemm => gated(stage, &value)?,
                Op::Conv2d(shape) => match (value(OperandKind::A)?, value(OperandKind::B)?) {
                    (Some(images), Some(filter)) => {
                        finish(general::convolve(&shape, &images, &filter), shape.activation, &value)?
                    }
                    _ => return Err(ReferenceError::Shape(stage.name.clone())),
                },
                Op::Attention(shape) => match value(OperandKind::Query)? {
                    Some(qkv) => general::attend(&shape, &qkv),
                    None => return Err(ReferenceError::Shape(stage.name.clone())),
                },
                Op::Custom => {
                    let form = custom.get(&stage.name);
                    let form = form.ok_or_else(|| ReferenceError::NoCustom(stage.name.clone()))?;
                    let reads: Result<Vec<_>, _> =
                        stage.operands.iter().map(|o| matrix(graph, inputs, &written, o.tensor)).collect();
                    form(&reads?)
                }
            }
        };
        let shape = (stage.m as usize, stage.n as usize);
        if (result.rows, result.cols) != shape || result.data.len() != shape.0 * shape.1 {
            return Err(ReferenceError::Shape(stage.name.clone()));
        }
        round(graph, &mut result.data);
        written.insert(stage.out, result);
    }
    let name = |id: TensorId| graph.tensors[id.0].name.clone();
    Ok(written.into_iter().map(|(id, m)| (name(id), m.data)).collect())
}

fn plain(
    stage: &Stage,
    activation: Activation,
    value: &dyn Fn(OperandKind) -> Result<Option<Matrix>, ReferenceError>,
) -> Result<Matrix, ReferenceError> {
    finish(product(stage, value(OperandKind::A)?, value(OperandKind::B)?)?, activation, value)
}

/// Bias, activation, residual.
fn finish(
    mut d: Matrix,
    activation: Activation,
    value: &dyn Fn(OperandKind) -> Result<Option<Matrix>, ReferenceError>,
) -> Result<Matrix, ReferenceError> {
    if let Some(bias) = value(OperandKind::Bias)? {
        d.data.par_chunks_mut(d.cols).for_each(|row| {
            for (x, b) in row.iter_mut().zip(&bias.data) {
                *x += b;
            }
        });
    }
    match activation {
        Activation::Identity => {}
        Activation::Relu => d.data.par_iter_mut().for_each(|x| *x = x.max(0.0)),
        // x sigmoid(2 u) is the same function as 0.5 x (1 + tanh u).
        Activation::GeluTanh => d.data.par_iter_mut().for_each(|x| {
            let v = f64::from(*x);
            let u = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v.powi(3));
            *x = (v / (1.0 + (-2.0 * u).exp())) as f32;
        }),
    }
    if let Some(residual) = value(OperandKind::Residual)? {
        d.data.par_iter_mut().zip(&residual.data).for_each(|(x, r)| *x += r);
    }
    Ok(d)
}

fn gated(
    stage: &Stage,
    value: &dyn Fn(OperandKind) -> Result<Option<Matrix>, ReferenceError>,
) -> Result<Matrix, ReferenceError> {
    let mut gate = product(stage, value(OperandKind::A)?, value(OperandKind::B)?)?;
    let up = product(stage, value(OperandKind::A)?, value(OperandKind::Up)?)?;
    gate.data.par_iter_mut().zip(&up.data).for_each(|(g, u)| {
        let v = f64::from(*g);
        *g = (v / (1.0 + (-v).exp()) * f64::from(*u)) as f32;
    });
    Ok(gate)
}

fn product(stage: &Stage, a: Option<Matrix>, b: Option<Matrix>) -> Result<Matrix, ReferenceError> {
    let (Some(a), Some(b)) = (a, b) else { return Err(ReferenceError::Shape(stage.name.clone())) };
    if a.cols != b.rows {
        return Err(ReferenceError::Shape(stage.name.clone()));
    }
    let mut d = Matrix { rows: a.rows, cols: b.cols, data: vec![0.0; a.rows * b.cols] };
    gemm_f32(
        MatMut::new(&mut d.data, d.rows, d.cols, d.cols),
        MatRef::new(&a.data, a.rows, a.cols, a.cols),
        MatRef::new(&b.data, b.rows, b.cols, b.cols),
        false,
        Threads::All,
    );
    Ok(d)
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
    let bits = inputs.bits(id).ok_or_else(|| ReferenceError::NoInput(tensor.name.clone()))?;
    let mut data = vec![0.0; bits.len()];
    const CHUNK: usize = 1 << 16;
    data.par_chunks_mut(CHUNK)
        .zip(bits.par_chunks(CHUNK))
        .for_each(|(out, bits)| graph.element.widen(bits, out));
    Ok(Matrix { rows: tensor.rows as usize, cols: tensor.cols as usize, data })
}

/// Rounds through the element type.
fn round(graph: &Graph, values: &mut [f32]) {
    values.par_chunks_mut(1 << 12).for_each(|chunk| {
        let mut bits = vec![0; chunk.len()];
        graph.element.round(chunk, &mut bits);
        graph.element.widen(&bits, chunk);
    });
}
