//! Qwen2 and Qwen2.5: Llama's layers with a bias on queries, keys and values.

use super::{Architecture, Decoder};
use crate::config::ModelConfig;
use crate::error::Result;

pub(super) const QWEN2: Architecture = Architecture { name: "Qwen2ForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    // Configurations name a window that only `use_sliding_window` puts to use.
    let windowed =
        ModelConfig { use_sliding_window: config.use_sliding_window.or(Some(false)), ..config.clone() };
    Ok(Decoder { bias: true, ..Decoder::new(config)? }.within_window(&windowed))
}
