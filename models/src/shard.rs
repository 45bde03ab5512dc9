//! The part of a model that one of several devices computes.

use cusync::codegen::graph::MAX_DEVICES;

use crate::architecture::Decoder;
use crate::error::{Error, Result};

impl Decoder {
    /// The part of device `device` of `devices` that compute the layers at once: equal numbers of heads, with their
    /// rows of queries, keys and values and their columns of attention's output matrix, and an equal part of the MLP's
    /// hidden layer. Norms, embedding and head are whole on every device.
    ///
    /// ```
    /// use cusync_models::{ModelConfig, architecture};
    ///
    /// let config = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
    ///     "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 100,
    ///     "rms_norm_eps": 1e-5, "max_position_embeddings": 128}"#;
    /// let decoder = architecture::decoder(&ModelConfig::from_json(config)?)?;
    /// let part = decoder.shard(1, 2)?;
    /// assert_eq!((part.heads, part.kv_heads, part.inner), (4, 2, 256));
    /// assert!(decoder.shard(0, 3).is_err());
    /// # Ok::<(), cusync_models::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no such device, the sizes do not divide, or the decoder is a part already.
    pub fn shard(&self, device: usize, devices: usize) -> Result<Decoder> {
        if self.devices > 1 {
            let fault = format!("the decoder is a part of {} already", self.devices);
            return Err(Error::Request(format!("{fault}\n  help: divide the whole decoder")));
        }
        if let Some(reason) = self.indivisible(devices) {
            let good = (1..=MAX_DEVICES as usize).filter(|devices| self.indivisible(*devices).is_none());
            let good: Vec<String> = good.map(|devices| devices.to_string()).collect();
            let help = format!("these numbers of devices do: {}", good.join(", "));
            return Err(Error::Request(format!("{reason}\n  help: {help}")));
        }
        if device >= devices {
            let fault = format!("there is no device {device} among {devices}");
            return Err(Error::Request(format!("{fault}\n  help: devices are numbered from 0")));
        }
        Ok(Decoder {
            heads: self.heads / devices,
            kv_heads: self.kv_heads / devices,
            inner: self.inner / devices,
            devices,
            device,
            ..self.clone()
        })
    }

    /// Reason why devices cannot divide the sizes evenly. Query heads divide where heads of keys and values do.
    fn indivisible(&self, devices: usize) -> Option<String> {
        if !(1..=MAX_DEVICES as usize).contains(&devices) {
            return Some(format!("a model runs on 1 to {MAX_DEVICES} devices, not on {devices}"));
        }
        if devices > 1 && self.experts.is_some() {
            return Some("a model with experts runs on one device".into());
        }
        let (kv_heads, columns) = (self.kv_heads, self.kv_heads * self.columns);
        if !kv_heads.is_multiple_of(devices) {
            return Some(format!(
                "{kv_heads} heads of keys and values do not divide among {devices} devices"
            ));
        }
        let sizes = [("intermediate_size", self.inner), ("key and value heads times columns", columns)];
        let odd = sizes.into_iter().find(|(_, size)| !size.is_multiple_of(8 * devices));
        odd.map(|(name, size)| {
            format!("{name} is {size}, and its part on each of {devices} devices is no multiple of 8")
        })
    }
}

#[cfg(test)]
mod tests {
    use cusync::codegen::graph::Element;

    use super::*;
    use crate::architecture::{self, Rows, Weight};
    use crate::checkpoint::Checkpoint;
    use crate::config::ModelConfig;
    use crate::given::{GivenWeight, WeightType};
    use crate::weights::Weights;

    fn decoder(architecture: &str) -> Decoder {
        let config = format!(
            r#"{{"architectures": ["{architecture}"], "hidden_size": 72, "intermediate_size": 96,
                "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
                "vocab_size": 20, "rms_norm_eps": 1e-5, "max_position_embeddings": 128,
                "attention_bias": false, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}}"#
        );
        let config = ModelConfig::from_json(&config).expect("JSON");
        let decoder = architecture::decoder(&config).expect("supported");
        assert_eq!((decoder.heads, decoder.kv_heads, decoder.inner), (8, 4, 96));
        decoder
    }

    /// Tensors in which no two neighbours have equal values.
    fn stored(decoder: &Decoder) -> Weights {
        let mut tensors: Vec<Rows> = decoder.layer_weights(0).into_iter().flat_map(|w| w.rows).collect();
        tensors.sort_by(|a, b| a.tensor.cmp(&b.tensor));
        tensors.dedup_by(|a, b| a.tensor == b.tensor);
        let given = |(number, Rows { tensor, shape, .. }): (usize, Rows)| GivenWeight {
            name: tensor,
            kind: WeightType::F32,
            bytes: Box::new(
                (0..shape.iter().product())
                    .flat_map(|i: usize| (((i * 7 + number) % 251) as f32).to_le_bytes())
                    .collect::<Vec<u8>>(),
            ),
            shape,
        };
        Weights::Files(Checkpoint::given(tensors.into_iter().enumerate().map(given).collect()))
    }

    /// A weight of a page as rows of K.
    fn page_rows(weights: &Weights, weight: &Weight) -> Vec<Vec<u16>> {
        let width = weight.rows.iter().map(|rows| rows.count).sum();
        let bits = weights.read(weight, width, Element::Bf16).expect("readable");
        bits.chunks(width).map(<[u16]>::to_vec).collect()
    }

    /// The whole of a weight from the parts of all devices.
    fn put_together(decoder: &Decoder, name: &str, parts: &[Vec<Vec<u16>>]) -> Vec<Vec<u16>> {
        let (q, kv) = (decoder.heads * decoder.columns, decoder.kv_heads * decoder.columns);
        // Columns of a part that stand side by side, group by group.
        let groups = match name {
            "Wo_0" | "Wd_0" => return parts.concat(),
            "Wqkv_0" | "bqkv_0" => vec![q, kv, kv],
            "Wg_0" | "Wu_0" => vec![decoder.inner],
            _ => {
                assert!(parts.iter().all(|part| *part == parts[0]), "{name} is whole on every device");
                return parts[0].clone();
            }
        };
        let mut whole = vec![Vec::new(); parts[0].len()];
        let mut first = 0;
        for width in groups.iter().map(|width| width / parts.len()) {
            for part in parts {
                let rows = whole.iter_mut().zip(part);
                rows.for_each(|(whole, row)| whole.extend(&row[first..first + width]));
            }
            first += width;
        }
        whole
    }

    #[test]
    fn parts_of_all_devices_are_the_whole_weights() {
        for architecture in architecture::ALL {
            let name = architecture.name;
            let decoder = Decoder { bias: name.contains("Qwen2"), ..decoder(name) };
            if decoder.experts.is_some() {
                let refused = decoder.shard(0, 2).expect_err("experts").to_string();
                assert!(refused.contains("with experts runs on one device"), "{refused}");
                continue;
            }
            for (weights, devices) in [(stored(&decoder), 2), (stored(&decoder), 4), (Weights::Random, 2)] {
                let shards: Vec<Vec<Weight>> = (0..devices)
                    .map(|device| decoder.shard(device, devices).expect("it divides").layer_weights(0))
                    .collect();
                for (number, weight) in decoder.layer_weights(0).iter().enumerate() {
                    let parts: Vec<_> = shards.iter().map(|s| page_rows(&weights, &s[number])).collect();
                    let whole = page_rows(&weights, weight);
                    let found = put_together(&decoder, &weight.name, &parts);
                    assert!(found == whole, "{name}: {} of {devices} devices", weight.name);
                }
                assert_eq!(
                    decoder.shard(0, devices).expect("it divides").head_weights(),
                    decoder.head_weights()
                );
            }
        }
    }

    #[test]
    fn sizes_that_do_not_divide_are_named() {
        let decoder = decoder("LlamaForCausalLM");
        let refused = |decoder: &Decoder, device, devices| {
            decoder.shard(device, devices).expect_err("refused").to_string()
        };
        for (devices, words) in [
            (0, "1 to 8 devices, not on 0"),
            (
                3,
                "4 heads of keys and values do not divide among 3 devices\n  help: these numbers of devices do: 1, 2, 4",
            ),
            (8, "4 heads of keys and values do not divide among 8 devices"),
            (9, "1 to 8 devices, not on 9"),
        ] {
            assert!(refused(&decoder, 0, devices).contains(words), "{}", refused(&decoder, 0, devices));
        }
        let odd = Decoder { inner: 104, ..decoder.clone() };
        assert!(refused(&odd, 0, 2).contains("intermediate_size is 104, and its part on each of 2 devices"));
        let narrow = Decoder { columns: 2, ..decoder.clone() };
        assert!(refused(&narrow, 0, 2).contains("key and value heads times columns is 8"));
        assert!(refused(&decoder, 2, 2).contains("no device 2 among 2"));
        let part = decoder.shard(0, 2).expect("it divides");
        assert!(refused(&part, 0, 2).contains("a part of 2 already"));
        assert_eq!(decoder.shard(0, 1).expect("whole"), decoder);
    }
}
