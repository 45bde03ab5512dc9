//! A small random checkpoint, to try everything without a download.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! cusync_models::tiny::write(folder.path(), "Qwen3ForCausalLM")?;
//! assert!(folder.path().join("model.safetensors").exists());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::path::Path;

use cusync::codegen::graph::Element;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{AddedToken, Tokenizer};

use crate::architecture;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::weights::Weights;

/// Token that ends a text.
const END: u32 = 256;

/// Tokens: one for each byte, and a few special ones.
const VOCABULARY: u32 = 264;

/// Writes a checkpoint with two layers, random weights in bf16 and a tokenizer of bytes. Its text is noise.
///
/// # Errors
/// The architecture is unknown, or a file cannot be written.
pub fn write(folder: &Path, architecture: &str) -> Result<()> {
    let failed = |name: &str, reason: String| Error::File { path: folder.join(name), reason };
    std::fs::create_dir_all(folder)
        .map_err(|e| Error::File { path: folder.to_owned(), reason: e.to_string() })?;
    // Names that transformers has for the architectures, and a padding that its layers of Phi-3 have.
    let kind = match architecture {
        "Qwen3MoeForCausalLM" => "qwen3_moe".to_owned(),
        "Gemma3ForCausalLM" | "Gemma3ForConditionalGeneration" => "gemma3_text".to_owned(),
        other => other.trim_end_matches("ForCausalLM").to_lowercase(),
    };
    let mut config = json!({
        "architectures": [architecture],
        "model_type": kind,
        "pad_token_id": END,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
        "bos_token_id": END,
        "eos_token_id": END,
    });
    if ["qwen3_moe", "mixtral"].contains(&kind.as_str()) {
        config["num_experts"] = 8.into();
        config["num_local_experts"] = 8.into();
        config["num_experts_per_tok"] = 2.into();
        config["moe_intermediate_size"] = 256.into();
        config["norm_topk_prob"] = true.into();
    }
    let more = match kind.as_str() {
        "gemma" => json!({"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true}),
        "gemma2" => json!({
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": true,
            "query_pre_attn_scalar": 48,
            "sliding_window": 8,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        }),
        "gemma3_text" => json!({
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": true,
            "query_pre_attn_scalar": 48,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_local_base_freq": 100.0,
        }),
        "granite" => json!({
            "attention_multiplier": 0.0625,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.375,
            "logits_scaling": 4.0,
        }),
        "smollm3" => json!({"no_rope_layers": [1, 0]}),
        _ => json!({}),
    };
    for (name, value) in more.as_object().into_iter().flatten() {
        config[name] = value.clone();
    }
    let config = serde_json::to_string_pretty(&config).map_err(|e| failed("config.json", e.to_string()))?;
    let parsed: ModelConfig =
        serde_json::from_str(&config).map_err(|e| failed("config.json", e.to_string()))?;
    let decoder = architecture::decoder(&parsed)?;
    std::fs::write(folder.join("config.json"), config + "\n")
        .map_err(|e| failed("config.json", e.to_string()))?;
    let rows =
        (0..decoder.layers).flat_map(|layer| decoder.layer_weights(layer)).chain(decoder.head_weights());
    let mut shapes: HashMap<String, Vec<usize>> =
        rows.flat_map(|weight| weight.rows).map(|rows| (rows.tensor, rows.shape)).collect();
    let embedding = decoder.embedding();
    shapes.insert(embedding.tensor, embedding.shape);
    let values = shapes.into_iter().map(|(name, shape)| {
        let rows = vec![architecture::Rows::whole(&name, shape.clone())];
        let weight = architecture::Weight::new(&name, rows);
        let bits = Weights::Random.read(&weight, shape[0], Element::Bf16)?;
        let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        Ok((name, shape, bytes))
    });
    let values: Vec<(String, Vec<usize>, Vec<u8>)> = values.collect::<Result<_>>()?;
    let name = "model.safetensors";
    let views = values.iter().map(|(name, shape, bytes)| {
        TensorView::new(Dtype::BF16, shape.clone(), bytes).map(|view| (name.as_str(), view))
    });
    let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| failed(name, e.to_string()))?;
    safetensors::serialize_to_file(views, None, &folder.join(name))
        .map_err(|e| failed(name, e.to_string()))?;
    let name = "tokenizer.json";
    tokenizer()
        .and_then(|tokenizer| tokenizer.save(folder.join(name), false))
        .map_err(|e| failed(name, e.to_string()))
}

/// A tokenizer whose tokens are bytes.
fn tokenizer() -> tokenizers::Result<Tokenizer> {
    let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    letters.sort_unstable();
    let vocabulary = letters.into_iter().zip(0..).map(|(letter, token)| (letter.to_string(), token));
    let bytes = BPE::builder().vocab_and_merges(vocabulary.collect::<Vocab>(), vec![]).build()?;
    let mut tokenizer = Tokenizer::new(bytes);
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, false, false)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let special = (END..VOCABULARY).map(|token| match token {
        END => AddedToken::from("<end>", true),
        other => AddedToken::from(format!("<unused{}>", other - END), true),
    });
    tokenizer.add_special_tokens(special)?;
    Ok(tokenizer)
}
