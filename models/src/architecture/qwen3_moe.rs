//! Qwen3 with experts in place of MLPs.

use super::{Architecture, Decoder, ExpertLayers, qwen3};
use crate::config::ModelConfig;
use crate::error::{Error, Result};

pub(super) const QWEN3_MOE: Architecture = Architecture { name: "Qwen3MoeForCausalLM", decoder };

fn decoder(config: &ModelConfig) -> Result<Decoder> {
    let dense = config.mlp_only_layers.as_ref().is_some_and(|layers| !layers.is_empty());
    if dense || config.decoder_sparse_step.unwrap_or(1) != 1 {
        return Err(Error::Config("layers without experts among others are not supported".into()));
    }
    let counts = (config.experts(), config.num_experts_per_tok);
    // The default of the configuration's class.
    let normalize = config.norm_topk_prob.unwrap_or(false);
    let experts = ExpertLayers::new(counts, normalize, "mlp", ["gate_proj", "up_proj", "down_proj"])?;
    let inner = config.moe_intermediate_size.unwrap_or(config.intermediate_size);
    let dense = qwen3::decoder(&ModelConfig { intermediate_size: inner, ..config.clone() })?;
    Ok(Decoder { experts: Some(experts), ..dense })
}
