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
use stages::{
    LayerPass, attended, attention_stages, block, down_product, experts, gate_stages, norm_before_experts,
    normed, projection, qkv_product, router, scored, tensor, weight, with_head_norm,
};

mod stages;

/// The caches of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// Sequences.
    pub slots: usize,
    /// Tokens that each has room for.
    pub rows: usize,
    /// Pages of 64 tokens in a pool, from which all sequences take theirs; `None`: each sequence has rows of its own.
    pub pages: Option<usize>,
}

/// Sizes of the pages of a model that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) slots: usize,
    /// Tokens of a sequence at most.
    pub(crate) context: usize,
    /// Tokens that a cache has room for.
    pub(crate) rows: usize,
    /// Pages of the pool of caches, with a spare one for each slot.
    pub(crate) pages: usize,
    pub(crate) element: Element,
}

impl Sizes {
    pub(crate) fn caches(&self) -> Caches {
        Caches { slots: self.slots, rows: self.rows, pages: Some(self.pages) }
    }
}

/// The page of a launch for the next token of each sequence.
/// It reads hidden states `X`, and writes `Z`; the head writes `logits` instead, divided by [`Decoder::logit_cap`] if
/// there is one. [`Launch::Attention`] writes what [`Launch::Experts`] reads. The devices of a decoder that is divided among several have equal pages.
pub fn generation(decoder: &Decoder, launch: &Launch, caches: Caches, element: Element) -> PipelineBuilder {
    let (page, last) = match launch {
        Launch::Layers(layers) if layers.end == decoder.layers => {
            let last = format!("Z_{}(B,E)", layers.end - 1);
            (stack(decoder, layers.clone(), caches, element, &last), last)
        }
        Launch::Layers(layers) => return self::layers(decoder, layers.clone(), caches, element),
        Launch::Attention(layer) => {
            let h = tensor(*layer, "B", "H", "E");
            let page = attention_of(decoder, *layer, caches, element, (true, true), &h);
            let router = normed(router(*layer, "B", &h), &weight(*layer, "g2", "E"), decoder.epsilon);
            return page.stage(router).stage(norm_before_experts(decoder, *layer, "B", &h));
        }
        Launch::Experts(layer) => {
            let page = dims(&format!("experts_{layer}"), decoder, element).dim("B", caches.slots as u64);
            return page.stage(experts(decoder, *layer, "B", "Z(B,E)"));
        }
        Launch::Head => (dims("head", decoder, element).dim("B", caches.slots as u64), "X(B,E)".into()),
    };
    let head = Stage::gemm("head", &last, "Wh(E,V)", "logits(B,V)");
    let head = if decoder.logit_cap.is_some() { head.word("epilogue", "Tanh") } else { head };
    page.dim("V", decoder.logits() as u64).stage(normed(head, "gf(E)", decoder.epsilon))
}

/// [`generation`] without a head: the last layer writes `Z`, too.
pub fn layers(decoder: &Decoder, layers: Range<usize>, caches: Caches, element: Element) -> PipelineBuilder {
    stack(decoder, layers, caches, element, "Z(B,E)")
}

/// Layers from hidden states `X` to `out`.
fn stack(
    decoder: &Decoder,
    layers: Range<usize>,
    caches: Caches,
    element: Element,
    out: &str,
) -> PipelineBuilder {
    let name = format!("layers_{}_to_{}", layers.start, layers.end - 1);
    let mut page = step(&name, decoder, caches, element);
    for layer in layers.clone() {
        let x = if layer == layers.start { "X(B,E)".to_owned() } else { format!("Z_{}(B,E)", layer - 1) };
        let z = if layer + 1 == layers.end { out.to_owned() } else { format!("Z_{layer}(B,E)") };
        let attend = attend_cached(decoder, layer, caches);
        let stages = block(decoder, layer, "B", &x, &z, LayerPass::Step, attend);
        page = stages.into_iter().fold(page, PipelineBuilder::stage);
    }
    page
}

/// The page of one attention for the next token of each sequence, from `X` to `Z`. The tensors have the
/// names of layer 0. `norm`: rows are normalized first; `residual`: `X` is added at the end.
pub fn attention(
    decoder: &Decoder,
    caches: Caches,
    element: Element,
    (norm, residual): (bool, bool),
) -> PipelineBuilder {
    attention_of(decoder, 0, caches, element, (norm, residual), "Z(B,E)")
}

/// [`attention`] of any layer, to `out`.
fn attention_of(
    decoder: &Decoder,
    layer: usize,
    caches: Caches,
    element: Element,
    (norm, residual): (bool, bool),
    out: &str,
) -> PipelineBuilder {
    let page = step("attention", decoder, caches, element);
    let qkv = qkv_product(decoder, layer, "B", "X(B,E)", LayerPass::Step);
    let qkv = if norm { normed(qkv, &weight(layer, "g1", "E"), decoder.epsilon) } else { qkv };
    let attend = attend_cached(decoder, layer, caches);
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
fn step(name: &str, decoder: &Decoder, caches: Caches, element: Element) -> PipelineBuilder {
    let page = dims(name, decoder, element).dim("B", caches.slots as u64).dim("S", caches.rows as u64);
    match caches.pages {
        Some(pages) => page.dim("N", pages as u64),
        None => page,
    }
}

/// The attention of a layer to its cache, to which it appends.
fn attend_cached(decoder: &Decoder, layer: usize, caches: Caches) -> Stage {
    let shape = if caches.pages.is_some() { "(N,HKV,64,D)" } else { "(B,HKV,S,D)" };
    let [keys, values] = ["K", "V"].map(|name| format!("{name}_{layer}{shape}"));
    let cache = format!("Cache(keys: {keys:?}, values: {values:?}, lengths: \"n(B)\")");
    let attend = Stage::new("Attention", &format!("attend_{layer}")).word("cache", cache);
    let attend = match caches.pages {
        Some(_) => attend.text("pages", "pages(B,S/64)"),
        None => attend,
    };
    let attend = match decoder.angles(layer) {
        Some(angles) => attend.text("rotary", &format!("{angles}(S,D)")),
        None => attend,
    };
    scored(attend, decoder, layer, caches.rows)
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
    let attend = prompt_attention(decoder, layer, if continues { rows } else { tokens }, continues);
    let pass = LayerPass::Prompt { continues };
    let stages = block(decoder, layer, "T", "X(T,E)", "Z(T,E)", pass, attend);
    stages.into_iter().fold(page, PipelineBuilder::stage)
}

/// What a pipeline of prompts computes of a layer. Devices that divide a layer exchange rows behind two of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Whole,
    /// From hidden states to what attention leaves.
    Attend,
    /// The product behind attention, for some of the rows.
    Project,
    /// From hidden states to the MLP's hidden layer.
    Gate,
    /// The product behind it, for some of the rows.
    Down,
}

/// The page of a part of a layer: see [`prompt`]. `Z` of [`Part::Project`] and [`Part::Down`] is a product of one device
/// and `R`.
pub(crate) fn prompt_part(
    decoder: &Decoder,
    (layer, part): (usize, Part),
    tokens: usize,
    rows: usize,
    element: Element,
    continues: bool,
) -> PipelineBuilder {
    let decoder = &Decoder { devices: 1, ..decoder.clone() };
    let pass = LayerPass::Prompt { continues };
    let page = || dims("prompt", decoder, element).dim("T", tokens as u64).dim("S", rows as u64);
    let summed = |product: Stage| page().stage(product.text("residual", "R(T,E)"));
    match part {
        Part::Whole => prompt(decoder, layer, tokens, rows, element, continues),
        Part::Attend => {
            let attend = prompt_attention(decoder, layer, if continues { rows } else { tokens }, continues);
            attention_stages(decoder, layer, "T", "X(T,E)", pass, attend)
                .into_iter()
                .fold(page(), PipelineBuilder::stage)
        }
        Part::Project => summed(projection(layer, "T", "Z(T,E)")),
        Part::Gate => {
            gate_stages(decoder, layer, "T", "X(T,E)", pass).into_iter().fold(page(), PipelineBuilder::stage)
        }
        Part::Down => summed(down_product(layer, "T", "Z(T,E)")),
    }
}

/// The attention of a prompt. `span`: tokens of the longest sequence.
fn prompt_attention(decoder: &Decoder, layer: usize, span: usize, continues: bool) -> Stage {
    let lengths = if continues { ", lengths: \"n(1)\"" } else { "" };
    let [keys, values] = ["K", "V"].map(|name| format!("{name}_{layer}(1,HKV,S,D)"));
    let cache = format!("Cache(keys: {keys:?}, values: {values:?}{lengths})");
    let attend = Stage::new("Attention", &format!("attend_{layer}"));
    scored(attend.word("sequences", 1).word("cache", cache), decoder, layer, span)
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

    /// Caches of 64 tokens for each of `slots` sequences.
    fn rows(slots: usize) -> Caches {
        Caches { slots, rows: 64, pages: None }
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
        let (inputs, outputs) = ends(&layers(&decoder, 0..3, rows(2), Element::F16));
        assert_eq!(outputs, ["Z"]);
        assert!(!inputs.iter().any(|name| name == "Wh"));
        let (inputs, outputs) = ends(&generation(&decoder, &Launch::Layers(0..3), rows(2), Element::F16));
        assert_eq!(outputs, ["logits"]);
        assert!(inputs.iter().any(|name| name == "Wh"));
    }

    #[test]
    fn an_attention_has_the_weights_of_its_half() {
        let decoder = decoder();
        for (norm, residual) in [(false, false), (true, false), (false, true), (true, true)] {
            let (mut inputs, outputs) = ends(&attention(&decoder, rows(2), Element::F16, (norm, residual)));
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
    fn parts_of_a_layer_read_what_other_parts_and_devices_leave() {
        let decoder = Decoder { devices: 2, ..decoder() };
        let parts: [(Part, &str, &str); 4] = [
            (Part::Attend, "A_1", "K_1 V_1 Wqkv_1 X bqkv_1 cs g1_1 gk_1 gq_1"),
            (Part::Project, "Z", "A_1 R Wo_1"),
            (Part::Gate, "Y_1", "Wg_1 Wu_1 X g2_1"),
            (Part::Down, "Z", "R Wd_1 Y_1"),
        ];
        for (part, output, reads) in parts {
            let (mut inputs, outputs) =
                ends(&prompt_part(&decoder, (1, part), 128, 256, Element::F16, false));
            inputs.sort();
            assert_eq!((outputs, inputs.join(" ")), (vec![output.to_owned()], reads.to_owned()));
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
            |decoder: &Decoder| generation(decoder, &Launch::Layers(0..2), rows(3), Element::Bf16).text();
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
