//! What a tile reads of each operand.

use super::{Axis, Footprint, Op, OperandKind};

/// The output tile of an operation with the given MMA tile.
pub(super) fn out_tile(op: &Op, mma: (u32, u32, u32)) -> (u32, u32) {
    match op {
        Op::GatedGemm => (mma.0, mma.1 / 2),
        Op::Gemm { .. } | Op::Conv2d(_) | Op::Attention(_) | Op::Custom => (mma.0, mma.1),
    }
}

/// The footprint of an operand, and the one that follows a filter; `None` where it leaves 32 bits, and for a custom stage's
/// read, which the spec states.
pub(super) fn footprints(
    kind: OperandKind,
    op: &Op,
    mma: (u32, u32, u32),
) -> Option<(Footprint, Option<Footprint>)> {
    match (op, kind) {
        (Op::Conv2d(shape), OperandKind::A) => {
            let (whole, sliding) = shape.footprints(mma.0, mma.2)?;
            Some((whole, Some(sliding)))
        }
        (Op::Attention(shape), _) => Some((shape.footprint(kind, mma.0, mma.2)?, None)),
        (Op::Gemm { .. } | Op::GatedGemm | Op::Conv2d(_) | Op::Custom, _) => {
            Some((gemm_footprint(kind, op, mma)?, None))
        }
    }
}

fn gemm_footprint(kind: OperandKind, op: &Op, mma: (u32, u32, u32)) -> Option<Footprint> {
    let (rows, cols) = out_tile(op, mma);
    let (rows, cols, k) = (rows as i32, cols as i32, mma.2 as i32);
    let along_m = Axis { m: rows, extent: rows, ..Axis::default() };
    let along_n = Axis { n: cols, extent: cols, ..Axis::default() };
    let along_k = Axis { k, extent: k, ..Axis::default() };
    Some(match kind {
        OperandKind::A => Footprint { rows: along_m, cols: along_k },
        // Gate and up weights are packed by columns: a CTA reads cols columns of each.
        OperandKind::B | OperandKind::Up => Footprint { rows: along_k, cols: along_n },
        OperandKind::Bias => Footprint { rows: Axis { extent: 1, ..Axis::default() }, cols: along_n },
        OperandKind::Residual => Footprint { rows: along_m, cols: along_n },
        OperandKind::Query | OperandKind::Key | OperandKind::Value | OperandKind::Custom(_) => return None,
    })
}
