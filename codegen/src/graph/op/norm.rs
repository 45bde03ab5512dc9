//! Row normalization: every row of a matrix is scaled to unit variance, and with `LayerNorm` centered to mean zero.
//!
//! `y = (x - mean) / sqrt(variance + epsilon) * gain + bias + residual` over the columns of a row; `RmsNorm` does not
//! subtract the mean and has no bias. A tile is a block of whole rows with one k-block, so it reads the rows of `x` that it
//! writes.

use std::ops::Range;

use super::{At, Bound, Constant, Cost, MmaTile, Rules, Stated, Tiles};
use crate::device::Operation;
use crate::diagnostic::{Diagnostic, Spanned};
use crate::graph::{Axis, Footprint, Operand, OperandKind};
use crate::obstacle::Obstacle;
use crate::spec::NormSpec;

/// Candidate rows per tile. Few rows give every worker a tile of a small matrix; many rows need few waits for a large
/// one.
const ROWS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// Maximum columns of a row that the kernel that runs alone keeps in registers (`csrc/kernels/norm/sm90/alone.cu`).
pub(super) const MOST_ALONE: u32 = 32768;

/// A row normalization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Whether the mean of a row is subtracted before its scale is computed: `LayerNorm`, otherwise `RmsNorm`.
    pub centred: bool,
    /// Whether rows are multiplied by one plus the gain.
    pub one_plus_gain: bool,
    /// Whether a residual is added to the result.
    pub adds: bool,
    /// Added to the variance, or to the mean square.
    pub epsilon: f32,
}

impl Norm {
    /// A normalization by the gain, without a residual.
    pub fn new(centred: bool, epsilon: f32) -> Norm {
        Norm { centred, one_plus_gain: false, adds: false, epsilon }
    }

    /// Whether chain kernels compute it: neither with a residual nor by one plus the gain.
    pub(super) fn is_plain(&self) -> bool {
        !self.one_plus_gain && !self.adds
    }
}

/// Checks that input and output have the same shape, gain and bias are single rows of it, and epsilon is positive.
pub(super) fn lower(spec: &NormSpec, stated: &Stated<'_>) -> Result<Norm, Diagnostic> {
    let (rows, cols) = (stated.out().rows, stated.out().cols);
    for (i, read) in stated.reads.iter().enumerate() {
        let Some(wanted) = shape(read.kind, (rows, cols)) else { continue };
        let tensor = stated.tensor(i);
        if (tensor.rows, tensor.cols) != wanted {
            let message = format!("`{}` must be {} x {}", tensor.name, wanted.0, wanted.1);
            return Err(Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", tensor.rows, tensor.cols))
                .also(stated.out.span, format!("{rows} rows of {cols} columns"))
                .help(
                    "the output and the residual have the shape of x; gain and bias have an element a column",
                ));
        }
    }
    let NormSpec { centred, one_plus_gain, epsilon: epsilon_stated } = spec;
    let adds = stated.reads.iter().any(|read| read.kind == OperandKind::Residual);
    Ok(Norm { centred: *centred, one_plus_gain: *one_plus_gain, adds, epsilon: epsilon(epsilon_stated)? })
}

/// The epsilon of a normalization.
pub(super) fn epsilon(stated: &Spanned<f64>) -> Result<f32, Diagnostic> {
    let epsilon = stated.value as f32;
    if epsilon.is_normal() && epsilon > 0.0 {
        return Ok(epsilon);
    }
    let message = format!("epsilon is {}", stated.value);
    Err(Diagnostic::new("bad-epsilon", message)
        .at(stated.span, "not a positive float32")
        .help("epsilon keeps zeros from being divided by zero: state one such as 1e-5"))
}

/// The shape of an operand of a `rows` x `cols` normalization.
pub(super) fn shape(kind: OperandKind, (rows, cols): (u32, u32)) -> Option<(u32, u32)> {
    match kind {
        OperandKind::A | OperandKind::Residual => Some((rows, cols)),
        OperandKind::Gain | OperandKind::Bias => Some((1, cols)),
        _ => None,
    }
}

/// Whether a tile reads the rows of an operand that it writes.
fn is_row(kind: OperandKind) -> bool {
    matches!(kind, OperandKind::A | OperandKind::Residual)
}

/// Operands that no stage may write.
pub(super) fn constant(kind: OperandKind) -> Option<Constant> {
    matches!(kind, OperandKind::Gain | OperandKind::Bias).then_some(Constant {
        code: "produced-gain",
        message: "the gain and the bias of a normalisation must be inputs",
        note: "a tile reads them once, without waiting",
        help: "make it an input of the pipeline, or use a Custom stage",
    })
}

impl Rules for Norm {
    fn name(&self) -> &'static str {
        if self.centred { "LayerNorm" } else { "RmsNorm" }
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::Norm)
    }

    fn label(&self) -> String {
        let kind = if self.centred { "layer" } else { "root mean square" };
        let gain = if self.one_plus_gain { " by one plus the gain," } else { "" };
        let residual = if self.adds { " with a residual," } else { "" };
        format!("{kind} normalisation, epsilon {:e},{gain}{residual}", self.epsilon)
    }

    fn noun(&self) -> &'static str {
        "normalisation"
    }

    fn tiles(&self, n: u32) -> Tiles {
        let meaning = "(rows, columns of a row, columns of a row)";
        Tiles::Own { list: ROWS.iter().map(|rows| (*rows, n, n)).collect(), meaning, of_kernel: false }
    }

    fn takes(&self, tile: MmaTile, n: u32) -> bool {
        (tile.1, tile.2) == (n, n)
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along its rows")
    }

    fn unfit_beside_others(&self) -> Option<Obstacle> {
        let text = "adds a residual or multiplies by one plus its gain, which chain kernels do not";
        (!self.is_plain()).then(|| Obstacle::new(text))
    }

    fn operand_shape(&self, kind: OperandKind, (m, n, _): (u32, u32, u32)) -> Option<(u32, u32)> {
        shape(kind, (m, n))
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        let (rows, cols) = (i32::try_from(tile.0).ok()?, i32::try_from(tile.1).ok()?);
        shape(kind, (tile.0, tile.1))?;
        let own = Axis { m: rows, extent: rows, ..Axis::default() };
        let one = Axis { extent: 1, ..Axis::default() };
        let rows = if is_row(kind) { own } else { one };
        Some((Footprint { rows, cols: Axis { extent: cols, ..Axis::default() } }, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        (is_row(operand.kind), false)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        let rows = if is_row(at.operand.kind) { at.rows() } else { 0..at.shape.0 };
        f(rows, 0..at.shape.1);
    }

    fn constant(&self, kind: OperandKind) -> Option<Constant> {
        constant(kind)
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 0.0, bound: Bound::Bytes }
    }
}
