//! SmolLM3: Llama's layers, but some do not rotate queries and keys.

use super::{Architecture, Decoder, refuse_bias};
use crate::config::ModelConfig;
use crate::error::{Error, Result};

pub(super) const SMOLLM3: Architecture = Architecture { name: "SmolLM3ForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    refuse_bias(config)?;
    if config.use_sliding_window == Some(true) {
        return Err(Error::Config("windows of SmolLM3 are not supported".into()));
    }
    let decoder = Decoder::new(config)?;
    let rotated: Vec<bool> = match &config.no_rope_layers {
        Some(layers) => {
            decoder.each_layer(layers, "no_rope_layers")?.iter().map(|rotated| *rotated != 0).collect()
        }
        None => {
            let period = config.no_rope_layer_interval.unwrap_or(4).max(1);
            (1..=decoder.layers).map(|layer| !layer.is_multiple_of(period)).collect()
        }
    };
    Ok(Decoder { rotated: rotated.into_iter().map(|rotated| rotated.then_some(0)).collect(), ..decoder })
}
