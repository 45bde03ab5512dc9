//! From raw RON values to a [`Spec`].

use ron::value::RawValue;

use super::StatedTile;
use super::expr::{Expr, parse_call, parse_expr, parse_range};
use super::source::{Source, Text};
use super::{
    AttentionSpec, ConvSpec, CustomSpec, EdgeSpec, HeadsSpec, NormSpec, PoolSpec, RangeSpec, Spec, StageKind,
    StageSpec, TensorUse,
};
use super::{ident, raw};
use crate::device::{Activation, Epilogue};
use crate::diagnostic::{Diagnostic, Spanned};
use crate::operand::{Element, OperandKind};
use crate::sync::{Order, Policy};

/// Names that mean tile coordinates inside footprints.
const COORDINATES: [&str; 3] = ["m", "n", "k"];

type Entry<'a> = (&'a RawValue, &'a RawValue);

pub(super) fn pipeline(text: &str, origin: &str) -> Result<Spec, Diagnostic> {
    let source = Source { text };
    let raw: raw::Pipeline = source.parse_all("`Pipeline(name: ..., dims: {...}, stages: [...])`")?;
    let name = source.text(raw.name, "a name in quotes")?;
    ident::validate(&name, "pipeline")?;
    let element = match raw.element.map(|raw| source.parse(raw, "an element type")).transpose()? {
        None | Some(raw::Element::F16) => Element::F16,
        Some(raw::Element::Bf16) => Element::Bf16,
    };
    let stages = source.list(raw.stages, "a list of stages")?;
    if stages.is_empty() {
        return Err(Diagnostic::new("no-stages", "the pipeline has no stages")
            .at(source.span(raw.stages), "empty")
            .help(
                "add a stage, such as `Gemm(name: \"up\", a: \"X(M,H)\", b: \"W(H,I)\", out: \"Y(M,I)\")`",
            ));
    }
    let edges = raw.sync.map_or(Ok(Vec::new()), |raw| source.list(raw, "a list of edges"))?;
    Ok(Spec {
        source: text.to_string(),
        origin: origin.to_string(),
        name,
        dims_span: source.span(raw.dims),
        dims: dims(source, raw.dims)?,
        element,
        stages: stages.into_iter().map(|raw| stage(source, raw)).collect::<Result<_, _>>()?,
        tiles: entries(source, raw.tiles, "a map from stages to tiles", |_, raw| tile(source, raw))?,
        orders: entries(source, raw.orders, "a map from stages to orders", |_, raw| order(source, raw))?,
        sync: edges.into_iter().map(|raw| edge(source, raw)).collect::<Result<_, _>>()?,
        alias: entries(source, raw.alias, "a map from tensors to tensors", |_, raw| {
            source.text(raw, "a tensor's name in quotes")
        })?,
        split_k: entries(source, raw.split_k, "a map from stages to numbers", |_, raw| split(source, raw))?,
    })
}

/// A map with distinct text keys.
fn entries<'a, T>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    form: &str,
    read: impl Fn(&Text, &'a RawValue) -> Result<T, Diagnostic>,
) -> Result<Vec<(Text, T)>, Diagnostic> {
    let mut list: Vec<(Text, T)> = Vec::new();
    for (key, value) in source.map(raw, form)? as Vec<Entry> {
        let key = source.text(key, "a name in quotes")?;
        if let Some((first, _)) = list.iter().find(|(other, _)| other.value == key.value) {
            let message = format!("`{}` is stated twice", key.value.escape_debug());
            return Err(Diagnostic::new("duplicate-key", message)
                .at(key.span, "stated again")
                .also(first.span, "first here")
                .help("keep one of the two"));
        }
        let value = read(&key, value)?;
        list.push((key, value));
    }
    Ok(list)
}

fn dims<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Vec<(Text, Spanned<i64>)>, Diagnostic> {
    entries(source, Some(raw), "a map from dims to numbers", |key, raw| {
        ident::validate(key, "dim")?;
        if COORDINATES.contains(&key.value.as_str()) {
            return Err(Diagnostic::new("bad-name", format!("a dim cannot be named `{}`", key.value))
                .at(key.span, "means a tile coordinate in footprints")
                .help(format!("call it `{}`", key.value.to_uppercase())));
        }
        source.spanned(raw, "an integer")
    })
}

/// An integer, or an expression in quotes.
fn expr<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Expr, Diagnostic> {
    if raw.trim().get_ron().starts_with(['"', 'r']) {
        parse_expr(&source.text(raw, "an expression in quotes")?)
    } else {
        Ok(Expr::number(source.parse(raw, "an integer, or an expression in quotes")?, source.span(raw)))
    }
}

fn pair<'a>(source: Source<'a>, raw: &'a RawValue, form: &str) -> Result<Spanned<(Expr, Expr)>, Diagnostic> {
    let (a, b): (&RawValue, &RawValue) = source.parse(raw, form)?;
    Ok(Spanned::new((expr(source, a)?, expr(source, b)?), source.span(raw)))
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

/// The epilogue of a stage with or without a residual.
fn epilogue<'a>(
    source: Source<'a>,
    raw: Option<&'a RawValue>,
    residual: Option<&'a RawValue>,
    residual_at: Option<&'a RawValue>,
) -> Result<Epilogue, Diagnostic> {
    let activation = match raw.map(|raw| source.parse(raw, "an epilogue")).transpose()? {
        None | Some(raw::Epilogue::None) => Activation::Identity,
        Some(raw::Epilogue::Gelu) => Activation::GeluTanh,
        Some(raw::Epilogue::Relu) => Activation::Relu,
    };
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

fn stage<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<StageSpec, Diagnostic> {
    let stage: raw::Stage = source.parse(
        raw,
        "a stage: Gemm, GatedGemm, RotatedGemm, Conv2d, Attention, RmsNorm, LayerNorm, Pool or Custom",
    )?;
    let named = |raw| -> Result<Text, Diagnostic> {
        let name = source.text(raw, "a name in quotes")?;
        ident::validate(&name, "stage")?;
        Ok(name)
    };
    match stage {
        raw::Stage::Gemm { name, a, b, bias, residual, residual_at, out, epilogue: stated } => {
            let epilogue = epilogue(source, stated, residual, residual_at)?;
            let mut reads = vec![(OperandKind::A, tensor(source, a)?), (OperandKind::B, tensor(source, b)?)];
            if let Some(raw) = bias {
                reads.push((OperandKind::Bias, tensor(source, raw)?));
            }
            if let Some(raw) = residual {
                reads.push((OperandKind::Residual, tensor(source, raw)?));
            }
            let out = tensor(source, out)?;
            Ok(StageSpec { name: named(name)?, kind: StageKind::Gemm(epilogue), reads, out })
        }
        raw::Stage::RotatedGemm {
            name,
            a,
            b,
            bias,
            heads,
            kv_heads,
            sequences,
            rotary,
            head_norm: stated,
            out,
        } => {
            let mut reads = vec![(OperandKind::A, tensor(source, a)?), (OperandKind::B, tensor(source, b)?)];
            if let Some(raw) = bias {
                reads.push((OperandKind::Bias, tensor(source, raw)?));
            }
            reads.push((OperandKind::Rotary, tensor(source, rotary)?));
            let norm = head_norm(source, stated, &mut reads)?;
            let kind = StageKind::Rotated(heads_spec(source, heads, kv_heads, sequences, norm)?);
            Ok(StageSpec { name: named(name)?, kind, reads, out: tensor(source, out)? })
        }
        raw::Stage::GatedGemm { name, a, gate, up, out } => {
            let reads = vec![
                (OperandKind::A, tensor(source, a)?),
                (OperandKind::B, tensor(source, gate)?),
                (OperandKind::Up, tensor(source, up)?),
            ];
            let out = tensor(source, out)?;
            Ok(StageSpec { name: named(name)?, kind: StageKind::GatedGemm, reads, out })
        }
        raw::Stage::Conv2d {
            name,
            input,
            filter,
            bias,
            residual,
            residual_at,
            out,
            stride,
            padding,
            epilogue: stated,
        } => {
            let mut reads = vec![
                (OperandKind::A, volume(source, input, "X(B,H,W,C)")?),
                (OperandKind::B, volume(source, filter, "F(R,S,C,K)")?),
            ];
            if let Some(raw) = bias {
                reads.push((OperandKind::Bias, tensor(source, raw)?));
            }
            if let Some(raw) = residual {
                reads.push((OperandKind::Residual, volume(source, raw, "R(B,P,Q,K)")?));
            }
            let pixels = |raw: Option<&'a RawValue>, form| raw.map(|raw| pair(source, raw, form)).transpose();
            let spec = ConvSpec {
                epilogue: epilogue(source, stated, residual, residual_at)?,
                stride: pixels(stride, "a stride (rows, columns)")?,
                padding: pixels(padding, "a padding (rows, columns)")?,
            };
            let out = volume(source, out, "Y(B,P,Q,K)")?;
            Ok(StageSpec { name: named(name)?, kind: StageKind::Conv2d(Box::new(spec)), reads, out })
        }
        raw::Stage::Attention {
            name,
            qkv,
            heads,
            kv_heads,
            causal,
            sequences,
            cache: stated,
            pages,
            rotary,
            head_norm: normed,
            expected,
            out,
        } => {
            let qkv = tensor(source, qkv)?;
            // Three reads of one matrix, each waiting for its own tiles.
            let kinds = [OperandKind::Query, OperandKind::Key, OperandKind::Value];
            let mut reads: Vec<_> = kinds.into_iter().map(|kind| (kind, qkv.clone())).collect();
            if let Some(raw) = stated {
                reads.extend(cache(source, raw)?);
            }
            for (kind, raw) in [(OperandKind::Pages, pages), (OperandKind::Rotary, rotary)] {
                if let Some(raw) = raw {
                    reads.push((kind, tensor(source, raw)?));
                }
            }
            let norm = head_norm(source, normed, &mut reads)?;
            let spec = AttentionSpec {
                qkv: heads_spec(source, heads, kv_heads, sequences, norm)?,
                causal: causal.map(|raw| source.spanned(raw, "`true` or `false`")).transpose()?,
                cache: stated.map(|raw| source.span(raw)),
                expected: expected.map(|raw| expr(source, raw)).transpose()?,
            };
            let kind = StageKind::Attention(Box::new(spec));
            Ok(StageSpec { name: named(name)?, kind, reads, out: tensor(source, out)? })
        }
        raw::Stage::RmsNorm { name, x, gain, out, epsilon } => {
            let reads =
                vec![(OperandKind::A, tensor(source, x)?), (OperandKind::Gain, tensor(source, gain)?)];
            let kind = norm(source, false, epsilon)?;
            Ok(StageSpec { name: named(name)?, kind, reads, out: tensor(source, out)? })
        }
        raw::Stage::LayerNorm { name, x, gain, bias, out, epsilon } => {
            let reads = vec![
                (OperandKind::A, tensor(source, x)?),
                (OperandKind::Gain, tensor(source, gain)?),
                (OperandKind::Bias, tensor(source, bias)?),
            ];
            let kind = norm(source, true, epsilon)?;
            Ok(StageSpec { name: named(name)?, kind, reads, out: tensor(source, out)? })
        }
        raw::Stage::Pool { name, input, kind, window, stride, padding, out } => {
            let pixels = |raw: Option<&'a RawValue>, form| raw.map(|raw| pair(source, raw, form)).transpose();
            let spec = PoolSpec {
                mean: matches!(source.parse(kind, "`Max` or `Average`")?, raw::PoolKind::Average),
                window: pixels(window, "a window (rows, columns)")?,
                stride: pixels(stride, "a stride (rows, columns)")?,
                padding: pixels(padding, "a padding (rows, columns)")?,
            };
            let reads = vec![(OperandKind::A, volume(source, input, "X(B,H,W,C)")?)];
            let out = volume(source, out, "Y(B,P,Q,C)")?;
            Ok(StageSpec { name: named(name)?, kind: StageKind::Pool(Box::new(spec)), reads, out })
        }
        raw::Stage::Custom { name, grid, tile, k_blocks, reads, writes } => {
            let mut uses = Vec::new();
            let mut footprints = Vec::new();
            for (i, raw) in source.list(reads, "a list of reads")?.into_iter().enumerate() {
                let read: raw::Read = source.parse(raw, "`Read(tensor: ..., rows: ..., cols: ...)`")?;
                uses.push((OperandKind::Custom(i), tensor(source, read.tensor)?));
                footprints.push((range(source, read.rows)?, range(source, read.cols)?));
            }
            let custom = CustomSpec {
                grid: grid.map(|raw| pair(source, raw, "a grid (rows, columns)")).transpose()?,
                tile: pair(source, tile, "a tile (rows, columns)")?,
                k_blocks: k_blocks.map(|raw| expr(source, raw)).transpose()?,
                footprints,
            };
            let kind = StageKind::Custom(Box::new(custom));
            Ok(StageSpec { name: named(name)?, kind, reads: uses, out: tensor(source, writes)? })
        }
    }
}

/// The tensors of a cache.
fn cache<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Vec<(OperandKind, TensorUse)>, Diagnostic> {
    let cache: raw::Cache = source.parse(raw, "`Cache(keys: ..., values: ..., lengths: ...)`")?;
    let form = "K(B,HKV,S,D)";
    let mut reads = vec![
        (OperandKind::CachedKeys, volume(source, cache.keys, form)?),
        (OperandKind::CachedValues, volume(source, cache.values, form)?),
    ];
    if let Some(raw) = cache.lengths {
        reads.push((OperandKind::Lengths, tensor(source, raw)?));
    }
    Ok(reads)
}

fn norm<'a>(source: Source<'a>, centred: bool, epsilon: &'a RawValue) -> Result<StageKind, Diagnostic> {
    let epsilon = Spanned::new(source.parse(epsilon, "a positive number")?, source.span(epsilon));
    Ok(StageKind::Norm(NormSpec { centred, epsilon }))
}

fn tile<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Spanned<StatedTile>, Diagnostic> {
    let form = "a tile (M, N) or (M, N, K)";
    let three: Result<(u32, u32, u32), _> = source.parse(raw, form);
    let value = match three {
        Ok((m, n, k)) => StatedTile { tile: (m, n), k: Some(k) },
        Err(_) => StatedTile { tile: source.parse(raw, form)?, k: None },
    };
    Ok(Spanned::new(value, source.span(raw)))
}

fn split<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Spanned<u32>, Diagnostic> {
    let ways: Spanned<u32> = source.spanned(raw, "a positive number")?;
    if ways.value > 0 {
        return Ok(ways);
    }
    let zero = Diagnostic::new("zero", "a stage is split at least one way").at(ways.span, "zero");
    Err(zero.help("state at least 1"))
}

fn order<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Option<Spanned<Order>>, Diagnostic> {
    let order: Option<Spanned<Order>> = source.left_open(raw, "a tile order", &["Auto", "ForConsumer"])?;
    order.iter().try_for_each(|order| order.value.validate(order.span))?;
    Ok(order)
}

fn policy<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<Option<Spanned<Policy>>, Diagnostic> {
    let policy: Option<Spanned<Policy>> = source.left_open(raw, "a policy", &["Auto"])?;
    policy.iter().try_for_each(|policy| policy.value.validate(policy.span))?;
    Ok(policy)
}

fn edge<'a>(source: Source<'a>, raw: &'a RawValue) -> Result<EdgeSpec, Diagnostic> {
    let edge: raw::Edge = source.parse(raw, "`Edge(from: ..., to: ..., policy: ...)`")?;
    let (from, to) = (
        source.text(edge.from, "a stage's name in quotes")?,
        source.text(edge.to, "a stage's name in quotes")?,
    );
    Ok(EdgeSpec {
        span: source.span(raw),
        from,
        to,
        operand: edge.operand.map(|raw| source.spanned(raw, "an operand")).transpose()?,
        policy: edge.policy.map(|raw| policy(source, raw)).transpose()?.flatten(),
        wait_at: edge
            .wait
            .map(|raw| source.left_open(raw, "a place to wait", &["Auto"]))
            .transpose()?
            .flatten(),
    })
}
