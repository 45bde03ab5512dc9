//! From the tensors and parameters of a spec to a shape, or to a diagnostic.

use super::Conv;
use crate::diagnostic::{Diagnostic, Span};
use crate::graph::OperandKind;
use crate::graph::op::sliding::StatedWindow;
use crate::graph::op::{GroupedConv, Op, Sliding, Stated, group_norm};
use crate::spec::ConvSpec;

/// A convolution, after checking its tensors, and the terms of its sums.
pub(in crate::graph::op) fn lower(spec: &ConvSpec, stated: &Stated<'_>) -> Result<(Op, u32), Diagnostic> {
    let (input, filter) = (&stated.stage.reads[0].1, &stated.stage.reads[1].1);
    let (
        [images, height, width, channels],
        [r, s, filter_channels, features],
        [out_images, p, q, out_channels],
    ) = (stated.axes(input)?, stated.axes(filter)?, stated.axes(&stated.stage.out)?);
    let fault = |message: String, at: Span, label: String, also: (Span, String), help: &str| {
        Err(Diagnostic::new("shape-mismatch", message).at(at, label).also(also.0, also.1).help(help))
    };
    let groups = match &spec.groups {
        Some(groups) => {
            let number = stated.dims.size(groups, "the number of groups")?;
            group_norm::divides((number, groups.span), (channels, input.span))?;
            group_norm::divides((number, groups.span), (features, filter.span))?;
            number
        }
        None => 1,
    };
    if filter_channels != channels / groups {
        let (of_groups, form) = match groups {
            1 => (String::new(), "a filter is (R, S, C, K), images are (B, H, W, C)"),
            _ => (format!(" in {groups} groups"), "a filter is (R, S, C/groups, K), images are (B, H, W, C)"),
        };
        return fault(
            format!(
                "the filter of `{}` has {filter_channels} input channels, its images {channels}{of_groups}",
                stated.stage.name.value
            ),
            filter.span,
            format!("{filter_channels} channels: the third axis"),
            (input.span, format!("{channels} channels: the last axis")),
            form,
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
        dilation: &spec.dilation,
    };
    let sliding = Sliding::lower(stated, (images, height, width), (p, q), &window)?;
    check_epilogue(stated)?;
    let (epilogue, terms) = (spec.epilogue, stated.tensor(1).rows);
    let op = match groups {
        1 => Op::Conv2d(Conv { epilogue, sliding, channels, window: None }),
        _ => {
            let (channels, features) = (channels / groups, features / groups);
            Op::GroupedConv(GroupedConv { epilogue, sliding, channels, features })
        }
    };
    Ok((op, terms))
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
