//! Llama 1 to 3.2, and models with their layers, such as TinyLlama and SmolLM.

use super::{Architecture, Decoder, refuse_bias};
use crate::config::ModelConfig;
use crate::error::Result;

pub(super) const LLAMA: Architecture = Architecture { name: "LlamaForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    refuse_bias(config)?;
    Decoder::new(config)
}
