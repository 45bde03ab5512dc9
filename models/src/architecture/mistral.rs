//! Mistral 7B: Llama's layers with a window of attention.

use super::{Architecture, Decoder};
use crate::config::ModelConfig;
use crate::error::Result;

pub(super) const MISTRAL: Architecture = Architecture { name: "MistralForCausalLM", decoder };

pub(super) fn decoder(config: &ModelConfig) -> Result<Decoder> {
    Ok(Decoder::new(config)?.windowed(config))
}
