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

/// Most layers of a launch. A kernel has 64 stages, each round of a wide one counted: five or six a layer, and up to
/// eight of a head.
const MOST_LAYERS: usize = 8;

/// Sizes of the pages of a model that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) slots: usize,
    /// Tokens that a cache has room for.
    pub(crate) rows: usize,
    pub(crate) element: Element,
}

/// Layers of each launch: as few launches as possible, of about equal length. The last one ends with the head.
pub fn launches(layers: usize) -> Vec<Range<usize>> {
    let count = layers.div_ceil(MOST_LAYERS);
    (0..count).map(|n| layers * n / count..layers * (n + 1) / count).collect()
}

/// The page of some layers for the next token of each of `slots` sequences, with caches of `rows` tokens each.
/// It reads hidden states `X`, and writes `Z`; with the last layer, the head writes `logits` instead. The devices of
/// a decoder that is divided among several have equal pages.
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
        let attend = windowed(attend.text("rotary", "cs(S,D)"), decoder, rows);
        let stages = block(decoder, layer, "B", &state(layer), &out, LayerPass::Step, attend);
        page = stages.into_iter().fold(page, PipelineBuilder::stage);
    }
    if !last {
        return page;
    }
    let head = Stage::gemm("head", &state(layers.end), "Wh(E,V)", "logits(B,V)");
    page.dim("V", decoder.logits() as u64).stage(normed(head, "gf(E)", decoder.epsilon))
}

/// The page of one layer for the first `tokens` tokens of a sequence, which fill a cache of `rows` tokens. The
/// tensors have the names of layer 0.
pub fn prompt(decoder: &Decoder, tokens: usize, rows: usize, element: Element) -> PipelineBuilder {
    let page = dims("prompt", decoder, element).dim("T", tokens as u64).dim("S", rows as u64);
    let attend = Stage::new("Attention", "attend_0")
        .word("sequences", 1)
        .word("cache", "Cache(keys: \"K_0(1,HKV,S,D)\", values: \"V_0(1,HKV,S,D)\")");
    let attend = windowed(attend, decoder, tokens);
    let stages = block(decoder, 0, "T", "X(T,E)", "Z(T,E)", LayerPass::Prompt, attend);
    stages.into_iter().fold(page, PipelineBuilder::stage)
}

fn dims(name: &str, decoder: &Decoder, element: Element) -> PipelineBuilder {
    let Decoder { width, heads, kv_heads, columns, inner, .. } = decoder;
    let dims = [("E", width), ("HQ", heads), ("HKV", kv_heads), ("D", columns), ("I", inner)];
    let page = PipelineBuilder::new(name).element(element).devices(decoder.devices as u32);
    dims.into_iter().fold(page, |page, (dim, n)| page.dim(dim, *n as u64))
}

/// An attention with the window of the model, if sequences of up to `tokens` tokens are longer.
fn windowed(attend: Stage, decoder: &Decoder, tokens: usize) -> Stage {
    match decoder.window.filter(|window| *window < tokens) {
        Some(window) => attend.word("window", window),
        None => attend,
    }
}

/// A product that normalizes its rows first.
fn normed(product: Stage, gain: &str, epsilon: f64) -> Stage {
    product.word("input_norm", format!("InputNorm(gain: {gain:?}, epsilon: {epsilon:e})"))
}

/// What a layer computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LayerPass {
    /// The next token of each sequence.
    Step,
    /// The first tokens of a sequence.
    Prompt,
}

/// One layer over `t` tokens, from hidden states `x` to `z`. Norms are stages of their own in prompts only.
fn block(
    decoder: &Decoder,
    layer: usize,
    t: &str,
    x: &str,
    z: &str,
    phase: LayerPass,
    attend: Stage,
) -> Vec<Stage> {
    let stage = |name: &str| format!("{name}_{layer}");
    let tensor = |name: &str, cols: &str| format!("{name}_{layer}({t},{cols})");
    let weight = |name: &str, shape: &str| format!("{name}_{layer}({shape})");
    let (h, y) = (tensor("H", "E"), tensor("Y", "I"));
    let (rows, a) = (tensor("QKV", "(HQ+2*HKV)*D"), tensor("A", "HQ*D"));
    let epsilon = decoder.epsilon;
    let mut stages = Vec::new();
    // A product of the normalized rows of `x`, which `make` makes of the tensor that it reads.
    let behind_norm = |number: u32, x: &str, stages: &mut Vec<Stage>, make: &dyn Fn(&str) -> Stage| {
        let gain = weight(&format!("g{number}"), "E");
        if phase == LayerPass::Step {
            return stages.push(normed(make(x), &gain, epsilon));
        }
        let out = tensor(&format!("N{number}"), "E");
        let norm = Stage::new("RmsNorm", &stage(&format!("norm{number}"))).text("x", x).text("gain", &gain);
        stages.push(norm.text("out", &out).word("epsilon", format!("{epsilon:e}")));
        stages.push(make(&out));
    };
    let heads = |stage: Stage| stage.text("heads", "HQ").text("kv_heads", "HKV");
    let head_norm = decoder.head_norm.then(|| {
        let (query, key) = (weight("gq", "D"), weight("gk", "D"));
        format!("HeadNorm(query: {query:?}, key: {key:?}, epsilon: {epsilon:e})")
    });
    // Heads are normalized where they are rotated.
    let with_head_norm = |stage: Stage| match &head_norm {
        Some(norm) => stage.word("head_norm", norm),
        None => stage,
    };
    behind_norm(1, x, &mut stages, &|a| {
        let kind = if phase == LayerPass::Step { "Gemm" } else { "RotatedGemm" };
        let mut product = Stage::new(kind, &stage("qkv"))
            .text("a", a)
            .text("b", &weight("Wqkv", "E,(HQ+2*HKV)*D"))
            .text("out", &rows);
        if decoder.bias {
            product = product.text("bias", &weight("bqkv", "(HQ+2*HKV)*D"));
        }
        match phase {
            LayerPass::Step => product,
            LayerPass::Prompt => {
                with_head_norm(heads(product).text("rotary", "cs(S,D)").word("sequences", 1))
            }
        }
    });
    let attend = if phase == LayerPass::Step { with_head_norm(attend) } else { attend };
    // A product whose reduction the devices divide.
    let sum = |name: &str, a: &str, b: &str, out: &str, residual: &str| {
        let product = Stage::gemm(&stage(name), a, b, out).text("residual", residual);
        if decoder.devices > 1 { product.word("all_reduce", true) } else { product }
    };
    stages.push(heads(attend).text("qkv", &rows).text("out", &a));
    stages.push(sum("project", &a, &weight("Wo", "HQ*D,E"), &h, x));
    behind_norm(2, &h, &mut stages, &|a| {
        let gated = Stage::gated_gemm(&stage("gate_up"), a, &weight("Wg", "E,I"), &weight("Wu", "E,I"), &y);
        gated.word("activation", decoder.gate)
    });
    stages.push(sum("down", &y, &weight("Wd", "I,E"), z, &h));
    stages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelConfig;
    use crate::architecture;

    #[test]
    fn devices_sum_the_products_whose_reduction_they_divide() {
        let config = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 128}"#;
        let config = ModelConfig::from_json(config).expect("JSON");
        let whole = architecture::decoder(&config).expect("supported");
        let page = |decoder: &Decoder| generation(decoder, 0..2, 3, 64, Element::Bf16).text();
        assert!(!page(&whole).contains("devices") && !page(&whole).contains("all_reduce"));
        let parts = [0, 1].map(|device| page(&whole.shard(device, 2).expect("it divides")));
        assert_eq!(parts[0], parts[1]);
        let spec = cusync::codegen::spec::parse(&parts[0], "part").expect("valid");
        let resolved = spec.resolve(&[]).expect("valid");
        let summed: Vec<&str> =
            resolved.stages.iter().filter(|s| s.devices == 2).map(|s| s.name.value.as_str()).collect();
        assert_eq!(summed, ["project_0", "down_0", "project_1", "down_1"]);
        assert_eq!(resolved.devices(), 2);
    }

    #[test]
    fn launches_are_few_and_even() {
        assert_eq!((launches(1).len(), launches(8).len()), (1, 1));
        assert_eq!(launches(9), [0..4, 4..9]);
        for layers in 1..130 {
            let parts = launches(layers);
            assert!(parts.iter().all(|part| part.len() <= MOST_LAYERS), "{layers} layers");
            let joined: Vec<usize> = parts.into_iter().flatten().collect();
            assert_eq!(joined, (0..layers).collect::<Vec<_>>());
        }
    }
}
