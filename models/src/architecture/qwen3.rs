//! Qwen3: Llama's layers with a norm on each head of queries and keys.

use super::{Architecture, Decoder, refuse_bias};
use crate::config::ModelConfig;
use crate::error::Result;

pub(super) const QWEN3: Architecture = Architecture { name: "Qwen3ForCausalLM", decoder };

pub(super) fn decoder(config: &ModelConfig) -> Result<Decoder> {
    refuse_bias(config)?;
    // As for Qwen2, only `use_sliding_window` puts a window to use.
    let windowed =
        ModelConfig { use_sliding_window: config.use_sliding_window.or(Some(false)), ..config.clone() };
    Ok(Decoder { head_norm: true, ..Decoder::new(config)? }.within_window(&windowed))
}
