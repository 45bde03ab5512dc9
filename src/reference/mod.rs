//! An independent reference: whole matrices, one stage after the other, no tiles, no semaphores, sums in
//! float64.
//!
//! It shares no arithmetic with the executors. [`Judge`] compares an executor's tensors stage by stage: each
//! with the result of its operation's definition from the operands that the executor itself computed, element
//! by element within the bounds of [`Expected`]. [`evaluate`] runs the whole pipeline, and rounds each
//! stage's result once to the element type, as storing it would.
//!
//! ```
//! use std::collections::HashMap;
//!
//! use cusync::codegen::check::Executor;
//! use cusync::codegen::device::Profile;
//! use cusync::inputs::Inputs;
//! use cusync::reference::Judge;
//! use cusync::runtime::cpu::{CpuOptions, CpuPipeline};
//! use cusync::runtime::{Overrides, plan_text, shipped};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let small = Overrides { dims: vec![("M".into(), 8)], ..Overrides::default() };
//! let plan = plan_text(shipped("two_gemms").expect("it ships"), "two_gemms", &small, h200, Executor::Cpu)?;
//! let inputs = Inputs::random(plan.graph(), 1);
//! let mut pipeline = CpuPipeline::new(&plan, &inputs, CpuOptions::default())?;
//! pipeline.run()?;
//! let judge = Judge::new(plan.graph(), &inputs, HashMap::new())?;
//! let judged = judge.compare(&|tensor| pipeline.tensor(tensor).ok())?;
//! assert!(judged.len() == plan.graph().stages.len() && judged.iter().all(|tensor| tensor.verified));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod activation;
mod attention;
mod bound;
mod conv;
mod experts;
pub mod gemm;
mod norm;
mod pool;
mod stages;

use std::collections::HashMap;

use cusync_gen::graph::{Element, Graph, Op, OperandKind, Stage, TensorId};
use rayon::prelude::*;

pub use bound::{Accuracy, Expected, Offender, Wrong, first_wrong, judge, worst};
use gemm::{Sums, product};
pub use stages::Judge;
pub(crate) use stages::{Stages, TensorValues};

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

/// Whole-matrix form of a custom stage: from operands in the spec's order to the output.
pub type CustomReference<'a> = Box<dyn Fn(&[Matrix]) -> Matrix + Sync + 'a>;

/// Reason why a reference cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// An input has no values.
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
    /// A stage is summed over more devices than have values.
    #[error(
        "stage `{stage}` is summed over {devices} devices, and {have} have values\n  help: judge all devices of the group"
    )]
    Devices {
        /// The stage.
        stage: String,
        /// Its devices.
        devices: u32,
        /// Devices with values.
        have: usize,
    },
    /// The executor's tensors are not accessible.
    #[error("{0}")]
    Executor(String),
}

/// Operands of a pipeline's stages.
pub(crate) trait Operands {
    /// A tensor; integers are converted to numbers.
    fn tensor(&self, id: TensorId) -> Result<Matrix, ReferenceError>;

    /// Operand A of a stage times another operand, its weights or gate.
    fn product(&self, stage: &Stage, right: OperandKind) -> Result<Sums, ReferenceError> {
        Ok(product(&self.needed(stage, OperandKind::A)?, &self.needed(stage, right)?))
    }

    /// Operand of a stage, in the shape under which it is read; `None` if there is no such operand.
    fn of_stage(&self, stage: &Stage, kind: OperandKind) -> Result<Option<Matrix>, ReferenceError> {
        let Some(operand) = stage.operand(kind) else { return Ok(None) };
        let Matrix { rows, cols, data } = self.tensor(operand.tensor)?;
        let (rows, cols) = operand.view.map_or((rows, cols), |v| (v.rows as usize, v.cols as usize));
        Ok(Some(Matrix { rows, cols, data }))
    }

    /// A required operand.
    fn needed(&self, stage: &Stage, kind: OperandKind) -> Result<Matrix, ReferenceError> {
        self.of_stage(stage, kind)?.ok_or_else(|| ReferenceError::Shape(stage.name.clone()))
    }
}

/// Other inputs of a stage's result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    /// Caches are as the run has left them, including its tokens.
    pub(crate) appended: bool,
    /// The stage's product is rounded to the element type before its epilogue, which a second kernel computes.
    pub(crate) rounds_product: bool,
}

/// Result of a stage from its operands, not yet rounded.
///
/// # Errors
/// The stage is Custom, lacks an operand, or an operand is not accessible.
pub(crate) fn apply(
    stage: &Stage,
    element: Element,
    operands: &dyn Operands,
    given: Given,
) -> Result<Expected, ReferenceError> {
    let need = |kind| operands.needed(stage, kind);
    let rounds = given.rounds_product.then_some(element);
    match &stage.op {
        Op::Gemm(epilogue) => gemm::plain(stage, *epilogue, operands, rounds),
        Op::GatedGemm(gate) => {
            let sums = |kind| operands.product(stage, kind);
            let summed = |sums| gemm::summed(sums, stage.k as usize, rounds);
            Ok(gemm::gated(*gate, summed(sums(OperandKind::B)?), &summed(sums(OperandKind::Up)?)))
        }
        Op::NormedGemm(shape) => gemm::normed(stage, shape, operands, element),
        Op::RotatedGemm(shape) => gemm::rotated(stage, shape, operands, rounds),
        Op::Conv2d(shape) => {
            let sums = conv::convolve(&shape.sliding, 1, &need(OperandKind::A)?, &need(OperandKind::B)?);
            gemm::ended(gemm::summed(sums, stage.k as usize, rounds), shape.epilogue, stage, operands)
        }
        Op::GroupedConv(shape) => {
            let groups = (stage.n / shape.features) as usize;
            let sums = conv::convolve(&shape.sliding, groups, &need(OperandKind::A)?, &need(OperandKind::B)?);
            gemm::ended(gemm::summed(sums, stage.k as usize, None), shape.epilogue, stage, operands)
        }
        Op::Attention(shape) => with_reads(stage, operands, |reads| attention::attend(shape, reads, element)),
        Op::Attend(shape) => {
            with_reads(stage, operands, |reads| attention::generate(shape, reads, element, given.appended))
        }
        Op::Norm(shape) => {
            let added = [OperandKind::Bias, OperandKind::Residual].map(|kind| operands.of_stage(stage, kind));
            let [bias, residual] = added;
            let (bias, residual) = (bias?, residual?);
            let added = [bias.as_ref(), residual.as_ref()];
            Ok(norm::normalise(shape, &need(OperandKind::A)?, &need(OperandKind::Gain)?, added))
        }
        Op::GroupNorm(shape) => {
            let (gain, bias) = (need(OperandKind::Gain)?, need(OperandKind::Bias)?);
            Ok(norm::normalise_groups(shape, &need(OperandKind::A)?, &gain, &bias))
        }
        Op::Pool(shape) => Ok(pool::pool(shape, &need(OperandKind::A)?)),
        Op::Experts(shape) => {
            let reads = experts::ExpertReads {
                x: need(OperandKind::A)?,
                router: need(OperandKind::Router)?,
                gate: need(OperandKind::B)?,
                up: need(OperandKind::Up)?,
                down: need(OperandKind::Down)?,
                residual: operands.of_stage(stage, OperandKind::Residual)?,
            };
            Ok(experts::mix(shape, &reads, element))
        }
        Op::Custom => Err(ReferenceError::NoCustom(stage.name.clone())),
    }
}

/// Operands that a stage changes in place, not yet rounded, as the next run finds them. `before`: keys and
/// values before the run; if unknown, only the appended rows are known.
///
/// # Errors
/// As [`apply`].
pub(crate) fn changed(
    stage: &Stage,
    operands: &dyn Operands,
    before: Option<[&Matrix; 2]>,
) -> Result<Vec<(OperandKind, Expected)>, ReferenceError> {
    match &stage.op {
        Op::Attention(shape) => with_reads(stage, operands, |reads| attention::filled(shape, reads, before)),
        Op::Attend(shape) => with_reads(stage, operands, |reads| attention::appended(shape, reads, before)),
        Op::Gemm(_)
        | Op::GatedGemm(_)
        | Op::NormedGemm(_)
        | Op::RotatedGemm(_)
        | Op::Conv2d(_)
        | Op::GroupedConv(_)
        | Op::Norm(_)
        | Op::GroupNorm(_)
        | Op::Pool(_)
        | Op::Experts(_)
        | Op::Custom => Ok(Vec::new()),
    }
}

fn with_reads<T>(
    stage: &Stage,
    operands: &dyn Operands,
    f: impl FnOnce(&attention::Reads<'_>) -> T,
) -> Result<T, ReferenceError> {
    let value = |kind| operands.of_stage(stage, kind);
    let qkv = operands.needed(stage, OperandKind::Query)?;
    let (keys, values) = (value(OperandKind::CachedKeys)?, value(OperandKind::CachedValues)?);
    let (lengths, pages) = (value(OperandKind::Lengths)?, value(OperandKind::Pages)?);
    let rotary = value(OperandKind::Rotary)?;
    let norm = match &stage.op {
        Op::Attend(shape) => gemm::HeadNorm::read(stage, &shape.heads, operands)?,
        _ => None,
    };
    Ok(f(&attention::Reads {
        qkv: &qkv,
        cache: keys.as_ref().zip(values.as_ref()).map(|(k, v)| [k, v]),
        lengths: lengths.as_ref(),
        pages: pages.as_ref(),
        rotary: rotary.as_ref(),
        norm: norm.as_ref(),
        queries: match &stage.op {
            Op::Attend(shape) => shape.heads.query as usize,
            _ => 0,
        },
    }))
}

/// Values of every tensor that a stage writes or changes, by name.
///
/// # Errors
/// An input has no values, or a custom stage has no form in `custom`.
pub fn evaluate(
    graph: &Graph,
    inputs: &Inputs,
    custom: &HashMap<String, CustomReference<'_>>,
) -> Result<HashMap<String, Vec<f32>>, ReferenceError> {
    let forms = stages::Forms { known: custom, takes_given: false };
    let written = stages::chain(graph, &[&stages::HostMemory::inputs(graph, inputs)], forms)?;
    let name = |id: TensorId| graph.tensors[id.0].name.clone();
    Ok(written.into_iter().flatten().map(|(id, m)| (name(id), m.data)).collect())
}

/// Rounds through the element type.
pub(crate) fn round(element: Element, values: &mut [f32]) {
    values.par_chunks_mut(1 << 12).for_each(|chunk| {
        let mut bits = vec![0; chunk.len()];
        element.round(chunk, &mut bits);
        element.widen(&bits, chunk);
    });
}
