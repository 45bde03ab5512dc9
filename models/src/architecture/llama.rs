//! Llama 1 to 3.2, and models with their layers, such as TinyLlama and SmolLM.

use super::{Architecture, Decoder};
use crate::config::ModelConfig;
use crate::error::{Error, Result};

pub(super) const LLAMA: Architecture = Architecture { name: "LlamaForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    if config.attention_bias {
        return Err(Error::Config("a bias of attention's output is not supported".into()));
    }
    Decoder::new(config)
}
