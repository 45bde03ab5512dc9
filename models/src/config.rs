//! `config.json` of a checkpoint, as far as the architectures read it.

use std::path::Path;

use cusync::codegen::graph::Element;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The fields that some architecture reads; others are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct ModelConfig {
    /// Names of the classes that can hold the weights; the first one counts.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Elements of a token's hidden state.
    pub hidden_size: usize,
    /// Elements of the hidden layer of the MLP.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Heads of keys and values; default: as many as query heads.
    pub num_key_value_heads: Option<usize>,
    /// Columns of a head; default: an even share of the hidden state.
    pub head_dim: Option<usize>,
    /// Tokens that the vocabulary holds.
    pub vocab_size: usize,
    /// Added to the mean of squares before the root.
    pub rms_norm_eps: f64,
    /// Activation of the gate.
    pub hidden_act: Option<String>,
    /// Gemma's name for the activation; some of its checkpoints also state another one as `hidden_act`.
    pub hidden_activation: Option<String>,
    /// Positions that the model was trained for.
    pub max_position_embeddings: usize,
    /// Base of the rotation's frequencies.
    pub rope_theta: Option<f64>,
    /// Scaling of the frequencies.
    pub rope_scaling: Option<Rope>,
    /// Both of the above, in newer checkpoints.
    pub rope_parameters: Option<Ropes>,
    /// Base of the frequencies in layers with a window.
    pub rope_local_base_freq: Option<f64>,
    /// Share of a head that is rotated.
    pub partial_rotary_factor: Option<f64>,
    /// Positions before scaling, outside `rope_scaling`.
    pub original_max_position_embeddings: Option<f64>,
    /// Layers whose heads are rotated (1) or not (0).
    pub no_rope_layers: Option<Vec<u8>>,
    /// Without that list, every layer of this number is not rotated.
    pub no_rope_layer_interval: Option<usize>,
    /// Whether embedding and head are one matrix.
    pub tie_word_embeddings: Option<bool>,
    /// Whether the projections of attention add a bias.
    #[serde(default)]
    pub attention_bias: bool,
    /// Whether the products of the MLP add a bias.
    #[serde(default)]
    pub mlp_bias: bool,
    /// Experts of a layer.
    pub num_experts: Option<usize>,
    /// The same in other configurations.
    pub num_local_experts: Option<usize>,
    /// Experts that compute a token.
    pub num_experts_per_tok: Option<usize>,
    /// Elements of the hidden layer of an expert, if it differs from that of an MLP.
    pub moe_intermediate_size: Option<usize>,
    /// Whether the weights of a token's experts add up to one.
    pub norm_topk_prob: Option<bool>,
    /// One layer in so many has experts.
    pub decoder_sparse_step: Option<usize>,
    /// Layers without experts.
    pub mlp_only_layers: Option<Vec<usize>>,
    /// Tokens that a token attends to at most.
    pub sliding_window: Option<usize>,
    /// Whether the window is in use.
    pub use_sliding_window: Option<bool>,
    /// Whether a token also attends to those behind it.
    pub use_bidirectional_attention: Option<bool>,
    /// Kind of each layer's attention: `full_attention` or `sliding_attention`.
    pub layer_types: Option<Vec<String>>,
    /// Without `layer_types`, every layer of this number has no window.
    pub sliding_window_pattern: Option<usize>,
    /// Scores are divided by its root; default: by that of a head's columns.
    pub query_pre_attn_scalar: Option<f64>,
    /// Factor on the rows of the embedding.
    pub embedding_multiplier: Option<f64>,
    /// Factor on the products of queries and keys.
    pub attention_multiplier: Option<f64>,
    /// Factor on the results of attention and MLP.
    pub residual_multiplier: Option<f64>,
    /// Logits are divided by it.
    pub logits_scaling: Option<f64>,
    /// Bound of scores; `null` for none.
    #[serde(default, deserialize_with = "present")]
    pub attn_logit_softcapping: Option<Option<f64>>,
    /// Bound of logits; `null` for none.
    #[serde(default, deserialize_with = "present")]
    pub final_logit_softcapping: Option<Option<f64>>,
    /// Type of the weights.
    #[serde(alias = "torch_dtype")]
    pub dtype: Option<String>,
    /// Tokens that end a text.
    pub eos_token_id: Option<Tokens>,
    /// Token that begins a text.
    pub bos_token_id: Option<u32>,
}

/// Parses a configuration. Models with images nest the part for text in `text_config`.
fn parsed(text: &str) -> serde_json::Result<ModelConfig> {
    let mut whole: Map<String, Value> = serde_json::from_str(text)?;
    let Some(Value::Object(inner)) = whole.remove("text_config") else {
        return serde_json::from_value(Value::Object(whole));
    };
    // Configurations of Gemma 3 leave out fields that have these defaults.
    let mut fields: Map<String, Value> = serde_json::from_str(
        r#"{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131072}"#,
    )?;
    let outer = |name: &str| ["architectures", "dtype", "torch_dtype"].contains(&name);
    fields.extend(inner.into_iter().filter(|(name, _)| !outer(name)));
    let more = whole.into_iter().filter(|(name, _)| outer(name) || name.ends_with("token_id"));
    fields.extend(more);
    serde_json::from_value(Value::Object(fields))
}

/// Distinguishes an explicit `null` from an absent field.
fn present<'de, D: Deserializer<'de>>(field: D) -> std::result::Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// Frequencies of the rotation: of all layers, or of layers with and without a window.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Ropes {
    /// One for each kind of layer.
    Kinds {
        /// For layers without a window.
        full_attention: Box<Rope>,
        /// For layers with a window.
        sliding_attention: Box<Rope>,
    },
    /// One for all layers.
    All(Box<Rope>),
}

/// Frequencies of the rotation.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Rope {
    /// Kind of the scaling.
    #[serde(alias = "type", default)]
    pub rope_type: Option<String>,
    /// Base.
    pub rope_theta: Option<f64>,
    /// Factor of the scaling.
    pub factor: Option<f64>,
    /// `llama3` stretches wavelengths beyond `original / low` by the factor.
    pub low_freq_factor: Option<f64>,
    /// `llama3` keeps wavelengths below `original / high`.
    pub high_freq_factor: Option<f64>,
    /// Positions before the scaling.
    pub original_max_position_embeddings: Option<f64>,
    /// Factor on cosines and sines; `yarn` and `longrope` have a default.
    pub attention_factor: Option<f64>,
    /// `yarn` keeps frequencies that turn more often than this within the original positions.
    pub beta_fast: Option<f64>,
    /// `yarn` stretches those that turn less often than this.
    pub beta_slow: Option<f64>,
    /// `yarn` widens the range between them to whole pairs, unless this is false.
    pub truncate: Option<bool>,
    /// Factor on the logarithm in the default of `attention_factor`.
    pub mscale: Option<f64>,
    /// The same for a second term, by which the first is divided.
    pub mscale_all_dim: Option<f64>,
    /// `longrope` divides each frequency by one of these for sequences of up to the original positions.
    pub short_factor: Option<Vec<f64>>,
    /// The same for longer sequences.
    pub long_factor: Option<Vec<f64>>,
    /// Share of a head that is rotated.
    pub partial_rotary_factor: Option<f64>,
}

/// One token or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Tokens {
    /// One.
    One(u32),
    /// Several.
    Many(Vec<u32>),
}

impl Tokens {
    /// All of them.
    pub fn list(&self) -> Vec<u32> {
        match self {
            Tokens::One(token) => vec![*token],
            Tokens::Many(tokens) => tokens.clone(),
        }
    }
}

impl ModelConfig {
    /// The configuration that the text of a `config.json` states.
    ///
    /// # Errors
    /// It is not JSON, or lacks a field.
    pub fn from_json(text: &str) -> Result<ModelConfig> {
        parsed(text).map_err(|error| Error::Config(error.to_string()))
    }

    /// Reads `config.json` in a folder. Tokens that end a text also come from `generation_config.json`, which
    /// lists more of them in models for chats.
    ///
    /// # Errors
    /// The file is missing, is not JSON, or lacks a field.
    pub fn read(folder: &Path) -> Result<ModelConfig> {
        let path = folder.join("config.json");
        let failed = |reason: String| Error::File { path: path.clone(), reason };
        let text = std::fs::read_to_string(&path).map_err(|e| {
            failed(format!("{e}\n  help: give the folder of a Hugging Face checkpoint, with config.json"))
        })?;
        let mut config = parsed(&text).map_err(|e| failed(e.to_string()))?;
        #[derive(Deserialize)]
        struct Generation {
            eos_token_id: Option<Tokens>,
        }
        let generation = std::fs::read_to_string(folder.join("generation_config.json")).ok();
        if let Some(more) = generation.and_then(|text| serde_json::from_str::<Generation>(&text).ok()) {
            config.eos_token_id = more.eos_token_id.or(config.eos_token_id);
        }
        Ok(config)
    }

    /// Frequencies of layers without a window, with the fields that older checkpoints keep elsewhere.
    pub(crate) fn rope(&self) -> Rope {
        let stated = match &self.rope_parameters {
            Some(Ropes::Kinds { full_attention, .. }) => Some(&**full_attention),
            Some(Ropes::All(rope)) => Some(&**rope),
            None => self.rope_scaling.as_ref(),
        };
        let rope = stated.cloned().unwrap_or_default();
        // Phi-3 states the original positions twice, and those outside count.
        let original = self.original_max_position_embeddings.or(rope.original_max_position_embeddings);
        Rope {
            rope_theta: rope.rope_theta.or(self.rope_theta),
            partial_rotary_factor: rope.partial_rotary_factor.or(self.partial_rotary_factor),
            original_max_position_embeddings: original,
            ..rope
        }
    }

    /// Frequencies of layers with a window, if they are stated apart.
    pub(crate) fn local_rope(&self) -> Option<Rope> {
        match &self.rope_parameters {
            Some(Ropes::Kinds { sliding_attention, .. }) => Some((**sliding_attention).clone()),
            _ => self.rope_local_base_freq.map(|base| Rope { rope_theta: Some(base), ..Rope::default() }),
        }
    }

    /// Experts of a layer.
    pub(crate) fn experts(&self) -> Option<usize> {
        self.num_experts.or(self.num_local_experts)
    }

    /// Element type of the weights. Float32 checkpoints are rounded to bf16, which has their range.
    ///
    /// # Errors
    /// Another type.
    pub fn element(&self) -> Result<Element> {
        match self.dtype.as_deref() {
            Some("float16") => Ok(Element::F16),
            Some("bfloat16" | "float32") | None => Ok(Element::Bf16),
            Some(other) => Err(Error::Config(format!(
                "dtype {other} is not supported\n  help: float16, bfloat16 and float32 are"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture;

    #[test]
    fn the_text_of_a_model_with_images_is_configured_apart() {
        let text = r#"{"architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16",
            "eos_token_id": [1, 106], "vision_config": {"hidden_size": 1152},
            "text_config": {"architectures": ["Gemma3ForCausalLM"], "dtype": "float32", "hidden_size": 2560,
                "intermediate_size": 10240, "num_hidden_layers": 12, "sliding_window": 1024,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}"#;
        let config = ModelConfig::from_json(text).expect("valid");
        assert_eq!((config.element().expect("known"), config.hidden_size), (Element::Bf16, 2560));
        assert_eq!(config.eos_token_id.as_ref().map(Tokens::list), Some(vec![1, 106]));
        let decoder = architecture::decoder(&config).expect("supported");
        assert_eq!(
            (decoder.heads, decoder.kv_heads, decoder.columns, decoder.vocabulary),
            (8, 4, 256, 262_208)
        );
        assert_eq!(decoder.embedding().tensor, "language_model.model.embed_tokens.weight");
        // Layers 5 and 11 have no window, and turn by the scaled frequencies.
        let full: Vec<usize> = (0..12).filter(|layer| decoder.windows[*layer].is_none()).collect();
        assert_eq!(full, [5, 11]);
        assert_eq!((decoder.angles(5), decoder.angles(0)), (Some("cs".into()), Some("cs1".into())));
        let tables = decoder.tables(2, 2);
        let turn = |name: &str| tables.iter().find(|(n, _)| n == name).map(|(_, table)| table[256 + 128]);
        assert_eq!((turn("cs"), turn("cs1")), (Some((0.125f64).sin() as f32), Some(1f64.sin() as f32)));
    }
}
