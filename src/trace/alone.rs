//! One stage of a pipeline as a pipeline of its own.

use cusync_gen::graph::{
    Activation, Attend, Attention, Conv, Element, Graph, Op, OperandKind, PAGE, Pool, Rotated, Sliding,
    Stage, TensorId,
};

use cusync_gen::check::Executor;

use crate::runtime::{Error, Result};

/// The spec of a stage alone: what others produce is an input.
pub(super) fn spec(graph: &Graph, stage: &Stage) -> Result<String> {
    let named = |id: TensorId, axes: &[u32]| {
        let axes: Vec<String> = axes.iter().map(u32::to_string).collect();
        format!("\"{}({})\"", graph.tensors[id.0].name, axes.join(","))
    };
    let tensor = |id: TensorId, kind: Option<OperandKind>| {
        let of = &graph.tensors[id.0];
        match (&stage.op, kind) {
            (Op::Conv2d(c), Some(OperandKind::A)) => named(id, &[c.images, c.input.0, c.input.1, c.channels]),
            (Op::Conv2d(c), Some(OperandKind::B)) => {
                named(id, &[c.filter.0, c.filter.1, c.channels, of.cols])
            }
            (Op::Pool(p), Some(OperandKind::A)) => {
                let of = &p.sliding;
                named(id, &[of.images, of.input.0, of.input.1, stage.n])
            }
            (Op::Pool(p), None) => {
                let of = &p.sliding;
                named(id, &[of.images, of.output.0, of.output.1, stage.n])
            }
            (Op::Conv2d(c), None | Some(OperandKind::Residual)) => {
                named(id, &[c.images, c.output.0, c.output.1, of.cols])
            }
            (Op::Attention(a), Some(OperandKind::CachedKeys | OperandKind::CachedValues)) => {
                let capacity = a.cache.map_or(0, |cache| cache.capacity);
                named(id, &[a.sequences, a.heads.kv, capacity, a.heads.dim])
            }
            (Op::Attend(a), Some(OperandKind::CachedKeys | OperandKind::CachedValues)) => {
                let (first, tokens) = a.cache.pages.map_or((stage.m, a.cache.capacity), |pool| (pool, PAGE));
                named(id, &[first, a.heads.kv, tokens, a.heads.dim])
            }
            (_, Some(OperandKind::Lengths)) => named(id, &[of.cols]),
            _ => named(id, &[of.rows, of.cols]),
        }
    };
    let kind = stage.op.name();
    if !stage.op.has_kernel(90, Executor::Fused) {
        return Err(Error::Unsupported(format!("stage {} is {kind}", stage.name)));
    }
    let epilogue = match stage.op.activation() {
        Activation::Identity => "",
        Activation::GeluTanh => ", epilogue: Gelu",
        Activation::Relu => ", epilogue: Relu",
    };
    let residual_first = match &stage.op {
        Op::Gemm(epilogue) => epilogue.residual_first,
        Op::Conv2d(conv) => conv.epilogue.residual_first,
        Op::GatedGemm
        | Op::RotatedGemm(_)
        | Op::Attention(_)
        | Op::Attend(_)
        | Op::Norm(_)
        | Op::Pool(_)
        | Op::Custom => false,
    };
    let place = if residual_first { ", residual_at: BeforeActivation" } else { "" };
    let (left, right, parameters) = match &stage.op {
        Op::Norm(norm) => ("x", "b", format!(", epsilon: {:e}", norm.epsilon)),
        Op::Pool(Pool { mean, sliding: Sliding { filter, stride, padding, .. } }) => {
            let kind = if *mean { "Average" } else { "Max" };
            let window = format!("window: {filter:?}, stride: {stride:?}, padding: {padding:?}");
            ("input", "b", format!(", kind: {kind}, {window}"))
        }
        Op::Conv2d(Conv { sliding: Sliding { stride, padding, .. }, .. }) => {
            ("input", "filter", format!(", stride: {stride:?}, padding: {padding:?}{epilogue}{place}"))
        }
        Op::Attention(Attention { heads, causal, sequences, .. }) => {
            let (query, kv) = (heads.query, heads.kv);
            let of = format!(", heads: \"{query}\", kv_heads: \"{kv}\", sequences: \"{sequences}\"");
            let operand = |kind| stage.operand(kind).map(|o| tensor(o.tensor, Some(kind)));
            let (keys, values) = (operand(OperandKind::CachedKeys), operand(OperandKind::CachedValues));
            let cache = keys.zip(values).map(|(k, v)| format!(", cache: Cache(keys: {k}, values: {v})"));
            ("a", "b", format!("{of}, causal: {causal}{}", cache.unwrap_or_default()))
        }
        Op::RotatedGemm(Rotated { heads, tokens }) => {
            let (query, kv, sequences) = (heads.query, heads.kv, stage.m / tokens);
            ("a", "b", format!(", heads: \"{query}\", kv_heads: \"{kv}\", sequences: \"{sequences}\""))
        }
        Op::Attend(Attend { heads, expected, .. }) => {
            let (query, kv) = (heads.query, heads.kv);
            let operand = |kind| stage.operand(kind).map(|o| tensor(o.tensor, Some(kind)));
            let cache = [
                ("keys", OperandKind::CachedKeys),
                ("values", OperandKind::CachedValues),
                ("lengths", OperandKind::Lengths),
            ];
            let cache = cache.map(|(name, kind)| format!("{name}: {}", operand(kind).unwrap_or_default()));
            let pages = operand(OperandKind::Pages).map(|pages| format!(", pages: {pages}"));
            let of = format!(", heads: \"{query}\", kv_heads: \"{kv}\", expected: \"{expected}\"");
            ("a", "b", format!("{of}, cache: Cache({}){}", cache.join(", "), pages.unwrap_or_default()))
        }
        Op::Gemm(_) | Op::GatedGemm | Op::Custom => ("a", "b", format!("{epilogue}{place}")),
    };
    let gated = stage.operands.iter().any(|o| o.kind == OperandKind::Up);
    let mut operands = String::new();
    for operand in &stage.operands {
        let field = match operand.kind {
            OperandKind::A => left,
            OperandKind::Gain => "gain",
            OperandKind::B if gated => "gate",
            OperandKind::B => right,
            OperandKind::Up => "up",
            OperandKind::Bias => "bias",
            OperandKind::Residual => "residual",
            OperandKind::Query => "qkv",
            OperandKind::Rotary => "rotary",
            OperandKind::Key
            | OperandKind::Value
            | OperandKind::CachedKeys
            | OperandKind::CachedValues
            | OperandKind::Lengths
            | OperandKind::Pages
            | OperandKind::Custom(_) => continue,
        };
        operands.push_str(&format!("{field}: {}, ", tensor(operand.tensor, Some(operand.kind))));
    }
    let (name, out) = (&stage.name, tensor(stage.out, None));
    let element = match graph.element {
        Element::F16 => "F16",
        Element::Bf16 => "Bf16",
    };
    Ok(format!(
        "Pipeline(name: \"{name}_alone\", dims: {{}}, element: {element}, stages: [\n    \
         {kind}(name: \"{name}\", {operands}out: {out}{parameters}),\n])\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Overrides, SHIPPED, plan_text};
    use cusync_gen::device::Profile;

    #[test]
    fn every_stage_of_every_shipped_spec_stands_alone() {
        let device = Profile::named("h200").expect("the profile ships");
        for (name, source) in SHIPPED {
            let tokens = source.contains("\"M\":");
            let dims = tokens.then(|| ("M".to_owned(), 200)).into_iter().collect();
            let overrides = Overrides { dims, ..Overrides::default() };
            let plan = plan_text(source, name, &overrides, device, Executor::Cpu).expect("it is proved");
            let graph = plan.graph();
            for stage in &graph.stages {
                if !stage.op.has_kernel(90, Executor::Fused) {
                    let refused = spec(graph, stage).expect_err("no kernel runs it").to_string();
                    assert!(refused.contains(&stage.name) && refused.contains(stage.op.name()), "{refused}");
                    continue;
                }
                let text = spec(graph, stage).expect("a kernel runs it");
                let decode = stage.op.attend().is_some();
                let single = plan_text(
                    &text,
                    name,
                    &Overrides { decode, ..Overrides::default() },
                    device,
                    Executor::Fused,
                );
                let single = single.unwrap_or_else(|e| panic!("{text}{e}"));
                let alone = &single.graph().stages[0];
                assert_eq!(single.graph().stages.len(), 1);
                assert_eq!((alone.m, alone.n, alone.k), (stage.m, stage.n, stage.k));
                // Windows follow from tiles.
                let untiled = |op: &Op| match op {
                    Op::Conv2d(conv) => Op::Conv2d(Conv { window: None, ..*conv }),
                    other => other.clone(),
                };
                assert_eq!(untiled(&alone.op), untiled(&stage.op));
                let kinds = |s: &Stage| s.operands.iter().map(|o| o.kind).collect::<Vec<_>>();
                assert_eq!(kinds(alone), kinds(stage));
                assert_eq!(single.graph().element, graph.element);
            }
        }
    }
}
