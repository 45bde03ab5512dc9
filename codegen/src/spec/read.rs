//! From raw RON values to a [`Spec`].

use ron::value::RawValue;

use super::raw;
use super::source::{Source, Text};
use super::stage::stage;
use super::{EdgeSpec, Spec, StatedTile};
use crate::diagnostic::{Diagnostic, Spanned};
use crate::operand::Element;
use crate::sync::{Order, Policy};

/// Names that mean tile coordinates inside footprints.
const COORDINATES: [&str; 3] = ["m", "n", "k"];

type Entry<'a> = (&'a RawValue, &'a RawValue);

pub(super) fn pipeline(text: &str, origin: &str) -> Result<Spec, Diagnostic> {
    let source = Source { text };
    let raw: raw::Pipeline = source.parse_all("`Pipeline(name: ..., dims: {...}, stages: [...])`")?;
    let name = source.text(raw.name, "a name in quotes")?;
    name.validate("pipeline")?;
    let element = raw.element.map_or(Ok(Element::F16), |raw| source.parse(raw, "an element type"))?;
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
        devices: raw.devices.map(|raw| source.spanned(raw, "a number of devices")).transpose()?,
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
        key.validate("dim")?;
        if COORDINATES.contains(&key.value.as_str()) {
            return Err(Diagnostic::new("bad-name", format!("a dim cannot be named `{}`", key.value))
                .at(key.span, "means a tile coordinate in footprints")
                .help(format!("call it `{}`", key.value.to_uppercase())));
        }
        source.spanned(raw, "an integer")
    })
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
