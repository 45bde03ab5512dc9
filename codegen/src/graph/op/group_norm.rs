//! Normalization of groups of channels over NHWC images: every group of adjacent channels of an image is centered to
//! mean zero and scaled to unit variance.
//!
//! `y = (x - mean) / sqrt(variance + epsilon) * gain + bias`, then SiLU if it is stated. Mean and variance cover all
//! pixels of an image and the channels of a group. A tile is one group of one image with one k-block, so it reads the
//! part of `x` that it writes.

use std::ops::Range;

use super::{Activation, At, Bound, Constant, Cost, MmaTile, Op, Rules, Stated, Tiles, norm};
use crate::device::Operation;
use crate::diagnostic::{Diagnostic, Span};
use crate::graph::{Axis, Footprint, Operand, OperandKind};
use crate::obstacle::Obstacle;
use crate::spec::GroupNormSpec;

/// A normalization of groups of channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Pixels of an image: consecutive rows of the matrix.
    pub pixels: u32,
    /// Channels of a group: adjacent columns of the matrix.
    pub channels: u32,
    /// Added to the variance.
    pub epsilon: f32,
    /// Applied to the result.
    pub activation: Activation,
}

/// Checks that the output has the shape of the input, the groups divide the channels, gain and bias have an element per
/// channel, and epsilon is positive. Also returns the elements of a group.
pub(super) fn lower(spec: &GroupNormSpec, stated: &Stated<'_>) -> Result<(Op, u32), Diagnostic> {
    let (input, out) = (&stated.stage.reads[0].1, &stated.stage.out);
    let ([images, height, width, all], found) = (stated.axes(input)?, stated.axes(out)?);
    if found != [images, height, width, all] {
        let shape = |[b, h, w, c]: [u32; 4]| format!("{b} images of {h} x {w} pixels, {c} channels");
        let message = format!("the output of `{}` must have the shape of its input", stated.stage.name.value);
        return Err(Diagnostic::new("shape-mismatch", message)
            .at(out.span, shape(found))
            .also(input.span, shape([images, height, width, all]))
            .help("a normalisation keeps all axes: (B, H, W, C) stays (B, H, W, C)"));
    }
    let groups = stated.dims.size(&spec.groups, "the number of groups")?;
    divides((groups, spec.groups.span), (all, input.span))?;
    for (i, read) in stated.reads.iter().enumerate().skip(1) {
        let tensor = stated.tensor(i);
        if (tensor.rows, tensor.cols) != (1, all) {
            let message = format!("`{}` must be 1 x {all}", tensor.name);
            return Err(Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", tensor.rows, tensor.cols))
                .also(input.span, format!("{all} channels"))
                .help("gain and bias have an element a channel"));
        }
    }
    let epsilon = norm::epsilon(&spec.epsilon)?;
    let (pixels, channels) = (stated.out().rows / images, all / groups);
    let norm = GroupNorm { pixels, channels, epsilon, activation: spec.activation };
    Ok((Op::GroupNorm(norm), norm.elements()))
}

/// Checks that a number of groups divides the channels of a tensor.
pub(super) fn divides((groups, at): (u32, Span), (all, tensor): (u32, Span)) -> Result<(), Diagnostic> {
    if all.is_multiple_of(groups) {
        return Ok(());
    }
    let nearest = (1..=all).filter(|g| all.is_multiple_of(*g)).min_by_key(|g| g.abs_diff(groups));
    let message = format!("{all} channels are not {groups} groups of one size");
    Err(Diagnostic::new("bad-groups", message)
        .at(at, format!("{groups} groups"))
        .also(tensor, format!("{all} channels"))
        .help(format!("the number of groups divides the channels: the nearest is {}", nearest.unwrap_or(1))))
}

impl GroupNorm {
    /// Elements of a group of an image.
    fn elements(&self) -> u32 {
        self.pixels.saturating_mul(self.channels)
    }
}

impl Rules for GroupNorm {
    fn name(&self) -> &'static str {
        "GroupNorm"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::GroupNorm)
    }

    fn label(&self) -> String {
        let activation = self.activation.suffix();
        format!(
            "normalisation of groups of {} channels, epsilon {:e}{activation},",
            self.channels, self.epsilon
        )
    }

    fn noun(&self) -> &'static str {
        "group normalisation"
    }

    fn tiles(&self, _: u32) -> Tiles {
        let meaning = "(pixels of an image, channels of a group, elements of a group)";
        Tiles::Own { list: vec![(self.pixels, self.channels, self.elements())], meaning, of_kernel: false }
    }

    fn takes(&self, tile: MmaTile, _: u32) -> bool {
        tile == (self.pixels, self.channels, self.elements())
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along its groups")
    }

    fn unfit_beside_others(&self) -> Option<Obstacle> {
        Some(Obstacle::new("is GroupNorm, whose kernel neither waits nor posts"))
    }

    fn operand_shape(&self, kind: OperandKind, (m, n, _): (u32, u32, u32)) -> Option<(u32, u32)> {
        norm::shape(kind, (m, n))
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        let (rows, cols) = (i32::try_from(tile.0).ok()?, i32::try_from(tile.1).ok()?);
        norm::shape(kind, (tile.0, tile.1))?;
        let own = Axis { m: rows, extent: rows, ..Axis::default() };
        let one = Axis { extent: 1, ..Axis::default() };
        let rows = if kind == OperandKind::A { own } else { one };
        Some((Footprint { rows, cols: Axis { n: cols, extent: cols, ..Axis::default() } }, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        (operand.kind == OperandKind::A, true)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        let rows = if at.operand.kind == OperandKind::A { at.rows() } else { 0..at.shape.0 };
        f(rows, at.cols());
    }

    fn constant(&self, kind: OperandKind) -> Option<Constant> {
        norm::constant(kind)
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 0.0, bound: Bound::Bytes }
    }
}
