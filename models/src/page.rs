//! Pages of a model: stages of its layers as `docs/spec.md` describes them.
//!
//! ```
//! # use cusync_models::{ModelConfig, architecture::Decoder, page};
//! # let config = r#"{"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 16, "num_attention_heads": 1,
//! #     "vocab_size": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}"#;
//! let decoder = Decoder::new(&ModelConfig::from_json(config)?)?;
//! // A launch has up to eight layers, and the last one also has the head.
//! assert_eq!(page::launches(&decoder), [0..8, 8..16].map(page::Launch::Layers));
//! # Ok::<(), cusync_models::Error>(())
//! ```

use std::ops::Range;

use cusync::codegen::graph::Element;
use cusync::{PipelineBuilder, Stage};

use crate::architecture::{Decoder, Weight};
pub use crate::launch::{Launch, launches};

/// Sizes of the pages of a model that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) slots: usize,
    /// Tokens of a sequence at most.
    pub(crate) context: usize,
    /// Tokens that a cache has room for.
    pub(crate) rows: usize,
    pub(crate) element: Element,
}

/// The page of a launch for the next token of each of `slots` sequences, with caches of `rows` tokens each.
/// It reads hidden states `X`, and writes `Z`; the head writes `logits` instead, divided by [`Decoder::logit_cap`] if
/// there is one. [`Launch::Attention`] writes what [`Launch::Experts`] reads. The devices of a decoder that is divided among several have equal pages.
pub fn generation(
    decoder: &Decoder,
    launch: &Launch,
    slots: usize,
    rows: usize,
    element: Element,
) -> PipelineBuilder {
    let (page, last) = match launch {
        Launch::Layers(layers) if layers.end == decoder.layers => {
            let last = format!("Z_{}(B,E)", layers.end - 1);
            (stack(decoder, layers.clone(), (slots, rows), element, &last), last)
        }
        Launch::Layers(layers) => return self::layers(decoder, layers.clone(), slots, rows, element),
        Launch::Attention(layer) => {
            let h = tensor(*layer, "B", "H", "E");
            let page = attention_of(decoder, *layer, (slots, rows), element, (true, true), &h);
            let router = normed(router(*layer, "B", &h), &weight(*layer, "g2", "E"), decoder.epsilon);
            return page.stage(router).stage(norm_before_experts(decoder, *layer, "B", &h));
        }
        Launch::Experts(layer) => {
            let page = dims(&format!("experts_{layer}"), decoder, element).dim("B", slots as u64);
            return page.stage(experts(decoder, *layer, "B", "Z(B,E)"));
        }
        Launch::Head => (dims("head", decoder, element).dim("B", slots as u64), "X(B,E)".into()),
    };
    let head = Stage::gemm("head", &last, "Wh(E,V)", "logits(B,V)");
    let head = if decoder.logit_cap.is_some() { head.word("epilogue", "Tanh") } else { head };
    page.dim("V", decoder.logits() as u64).stage(normed(head, "gf(E)", decoder.epsilon))
}

/// [`generation`] without a head: the last layer writes `Z`, too.
pub fn layers(
    decoder: &Decoder,
    layers: Range<usize>,
    slots: usize,
    rows: usize,
    element: Element,
) -> PipelineBuilder {
    stack(decoder, layers, (slots, rows), element, "Z(B,E)")
}

/// Layers from hidden states `X` to `out`.
fn stack(
    decoder: &Decoder,
    layers: Range<usize>,
    (slots, rows): (usize, usize),
    element: Element,
    out: &str,
) -> PipelineBuilder {
    let name = format!("layers_{}_to_{}", layers.start, layers.end - 1);
    let mut page = step(&name, decoder, (slots, rows), element);
    for layer in layers.clone() {
        let x = if layer == layers.start { "X(B,E)".to_owned() } else { format!("Z_{}(B,E)", layer - 1) };
        let z = if layer + 1 == layers.end { out.to_owned() } else { format!("Z_{layer}(B,E)") };
        let attend = attend_cached(decoder, layer, rows);
        let stages = block(decoder, layer, "B", &x, &z, LayerPass::Step, attend);
        page = stages.into_iter().fold(page, PipelineBuilder::stage);
    }
    page
}

/// The page of one attention for the next token of each of `slots` sequences, from `X` to `Z`. The tensors have the
/// names of layer 0. `norm`: rows are normalized first; `residual`: `X` is added at the end.
pub fn attention(
    decoder: &Decoder,
    slots: usize,
    rows: usize,
    element: Element,
    (norm, residual): (bool, bool),
) -> PipelineBuilder {
    attention_of(decoder, 0, (slots, rows), element, (norm, residual), "Z(B,E)")
}

/// [`attention`] of any layer, to `out`.
fn attention_of(
    decoder: &Decoder,
    layer: usize,
    (slots, rows): (usize, usize),
    element: Element,
    (norm, residual): (bool, bool),
    out: &str,
) -> PipelineBuilder {
    let page = step("attention", decoder, (slots, rows), element);
    let qkv = qkv_product(decoder, layer, "B", "X(B,E)", LayerPass::Step);
    let qkv = if norm { normed(qkv, &weight(layer, "g1", "E"), decoder.epsilon) } else { qkv };
    let attend = attend_cached(decoder, layer, rows);
    let project = projection(layer, "B", out);
    let project = if residual { project.text("residual", "X(B,E)") } else { project };
    let attend = attended(layer, "B", with_head_norm(decoder, layer, attend));
    [qkv, attend, project].into_iter().fold(page, PipelineBuilder::stage)
}

/// Whether the page of an [`attention`] has this weight of a layer.
pub fn attends(weight: &Weight, norm: bool) -> bool {
    match weight.name.split_once('_') {
        Some(("g1", _)) => norm,
        Some((name, _)) => ["Wqkv", "bqkv", "gq", "gk", "Wo"].contains(&name),
        None => false,
    }
}

/// A page for the next token of each of some sequences, without stages.
fn step(name: &str, decoder: &Decoder, (slots, rows): (usize, usize), element: Element) -> PipelineBuilder {
    dims(name, decoder, element).dim("B", slots as u64).dim("S", rows as u64)
}

/// The attention of a layer to its cache of `rows` tokens, to which it appends.
fn attend_cached(decoder: &Decoder, layer: usize, rows: usize) -> Stage {
    let cache =
        format!("Cache(keys: \"K_{layer}(B,HKV,S,D)\", values: \"V_{layer}(B,HKV,S,D)\", lengths: \"n(B)\")");
    let attend = Stage::new("Attention", &format!("attend_{layer}")).word("cache", cache);
    let attend = match decoder.angles(layer) {
        Some(angles) => attend.text("rotary", &format!("{angles}(S,D)")),
        None => attend,
    };
    scored(attend, decoder, layer, rows)
}

/// The page of a layer for the next `tokens` tokens of a sequence, whose cache has room for `rows` tokens. They fill it
/// from its first row on or, if the sequence `continues`, behind its cached tokens.
pub fn prompt(
    decoder: &Decoder,
    layer: usize,
    tokens: usize,
    rows: usize,
    element: Element,
    continues: bool,
) -> PipelineBuilder {
    let page = dims("prompt", decoder, element).dim("T", tokens as u64).dim("S", rows as u64);
    let lengths = if continues { ", lengths: \"n(1)\"" } else { "" };
    let [keys, values] = ["K", "V"].map(|name| format!("{name}_{layer}(1,HKV,S,D)"));
    let cache = format!("Cache(keys: {keys:?}, values: {values:?}{lengths})");
    let attend =
        Stage::new("Attention", &format!("attend_{layer}")).word("sequences", 1).word("cache", cache);
    let attend = scored(attend, decoder, layer, if continues { rows } else { tokens });
    let pass = LayerPass::Prompt { continues };
    let stages = block(decoder, layer, "T", "X(T,E)", "Z(T,E)", pass, attend);
    stages.into_iter().fold(page, PipelineBuilder::stage)
}

fn dims(name: &str, decoder: &Decoder, element: Element) -> PipelineBuilder {
    let Decoder { width, heads, kv_heads, columns, inner, .. } = decoder;
    let dims = [("E", width), ("HQ", heads), ("HKV", kv_heads), ("D", columns), ("I", inner)];
    let page = PipelineBuilder::new(name).element(element).devices(decoder.devices as u32);
    let page = match decoder.experts {
        Some(experts) => page.dim("NE", experts.count as u64),
        None => page,
    };
    dims.into_iter().fold(page, |page, (dim, n)| page.dim(dim, *n as u64))
}

/// An attention with the scores of a layer: its window, if sequences of up to `tokens` tokens are longer, and its scale
/// and softcap, where stated.
fn scored(attend: Stage, decoder: &Decoder, layer: usize, tokens: usize) -> Stage {
    let window = decoder.windows[layer].filter(|window| *window < tokens).map(|window| window.to_string());
    // RON reads 50 as an integer, so print 50.0.
    let number = |value: f64| format!("{value:?}");
    let fields =
        [("window", window), ("scale", decoder.scale.map(number)), ("softcap", decoder.softcap.map(number))];
    let stated = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    stated.fold(attend, |attend, (name, value)| attend.word(name, value))
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
    /// The first tokens of a sequence, or the next ones of a sequence that continues.
    Prompt { continues: bool },
}

/// Name of a tensor of a layer, with a row for each of `t` tokens.
fn tensor(layer: usize, t: &str, name: &str, cols: &str) -> String {
    format!("{name}_{layer}({t},{cols})")
}

/// Name of a weight of a layer.
fn weight(layer: usize, name: &str, shape: &str) -> String {
    format!("{name}_{layer}({shape})")
}

const QKV: &str = "(HQ+2*HKV)*D";

/// A stage that knows the heads of queries, keys and values.
fn heads(stage: Stage) -> Stage {
    stage.text("heads", "HQ").text("kv_heads", "HKV")
}

/// Heads are normalized where they are rotated.
fn with_head_norm(decoder: &Decoder, layer: usize, stage: Stage) -> Stage {
    if !decoder.head_norm {
        return stage;
    }
    let (query, key) = (weight(layer, "gq", "D"), weight(layer, "gk", "D"));
    stage.word(
        "head_norm",
        format!("HeadNorm(query: {query:?}, key: {key:?}, epsilon: {:e})", decoder.epsilon),
    )
}

/// The product that makes queries, keys and values of the rows of `a`.
fn qkv_product(decoder: &Decoder, layer: usize, t: &str, a: &str, phase: LayerPass) -> Stage {
    let angles = decoder.angles(layer).filter(|_| phase != LayerPass::Step);
    let kind = if angles.is_some() { "RotatedGemm" } else { "Gemm" };
    let mut product = Stage::new(kind, &format!("qkv_{layer}"))
        .text("a", a)
        .text("b", &weight(layer, "Wqkv", &format!("E,{QKV}")))
        .text("out", &tensor(layer, t, "QKV", QKV));
    if decoder.bias {
        product = product.text("bias", &weight(layer, "bqkv", QKV));
    }
    match (phase, angles) {
        (LayerPass::Prompt { continues }, Some(angles)) => {
            let rotated = heads(product).text("rotary", &format!("{angles}(S,D)")).word("sequences", 1);
            let rotated = if continues { rotated.text("lengths", "n(1)") } else { rotated };
            with_head_norm(decoder, layer, rotated)
        }
        (LayerPass::Step, _) | (LayerPass::Prompt { .. }, None) => product,
    }
}

/// An attention of a layer with its operands.
fn attended(layer: usize, t: &str, attend: Stage) -> Stage {
    let (rows, a) = (tensor(layer, t, "QKV", QKV), tensor(layer, t, "A", "HQ*D"));
    heads(attend).text("qkv", &rows).text("out", &a)
}

/// The product behind an attention.
fn projection(layer: usize, t: &str, out: &str) -> Stage {
    let (a, b) = (tensor(layer, t, "A", "HQ*D"), weight(layer, "Wo", "HQ*D,E"));
    Stage::gemm(&format!("project_{layer}"), &a, &b, out)
}

/// A product whose reduction the devices of a decoder divide.
fn summed(decoder: &Decoder, product: Stage) -> Stage {
    if decoder.devices > 1 { product.word("all_reduce", true) } else { product }
}

/// A product that is added to hidden states `x`; with a norm behind it, the normalized rows are.
fn added(
    decoder: &Decoder,
    (layer, number): (usize, u32),
    t: &str,
    product: &dyn Fn(&str) -> Stage,
    [x, out]: [&str; 2],
) -> Vec<Stage> {
    if !decoder.norms_behind {
        return vec![summed(decoder, product(out).text("residual", x))];
    }
    let rows = tensor(layer, t, &format!("P{number}"), "E");
    let gain = weight(layer, &format!("p{number}"), "E");
    let norm = rms_norm(&format!("behind{number}_{layer}"), [&rows, &gain, out], decoder.epsilon)
        .text("residual", x);
    let norm = if decoder.one_plus_gain { norm.word("one_plus_gain", true) } else { norm };
    vec![summed(decoder, product(&rows)), norm]
}

/// A norm of rows as a stage of its own.
fn rms_norm(name: &str, [x, gain, out]: [&str; 3], epsilon: f64) -> Stage {
    let norm = Stage::new("RmsNorm", name).text("x", x).text("gain", gain);
    norm.text("out", out).word("epsilon", format!("{epsilon:e}"))
}

/// One layer over `t` tokens, from hidden states `x` to `z`. Norms before products are stages of their own in prompts
/// only.
fn block(
    decoder: &Decoder,
    layer: usize,
    t: &str,
    x: &str,
    z: &str,
    phase: LayerPass,
    attend: Stage,
) -> Vec<Stage> {
    let h = tensor(layer, t, "H", "E");
    let mut stages =
        behind_norm(decoder, (layer, 1), t, (x, phase), &|a| qkv_product(decoder, layer, t, a, phase));
    let attend = if phase == LayerPass::Step { with_head_norm(decoder, layer, attend) } else { attend };
    stages.push(attended(layer, t, attend));
    stages.extend(added(decoder, (layer, 1), t, &|out| projection(layer, t, out), [x, &h]));
    stages.extend(mlp(decoder, layer, t, [&h, z], phase));
    stages
}

/// The MLP or the experts of a layer, with norms and residual.
fn mlp(decoder: &Decoder, layer: usize, t: &str, [h, z]: [&str; 2], phase: LayerPass) -> Vec<Stage> {
    if decoder.experts.is_some() {
        let norm = norm_before_experts(decoder, layer, t, h);
        let router = router(layer, t, &tensor(layer, t, "N2", "E"));
        return vec![norm, router, experts(decoder, layer, t, z)];
    }
    let y = tensor(layer, t, "Y", "I");
    let mut stages = behind_norm(decoder, (layer, 2), t, (h, phase), &|a| {
        let (gate, up) = (weight(layer, "Wg", "E,I"), weight(layer, "Wu", "E,I"));
        let gated = Stage::gated_gemm(&format!("gate_up_{layer}"), a, &gate, &up, &y);
        gated.word("activation", decoder.gate)
    });
    let down = |out: &str| Stage::gemm(&format!("down_{layer}"), &y, &weight(layer, "Wd", "I,E"), out);
    stages.extend(added(decoder, (layer, 2), t, &down, [h, z]));
    stages
}

/// The norm in front of experts, which read its rows.
fn norm_before_experts(decoder: &Decoder, layer: usize, t: &str, h: &str) -> Stage {
    let tensors = [h, &weight(layer, "g2", "E"), &tensor(layer, t, "N2", "E")];
    rms_norm(&format!("norm2_{layer}"), tensors, decoder.epsilon)
}

/// The scores of a layer's experts, from rows `a`.
fn router(layer: usize, t: &str, a: &str) -> Stage {
    let (weights, scores) = (weight(layer, "Wr", "E,NE"), tensor(layer, t, "S", "NE"));
    Stage::gemm(&format!("router_{layer}"), a, &weights, &scores)
}

/// The experts of a layer, behind norm and router, to hidden states `z`.
fn experts(decoder: &Decoder, layer: usize, t: &str, z: &str) -> Stage {
    let (top_k, normalize) = decoder.experts.map_or((1, true), |experts| (experts.top_k, experts.normalize));
    Stage::new("Experts", &format!("experts_{layer}"))
        .text("x", &tensor(layer, t, "N2", "E"))
        .text("router", &tensor(layer, t, "S", "NE"))
        .text("gate", &weight(layer, "Wg", "NE*I,E"))
        .text("up", &weight(layer, "Wu", "NE*I,E"))
        .text("down", &weight(layer, "Wd", "NE*E,I"))
        .word("top_k", top_k)
        .word("activation", decoder.gate)
        .word("normalize", normalize)
        .text("residual", &tensor(layer, t, "H", "E"))
        .text("out", z)
}

/// A product of the normalized rows of `x`, which `make` makes of the tensor that it reads. `number`: of the norm.
fn behind_norm(
    decoder: &Decoder,
    (layer, number): (usize, u32),
    t: &str,
    (x, phase): (&str, LayerPass),
    make: &dyn Fn(&str) -> Stage,
) -> Vec<Stage> {
    let gain = weight(layer, &format!("g{number}"), "E");
    if phase == LayerPass::Step {
        return vec![normed(make(x), &gain, decoder.epsilon)];
    }
    let out = tensor(layer, t, &format!("N{number}"), "E");
    let norm = rms_norm(&format!("norm{number}_{layer}"), [x, &gain, &out], decoder.epsilon);
    vec![norm, make(&out)]
}

#[cfg(test)]
mod tests {
    use cusync::runtime::{Overrides, resolve_text};

    use super::*;
    use crate::architecture;
    use crate::config::ModelConfig;

    fn decoder() -> Decoder {
        let config = ModelConfig::from_json(
            r#"{ "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 100, "rms_norm_eps": 1e-5,
                 "max_position_embeddings": 512 }"#,
        );
        let plain = config.and_then(|config| Decoder::new(&config)).expect("a valid configuration");
        Decoder { bias: true, head_norm: true, ..plain }
    }

    /// Tensors of a page that no stage writes, and its results.
    fn ends(page: &PipelineBuilder) -> (Vec<String>, Vec<String>) {
        let resolved = resolve_text(&page.text(), "page", &Overrides::default()).expect("a valid page");
        let session = cusync::Session::on_host(&page.text(), &[]).expect("a plan");
        assert_eq!(resolved.stages.len(), page.stages().len());
        (session.inputs(), session.outputs())
    }

    #[test]
    fn the_last_layer_ends_a_page_without_a_head() {
        let decoder = decoder();
        let (inputs, outputs) = ends(&layers(&decoder, 0..3, 2, 64, Element::F16));
        assert_eq!(outputs, ["Z"]);
        assert!(!inputs.iter().any(|name| name == "Wh"));
        let (inputs, outputs) = ends(&generation(&decoder, &Launch::Layers(0..3), 2, 64, Element::F16));
        assert_eq!(outputs, ["logits"]);
        assert!(inputs.iter().any(|name| name == "Wh"));
    }

    #[test]
    fn an_attention_has_the_weights_of_its_half() {
        let decoder = decoder();
        for (norm, residual) in [(false, false), (true, false), (false, true), (true, true)] {
            let (mut inputs, outputs) = ends(&attention(&decoder, 2, 64, Element::F16, (norm, residual)));
            assert_eq!(outputs, ["Z"]);
            let weights = decoder.layer_weights(0).into_iter().filter(|weight| attends(weight, norm));
            let mut expected: Vec<String> = weights.map(|weight| weight.name).collect();
            expected.extend(["X", "n", "cs", "K_0", "V_0"].map(String::from));
            inputs.sort();
            expected.sort();
            assert_eq!(inputs, expected);
        }
    }

    #[test]
    fn devices_sum_the_products_whose_reduction_they_divide() {
        let config = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 128}"#;
        let config = ModelConfig::from_json(config).expect("JSON");
        let whole = architecture::decoder(&config).expect("supported");
        let page =
            |decoder: &Decoder| generation(decoder, &Launch::Layers(0..2), 3, 64, Element::Bf16).text();
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
}
