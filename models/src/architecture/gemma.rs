//! Gemma 1 to 3: wide heads, gains that are added to one, and an embedding with a factor. Gemma 2 and 3 have norms
//! behind attention and MLP too, and windows on some layers; Gemma 2 bounds scores and logits, and Gemma 3 normalizes
//! heads and rotates those of layers with windows faster. Of models with images, the part for text.

use super::{Architecture, Decoder};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::rotary::Rotary;

pub(super) const GEMMA: Architecture = Architecture { name: "GemmaForCausalLM", decoder: gemma };
pub(super) const GEMMA2: Architecture = Architecture { name: "Gemma2ForCausalLM", decoder: gemma2 };
pub(super) const GEMMA3: Architecture = Architecture { name: "Gemma3ForCausalLM", decoder: gemma3 };
pub(super) const GEMMA3_TEXT: Architecture = Architecture {
    name: "Gemma3ForConditionalGeneration",
    decoder: |config| Ok(Decoder { prefix: "language_model.model.", ..gemma3(config)? }),
};

fn gemma(config: &ModelConfig) -> Result<Decoder> {
    if config.attention_bias {
        return Err(Error::Config("a bias of queries, keys and values is not supported".into()));
    }
    if config.use_bidirectional_attention == Some(true) {
        return Err(Error::Config("attention to tokens behind a token is not supported".into()));
    }
    // Checkpoints leave out what transformers assumes, such as the matrix that embedding and head share.
    let activation = config.hidden_activation.clone().or_else(|| Some("gelu_pytorch_tanh".into()));
    let columns = config.head_dim.or(Some(256));
    let stated = ModelConfig { hidden_act: activation, head_dim: columns, ..config.clone() };
    Ok(Decoder {
        tied: config.tie_word_embeddings.unwrap_or(true),
        embedding_factor: Some((config.hidden_size as f32).sqrt()),
        one_plus_gain: true,
        ..Decoder::new(&stated)?
    })
}

/// Gemma 1 with what its successors share. `period`: every layer of this number has no window.
fn successor(config: &ModelConfig, period: usize) -> Result<Decoder> {
    let decoder = gemma(config)?;
    let window = Some(config.sliding_window.unwrap_or(4096));
    let windows = match &config.layer_types {
        None => (1..=decoder.layers).map(|layer| window.filter(|_| !layer.is_multiple_of(period))).collect(),
        Some(types) => {
            let kind = |kind: &String| match kind.as_str() {
                "sliding_attention" => Ok(window),
                "full_attention" => Ok(None),
                other => Err(Error::Config(format!(
                    "layer_types has {other}\n  help: layers have sliding_attention or full_attention"
                ))),
            };
            decoder.each_layer(types, "layer_types")?.iter().map(kind).collect::<Result<_>>()?
        }
    };
    let scalar = config.query_pre_attn_scalar.unwrap_or(256.0);
    Ok(Decoder {
        windows,
        norms_behind: true,
        scale: Some(positive(scalar, "query_pre_attn_scalar")?.powf(-0.5)),
        ..decoder
    })
}

fn gemma2(config: &ModelConfig) -> Result<Decoder> {
    Ok(Decoder {
        softcap: cap(config.attn_logit_softcapping, Some(50.0), "attn_logit_softcapping")?,
        logit_cap: cap(config.final_logit_softcapping, Some(30.0), "final_logit_softcapping")?,
        ..successor(config, 2)?
    })
}

fn gemma3(config: &ModelConfig) -> Result<Decoder> {
    let base = config.rope_theta.or(Some(1e6));
    let stated = ModelConfig { rope_theta: base, ..config.clone() };
    let period = config.sliding_window_pattern.unwrap_or(6).max(1);
    let decoder = successor(&stated, period)?;
    let mut local = config.local_rope().unwrap_or_default();
    local.rope_theta = local.rope_theta.or(Some(1e4));
    let local = Rotary::scaled(&local, decoder.columns, config.max_position_embeddings)?;
    Ok(Decoder {
        rotaries: decoder.rotaries.iter().cloned().chain([local]).collect(),
        rotated: decoder.windows.iter().map(|window| Some(usize::from(window.is_some()))).collect(),
        head_norm: true,
        softcap: cap(config.attn_logit_softcapping, None, "attn_logit_softcapping")?,
        logit_cap: cap(config.final_logit_softcapping, None, "final_logit_softcapping")?,
        ..decoder
    })
}

/// The configured cap; `null` disables it, and an absent one means the default.
fn cap(stated: Option<Option<f64>>, usual: Option<f64>, name: &str) -> Result<Option<f64>> {
    stated.unwrap_or(usual).map(|cap| positive(cap, name)).transpose()
}

pub(super) fn positive(value: f64, name: &str) -> Result<f64> {
    let fault = || Error::Config(format!("{name} is {value}\n  help: it is a positive number"));
    Some(value).filter(|value| value.is_finite() && *value > 0.0).ok_or_else(fault)
}
