//! Gemma 2: norms before and behind attention and MLP, bounded scores and logits, and a window on every other layer.

use super::{Architecture, Decoder};
use crate::config::ModelConfig;
use crate::error::{Error, Result};

pub(super) const GEMMA2: Architecture = Architecture { name: "Gemma2ForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
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
    let decoder = Decoder::new(&stated)?;
    let window = Some(config.sliding_window.unwrap_or(4096));
    let windows = match &config.layer_types {
        None => (0..decoder.layers).map(|layer| window.filter(|_| layer.is_multiple_of(2))).collect(),
        Some(types) if types.len() == decoder.layers => {
            let kind = |kind: &String| match kind.as_str() {
                "sliding_attention" => Ok(window),
                "full_attention" => Ok(None),
                other => Err(Error::Config(format!(
                    "layer_types has {other}\n  help: layers have sliding_attention or full_attention"
                ))),
            };
            types.iter().map(kind).collect::<Result<_>>()?
        }
        Some(types) => {
            let (have, want) = (types.len(), decoder.layers);
            return Err(Error::Config(format!("layer_types has {have} entries for {want} layers")));
        }
    };
    Ok(Decoder {
        windows,
        tied: config.tie_word_embeddings.unwrap_or(true),
        embedding_factor: Some((config.hidden_size as f32).sqrt()),
        one_plus_gain: true,
        norms_behind: true,
        scale: Some(
            positive(config.query_pre_attn_scalar.unwrap_or(256.0), "query_pre_attn_scalar")?.powf(-0.5),
        ),
        softcap: cap(config.attn_logit_softcapping, 50.0, "attn_logit_softcapping")?,
        logit_cap: cap(config.final_logit_softcapping, 30.0, "final_logit_softcapping")?,
        ..decoder
    })
}

/// The configured cap; `null` disables it, and an absent one means the default.
fn cap(stated: Option<Option<f64>>, usual: f64, name: &str) -> Result<Option<f64>> {
    stated.unwrap_or(Some(usual)).map(|cap| positive(cap, name)).transpose()
}

fn positive(value: f64, name: &str) -> Result<f64> {
    let fault = || Error::Config(format!("{name} is {value}\n  help: it is a positive number"));
    Some(value).filter(|value| value.is_finite() && *value > 0.0).ok_or_else(fault)
}
