//! SmolLM3: Llama's layers, some of which do not rotate queries and keys.

use super::{Architecture, Decoder};
use crate::config::ModelConfig;
use crate::error::{Error, Result};

pub(super) const SMOLLM3: Architecture = Architecture { name: "SmolLM3ForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    if config.attention_bias {
        return Err(Error::Config("a bias of attention's output is not supported".into()));
    }
    if config.use_sliding_window == Some(true) {
        return Err(Error::Config("windows of SmolLM3 are not supported".into()));
    }
    let decoder = Decoder::new(config)?;
    let rotated: Vec<bool> = match &config.no_rope_layers {
        Some(layers) if layers.len() == decoder.layers => {
            layers.iter().map(|rotated| *rotated != 0).collect()
        }
        Some(layers) => {
            let (have, want) = (layers.len(), decoder.layers);
            return Err(Error::Config(format!("no_rope_layers has {have} entries for {want} layers")));
        }
        None => {
            let period = config.no_rope_layer_interval.unwrap_or(4).max(1);
            (1..=decoder.layers).map(|layer| !layer.is_multiple_of(period)).collect()
        }
    };
    Ok(Decoder { rotated: rotated.into_iter().map(|rotated| rotated.then_some(0)).collect(), ..decoder })
}
