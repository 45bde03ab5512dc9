//! The launches of a step: which layers, or parts of layers, each of them computes.

use std::ops::Range;

use crate::architecture::Decoder;

/// Most layers of a launch. A kernel has 64 stages, each round of a wide one counted: five or six a layer, seven to nine
/// with norms behind attention and MLP, and up to eight of a head: 6 x 9 + 8 = 62.
fn most_layers(decoder: &Decoder) -> usize {
    if decoder.norms_behind { 6 } else { 8 }
}

/// What one launch of a step computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Whole layers, and the head behind the last one.
    Layers(Range<usize>),
    /// The attention of a layer with experts, then the inputs of the experts: normalized rows and the router's scores.
    Attention(usize),
    /// The experts of a layer, and their residual: no decode kernel runs them.
    Experts(usize),
    /// The head of a model with experts.
    Head,
}

impl Launch {
    /// Layers that it computes, whole or in part.
    pub fn layers(&self, decoder: &Decoder) -> Range<usize> {
        match self {
            Launch::Layers(layers) => layers.clone(),
            Launch::Attention(layer) | Launch::Experts(layer) => *layer..layer + 1,
            Launch::Head => decoder.layers..decoder.layers,
        }
    }

    /// Whether it ends with the head.
    pub fn has_head(&self, decoder: &Decoder) -> bool {
        match self {
            Launch::Layers(layers) => layers.end == decoder.layers,
            Launch::Attention(_) | Launch::Experts(_) => false,
            Launch::Head => true,
        }
    }

    /// Tensors that it reads from the launch before: hidden states `X`, or tensors of the same names.
    pub(crate) fn reads(&self) -> Vec<String> {
        match self {
            Launch::Layers(_) | Launch::Attention(_) | Launch::Head => vec!["X".into()],
            Launch::Experts(layer) => ["H", "N2", "S"].map(|name| format!("{name}_{layer}")).to_vec(),
        }
    }

    /// Whether its layers are complete behind it.
    pub(crate) fn ends_layers(&self) -> bool {
        !matches!(self, Launch::Attention(_))
    }
}

/// The launches of a step. Without experts: as few as possible, of about equal length.
pub fn launches(decoder: &Decoder) -> Vec<Launch> {
    let layers = decoder.layers;
    if decoder.experts.is_some() {
        let halves = |layer| [Launch::Attention(layer), Launch::Experts(layer)];
        return (0..layers).flat_map(halves).chain([Launch::Head]).collect();
    }
    let count = layers.div_ceil(most_layers(decoder));
    (0..count).map(|n| Launch::Layers(layers * n / count..layers * (n + 1) / count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    fn decoder(layers: usize, norms_behind: bool) -> Decoder {
        let config = ModelConfig::from_json(
            r#"{ "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 1,
                 "vocab_size": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 64 }"#,
        );
        let plain = config.and_then(|config| Decoder::new(&config)).expect("a valid configuration");
        Decoder { layers, norms_behind, ..plain }
    }

    #[test]
    fn launches_are_few_and_even() {
        let launches = |layers, norms_behind| launches(&decoder(layers, norms_behind));
        assert_eq!((launches(1, false).len(), launches(8, false).len(), launches(8, true).len()), (1, 1, 2));
        assert_eq!(launches(9, false), [0..4, 4..9].map(Launch::Layers));
        for layers in 1..130 {
            let even = layers % 2 == 0;
            let (parts, most) = (launches(layers, even), if even { 6 } else { 8 });
            let decoder = decoder(layers, even);
            assert!(parts.iter().all(|part| part.layers(&decoder).len() <= most), "{layers} layers");
            let joined: Vec<usize> = parts.iter().flat_map(|part| part.layers(&decoder)).collect();
            assert_eq!(joined, (0..layers).collect::<Vec<_>>());
            assert_eq!(parts.iter().filter(|part| part.has_head(&decoder)).count(), 1);
        }
    }

    #[test]
    fn a_layer_with_experts_is_two_launches_and_the_head_another() {
        let config = r#"{"architectures": ["MixtralForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 1, "vocab_size": 8, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 2}"#;
        let config = ModelConfig::from_json(config).expect("JSON");
        let decoder = crate::architecture::decoder(&config).expect("supported");
        let halves = |layer| [Launch::Attention(layer), Launch::Experts(layer)];
        let all: Vec<Launch> = halves(0).into_iter().chain(halves(1)).chain([Launch::Head]).collect();
        assert_eq!(launches(&decoder), all);
        assert_eq!(all[1].reads(), ["H_0", "N2_0", "S_0"]);
        let ends = all.iter().filter(|launch| launch.ends_layers()).count();
        assert_eq!((ends, all.iter().filter(|launch| launch.has_head(&decoder)).count()), (3, 1));
    }
}
