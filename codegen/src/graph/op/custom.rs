//! A user's own kernel: its tile, k-blocks and reads are stated, and nothing else is known.

use std::ops::Range;

use super::{At, Bound, Cost, Lowered, MmaTile, Op, Rules, Stated, Tiles};
use crate::device::Operation;
use crate::diagnostic::Diagnostic;
use crate::graph::dims::Dims;
use crate::graph::resolved::CustomShape;
use crate::graph::{Axis, Footprint, Operand, OperandKind};
use crate::spec::{CustomSpec, RangeSpec};

pub(super) struct Custom;

/// Checks that its tile covers the output and its footprints are affine.
pub(super) fn lower(spec: &CustomSpec, stated: &Stated<'_>) -> Result<Lowered, Diagnostic> {
    let CustomSpec { grid, tile, k_blocks, footprints } = spec;
    let (dims, m, n) = (stated.dims, stated.out().rows, stated.out().cols);
    let size = (
        dims.size(&tile.value.0, "the number of rows of the tile")?,
        dims.size(&tile.value.1, "the number of columns of the tile")?,
    );
    let k_blocks = k_blocks.as_ref().map_or(Ok(1), |e| dims.size(e, "the number of k-blocks"))?;
    let needed = (m.div_ceil(size.0), n.div_ceil(size.1));
    if let Some(grid) = grid {
        let stated = (
            dims.size(&grid.value.0, "the number of rows of the grid")?,
            dims.size(&grid.value.1, "the number of columns of the grid")?,
        );
        if stated != needed {
            let message = format!("a grid of {} x {} tiles does not tile the output", stated.0, stated.1);
            return Err(Diagnostic::new("grid-mismatch", message)
                .at(grid.span, format!("{m} x {n} in tiles of {} x {}", size.0, size.1))
                .also(tile.span, "the tile")
                .help(format!("the grid is ({}, {}); it may be left out", needed.0, needed.1)));
        }
    }
    let both = |(rows, cols): &(RangeSpec, RangeSpec)| {
        Ok(Footprint { rows: axis(rows, dims)?, cols: axis(cols, dims)? })
    };
    Ok(Lowered {
        op: Op::Custom,
        k: k_blocks,
        custom: Some(CustomShape { tile: size, k_blocks, grid: needed }),
        footprints: footprints.iter().map(both).collect::<Result<_, Diagnostic>>()?,
    })
}

/// `first..end`, affine in the tile coordinates, with a constant length.
fn axis(range: &RangeSpec, dims: &Dims) -> Result<Axis, Diagnostic> {
    let variables = ["m", "n", "k"];
    let (first, end) = (dims.affine(&range.first, &variables)?, dims.affine(&range.end, &variables)?);
    let extent = end.minus(&first).filter(|extent| extent.terms.is_empty()).map(|extent| extent.constant);
    let Some(extent) = extent.filter(|&extent| extent > 0) else {
        return Err(Diagnostic::new("bad-footprint", "the footprint's length is not a positive constant")
            .at(range.span, "`first..end` must be as long for every tile")
            .help("write it like `128*m .. 128*m + 128`; the part outside the tensor is clipped"));
    };
    let fit = |value: i64| {
        i32::try_from(value).map_err(|_| {
            Diagnostic::new("bad-footprint", format!("{value} does not fit 32 bits"))
                .at(range.span, "a coefficient, offset or length of this range")
                .help("footprints are counted in elements, below 2^31")
        })
    };
    Ok(Axis {
        m: fit(first.coefficient("m"))?,
        n: fit(first.coefficient("n"))?,
        k: fit(first.coefficient("k"))?,
        offset: fit(first.constant)?,
        extent: fit(extent)?,
    })
}

impl Rules for Custom {
    fn name(&self) -> &'static str {
        "Custom"
    }

    fn operation(&self) -> Option<Operation> {
        None
    }

    fn label(&self) -> String {
        "custom".into()
    }

    fn noun(&self) -> &'static str {
        "custom stage"
    }

    fn tiles(&self, _: u32) -> Tiles {
        Tiles::Stated
    }

    fn takes(&self, _: MmaTile, _: u32) -> bool {
        true
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not a GEMM")
    }

    fn operand_shape(&self, _: OperandKind, _: (u32, u32, u32)) -> Option<(u32, u32)> {
        None
    }

    fn footprint(&self, _: OperandKind, _: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        None
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        let Footprint { rows, cols } = &operand.footprint;
        (rows.m != 0 || cols.m != 0, rows.n != 0 || cols.n != 0)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        let (Footprint { rows, cols }, (m, n)) = (&at.operand.footprint, at.tile);
        f(rows.range(at.shape.0, m, n, at.k), cols.range(at.shape.1, m, n, at.k));
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 0.0, bound: Bound::Bytes }
    }
}
