//! From the tensors and parameters that a spec states to a shape, or to a diagnostic.

use super::Conv;
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::graph::OperandKind;
use crate::graph::op::Stated;
use crate::spec::{ConvSpec, Expr, TensorUse};

/// The shape of a convolution, all of whose tensors agree with it.
pub(in crate::graph::op) fn lower(spec: &ConvSpec, stated: &Stated<'_>) -> Result<Conv, Diagnostic> {
    let axes = |used: &TensorUse| -> Result<[u32; 4], Diagnostic> {
        let mut sizes = [0; 4];
        for (size, axis) in sizes.iter_mut().zip(&used.args) {
            *size = stated.dims.size(axis, "an axis")?;
        }
        Ok(sizes)
    };
    let (input, filter) = (&stated.stage.reads[0].1, &stated.stage.reads[1].1);
    let (
        [images, height, width, channels],
        [r, s, filter_channels, features],
        [out_images, p, q, out_channels],
    ) = (axes(input)?, axes(filter)?, axes(&stated.stage.out)?);
    let fault = |code, message: String, at: Span, label: String, also: (Span, String), help: &str| {
        Err(Diagnostic::new(code, message).at(at, label).also(also.0, also.1).help(help))
    };
    if filter_channels != channels {
        return fault(
            "shape-mismatch",
            format!(
                "the filter of `{}` has {filter_channels} input channels, its images {channels}",
                stated.stage.name.value
            ),
            filter.span,
            format!("{filter_channels} channels: the third axis"),
            (input.span, format!("{channels} channels: the last axis")),
            "a filter is (R, S, C, K), images are (B, H, W, C)",
        );
    }
    if (out_images, out_channels) != (images, features) {
        return fault(
            "shape-mismatch",
            format!(
                "the output of `{}` must have {images} images of {features} channels",
                stated.stage.name.value
            ),
            stated.stage.out.span,
            format!("{out_images} images of {out_channels} channels"),
            (filter.span, format!("{features} output channels: the last axis")),
            "the output is (B, P, Q, K): as many images as the input, as many channels as the filter's last axis",
        );
    }
    let pair = |given: &Option<Spanned<(Expr, Expr)>>, usual: u32, least: u32, what: &str| {
        let Some(given) = given else { return Ok((usual, usual)) };
        let number = |expr: &Expr| -> Result<u32, Diagnostic> {
            let value = stated.dims.constant(expr)?;
            u32::try_from(value).ok().filter(|v| (least..=1 << 16).contains(v)).ok_or_else(|| {
                Diagnostic::new("size-range", format!("{what} is {value}"))
                    .at(expr.span, format!("evaluates to {value}"))
                    .help(format!("{what} is at least {least} and at most 65536"))
            })
        };
        Ok((number(&given.value.0)?, number(&given.value.1)?))
    };
    let stride = pair(&spec.stride, 1, 1, "a stride")?;
    let padding = pair(&spec.padding, 0, 0, "a padding")?;
    // Filters and paddings are bounded, so that sums stay inside 32 bits.
    let along = |length: u32, filter: u32, stride: u32, padding: u32| {
        (u64::from(length) + 2 * u64::from(padding))
            .checked_sub(filter.into())
            .map(|rest| rest / u64::from(stride) + 1)
    };
    let (rows, cols) = (along(height, r, stride.0, padding.0), along(width, s, stride.1, padding.1));
    let (Some(rows), Some(cols)) = (rows, cols) else {
        return fault(
            "shape-mismatch",
            format!("the filter of `{}` is larger than its padded images", stated.stage.name.value),
            filter.span,
            format!("{r} x {s} taps"),
            (
                input.span,
                format!("{height} x {width} pixels, {} and {} of padding a side", padding.0, padding.1),
            ),
            "use a smaller filter or more padding",
        );
    };
    if (u64::from(p), u64::from(q)) != (rows, cols) {
        return fault(
            "shape-mismatch",
            format!("the output images of `{}` have {rows} x {cols} pixels", stated.stage.name.value),
            stated.stage.out.span,
            format!("{p} x {q} here"),
            (
                input.span,
                format!(
                    "{height} x {width} pixels, {r} x {s} taps, stride {} x {}, padding {} x {}",
                    stride.0, stride.1, padding.0, padding.1
                ),
            ),
            "an axis of `n` pixels comes out with (n + 2*padding - filter) / stride + 1, rounded down",
        );
    }
    stated.check_rows()?;
    check_epilogue(stated)?;
    Ok(Conv {
        activation: spec.activation,
        images,
        input: (height, width),
        channels,
        output: (p, q),
        filter: (r, s),
        stride,
        padding,
        window: None,
    })
}

/// Bias and residual of a convolution have the shapes of its GEMM.
fn check_epilogue(stated: &Stated<'_>) -> Result<(), Diagnostic> {
    let (m, n) = (stated.out().rows, stated.out().cols);
    for (i, read) in stated.reads.iter().enumerate().skip(2) {
        let tensor = stated.tensor(i);
        let rows = if read.kind == OperandKind::Bias { 1 } else { m };
        if (tensor.rows, tensor.cols) != (rows, n) {
            let message = format!("`{}` must be {rows} x {n}", tensor.name);
            return Err(Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", tensor.rows, tensor.cols))
                .also(stated.out.span, format!("{m} pixels of {n} channels"))
                .help("a bias has one element a channel, a residual the shape of the output"));
        }
    }
    Ok(())
}
