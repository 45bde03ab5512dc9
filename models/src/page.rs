//! Pages of a model: stages of its layers as `docs/spec.md` describes them.
//!
//! ```
//! // A launch has up to eight layers, and the last one also has the head.
//! assert_eq!(cusync_models::page::launches(16), [0..8, 8..16]);
//! ```

use std::ops::Range;

use cusync::codegen::graph::Element;
use cusync::{PipelineBuilder, Stage};

use crate::architecture::Decoder;

/// Stages of a layer that generates.
const STAGES_PER_LAYER: usize = 7;

/// Most stages of a launch.
const STAGES: usize = 64;

/// Sizes of the pages of a model that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) slots: usize,
    /// Tokens that a cache has room for.
    pub(crate) rows: usize,
    pub(crate) element: Element,
}

/// Layers of each launch: as few launches as possible, of about equal length. The last one ends with a norm
/// and the head.
pub fn launches(layers: usize) -> Vec<Range<usize>> {
    let most = (STAGES - 2) / STAGES_PER_LAYER;
    let count = layers.div_ceil(most);
    (0..count).map(|n| layers * n / count..layers * (n + 1) / count).collect()
}

/// The page of some layers for the next token of each of `slots` sequences, with caches of `rows` tokens each.
/// It reads hidden states `X`, and writes `Z`; with the last layer, the head writes `logits` instead.
pub fn generation(
    decoder: &Decoder,
    layers: Range<usize>,
    slots: usize,
    rows: usize,
    element: Element,
) -> PipelineBuilder {
    let last = layers.end == decoder.layers;
    let name = format!("layers_{}_to_{}", layers.start, layers.end - 1);
    let mut page = dims(&name, decoder, element).dim("B", slots as u64).dim("S", rows as u64);
    let state = |layer: usize| match layer {
        _ if layer == layers.start => "X(B,E)".to_owned(),
        _ => format!("Z_{}(B,E)", layer - 1),
    };
    for layer in layers.clone() {
        let out = if !last && layer + 1 == layers.end { "Z(B,E)".into() } else { format!("Z_{layer}(B,E)") };
        let attend = Stage::new("Attention", &format!("attend_{layer}")).word(
            "cache",
            format!(
                "Cache(keys: \"K_{layer}(B,HKV,S,D)\", values: \"V_{layer}(B,HKV,S,D)\", lengths: \"n(B)\")"
            ),
        );
        let attend = attend.text("rotary", "cs(S,D)");
        let stages = block(decoder, layer, "B", &state(layer), &out, "Gemm", attend);
        page = stages.into_iter().fold(page, PipelineBuilder::stage);
    }
    if !last {
        return page;
    }
    let norm = norm("final_norm", &state(layers.end), "gf", "NF(B,E)", decoder.epsilon);
    let head = Stage::gemm("head", "NF(B,E)", "Wh(E,V)", "logits(B,V)");
    page.dim("V", decoder.logits() as u64).stage(norm).stage(head)
}

/// The page of one layer for the first `tokens` tokens of a sequence, which fill a cache of `rows` tokens. The
/// tensors have the names of layer 0.
pub fn prompt(decoder: &Decoder, tokens: usize, rows: usize, element: Element) -> PipelineBuilder {
    let page = dims("prompt", decoder, element).dim("T", tokens as u64).dim("S", rows as u64);
    let attend = Stage::new("Attention", "attend_0")
        .word("sequences", 1)
        .word("cache", "Cache(keys: \"K_0(1,HKV,S,D)\", values: \"V_0(1,HKV,S,D)\")");
    let stages = block(decoder, 0, "T", "X(T,E)", "Z(T,E)", "RotatedGemm", attend);
    stages.into_iter().fold(page, PipelineBuilder::stage)
}

fn dims(name: &str, decoder: &Decoder, element: Element) -> PipelineBuilder {
    let Decoder { width, heads, kv_heads, columns, inner, .. } = decoder;
    let dims = [("E", width), ("HQ", heads), ("HKV", kv_heads), ("D", columns), ("I", inner)];
    dims.into_iter()
        .fold(PipelineBuilder::new(name).element(element), |page, (dim, n)| page.dim(dim, *n as u64))
}

fn norm(name: &str, x: &str, gain: &str, out: &str, epsilon: f64) -> Stage {
    Stage::new("RmsNorm", name)
        .text("x", x)
        .text("gain", &format!("{gain}(E)"))
        .text("out", out)
        .word("epsilon", format!("{epsilon:e}"))
}

/// One layer over `t` tokens, from hidden states `x` to `z`. `qkv` is the kind of the first product.
fn block(
    decoder: &Decoder,
    layer: usize,
    t: &str,
    x: &str,
    z: &str,
    qkv: &str,
    attend: Stage,
) -> [Stage; STAGES_PER_LAYER] {
    let stage = |name: &str| format!("{name}_{layer}");
    let tensor = |name: &str, cols: &str| format!("{name}_{layer}({t},{cols})");
    let weight = |name: &str, shape: &str| format!("{name}_{layer}({shape})");
    let (n1, n2, h, y) = (tensor("N1", "E"), tensor("N2", "E"), tensor("H", "E"), tensor("Y", "I"));
    let (rows, a) = (tensor("QKV", "(HQ+2*HKV)*D"), tensor("A", "HQ*D"));
    let heads = |stage: Stage| stage.text("heads", "HQ").text("kv_heads", "HKV");
    let mut product = Stage::new(qkv, &stage("qkv"))
        .text("a", &n1)
        .text("b", &weight("Wqkv", "E,(HQ+2*HKV)*D"))
        .text("out", &rows);
    let mut attend = attend;
    if decoder.head_norm {
        let (query, key) = (weight("gq", "D"), weight("gk", "D"));
        let norm = format!("HeadNorm(query: {query:?}, key: {key:?}, epsilon: {:e})", decoder.epsilon);
        // Where heads are rotated.
        match qkv {
            "RotatedGemm" => product = product.word("head_norm", norm),
            _ => attend = attend.word("head_norm", norm),
        }
    }
    if decoder.bias {
        product = product.text("bias", &weight("bqkv", "(HQ+2*HKV)*D"));
    }
    if qkv == "RotatedGemm" {
        product = heads(product).text("rotary", "cs(S,D)").word("sequences", 1);
    }
    let gemm = |name: &str, a: &str, b: &str, out: &str, residual: &str| {
        Stage::gemm(&stage(name), a, b, out).text("residual", residual)
    };
    [
        norm(&stage("norm1"), x, &stage("g1"), &n1, decoder.epsilon),
        product,
        heads(attend).text("qkv", &rows).text("out", &a),
        gemm("project", &a, &weight("Wo", "HQ*D,E"), &h, x),
        norm(&stage("norm2"), &h, &stage("g2"), &n2, decoder.epsilon),
        Stage::gated_gemm(&stage("gate_up"), &n2, &weight("Wg", "E,I"), &weight("Wu", "E,I"), &y),
        gemm("down", &y, &weight("Wd", "I,E"), z, &h),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_few_and_even() {
        assert_eq!((launches(1).len(), launches(8).len()), (1, 1));
        assert_eq!(launches(9), [0..4, 4..9]);
        for layers in 1..130 {
            let parts = launches(layers);
            assert!(parts.iter().all(|part| part.len() * STAGES_PER_LAYER + 2 <= STAGES), "{layers} layers");
            let joined: Vec<usize> = parts.into_iter().flatten().collect();
            assert_eq!(joined, (0..layers).collect::<Vec<_>>());
        }
    }
}
