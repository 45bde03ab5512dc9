//! Stages of a layer, for steps and for prompts.

use cusync::Stage;

use crate::architecture::Decoder;

/// An attention with the scores of a layer: its window, if sequences of up to `tokens` tokens are longer, and its scale
/// and softcap, where stated.
pub(super) fn scored(attend: Stage, decoder: &Decoder, layer: usize, tokens: usize) -> Stage {
    let window = decoder.windows[layer].filter(|window| *window < tokens).map(|window| window.to_string());
    // RON reads 50 as an integer, so print 50.0.
    let number = |value: f64| format!("{value:?}");
    let fields =
        [("window", window), ("scale", decoder.scale.map(number)), ("softcap", decoder.softcap.map(number))];
    let stated = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    stated.fold(attend, |attend, (name, value)| attend.word(name, value))
}

/// A product that normalizes its rows first.
pub(super) fn normed(product: Stage, gain: &str, epsilon: f64) -> Stage {
    product.word("input_norm", format!("InputNorm(gain: {gain:?}, epsilon: {epsilon:e})"))
}

/// What a layer computes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerPass {
    /// The next token of each sequence.
    Step,
    /// The first tokens of a sequence, or the next ones of a sequence that continues.
    Prompt { continues: bool },
}

/// Name of a tensor of a layer, with a row for each of `t` tokens.
pub(super) fn tensor(layer: usize, t: &str, name: &str, cols: &str) -> String {
    format!("{name}_{layer}({t},{cols})")
}

/// Name of a weight of a layer.
pub(super) fn weight(layer: usize, name: &str, shape: &str) -> String {
    format!("{name}_{layer}({shape})")
}

const QKV: &str = "(HQ+2*HKV)*D";

/// A stage that knows the heads of queries, keys and values.
fn heads(stage: Stage) -> Stage {
    stage.text("heads", "HQ").text("kv_heads", "HKV")
}

/// Heads are normalized where they are rotated.
pub(super) fn with_head_norm(decoder: &Decoder, layer: usize, stage: Stage) -> Stage {
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
pub(super) fn qkv_product(decoder: &Decoder, layer: usize, t: &str, a: &str, phase: LayerPass) -> Stage {
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
pub(super) fn attended(layer: usize, t: &str, attend: Stage) -> Stage {
    let (rows, a) = (tensor(layer, t, "QKV", QKV), tensor(layer, t, "A", "HQ*D"));
    heads(attend).text("qkv", &rows).text("out", &a)
}

/// The product behind an attention.
pub(super) fn projection(layer: usize, t: &str, out: &str) -> Stage {
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
pub(super) fn block(
    decoder: &Decoder,
    layer: usize,
    t: &str,
    x: &str,
    z: &str,
    phase: LayerPass,
    attend: Stage,
) -> Vec<Stage> {
    let h = tensor(layer, t, "H", "E");
    let mut stages = attention_stages(decoder, layer, t, x, phase, attend);
    stages.extend(added(decoder, (layer, 1), t, &|out| projection(layer, t, out), [x, &h]));
    stages.extend(mlp(decoder, layer, t, [&h, z], phase));
    stages
}

/// A layer's norm, product of queries, keys and values, and attention.
pub(super) fn attention_stages(
    decoder: &Decoder,
    layer: usize,
    t: &str,
    x: &str,
    phase: LayerPass,
    attend: Stage,
) -> Vec<Stage> {
    let mut stages =
        behind_norm(decoder, (layer, 1), t, (x, phase), &|a| qkv_product(decoder, layer, t, a, phase));
    let attend = if phase == LayerPass::Step { with_head_norm(decoder, layer, attend) } else { attend };
    stages.push(attended(layer, t, attend));
    stages
}

/// A layer's norm in front of its MLP, and the MLP's hidden layer.
pub(super) fn gate_stages(decoder: &Decoder, layer: usize, t: &str, h: &str, phase: LayerPass) -> Vec<Stage> {
    behind_norm(decoder, (layer, 2), t, (h, phase), &|a| {
        let (gate, up) = (weight(layer, "Wg", "E,I"), weight(layer, "Wu", "E,I"));
        let y = tensor(layer, t, "Y", "I");
        let gated = Stage::gated_gemm(&format!("gate_up_{layer}"), a, &gate, &up, &y);
        gated.word("activation", decoder.gate)
    })
}

/// The product behind an MLP's hidden layer.
pub(super) fn down_product(layer: usize, t: &str, out: &str) -> Stage {
    let (y, b) = (tensor(layer, t, "Y", "I"), weight(layer, "Wd", "I,E"));
    Stage::gemm(&format!("down_{layer}"), &y, &b, out)
}

/// The MLP or the experts of a layer, with norms and residual.
fn mlp(decoder: &Decoder, layer: usize, t: &str, [h, z]: [&str; 2], phase: LayerPass) -> Vec<Stage> {
    if decoder.experts.is_some() {
        let norm = norm_before_experts(decoder, layer, t, h);
        let router = router(layer, t, &tensor(layer, t, "N2", "E"));
        return vec![norm, router, experts(decoder, layer, t, z)];
    }
    let mut stages = gate_stages(decoder, layer, t, h, phase);
    stages.extend(added(decoder, (layer, 2), t, &|out| down_product(layer, t, out), [h, z]));
    stages
}

/// The norm in front of experts, which read its rows.
pub(super) fn norm_before_experts(decoder: &Decoder, layer: usize, t: &str, h: &str) -> Stage {
    let tensors = [h, &weight(layer, "g2", "E"), &tensor(layer, t, "N2", "E")];
    rms_norm(&format!("norm2_{layer}"), tensors, decoder.epsilon)
}

/// The scores of a layer's experts, from rows `a`.
pub(super) fn router(layer: usize, t: &str, a: &str) -> Stage {
    let (weights, scores) = (weight(layer, "Wr", "E,NE"), tensor(layer, t, "S", "NE"));
    Stage::gemm(&format!("router_{layer}"), a, &weights, &scores)
}

/// The experts of a layer, behind norm and router, to hidden states `z`.
pub(super) fn experts(decoder: &Decoder, layer: usize, t: &str, z: &str) -> Stage {
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
