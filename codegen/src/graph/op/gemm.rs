//! GEMMs: `Gemm`, identified by its activation, and `GatedGemm`. A convolution is a GEMM too, except for its image
//! reads.

use std::ops::Range;

use super::{Activation, At, Bound, Constant, Cost, Epilogue, MmaTile, Rules, Stated, Tiles};
use crate::device::Operation;
use crate::diagnostic::Diagnostic;
use crate::graph::{Axis, Footprint, Operand, OperandKind};

/// The kinds of GEMM. Each states its epilogue or the activation of its gate.
trait Gemm {
    /// Whether a tile multiplies by two weights, gate and up, with interleaved columns.
    const GATED: bool;

    /// The operations on its sums; the activation of a gated product is its gate's.
    fn epilogue(&self) -> Epilogue;
}

impl Gemm for Epilogue {
    const GATED: bool = false;

    fn epilogue(&self) -> Epilogue {
        *self
    }
}

impl Gemm for Activation {
    const GATED: bool = true;

    fn epilogue(&self) -> Epilogue {
        (*self).into()
    }
}

/// Checks that the shapes of a GEMM's operands match. Returns the length of its reduction.
pub(super) fn lower(stated: &Stated<'_>) -> Result<u32, Diagnostic> {
    let (m, n, k) = (stated.out().rows, stated.out().cols, stated.tensor(0).cols);
    for (i, read) in stated.reads.iter().enumerate() {
        let Some((rows, cols)) = operand_shape(read.kind, (m, n, k)) else { continue };
        let tensor = stated.tensor(i);
        if (tensor.rows, tensor.cols) != (rows, cols) {
            let (letters, (rows, cols)) = match tensor.transposed {
                true => ("N x K", (cols, rows)),
                false => (letters(read.kind), (rows, cols)),
            };
            let message = format!("`{}` must be {letters}, that is {rows} x {cols}", tensor.name);
            let found = tensor.caller_shape();
            let mut diagnostic = Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", found.0, found.1))
                .also(stated.out.span, format!("M x N is {m} x {n}"));
            if i > 0 {
                diagnostic = diagnostic.also(stated.reads[0].span, format!("M x K is {m} x {k}"));
            }
            return Err(diagnostic.help("out is a times b: (M,N) = (M,K) * (K,N), every tensor row-major"));
        }
    }
    Ok(k)
}

/// The shape of an operand in letters.
fn letters(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::A => "M x K",
        OperandKind::B | OperandKind::Up => "K x N",
        OperandKind::Bias => "1 x N",
        OperandKind::Gain => "1 x K",
        OperandKind::Residual => "M x N",
        _ => "of another operation",
    }
}

/// The shape of a GEMM's operand.
pub(super) fn operand_shape(kind: OperandKind, (m, n, k): (u32, u32, u32)) -> Option<(u32, u32)> {
    match kind {
        OperandKind::A => Some((m, k)),
        OperandKind::B | OperandKind::Up => Some((k, n)),
        OperandKind::Bias => Some((1, n)),
        OperandKind::Gain => Some((1, k)),
        OperandKind::Residual => Some((m, n)),
        _ => None,
    }
}

/// The footprint of a GEMM's operand; (rows, columns) are those of an output tile. Gate and up weights are packed by
/// columns: a CTA reads the same number of columns of each.
pub(super) fn footprint(kind: OperandKind, (rows, cols): (u32, u32), depth: u32) -> Option<Footprint> {
    let along = |tile: u32| i32::try_from(tile).ok();
    let (rows, cols, k) = (along(rows)?, along(cols)?, along(depth)?);
    let along_m = Axis { m: rows, extent: rows, ..Axis::default() };
    let along_n = Axis { n: cols, extent: cols, ..Axis::default() };
    let along_k = Axis { k, extent: k, ..Axis::default() };
    match kind {
        OperandKind::A => Some(Footprint { rows: along_m, cols: along_k }),
        OperandKind::B | OperandKind::Up => Some(Footprint { rows: along_k, cols: along_n }),
        OperandKind::Bias => Some(Footprint { rows: Axis { extent: 1, ..Axis::default() }, cols: along_n }),
        OperandKind::Residual => Some(Footprint { rows: along_m, cols: along_n }),
        _ => None,
    }
}

/// Whether the region that a GEMM's tile reads of an operand depends on its row, and on its column.
pub(super) fn reads_by(kind: OperandKind) -> (bool, bool) {
    match kind {
        OperandKind::A => (true, false),
        OperandKind::B | OperandKind::Up | OperandKind::Bias => (false, true),
        _ => (true, true),
    }
}

/// The regions that a GEMM's tile reads.
pub(super) fn reads(at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
    let elements = at.stage.elements(at.k);
    match at.operand.kind {
        OperandKind::A => f(at.rows(), elements),
        OperandKind::B | OperandKind::Up => f(elements, at.cols()),
        OperandKind::Bias => f(0..at.shape.0, at.cols()),
        _ => f(at.rows(), at.cols()),
    }
}

impl<G: Gemm> Rules for G {
    fn name(&self) -> &'static str {
        if G::GATED { "GatedGemm" } else { "Gemm" }
    }

    fn operation(&self) -> Option<Operation> {
        Some(if G::GATED { Operation::GatedGemm } else { Operation::Gemm })
    }

    fn label(&self) -> String {
        match (G::GATED, Gemm::epilogue(self).activation) {
            (true, Activation::Silu) => "gated gemm".into(),
            (true, other) => format!("gated gemm{}", other.suffix()),
            (false, _) => format!("gemm{}", Gemm::epilogue(self).suffix()),
        }
    }

    fn epilogue(&self) -> Epilogue {
        Gemm::epilogue(self)
    }

    fn noun(&self) -> &'static str {
        "GEMM"
    }

    fn tiles(&self, _: u32) -> Tiles {
        Tiles::Kernels(if G::GATED { Operation::GatedGemm } else { Operation::Gemm })
    }

    fn takes(&self, _: MmaTile, _: u32) -> bool {
        true
    }

    fn out_tile(&self, tile: MmaTile) -> (u32, u32) {
        (tile.0, if G::GATED { tile.1 / 2 } else { tile.1 })
    }

    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)> {
        operand_shape(kind, size)
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        Some((footprint(kind, self.out_tile(tile), tile.2)?, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        reads_by(operand.kind)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        reads(at, f);
    }

    fn constant(&self, kind: OperandKind) -> Option<Constant> {
        let packed = G::GATED && matches!(kind, OperandKind::B | OperandKind::Up);
        packed.then_some(Constant {
            code: "packed-weights",
            message: "gate and up weights must be inputs",
            note: "the kernel reads gate and up interleaved by columns, packed once before the first run",
            help: "make it a weight, or use two Gemm stages and a Custom one",
        })
    }

    fn in_library(&self, has: &dyn Fn(OperandKind) -> bool) -> bool {
        // Its epilogue adds the old output contents before the activation.
        let Epilogue { activation, residual_first } = Gemm::epilogue(self);
        if G::GATED {
            return !has(OperandKind::Residual) && !has(OperandKind::Bias);
        }
        let fused = matches!(activation, Activation::GeluTanh | Activation::Relu);
        activation == Activation::Identity || fused && (residual_first || !has(OperandKind::Residual))
    }

    fn cost(&self) -> Cost {
        Cost { gemm: true, products: if G::GATED { 2.0 } else { 1.0 }, bound: Bound::Kernel }
    }
}
