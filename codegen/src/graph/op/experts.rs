//! A mixture of experts: every row is computed by the few experts with the largest router scores in it.
//!
//! `y = sum over the chosen experts e of w_e (act(x Ge') * (x Ue')) De' + residual`, with `w` the softmax of the scores.
//! Among equal scores the first are chosen. The weights of all experts are one matrix, expert after expert, whose rows
//! are the columns of a product, as PyTorch keeps them. A tile is a block of whole rows with one k-block. Any of its rows
//! may choose any expert, so it reads all weights.

use std::ops::Range;

use super::{Activation, At, Bound, Constant, Cost, Epilogue, MmaTile, Op, Rules, Stated, Tiles};
use crate::device::Operation;
use crate::diagnostic::{Diagnostic, Span};
use crate::graph::{Axis, Footprint, Operand, OperandKind};
use crate::obstacle::Obstacle;
use crate::spec::ExpertsSpec;

/// Candidate rows per tile.
const ROWS: &[u32] = &[16, 64];

/// Limits of the kernel (`CUSYNC_MAX_EXPERTS` and `CUSYNC_MAX_TOP_K` of `csrc/abi/cusync.h`).
const MOST: u32 = 512;
const MOST_CHOSEN: u32 = 16;

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Number of experts.
    pub experts: u32,
    /// Experts that compute a row.
    pub top_k: u32,
    /// Columns of an expert's hidden rows.
    pub features: u32,
    /// Columns of a row, before and after.
    pub width: u32,
    /// Whether the weights of a row's experts add up to one; otherwise those of all experts do.
    pub normalize: bool,
    /// Applied to the gate.
    pub activation: Activation,
}

/// Checks that all weights belong to the same number of experts of one size. Also returns the columns of a row.
pub(super) fn lower(spec: &ExpertsSpec, stated: &Stated<'_>) -> Result<(Op, u32), Diagnostic> {
    let (rows, cols) = (stated.out().rows, stated.out().cols);
    let place = |kind| stated.reads.iter().position(|read| read.kind == kind);
    let size = |kind| place(kind).map_or((0, 0), |i| (stated.tensor(i).rows, stated.tensor(i).cols));
    let span = |kind| place(kind).map_or(Span::default(), |i| stated.reads[i].span);
    let ((_, experts), (features, _)) = (size(OperandKind::Router), size(OperandKind::B));
    let top_k = stated.dims.size(&spec.top_k, "the number of chosen experts")?;
    if top_k > experts {
        let message = format!("each row chooses {top_k} experts, and there are {experts}");
        return Err(Diagnostic::new("bad-experts", message)
            .at(spec.top_k.span, "more than there are")
            .also(span(OperandKind::Router), format!("{experts} columns, one for each expert"))
            .help(format!("state a `top_k` of at most {experts}")));
    }
    if !features.is_multiple_of(experts) {
        let message = format!("{features} rows of gate weights cannot be divided among {experts} experts");
        let each = (features / experts).max(1);
        return Err(Diagnostic::new("bad-experts", message)
            .at(span(OperandKind::B), format!("{features} rows"))
            .also(span(OperandKind::Router), format!("{experts} columns, one for each expert"))
            .help(format!(
                "all experts have the same number of rows: {} would be {each} for each",
                each * experts
            )));
    }
    let features = features / experts;
    let ExpertsSpec { activation, top_k: _, normalize } = *spec;
    let op = Experts { experts, top_k, features, width: cols, normalize, activation };
    for (i, read) in stated.reads.iter().enumerate() {
        let (tensor, Some(wanted)) = (stated.tensor(i), op.shape(read.kind, (rows, cols))) else { continue };
        if (tensor.rows, tensor.cols) != wanted {
            let message = format!("`{}` must be {} x {}", tensor.name, wanted.0, wanted.1);
            return Err(Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", tensor.rows, tensor.cols))
                .also(stated.out.span, format!("{rows} rows of {cols} columns"))
                .note(format!("E = {experts} experts, the columns of the router"))
                .note(format!("I = {features} hidden columns: each expert's rows of the gate weights"))
                .help("x, the residual and the output are (M, H), the router is (M, E)")
                .help("gate and up are (E*I, H), down is (E*H, I)"));
        }
    }
    Ok((Op::Experts(op), cols))
}

impl Experts {
    /// The shape of an operand of `rows` x `cols` outputs.
    fn shape(&self, kind: OperandKind, (rows, cols): (u32, u32)) -> Option<(u32, u32)> {
        match kind {
            OperandKind::A | OperandKind::Residual => Some((rows, cols)),
            OperandKind::Router => Some((rows, self.experts)),
            OperandKind::B | OperandKind::Up => Some((self.experts.saturating_mul(self.features), cols)),
            OperandKind::Down => Some((self.experts.saturating_mul(cols), self.features)),
            _ => None,
        }
    }

    /// Experts that at least one of `rows` rows chooses, if rows choose independently and no expert is preferred.
    pub(crate) fn expected(&self, rows: u32) -> f64 {
        let all = f64::from(self.experts);
        all * (1.0 - (1.0 - f64::from(self.top_k) / all).powf(rows.into()))
    }
}

/// Whether a tile reads the rows of an operand that it writes.
fn is_row(kind: OperandKind) -> bool {
    matches!(kind, OperandKind::A | OperandKind::Residual | OperandKind::Router)
}

impl Rules for Experts {
    fn name(&self) -> &'static str {
        "Experts"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::Experts)
    }

    fn label(&self) -> String {
        let Experts { experts, top_k, features, .. } = self;
        let normalize = if self.normalize { ", normalized weights" } else { "" };
        format!("{top_k} of {experts} experts of {features} columns{}{normalize}", self.activation.suffix())
    }

    fn epilogue(&self) -> Epilogue {
        self.activation.into()
    }

    fn noun(&self) -> &'static str {
        "mixture of experts"
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

    fn operand_shape(&self, kind: OperandKind, (m, n, _): (u32, u32, u32)) -> Option<(u32, u32)> {
        self.shape(kind, (m, n))
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        let (rows, cols) = self.shape(kind, (tile.0, tile.1))?;
        let (rows, cols) = (i32::try_from(rows).ok()?, i32::try_from(cols).ok()?);
        let m = if is_row(kind) { rows } else { 0 };
        let rows = Axis { m, extent: rows, ..Axis::default() };
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
        matches!(kind, OperandKind::B | OperandKind::Up | OperandKind::Down).then_some(Constant {
            code: "produced-experts",
            message: "the weights of experts must be inputs",
            note: "any row may choose any expert, so a tile would wait for all weights",
            help: "make them inputs of the pipeline",
        })
    }

    fn unfit_beside_others(&self) -> Option<Obstacle> {
        Some(Obstacle::new("is Experts, whose kernel neither waits nor posts"))
    }

    fn unfit(&self, _: MmaTile) -> Option<Obstacle> {
        let above = |count: u32, most: u32, noun: &str| {
            let text = || format!("has {count} {noun}, and its kernel takes {most}");
            (count > most).then(|| Obstacle::new(text()).numbers(count, most))
        };
        above(self.experts, MOST, "experts").or_else(|| above(self.top_k, MOST_CHOSEN, "experts a row"))
    }

    fn cost(&self) -> Cost {
        // Three products of every row by each of its experts, in products of the row by a square matrix.
        let products = 3.0 * f64::from(self.top_k) * f64::from(self.features) / f64::from(self.width);
        Cost { gemm: false, products, bound: Bound::Bytes }
    }
}
