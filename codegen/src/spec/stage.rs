//! From raw RON values to [`StageSpec`]s, one function per operation.

use ron::value::RawValue;

use super::expr::{Expr, parse_call, parse_expr, parse_range};
use super::source::{Source, Text, bare};
use super::{
    AttentionSpec, ConvSpec, CustomSpec, ExpertsSpec, GroupNormSpec, HeadsSpec, NormSpec, PoolSpec,
    RangeSpec, StageKind, StageSpec, TensorUse,
};
use super::{ident, raw};
use crate::device::{Activation, Epilogue};
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::operand::OperandKind;

pub(super) fn stage<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<StageSpec, Diagnostic> {
    let stage: raw::Stage = source.parse(
        raw,
        "a stage: Gemm, GatedGemm, RotatedGemm, Conv2d, Attention, RmsNorm, LayerNorm, GroupNorm, Pool, Experts or Custom",
    )?;
    match stage {
        raw::Stage::Gemm(raw) => gemm(source, raw),
        raw::Stage::RotatedGemm(raw) => rotated_gemm(source, raw),
        raw::Stage::GatedGemm(raw) => gated_gemm(source, raw),
        raw::Stage::Conv2d(raw) => conv2d(source, raw),
        raw::Stage::Attention(raw) => attention(source, raw),
        raw::Stage::RmsNorm(raw) => rms_norm(source, raw),
        raw::Stage::LayerNorm(raw) => layer_norm(source, raw),
        raw::Stage::GroupNorm(raw) => group_norm(source, raw),
        raw::Stage::Pool(raw) => pool(source, raw),
        raw::Stage::Experts(raw) => experts(source, raw),
        raw::Stage::Custom(raw) => custom(source, raw),
    }
}

fn gemm<'a>(source: Source<'a>, raw: raw::Gemm<'a>) -> Result<StageSpec, Diagnostic> {
    let epilogue = epilogue(source, raw.epilogue, raw.residual, raw.residual_at)?;
    let mut reads = vec![(OperandKind::A, tensor(source, raw.a)?), (OperandKind::B, tensor(source, raw.b)?)];
    reads.extend(optional(source, OperandKind::Bias, raw.bias)?);
    reads.extend(optional(source, OperandKind::Residual, raw.residual)?);
    let kind = match input_norm(source, raw.input_norm, &mut reads)? {
        Some(epsilon) => StageKind::NormedGemm { gated: false, epilogue, epsilon },
        None => StageKind::Gemm(epilogue),
    };
    let all_reduce = raw.all_reduce.map(|raw| source.spanned(raw, "`true` or `false`")).transpose()?;
    let transposed = transposed(source, raw.layout)?;
    let stage = StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.out)?);
    Ok(StageSpec { all_reduce, transposed, ..stage })
}

fn rotated_gemm<'a>(source: Source<'a>, raw: raw::RotatedGemm<'a>) -> Result<StageSpec, Diagnostic> {
    let mut reads = vec![(OperandKind::A, tensor(source, raw.a)?), (OperandKind::B, tensor(source, raw.b)?)];
    reads.extend(optional(source, OperandKind::Bias, raw.bias)?);
    reads.push((OperandKind::Rotary, tensor(source, raw.rotary)?));
    reads.extend(optional(source, OperandKind::Lengths, raw.lengths)?);
    let norm = head_norm(source, raw.head_norm, &mut reads)?;
    let kind = StageKind::Rotated(heads_spec(source, raw.heads, raw.kv_heads, raw.sequences, norm)?);
    let transposed = transposed(source, raw.layout)?;
    Ok(StageSpec {
        transposed,
        ..StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.out)?)
    })
}

fn gated_gemm<'a>(source: Source<'a>, raw: raw::GatedGemm<'a>) -> Result<StageSpec, Diagnostic> {
    let mut reads = vec![
        (OperandKind::A, tensor(source, raw.a)?),
        (OperandKind::B, tensor(source, raw.gate)?),
        (OperandKind::Up, tensor(source, raw.up)?),
    ];
    let gate = activation(source, raw.activation, Activation::Silu)?;
    let kind = match input_norm(source, raw.input_norm, &mut reads)? {
        Some(epsilon) => StageKind::NormedGemm { gated: true, epilogue: gate.into(), epsilon },
        None => StageKind::GatedGemm(gate),
    };
    let transposed = transposed(source, raw.layout)?;
    Ok(StageSpec {
        transposed,
        ..StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.out)?)
    })
}

/// Whether the weights of a product are stated as N x K.
fn transposed<'a>(source: Source<'a>, raw: Option<&'a RawValue>) -> Result<bool, Diagnostic> {
    let layout = raw.map(|raw| source.parse(raw, "`KN` or `NK`")).transpose()?;
    Ok(match layout {
        Some(raw::Layout::NK) => true,
        Some(raw::Layout::KN) | None => false,
    })
}

fn conv2d<'a>(source: Source<'a>, raw: raw::Conv2d<'a>) -> Result<StageSpec, Diagnostic> {
    let mut reads = vec![
        (OperandKind::A, volume(source, raw.input, "X(B,H,W,C)")?),
        (OperandKind::B, volume(source, raw.filter, "F(R,S,C,K)")?),
    ];
    reads.extend(optional(source, OperandKind::Bias, raw.bias)?);
    if let Some(raw) = raw.residual {
        reads.push((OperandKind::Residual, volume(source, raw, "R(B,P,Q,K)")?));
    }
    let spec = ConvSpec {
        epilogue: epilogue(source, raw.epilogue, raw.residual, raw.residual_at)?,
        stride: optional_pair(source, raw.stride, "a stride (rows, columns)")?,
        padding: optional_pair(source, raw.padding, "a padding (rows, columns)")?,
        dilation: optional_pair(source, raw.dilation, "a dilation (rows, columns)")?,
        groups: raw.groups.map(|raw| expr(source, raw)).transpose()?,
    };
    let out = volume(source, raw.out, "Y(B,P,Q,K)")?;
    Ok(StageSpec::new(name(source, raw.name)?, StageKind::Conv2d(Box::new(spec)), reads, out))
}

fn attention<'a>(source: Source<'a>, raw: raw::Attention<'a>) -> Result<StageSpec, Diagnostic> {
    let qkv = tensor(source, raw.qkv)?;
    // Three reads of one matrix, each waiting for its own tiles.
    let kinds = [OperandKind::Query, OperandKind::Key, OperandKind::Value];
    let mut reads: Vec<_> = kinds.into_iter().map(|kind| (kind, qkv.clone())).collect();
    if let Some(raw) = raw.cache {
        reads.extend(cache(source, raw)?);
    }
    reads.extend(optional(source, OperandKind::Pages, raw.pages)?);
    reads.extend(optional(source, OperandKind::Rotary, raw.rotary)?);
    let norm = head_norm(source, raw.head_norm, &mut reads)?;
    let spec = AttentionSpec {
        qkv: heads_spec(source, raw.heads, raw.kv_heads, raw.sequences, norm)?,
        causal: raw.causal.map(|raw| source.spanned(raw, "`true` or `false`")).transpose()?,
        window: raw.window.map(|raw| expr(source, raw)).transpose()?,
        softcap: raw.softcap.map(|raw| source.spanned(raw, "a positive number")).transpose()?,
        scale: raw.scale.map(|raw| source.spanned(raw, "a positive number")).transpose()?,
        cache: raw.cache.map(|raw| source.span(raw)),
        expected: raw.expected.map(|raw| expr(source, raw)).transpose()?,
    };
    let kind = StageKind::Attention(Box::new(spec));
    Ok(StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.out)?))
}

/// The tensors of a cache.
fn cache<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Vec<(OperandKind, TensorUse)>, Diagnostic> {
    let cache: raw::Cache = source.parse(raw, "`Cache(keys: ..., values: ..., lengths: ...)`")?;
    let form = "K(B,HKV,S,D)";
    let mut reads = vec![
        (OperandKind::CachedKeys, volume(source, cache.keys, form)?),
        (OperandKind::CachedValues, volume(source, cache.values, form)?),
    ];
    reads.extend(optional(source, OperandKind::Lengths, cache.lengths)?);
    Ok(reads)
}

fn rms_norm<'a>(source: Source<'a>, raw: raw::RmsNorm<'a>) -> Result<StageSpec, Diagnostic> {
    let mut reads =
        vec![(OperandKind::A, tensor(source, raw.x)?), (OperandKind::Gain, tensor(source, raw.gain)?)];
    reads.extend(optional(source, OperandKind::Residual, raw.residual)?);
    let one_plus_gain = raw.one_plus_gain.map(|raw| source.parse(raw, "`true` or `false`")).transpose()?;
    let kind = StageKind::Norm(NormSpec {
        centred: false,
        one_plus_gain: one_plus_gain.unwrap_or(false),
        epsilon: epsilon(source, raw.epsilon, 1e-6)?,
    });
    Ok(StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.out)?))
}

fn layer_norm<'a>(source: Source<'a>, raw: raw::LayerNorm<'a>) -> Result<StageSpec, Diagnostic> {
    let mut reads =
        vec![(OperandKind::A, tensor(source, raw.x)?), (OperandKind::Gain, tensor(source, raw.gain)?)];
    reads.extend(optional(source, OperandKind::Bias, raw.bias)?);
    reads.extend(optional(source, OperandKind::Residual, raw.residual)?);
    let epsilon = epsilon(source, raw.epsilon, 1e-5)?;
    let kind = StageKind::Norm(NormSpec { centred: true, one_plus_gain: false, epsilon });
    Ok(StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.out)?))
}

fn group_norm<'a>(source: Source<'a>, raw: raw::GroupNorm<'a>) -> Result<StageSpec, Diagnostic> {
    let reads = vec![
        (OperandKind::A, volume(source, raw.input, "X(B,H,W,C)")?),
        (OperandKind::Gain, tensor(source, raw.gain)?),
        (OperandKind::Bias, tensor(source, raw.bias)?),
    ];
    let spec = GroupNormSpec {
        groups: expr(source, raw.groups)?,
        epsilon: epsilon(source, raw.epsilon, 1e-5)?,
        activation: activation(source, raw.epilogue, Activation::Identity)?,
    };
    let out = volume(source, raw.out, "N(B,H,W,C)")?;
    Ok(StageSpec::new(name(source, raw.name)?, StageKind::GroupNorm(spec), reads, out))
}

fn pool<'a>(source: Source<'a>, raw: raw::Pool<'a>) -> Result<StageSpec, Diagnostic> {
    let spec = PoolSpec {
        mean: matches!(source.parse(raw.kind, "`Max` or `Average`")?, raw::PoolKind::Average),
        window: optional_pair(source, raw.window, "a window (rows, columns)")?,
        stride: optional_pair(source, raw.stride, "a stride (rows, columns)")?,
        padding: optional_pair(source, raw.padding, "a padding (rows, columns)")?,
    };
    let reads = vec![(OperandKind::A, volume(source, raw.input, "X(B,H,W,C)")?)];
    let out = volume(source, raw.out, "Y(B,P,Q,C)")?;
    Ok(StageSpec::new(name(source, raw.name)?, StageKind::Pool(Box::new(spec)), reads, out))
}

fn experts<'a>(source: Source<'a>, raw: raw::Experts<'a>) -> Result<StageSpec, Diagnostic> {
    let mut reads = vec![
        (OperandKind::A, tensor(source, raw.x)?),
        (OperandKind::Router, tensor(source, raw.router)?),
        (OperandKind::B, tensor(source, raw.gate)?),
        (OperandKind::Up, tensor(source, raw.up)?),
        (OperandKind::Down, tensor(source, raw.down)?),
    ];
    reads.extend(optional(source, OperandKind::Residual, raw.residual)?);
    let normalize = raw.normalize.map(|raw| source.parse(raw, "`true` or `false`")).transpose()?;
    let spec = ExpertsSpec {
        top_k: expr(source, raw.top_k)?,
        activation: activation(source, raw.activation, Activation::Silu)?,
        normalize: normalize.unwrap_or(true),
    };
    let kind = StageKind::Experts(spec);
    Ok(StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.out)?))
}

fn custom<'a>(source: Source<'a>, raw: raw::Custom<'a>) -> Result<StageSpec, Diagnostic> {
    let mut reads = Vec::new();
    let mut footprints = Vec::new();
    for (i, raw) in source.list(raw.reads, "a list of reads")?.into_iter().enumerate() {
        let read: raw::Read = source.parse(raw, "`Read(tensor: ..., rows: ..., cols: ...)`")?;
        reads.push((OperandKind::Custom(i), tensor(source, read.tensor)?));
        footprints.push((range(source, read.rows)?, range(source, read.cols)?));
    }
    let spec = CustomSpec {
        grid: optional_pair(source, raw.grid, "a grid (rows, columns)")?,
        tile: pair(source, raw.tile, "a tile (rows, columns)")?,
        k_blocks: raw.k_blocks.map(|raw| expr(source, raw)).transpose()?,
        footprints,
    };
    let kind = StageKind::Custom(Box::new(spec));
    Ok(StageSpec::new(name(source, raw.name)?, kind, reads, tensor(source, raw.writes)?))
}

fn name<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Text, Diagnostic> {
    let name = source.text(raw, "a name in quotes")?;
    name.validate("stage")?;
    Ok(name)
}

/// The epilogue of a stage with or without a residual.
fn epilogue<'a>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    residual: Option<&'a RawValue>,
    residual_at: Option<&'a RawValue>,
) -> Result<Epilogue, Diagnostic> {
    let activation = activation(source, raw, Activation::Identity)?;
    let place = residual_at.map(|raw| source.parse(raw, "a place of the residual")).transpose()?;
    if let Some(raw) = residual_at.filter(|_| residual.is_none()) {
        return Err(Diagnostic::new("no-residual", "the place of a residual is stated, and no residual")
            .at(source.span(raw), "nothing is added here")
            .help("state the matrix that is added as `residual`, or leave `residual_at` out"));
    }
    let residual_first = match place {
        Some(raw::ResidualAt::BeforeActivation) => true,
        None | Some(raw::ResidualAt::AfterActivation) => false,
    };
    Ok(Epilogue { activation, residual_first })
}

/// An activation, or `otherwise` if none is stated.
fn activation<'a>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    otherwise: Activation,
) -> Result<Activation, Diagnostic> {
    let Some(raw) = raw else { return Ok(otherwise) };
    let fault = |message: String, label: &str| {
        Err(Diagnostic::new("bad-activation", message)
            .at(source.span(raw), label)
            .help("state finite float32 numbers: `Scale(0.5)`, or the lower bound first, `Clamp(-1.0, 1.0)`"))
    };
    let stated: Activation = source.parse(raw, "an activation such as `Gelu` or `Clamp(-1.0, 1.0)`")?;
    match stated {
        Activation::Scale(factor) if !factor.is_finite() => {
            fault(format!("values are multiplied by {factor}"), "not a finite float32")
        }
        // Also if one of them is no number.
        Activation::Clamp(low, high) if !(low.is_finite() && high.is_finite() && low <= high) => {
            fault(format!("values are clamped to {low} .. {high}"), "no range of float32")
        }
        known => Ok(known),
    }
}

fn heads_spec<'a>(
    source: Source<'a>,
    heads: &'a RawValue,
    kv_heads: Option<&'a RawValue>,
    sequences: Option<&'a RawValue>,
    norm: Option<Spanned<f64>>,
) -> Result<HeadsSpec, Diagnostic> {
    Ok(HeadsSpec {
        heads: expr(source, heads)?,
        kv_heads: kv_heads.map(|raw| expr(source, raw)).transpose()?,
        sequences: sequences.map(|raw| expr(source, raw)).transpose()?,
        norm,
    })
}

/// Adds the gain of rows that a product normalizes to the reads, and returns epsilon.
fn input_norm<'a>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    reads: &mut Vec<(OperandKind, TensorUse)>,
) -> Result<Option<Spanned<f64>>, Diagnostic> {
    let Some(raw) = raw else { return Ok(None) };
    let norm: raw::InputNorm = source.parse(raw, "`InputNorm(gain: \"g(K)\", epsilon: 1e-5)`")?;
    reads.push((OperandKind::Gain, tensor(source, norm.gain)?));
    Ok(Some(epsilon(source, norm.epsilon, 1e-6)?))
}

/// A stated epsilon, or the usual one, which is valid and so needs no place.
fn epsilon<'a>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    usual: f64,
) -> Result<Spanned<f64>, Diagnostic> {
    let usual = || Ok(Spanned::new(usual, Span::default()));
    raw.map_or_else(usual, |raw| source.spanned(raw, "a positive number"))
}

/// Adds the gains of heads that are normalized to the reads, and returns epsilon.
fn head_norm<'a>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    reads: &mut Vec<(OperandKind, TensorUse)>,
) -> Result<Option<Spanned<f64>>, Diagnostic> {
    let Some(raw) = raw else { return Ok(None) };
    let form = "`HeadNorm(query: \"gq(D)\", key: \"gk(D)\", epsilon: 1e-6)`";
    let raw::HeadNorm { query, key, epsilon } = source.parse(raw, form)?;
    reads.push((OperandKind::QueryGain, tensor(source, query)?));
    reads.push((OperandKind::KeyGain, tensor(source, key)?));
    Ok(Some(source.spanned(epsilon, "a number, such as 1e-6")?))
}

/// An integer, or an expression in quotes.
fn expr<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Expr, Diagnostic> {
    if bare(raw).starts_with(['"', 'r']) {
        parse_expr(&source.text(raw, "an expression in quotes")?)
    } else {
        Ok(Expr::number(source.parse(raw, "an integer, or an expression in quotes")?, source.span(raw)))
    }
}

fn pair<'a>(source: Source<'a>, raw: &'a RawValue, form: &str) -> Result<Spanned<(Expr, Expr)>, Diagnostic> {
    let (a, b): (&RawValue, &RawValue) = source.parse(raw, form)?;
    Ok(Spanned::new((expr(source, a)?, expr(source, b)?), source.span(raw)))
}

fn optional_pair<'a>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    form: &str,
) -> Result<Option<Spanned<(Expr, Expr)>>, Diagnostic> {
    raw.map(|raw| pair(source, raw, form)).transpose()
}

fn range<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<RangeSpec, Diagnostic> {
    let text = source.text(raw, "a range in quotes, such as \"0..M\"")?;
    let (first, end) = parse_range(&text)?;
    Ok(RangeSpec { first, end, span: text.span })
}

fn tensor<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<TensorUse, Diagnostic> {
    let call = named_tensor(source, raw, "X(M,H)")?;
    if call.args.len() > 2 {
        let message = format!("tensor `{}` has {} axes", call.name, call.args.len());
        return Err(Diagnostic::new("tensor-rank", message)
            .at(call.span, "tensors are matrices")
            .help("fold the leading axes into the rows"));
    }
    Ok(call)
}

/// An operand that a stage may lack.
fn optional<'a>(
    source: Source<'a>,
    kind: OperandKind,
    raw: Option<&'a RawValue>,
) -> Result<Option<(OperandKind, TensorUse)>, Diagnostic> {
    raw.map(|raw| Ok((kind, tensor(source, raw)?))).transpose()
}

/// A tensor with four axes.
fn volume<'a>(source: Source<'a>, raw: &'a RawValue, form: &str) -> Result<TensorUse, Diagnostic> {
    let call = named_tensor(source, raw, form)?;
    if call.args.len() != 4 {
        let axes = if call.args.len() == 1 { "one axis".into() } else { format!("{} axes", call.args.len()) };
        let message = format!("tensor `{}` has {axes}, and needs four", call.name);
        return Err(Diagnostic::new("tensor-rank", message)
            .at(call.span, "images, filters and caches state all their axes")
            .help(format!("write it as `{form}`")));
    }
    Ok(call)
}

fn named_tensor<'a>(source: Source<'a>, raw: &'a RawValue, form: &str) -> Result<TensorUse, Diagnostic> {
    let text = source.text(raw, &format!("a tensor in quotes, such as \"{form}\""))?;
    let call = parse_call(&text, form)?;
    if let Some(why) = ident::fault(&call.name) {
        let message = format!("tensor name `{}` cannot be used in generated code", call.name);
        return Err(Diagnostic::new("bad-name", message).at(call.name_span, why).help("rename the tensor"));
    }
    Ok(call)
}
