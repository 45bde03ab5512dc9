//! GEMMs of normalized rows, for token generation: `out = act(a / rms(a) * gain * b + bias) + residual`, where rms(a) is
//! the root of a row's mean square plus epsilon; or the gated form.
//!
//! The root is a factor of a row's sums, and the gain a factor of the weights, so the rows themselves are read as they
//! are: there is no normalized matrix to make, to wait for and to read.

use std::ops::Range;

use super::{At, Bound, Constant, Cost, Epilogue, MmaTile, Rules, Tiles, gemm};
use crate::device::Operation;
use crate::graph::{Axis, Footprint, Operand, OperandKind};

/// A GEMM of normalized rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormedGemm {
    /// Whether it multiplies by two weights, gate and up, as a gated GEMM does.
    pub gated: bool,
    /// The epilogue of the plain form; the activation of the gate of the gated one.
    pub epilogue: Epilogue,
    /// Added to the mean square.
    pub epsilon: f32,
}

impl NormedGemm {
    fn product(&self) -> &dyn Rules {
        if self.gated { &self.epilogue.activation } else { &self.epilogue }
    }
}

impl Rules for NormedGemm {
    fn name(&self) -> &'static str {
        if self.gated { "GatedGemm with an input_norm" } else { "Gemm with an input_norm" }
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::InputNorm)
    }

    fn label(&self) -> String {
        format!("{} of rows normalized with epsilon {:e}", self.product().label(), self.epsilon)
    }

    fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    fn noun(&self) -> &'static str {
        "GEMM of normalized rows"
    }

    fn tiles(&self, n: u32) -> Tiles {
        self.product().tiles(n)
    }

    fn takes(&self, tile: MmaTile, n: u32) -> bool {
        self.product().takes(tile, n)
    }

    fn out_tile(&self, tile: MmaTile) -> (u32, u32) {
        self.product().out_tile(tile)
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along k, because a part knows the squares of its own k-blocks only")
    }

    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)> {
        gemm::operand_shape(kind, size)
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        if kind == OperandKind::Gain {
            // Inputs need no waits: any part of them may be read.
            let all = Axis { extent: i32::MAX, ..Axis::default() };
            return Some((Footprint { rows: all, cols: all }, None));
        }
        self.product().footprint(kind, tile)
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        if operand.kind == OperandKind::Gain { (false, false) } else { gemm::reads_by(operand.kind) }
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        match at.operand.kind {
            OperandKind::Gain => f(0..at.shape.0, 0..at.shape.1),
            _ => gemm::reads(at, f),
        }
    }

    fn constant(&self, kind: OperandKind) -> Option<Constant> {
        matches!(kind, OperandKind::Gain | OperandKind::B | OperandKind::Up).then_some(Constant {
            code: "packed-weights",
            message: "the gain and the weights of a product of normalized rows must be inputs",
            note: "weights are multiplied by the gain once, before the first run",
            help: "make it a weight, or state an RmsNorm stage in front of the product",
        })
    }

    fn cost(&self) -> Cost {
        Cost { bound: Bound::Kernel, ..self.product().cost() }
    }
}
