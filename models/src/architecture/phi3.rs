//! Phi-3 and Phi-4: Llama's layers, with queries, keys and values in one matrix, and gate and up in another. Phi-4-mini
//! rotates a part of each head.

use super::{Architecture, Decoder};
use crate::config::ModelConfig;
use crate::error::Result;

pub(super) const PHI3: Architecture = Architecture { name: "Phi3ForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    Ok(Decoder { joined: true, ..Decoder::new(config)? }.windowed(config))
}
