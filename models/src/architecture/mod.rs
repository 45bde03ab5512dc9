//! Architectures: from a configuration to sizes, names of weights and stages. Each has a file.
//!
//! ```
//! let names: Vec<_> = cusync_models::architecture::ALL.iter().map(|a| a.name).collect();
//! assert!(names.contains(&"LlamaForCausalLM"));
//! ```

mod gemma;
mod granite;
mod llama;
mod mistral;
mod mixtral;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod smollm3;

use std::ops::Range;

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::rotary::Rotary;

/// An architecture.
pub struct Architecture {
    /// Name in `config.json`.
    pub name: &'static str,
    /// Its decoder, for a configuration.
    pub decoder: fn(&ModelConfig) -> Result<Decoder>,
}

/// All architectures.
pub const ALL: &[Architecture] = &[
    llama::LLAMA,
    mistral::MISTRAL,
    mixtral::MIXTRAL,
    qwen2::QWEN2,
    qwen3::QWEN3,
    qwen3_moe::QWEN3_MOE,
    phi3::PHI3,
    gemma::GEMMA,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gemma::GEMMA3_TEXT,
    granite::GRANITE,
    smollm3::SMOLLM3,
];

/// Activations of gates by their names in configurations, and in specs.
const GATES: [(&str, &str); 8] = [
    ("silu", "Silu"),
    ("swish", "Silu"),
    ("gelu", "GeluErf"),
    ("gelu_new", "Gelu"),
    ("gelu_pytorch_tanh", "Gelu"),
    ("quick_gelu", "QuickGelu"),
    ("relu", "Relu"),
    ("relu2", "SquaredRelu"),
];

/// A stack of layers of attention and a gated MLP, with a norm before each, and a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// Elements of a token's hidden state.
    pub width: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Columns of a head.
    pub columns: usize,
    /// Elements of the hidden layer of the MLP, or of an expert.
    pub inner: usize,
    /// Experts of each layer in place of an MLP.
    pub experts: Option<ExpertLayers>,
    /// Tokens that the vocabulary holds.
    pub vocabulary: usize,
    /// Added to the mean of squares of a norm.
    pub epsilon: f64,
    /// Rotations of queries and keys.
    pub rotaries: Vec<Rotary>,
    /// For each layer, the number of its rotation; `None`: queries and keys are not rotated.
    pub rotated: Vec<Option<usize>>,
    /// Largest number of tokens of a sequence.
    pub context: usize,
    /// For each layer, tokens that a token attends to at most, itself included; `None`: all before it.
    pub windows: Vec<Option<usize>>,
    /// Factor on the products of queries and keys; `None`: one over the root of a head's columns.
    pub scale: Option<f64>,
    /// Bound of scores: see `softcap` of an `Attention`.
    pub softcap: Option<f64>,
    /// Activation of the gate, as a spec names it.
    pub gate: &'static str,
    /// Whether queries, keys and values have a bias.
    pub bias: bool,
    /// Whether each head of queries and keys is normalized.
    pub head_norm: bool,
    /// Whether norms multiply by one plus their gain.
    pub one_plus_gain: bool,
    /// Whether the results of attention and MLP are normalized before they are added to the hidden state.
    pub norms_behind: bool,
    /// Whether embedding and head are one matrix.
    pub tied: bool,
    /// Factor on the rows of the embedding, which is rounded to the type of hidden states.
    pub embedding_factor: Option<f32>,
    /// Factor on the results of attention and MLP, applied to the weights that produce them.
    pub residual_factor: f32,
    /// Factor on logits, applied to the gain of the last norm.
    pub logit_factor: f32,
    /// Bound c of logits: they are c tanh(x / c) for the products x of the head.
    pub logit_cap: Option<f64>,
    /// Whether queries, keys and values are one matrix of the checkpoint, and gate and up another.
    pub joined: bool,
    /// Prefix of the names in the checkpoint.
    pub prefix: &'static str,
    /// Devices that each compute `heads`, `kv_heads` and `inner`: see [`Decoder::shard`].
    pub devices: usize,
    /// Number of the device that computes these, from 0.
    pub device: usize,
}

/// The experts of every layer: MLPs that replace one MLP. A router chooses a few of them for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertLayers {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that compute a token.
    pub top_k: usize,
    /// Whether the weights of a token's experts add up to one.
    pub normalize: bool,
    /// The module that holds router and experts, in the checkpoint's names of a layer.
    pub module: &'static str,
    /// Names of gate, up and down.
    pub products: [&'static str; 3],
}

impl ExpertLayers {
    /// Checks the numbers of a configuration.
    fn new(
        (count, top_k): (Option<usize>, Option<usize>),
        normalize: bool,
        module: &'static str,
        products: [&'static str; 3],
    ) -> Result<ExpertLayers> {
        match (count, top_k) {
            (Some(count), Some(top_k)) if top_k > 0 && top_k <= count => {
                Ok(ExpertLayers { count, top_k, normalize, module, products })
            }
            (count, top_k) => {
                let number = |n: Option<usize>| n.map_or("an unknown number".into(), |n| n.to_string());
                let (top_k, count) = (number(top_k), number(count));
                Err(Error::Config(format!("each token chooses {top_k} of {count} experts")))
            }
        }
    }
}

/// A block of a matrix of the checkpoint, which is stored as (N, K): one row per output element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Name in the checkpoint.
    pub tensor: String,
    /// Shape in the checkpoint; one number for a vector.
    pub shape: Vec<usize>,
    /// First row used.
    pub first: usize,
    /// Number of rows used.
    pub count: usize,
    /// Columns used; a vector has one.
    pub columns: Range<usize>,
}

impl Rows {
    /// A whole tensor.
    pub(crate) fn whole(tensor: impl Into<String>, shape: Vec<usize>) -> Rows {
        let columns = 0..shape.get(1).copied().unwrap_or(1);
        Rows { tensor: tensor.into(), count: shape[0], shape, first: 0, columns }
    }
}

/// A tensor of a page and the blocks of the checkpoint that it is made of, one after the other. Matrices are
/// transposed, unless the page has the checkpoint's rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Name in the page.
    pub name: String,
    /// Its rows in the checkpoint.
    pub rows: Vec<Rows>,
    /// Elements load as `(x + added) * factor`.
    pub added: f32,
    /// See `added`.
    pub factor: f32,
    /// Whether the page has the checkpoint's rows.
    pub as_rows: bool,
}

impl Weight {
    /// Rows as the checkpoint has them.
    pub(crate) fn new(name: impl Into<String>, rows: Vec<Rows>) -> Weight {
        Weight { name: name.into(), rows, added: 0.0, factor: 1.0, as_rows: false }
    }
}

impl Decoder {
    /// The decoder that most architectures start from.
    ///
    /// # Errors
    /// The configuration asks for something that the layers cannot compute.
    pub fn new(config: &ModelConfig) -> Result<Decoder> {
        let refused = |text: String| Err(Error::Config(text));
        let act = config.hidden_act.as_deref().unwrap_or("silu");
        let Some((_, gate)) = GATES.iter().find(|(name, _)| *name == act) else {
            let known = GATES.map(|(name, _)| name).join(", ");
            return refused(format!(
                "the gate's activation {act} is not supported\n  help: there are {known}"
            ));
        };
        if config.mlp_bias {
            return refused("a bias in the MLP is not supported".into());
        }
        let heads = config.num_attention_heads;
        let kv_heads = config.num_key_value_heads.unwrap_or(heads);
        if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return refused(format!(
                "{heads} query heads do not share {kv_heads} heads of keys and values evenly"
            ));
        }
        let columns = config.head_dim.unwrap_or(config.hidden_size / heads);
        if columns == 0 || !columns.is_multiple_of(2) {
            return refused(format!("heads of {columns} columns cannot be rotated in pairs"));
        }
        let sizes = [
            ("hidden_size", config.hidden_size),
            ("intermediate_size", config.intermediate_size),
            ("heads times columns", heads * columns),
            ("key and value heads times columns", kv_heads * columns),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size == 0 || size % 8 != 0) {
            return refused(format!("{name} is {size}, which is not a multiple of 8"));
        }
        if config.num_hidden_layers == 0 || config.vocab_size == 0 {
            return refused("a model has at least one layer and one token".into());
        }
        Ok(Decoder {
            width: config.hidden_size,
            layers: config.num_hidden_layers,
            heads,
            kv_heads,
            columns,
            inner: config.intermediate_size,
            experts: None,
            vocabulary: config.vocab_size,
            epsilon: config.rms_norm_eps,
            rotaries: vec![Rotary::new(config, columns)?],
            rotated: vec![Some(0); config.num_hidden_layers],
            context: config.max_position_embeddings,
            windows: vec![None; config.num_hidden_layers],
            scale: None,
            softcap: None,
            gate,
            bias: config.attention_bias,
            head_norm: false,
            one_plus_gain: false,
            norms_behind: false,
            tied: config.tie_word_embeddings.unwrap_or(false),
            embedding_factor: None,
            residual_factor: 1.0,
            logit_factor: 1.0,
            logit_cap: None,
            joined: false,
            prefix: "model.",
            devices: 1,
            device: 0,
        })
    }

    /// With the window of the configuration, which all layers have.
    pub fn windowed(self, config: &ModelConfig) -> Decoder {
        Decoder { windows: vec![config.sliding_window; self.layers], ..self }
    }

    /// For a window that only some layers have. One that is at least as long as every sequence has no effect, so
    /// sequences are limited to its length.
    pub fn within_window(self, config: &ModelConfig) -> Decoder {
        let window = config.sliding_window.filter(|_| config.use_sliding_window != Some(false));
        Decoder { context: window.map_or(self.context, |w| w.min(self.context)), ..self }
    }

    /// Name of the table of a layer's rotation in the pages of [`crate::page`].
    pub fn angles(&self, layer: usize) -> Option<String> {
        self.rotated[layer].map(table_name)
    }

    /// The tables of all rotations, by their names: see [`Rotary::table`].
    pub fn tables(&self, positions: usize, context: usize) -> Vec<(String, Vec<f32>)> {
        let numbered = self.rotaries.iter().enumerate();
        numbered.map(|(number, rotary)| (table_name(number), rotary.table(positions, context))).collect()
    }

    /// Columns of queries, keys and values.
    pub fn qkv(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.columns
    }

    /// Columns of the head: the vocabulary, rounded up to the granule of 8 elements.
    pub fn logits(&self) -> usize {
        self.vocabulary.next_multiple_of(8)
    }

    /// Name of the embedding in the checkpoint.
    pub fn embedding(&self) -> Rows {
        Rows::whole(format!("{}embed_tokens.weight", self.prefix), vec![self.vocabulary, self.width])
    }

    /// Weights of a layer, by their names in the page of [`crate::page`]: all of them, or the part of this device.
    pub fn layer_weights(&self, layer: usize) -> Vec<Weight> {
        let name = |tensor: &str| format!("{}layers.{layer}.{tensor}", self.prefix);
        let whole = |tensor: &str, n: usize| Rows::whole(name(tensor), vec![n]);
        // The devices divide the rows of a tensor, or of a part of one that joins several. `first`, `n` and `all` are
        // shares of a device: rows before the part, rows of the part and rows of the tensor.
        let rows = |tensor: &str, (first, n, all): (usize, usize, usize), k: Option<usize>| {
            let shape = [Some(all * self.devices), k].into_iter().flatten().collect();
            let first = first * self.devices + self.device * n;
            Rows { first, count: n, ..Rows::whole(name(tensor), shape) }
        };
        // They divide the columns of a matrix whose products are summed.
        let columns = |tensor: &str, k: usize| {
            let columns = self.device * k..(self.device + 1) * k;
            Rows { columns, ..Rows::whole(name(tensor), vec![self.width, k * self.devices]) }
        };
        let (e, i) = (self.width, self.inner);
        let (q, kv) = (self.heads * self.columns, self.kv_heads * self.columns);
        let all = self.qkv();
        let attention = [("q", 0, q), ("k", q, kv), ("v", q + kv, kv)];
        let qkv = attention.map(|(p, first, n)| match self.joined {
            true => rows("self_attn.qkv_proj.weight", (first, n, all), Some(e)),
            false => rows(&format!("self_attn.{p}_proj.weight"), (0, n, n), Some(e)),
        });
        // Values are not rotated, so their columns keep their order.
        let in_order = |[q, k, v]: [Rows; 3]| {
            let rotated = [q, k].into_iter().flat_map(|rows| self.in_order(layer, rows));
            rotated.chain([v]).collect::<Vec<Rows>>()
        };
        let [gate, up] = [("gate", 0), ("up", i)].map(|(p, first)| match self.joined {
            true => rows("mlp.gate_up_proj.weight", (first, i, 2 * i), Some(e)),
            false => rows(&format!("mlp.{p}_proj.weight"), (0, i, i), Some(e)),
        });
        // A norm behind attention has the name of the one before the MLP in other architectures.
        let before_mlp = match self.norms_behind {
            true => "pre_feedforward_layernorm.weight",
            false => "post_attention_layernorm.weight",
        };
        let mut weights = vec![
            ("g1", vec![whole("input_layernorm.weight", e)]),
            ("Wqkv", in_order(qkv)),
            ("Wo", vec![columns("self_attn.o_proj.weight", q)]),
            ("g2", vec![whole(before_mlp, e)]),
        ];
        match &self.experts {
            None => weights.extend([
                ("Wg", vec![gate]),
                ("Wu", vec![up]),
                ("Wd", vec![columns("mlp.down_proj.weight", i)]),
            ]),
            Some(ExpertLayers { count, module, products, .. }) => {
                let all = |product: &str, shape: [usize; 2]| {
                    let one = |n| name(&format!("{module}.experts.{n}.{product}.weight"));
                    (0..*count).map(|n| Rows::whole(one(n), shape.to_vec())).collect()
                };
                let [gate, up, down] = products;
                weights.extend([
                    ("Wr", vec![Rows::whole(name(&format!("{module}.gate.weight")), vec![*count, e])]),
                    ("Wg", all(gate, [i, e])),
                    ("Wu", all(up, [i, e])),
                    ("Wd", all(down, [e, i])),
                ]);
            }
        }
        if self.bias {
            let biases =
                attention.map(|(p, _, n)| rows(&format!("self_attn.{p}_proj.bias"), (0, n, n), None));
            weights.push(("bqkv", in_order(biases)));
        }
        if self.head_norm {
            let gain =
                |p: &str| self.in_order(layer, whole(&format!("self_attn.{p}_norm.weight"), self.columns));
            weights.extend([("gq", gain("q")), ("gk", gain("k"))]);
        }
        if self.norms_behind {
            weights.push(("p1", vec![whole("post_attention_layernorm.weight", e)]));
            weights.push(("p2", vec![whole("post_feedforward_layernorm.weight", e)]));
        }
        let named = |(name, rows): (&str, _)| Weight {
            // Products are multiplied by the gains of their norms; other norms add one themselves.
            added: if name.starts_with('g') { self.one() } else { 0.0 },
            factor: if ["Wo", "Wd"].contains(&name) { self.residual_factor } else { 1.0 },
            as_rows: self.experts.is_some() && ["Wg", "Wu", "Wd"].contains(&name),
            ..Weight::new(format!("{name}_{layer}"), rows)
        };
        weights.into_iter().map(named).collect()
    }

    /// A list of a configuration with an entry for each layer.
    fn each_layer<'a, T>(&self, list: &'a [T], name: &str) -> Result<&'a [T]> {
        let (have, want) = (list.len(), self.layers);
        let fault = || Error::Config(format!("{name} has {have} entries for {want} layers"));
        Some(list).filter(|_| have == want).ok_or_else(fault)
    }

    /// Rows of whole heads in the order in which a layer rotates their columns.
    fn in_order(&self, layer: usize, rows: Rows) -> Vec<Rows> {
        let rotary = self.rotated[layer].map(|number| &self.rotaries[number]);
        let Some(rotary) = rotary.filter(|rotary| !rotary.is_whole()) else {
            return vec![rows];
        };
        let order = rotary.order();
        let heads = (0..rows.count / self.columns).map(|head| rows.first + head * self.columns);
        let range = |first: usize, columns: &Range<usize>| Rows {
            first: first + columns.start,
            count: columns.len(),
            ..rows.clone()
        };
        heads.flat_map(|first| order.iter().map(move |columns| range(first, columns))).collect()
    }

    /// Added to the gains of norms.
    fn one(&self) -> f32 {
        f32::from(u8::from(self.one_plus_gain))
    }

    /// Weights of the last norm and the head.
    pub fn head_weights(&self) -> Vec<Weight> {
        let head = match self.tied {
            true => self.embedding(),
            false => Rows::whole("lm_head.weight", vec![self.vocabulary, self.width]),
        };
        let gain = Rows::whole(format!("{}norm.weight", self.prefix), vec![self.width]);
        // The page computes tanh(x / c): its gain divides by c.
        let factor = self.logit_factor * self.logit_cap.map_or(1.0, |cap| 1.0 / cap) as f32;
        vec![
            Weight { added: self.one(), factor, ..Weight::new("gf", vec![gain]) },
            Weight::new("Wh", vec![head]),
        ]
    }
}

/// Refuses a bias of attention, which would also be added to its output.
fn refuse_bias(config: &ModelConfig) -> Result<()> {
    match config.attention_bias {
        true => Err(Error::Config("a bias of attention's output is not supported".into())),
        false => Ok(()),
    }
}

/// Name of a rotation's table in pages.
fn table_name(number: usize) -> String {
    if number == 0 { "cs".into() } else { format!("cs{number}") }
}

/// The decoder of a configuration.
///
/// # Errors
/// The architecture is unknown, or the configuration asks for something that the layers cannot compute.
pub fn decoder(config: &ModelConfig) -> Result<Decoder> {
    let found = config.architectures.first().cloned().unwrap_or_else(|| "(none)".into());
    let Some(architecture) = ALL.iter().find(|a| a.name == found) else {
        let known = ALL.iter().map(|a| a.name).collect::<Vec<_>>().join(", ");
        return Err(Error::Architecture { found, known });
    };
    (architecture.decoder)(config)
}
