//! The shapes of convolutions and attentions: from what a spec states to [`Conv`] and [`Attention`].

use super::dims::Dims;
use super::lower::check_rows;
use super::resolved::ResolvedStage;
use super::{Attention, Conv, Tensor};
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::spec::{AttentionSpec, ConvSpec, Expr, StageSpec, TensorUse};

/// Most columns of a head: what the tensor memory of any kernel's accumulators bounds.
const MAX_HEAD: u32 = 256;

/// The shape of a convolution, all of whose tensors agree with it.
pub(super) fn conv(
    stage: &StageSpec,
    spec: &ConvSpec,
    resolved: &ResolvedStage,
    dims: &Dims,
    tensors: &[Tensor],
) -> Result<Conv, Diagnostic> {
    let axes = |used: &TensorUse| -> Result<[u32; 4], Diagnostic> {
        let mut sizes = [0; 4];
        for (size, axis) in sizes.iter_mut().zip(&used.args) {
            *size = dims.size(axis, "an axis")?;
        }
        Ok(sizes)
    };
    let (input, filter) = (&stage.reads[0].1, &stage.reads[1].1);
    let (
        [images, height, width, channels],
        [r, s, filter_channels, features],
        [out_images, p, q, out_channels],
    ) = (axes(input)?, axes(filter)?, axes(&stage.out)?);
    let fault = |code, message: String, at: Span, label: String, also: (Span, String), help: &str| {
        Err(Diagnostic::new(code, message).at(at, label).also(also.0, also.1).help(help))
    };
    if filter_channels != channels {
        return fault(
            "shape-mismatch",
            format!(
                "the filter of `{}` has {filter_channels} input channels, its images {channels}",
                stage.name.value
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
            format!("the output of `{}` must have {images} images of {features} channels", stage.name.value),
            stage.out.span,
            format!("{out_images} images of {out_channels} channels"),
            (filter.span, format!("{features} output channels: the last axis")),
            "the output is (B, P, Q, K): as many images as the input, as many channels as the filter's last axis",
        );
    }
    let pair = |stated: &Option<Spanned<(Expr, Expr)>>, usual: u32, least: u32, what: &str| {
        let Some(stated) = stated else { return Ok((usual, usual)) };
        let number = |expr: &Expr| -> Result<u32, Diagnostic> {
            let value = dims.constant(expr)?;
            u32::try_from(value).ok().filter(|v| (least..=1 << 16).contains(v)).ok_or_else(|| {
                Diagnostic::new("size-range", format!("{what} is {value}"))
                    .at(expr.span, format!("evaluates to {value}"))
                    .help(format!("{what} is at least {least} and at most 65536"))
            })
        };
        Ok((number(&stated.value.0)?, number(&stated.value.1)?))
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
            format!("the filter of `{}` is larger than its padded images", stage.name.value),
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
            format!("the output images of `{}` have {rows} x {cols} pixels", stage.name.value),
            stage.out.span,
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
    check_rows(resolved, tensors)?;
    Ok(Conv {
        activation: spec.activation,
        images,
        input: (height, width),
        channels,
        output: (p, q),
        filter: (r, s),
        stride,
        padding,
    })
}

/// Bias and residual of a convolution have the shapes of its GEMM.
pub(super) fn check_epilogue(resolved: &ResolvedStage, tensors: &[Tensor]) -> Result<(), Diagnostic> {
    for read in resolved.reads.iter().skip(2) {
        let tensor = &tensors[read.tensor.0];
        let rows = if read.kind == super::OperandKind::Bias { 1 } else { resolved.m };
        if (tensor.rows, tensor.cols) != (rows, resolved.n) {
            let message = format!("`{}` must be {rows} x {}", tensor.name, resolved.n);
            return Err(Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", tensor.rows, tensor.cols))
                .also(resolved.out.span, format!("{} pixels of {} channels", resolved.m, resolved.n))
                .help("a bias has one element a channel, a residual the shape of the output"));
        }
    }
    Ok(())
}

/// The shape of an attention, all of whose tensors agree with it.
pub(super) fn attention(
    stage: &StageSpec,
    spec: &AttentionSpec,
    resolved: &ResolvedStage,
    dims: &Dims,
    tensors: &[Tensor],
) -> Result<Attention, Diagnostic> {
    let heads = dims.size(&spec.heads, "the number of heads")?;
    let kv_heads = match &spec.kv_heads {
        Some(stated) => dims.size(stated, "the number of key and value heads")?,
        None => heads,
    };
    if !heads.is_multiple_of(kv_heads) {
        let at = spec.kv_heads.as_ref().map_or(spec.heads.span, |e| e.span);
        return Err(Diagnostic::new(
            "bad-heads",
            format!("{heads} heads cannot share {kv_heads} keys and values evenly"),
        )
        .at(at, format!("{kv_heads} key and value heads"))
        .also(spec.heads.span, format!("{heads} query heads"))
        .help("the number of key and value heads divides the number of heads"));
    }
    let (qkv, out) = (&tensors[resolved.reads[0].tensor.0], &tensors[resolved.out.value.0]);
    let slices = u64::from(heads) + 2 * u64::from(kv_heads);
    let dim = u64::from(qkv.cols) / slices;
    if dim == 0 || dim * slices != u64::from(qkv.cols) {
        let message = format!("the columns of `{}` are not {slices} heads", qkv.name);
        return Err(Diagnostic::new("bad-heads", message)
            .at(resolved.reads[0].span, format!("{} columns", qkv.cols))
            .also(spec.heads.span, format!("{heads} of queries, {kv_heads} of keys, {kv_heads} of values"))
            .help("QKV has (heads + 2 * kv_heads) * D columns: queries, then keys, then values"));
    }
    if (out.rows, u64::from(out.cols)) != (qkv.rows, u64::from(heads) * dim) {
        let message = format!("`{}` must be {} x {}", out.name, qkv.rows, u64::from(heads) * dim);
        return Err(Diagnostic::new("shape-mismatch", message)
            .at(resolved.out.span, format!("{} x {} here", out.rows, out.cols))
            .also(resolved.reads[0].span, format!("{} tokens, {slices} heads of {dim} columns", qkv.rows))
            .help("the output has a row a token, and heads * D columns"));
    }
    if dim > u64::from(MAX_HEAD) || dim % 8 != 0 {
        return Err(Diagnostic::new(
            "bad-heads",
            format!("a head of `{}` has {dim} columns", stage.name.value),
        )
        .at(resolved.reads[0].span, format!("{} columns in {slices} heads", qkv.cols))
        .help(format!("a head has a multiple of 8 columns (16 bytes), {MAX_HEAD} at most")));
    }
    Ok(Attention { heads, kv_heads, dim: dim as u32, causal: spec.causal })
}
