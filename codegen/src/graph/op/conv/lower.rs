//! From the tensors and parameters of a spec to a shape, or to a diagnostic.

use super::Conv;
use crate::diagnostic::{Diagnostic, Span};
use crate::graph::OperandKind;
use crate::graph::op::sliding::StatedWindow;
use crate::graph::op::{Sliding, Stated};
use crate::spec::ConvSpec;

/// The shape of a convolution, after checking its tensors.
pub(in crate::graph::op) fn lower(spec: &ConvSpec, stated: &Stated<'_>) -> Result<Conv, Diagnostic> {
    let (input, filter) = (&stated.stage.reads[0].1, &stated.stage.reads[1].1);
    let (
        [images, height, width, channels],
        [r, s, filter_channels, features],
        [out_images, p, q, out_channels],
    ) = (stated.axes(input)?, stated.axes(filter)?, stated.axes(&stated.stage.out)?);
    let fault = |message: String, at: Span, label: String, also: (Span, String), help: &str| {
        Err(Diagnostic::new("shape-mismatch", message).at(at, label).also(also.0, also.1).help(help))
    };
    if filter_channels != channels {
        return fault(
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
    let window = StatedWindow {
        filter: (r, s),
        span: filter.span,
        noun: "filter",
        stride: &spec.stride,
        usual_stride: (1, 1),
        padding: &spec.padding,
    };
    let sliding = Sliding::lower(stated, (images, height, width), (p, q), &window)?;
    check_epilogue(stated)?;
    Ok(Conv { epilogue: spec.epilogue, sliding, channels, window: None })
}

/// Checks that bias and residual of a convolution have the shapes of its GEMM.
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
