//! Mixtral: Mistral's layers with experts in place of MLPs.

use super::{Architecture, Decoder, ExpertLayers, mistral};
use crate::config::ModelConfig;
use crate::error::Result;

pub(super) const MIXTRAL: Architecture = Architecture { name: "MixtralForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    let counts = (config.experts(), config.num_experts_per_tok);
    let experts = ExpertLayers::new(counts, true, "block_sparse_moe", ["w1", "w3", "w2"])?;
    Ok(Decoder { experts: Some(experts), ..mistral::decoder(config)? })
}
