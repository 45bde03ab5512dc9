//! Granite 3: Llama's layers with factors on embedding, scores, results of attention and MLP, and logits.

use super::gemma::positive;
use super::{Architecture, Decoder, refuse_bias};
use crate::config::ModelConfig;
use crate::error::Result;

pub(super) const GRANITE: Architecture = Architecture { name: "GraniteForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    refuse_bias(config)?;
    let stated = |value: Option<f64>, name: &str| positive(value.unwrap_or(1.0), name);
    let [embedding, residual, logits] = [
        stated(config.embedding_multiplier, "embedding_multiplier")?,
        stated(config.residual_multiplier, "residual_multiplier")?,
        stated(config.logits_scaling, "logits_scaling")?,
    ]
    .map(|value| value as f32);
    Ok(Decoder {
        embedding_factor: Some(embedding).filter(|factor| *factor != 1.0),
        scale: Some(stated(config.attention_multiplier, "attention_multiplier")?),
        residual_factor: residual,
        logit_factor: 1.0 / logits,
        ..Decoder::new(config)?
    })
}
