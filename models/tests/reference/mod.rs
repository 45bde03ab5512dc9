//! A decoder written from its definition in float64, token by token.

use std::collections::HashMap;
use std::path::Path;

use cusync_models::{ModelConfig, Rotary};
use safetensors::SafeTensors;

/// Keys and values of a layer, token by token.
type Cache = (Vec<Vec<f64>>, Vec<Vec<f64>>);

/// Weights by name, in float64.
pub(crate) struct Reference {
    config: ModelConfig,
    weights: HashMap<String, Vec<f64>>,
    /// Prefix of the names of weights.
    prefix: &'static str,
    /// Gains are added to one, and the embedding has a factor.
    gemma: bool,
    /// Norms follow attention and MLP.
    behind: bool,
}

impl Reference {
    pub(crate) fn open(folder: &Path) -> Reference {
        let bytes = std::fs::read(folder.join("model.safetensors")).expect("it was written");
        let file = SafeTensors::deserialize(&bytes).expect("valid");
        let widen = |data: &[u8]| {
            data.chunks_exact(2)
                .map(|b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16)))
                .collect()
        };
        let weights = file.tensors().into_iter().map(|(name, view)| (name, widen(view.data()))).collect();
        let config = ModelConfig::read(folder).expect("valid");
        let name = config.architectures[0].as_str();
        let prefix = if name.ends_with("ConditionalGeneration") { "language_model.model." } else { "model." };
        let (gemma, behind) =
            (name.starts_with("Gemma"), name.starts_with("Gemma") && name != "GemmaForCausalLM");
        Reference { config, weights, prefix, gemma, behind }
    }

    fn weight(&self, layer: usize, name: &str) -> &[f64] {
        &self.weights[&format!("{}layers.{layer}.{name}", self.prefix)]
    }

    fn find(&self, layer: usize, name: &str) -> Option<&Vec<f64>> {
        self.weights.get(&format!("{}layers.{layer}.{name}", self.prefix))
    }

    fn norm(&self, x: &[f64], gain: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + self.config.rms_norm_eps).sqrt();
        let one = f64::from(u8::from(self.gemma));
        x.iter().zip(gain).map(|(v, g)| v * scale * (one + g)).collect()
    }

    /// Logits after each token of a text.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let config = &self.config;
        let e = config.hidden_size;
        let embedding = &self.weights[&format!("{}embed_tokens.weight", self.prefix)];
        // A root that bf16 does not hold would be rounded.
        let factor = match config.embedding_multiplier {
            Some(factor) => factor,
            None => {
                if self.gemma {
                    rounded((e as f64).sqrt())
                } else {
                    1.0
                }
            }
        };
        let tables: Vec<Vec<f32>> =
            (0..config.num_hidden_layers).map(|layer| self.angles(layer, tokens.len())).collect();
        let head = self.weights.get("lm_head.weight").unwrap_or(embedding);
        let mut caches = vec![Cache::default(); config.num_hidden_layers];
        let mut all = Vec::new();
        for (position, token) in tokens.iter().enumerate() {
            let row = &embedding[*token as usize * e..(*token as usize + 1) * e];
            let mut x: Vec<f64> = row.iter().map(|v| v * factor).collect();
            for (layer, cache) in caches.iter_mut().enumerate() {
                let (behind, before) = match self.behind {
                    true => ("post_attention_layernorm", "pre_feedforward_layernorm"),
                    false => ("", "post_attention_layernorm"),
                };
                let n = self.norm(&x, self.weight(layer, "input_layernorm.weight"));
                let width = tables[layer].len() / tokens.len();
                let angles = &tables[layer][position * width..(position + 1) * width];
                let attended = self.attention(layer, &n, angles, cache);
                add(&mut x, &self.behind(layer, behind, attended));
                let n = self.norm(&x, self.weight(layer, &format!("{before}.weight")));
                let made = self.mlp(layer, &n);
                add(&mut x, &self.behind(layer, "post_feedforward_layernorm", made));
            }
            let gain = &self.weights[&format!("{}norm.weight", self.prefix)];
            let logits = product(head, &self.norm(&x, gain));
            let cap = config.final_logit_softcapping.flatten();
            let scaling = config.logits_scaling.unwrap_or(1.0);
            all.push(logits.into_iter().map(|v| capped(v / scaling, cap)).collect());
        }
        all
    }

    /// Cosines and sines of a layer's rotated columns, position by position; none if it rotates nothing.
    fn angles(&self, layer: usize, positions: usize) -> Vec<f32> {
        let config = &self.config;
        if config.no_rope_layers.as_ref().is_some_and(|layers| layers[layer] == 0) {
            return Vec::new();
        }
        let columns = config.head_dim.expect("stated");
        // The rotated columns come first, and rotate like a smaller head.
        let part = config.partial_rotary_factor.unwrap_or(1.0);
        let mut smaller = ModelConfig { partial_rotary_factor: None, ..config.clone() };
        if let Some(base) = config.rope_local_base_freq.filter(|_| self.window(layer).is_some()) {
            smaller = ModelConfig { rope_theta: Some(base), rope_scaling: None, ..smaller };
        }
        let rotary = Rotary::new(&smaller, (columns as f64 * part) as usize).expect("valid");
        rotary.table(positions, positions)
    }

    /// The window of a layer. Gemma has windows on some layers.
    fn window(&self, layer: usize) -> Option<usize> {
        let slides = match &self.config.layer_types {
            Some(types) => types[layer] == "sliding_attention",
            None => !self.gemma || layer.is_multiple_of(2),
        };
        self.config.sliding_window.filter(|_| slides)
    }

    /// Normalized values where a norm follows a block, times the factor of results.
    fn behind(&self, layer: usize, name: &str, values: Vec<f64>) -> Vec<f64> {
        let factor = self.config.residual_multiplier.unwrap_or(1.0);
        match self.find(layer, &format!("{name}.weight")).filter(|_| self.behind) {
            Some(gain) => self.norm(&values, gain),
            None => values.into_iter().map(|value| value * factor).collect(),
        }
    }

    fn qkv(&self, layer: usize, n: &[f64]) -> Vec<f64> {
        if let Some(joined) = self.find(layer, "self_attn.qkv_proj.weight") {
            return product(joined, n);
        }
        let part = |p: &&str| {
            let mut y = product(self.weight(layer, &format!("self_attn.{p}_proj.weight")), n);
            if let Some(bias) = self.find(layer, &format!("self_attn.{p}_proj.bias")) {
                add(&mut y, bias);
            }
            y
        };
        ["q", "k", "v"].iter().flat_map(part).collect()
    }

    fn attention(&self, layer: usize, n: &[f64], angles: &[f32], (keys, values): &mut Cache) -> Vec<f64> {
        let config = &self.config;
        let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads.expect("stated"));
        let columns = config.head_dim.expect("stated");
        let (q, kv) = (heads * columns, kv_heads * columns);
        let qkv = self.qkv(layer, n);
        let normed = |head: &[f64], name: &str| match self.find(layer, &format!("self_attn.{name}.weight")) {
            Some(gain) => self.norm(head, gain),
            None => head.to_vec(),
        };
        let key = |head: &[f64]| rotated(&normed(head, "k_norm"), angles);
        keys.push(qkv[q..q + kv].chunks(columns).flat_map(key).collect());
        values.push(qkv[q + kv..].to_vec());
        // A token outside the window has no weight.
        let first_seen = keys.len().saturating_sub(self.window(layer).unwrap_or(usize::MAX));
        let usual = config.query_pre_attn_scalar.unwrap_or(columns as f64).powf(-0.5);
        let scale = config.attention_multiplier.unwrap_or(usual);
        let cap = config.attn_logit_softcapping.flatten();
        let mut attended = Vec::new();
        let query = |head: &[f64]| rotated(&normed(head, "q_norm"), angles);
        for (head, query) in qkv[..q].chunks(columns).map(query).enumerate() {
            let first = head / (heads / kv_heads) * columns;
            let score = |key: &Vec<f64>| {
                let dot: f64 = query.iter().zip(&key[first..]).map(|(q, k)| q * k).sum();
                capped(dot * scale, cap).exp()
            };
            let scores: Vec<f64> = keys[first_seen..].iter().map(score).collect();
            let sum: f64 = scores.iter().sum();
            let seen = &values[first_seen..];
            let weighted = |i: usize| scores.iter().zip(seen).map(|(s, v)| s * v[first + i]).sum::<f64>();
            attended.extend((0..columns).map(|i| weighted(i) / sum));
        }
        product(self.weight(layer, "self_attn.o_proj.weight"), &attended)
    }

    /// The weighted sum of the experts with the largest scores, where there are experts.
    fn mlp(&self, layer: usize, n: &[f64]) -> Vec<f64> {
        for module in ["mlp", "block_sparse_moe"] {
            if let Some(router) = self.find(layer, &format!("{module}.gate.weight")) {
                return self.experts(layer, module, &product(router, n), n);
            }
        }
        self.dense(layer, n)
    }

    fn experts(&self, layer: usize, module: &str, scores: &[f64], n: &[f64]) -> Vec<f64> {
        let names = if module == "mlp" { ["gate_proj", "up_proj", "down_proj"] } else { ["w1", "w3", "w2"] };
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let chosen = &order[..self.config.num_experts_per_tok.expect("stated")];
        let whole: f64 = chosen.iter().map(|expert| scores[*expert].exp()).sum();
        let mut y = vec![0.0; n.len()];
        for expert in chosen {
            let weight = |name: &str| self.weight(layer, &format!("{module}.experts.{expert}.{name}.weight"));
            let [gate, up, down] = names.map(weight);
            let hidden: Vec<f64> = product(gate, n)
                .iter()
                .zip(product(up, n))
                .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                .collect();
            let share = scores[*expert].exp() / whole;
            add(&mut y, &product(down, &hidden).iter().map(|v| v * share).collect::<Vec<_>>());
        }
        y
    }

    fn dense(&self, layer: usize, n: &[f64]) -> Vec<f64> {
        let (gate, up) = match self.find(layer, "mlp.gate_up_proj.weight") {
            Some(joined) => {
                let mut gate = product(joined, n);
                let up = gate.split_off(gate.len() / 2);
                (gate, up)
            }
            None => (
                product(self.weight(layer, "mlp.gate_proj.weight"), n),
                product(self.weight(layer, "mlp.up_proj.weight"), n),
            ),
        };
        let named = self.config.hidden_activation.as_ref().or(self.config.hidden_act.as_ref());
        let act = |g: f64| match named.map(String::as_str) {
            Some("gelu_pytorch_tanh") => 0.5 * g * (1.0 + (0.7978845608 * (g + 0.044715 * g.powi(3))).tanh()),
            _ => g / (1.0 + (-g).exp()),
        };
        let y: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| act(*g) * u).collect();
        product(self.weight(layer, "mlp.down_proj.weight"), &y)
    }
}

/// A head whose first columns are rotated by the cosines and sines of a position.
fn rotated(head: &[f64], angles: &[f32]) -> Vec<f64> {
    let (head, rest) = head.split_at(angles.len());
    let half = head.len() / 2;
    let angle = |i: usize| (f64::from(angles[i % half]), f64::from(angles[half + i % half]));
    let turned = |i: usize| match angle(i) {
        (cos, sin) if i < half => head[i] * cos - head[i + half] * sin,
        (cos, sin) => head[i] * cos + head[i - half] * sin,
    };
    (0..head.len()).map(turned).chain(rest.iter().copied()).collect()
}

/// A value bounded by the tangent.
fn capped(value: f64, cap: Option<f64>) -> f64 {
    cap.map_or(value, |cap| cap * (value / cap).tanh())
}

/// The nearest bf16 of a positive number.
fn rounded(value: f64) -> f64 {
    f64::from(f32::from_bits(((value as f32).to_bits() + 0x8000) & 0xffff_0000))
}

/// A matrix of the checkpoint, (N, K), times a vector.
fn product(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
