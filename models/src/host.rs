//! A model on the host.

use cusync::codegen::graph::Element;
use cusync::element::Bits;
use cusync::{Group, SessionError};

use crate::architecture::{Decoder, Weight};
use crate::error::Result;
use crate::page::{self, Sizes};
use crate::pool::{PAGE, Pool};
use crate::sample::Next;
use crate::weights::{Loaded, Weights};

/// A model on one or more groups of host threads.
pub(crate) struct HostModel {
    /// Pipelines of the layers on all devices, in order, with the names of what each reads from the one before.
    parts: Vec<(Vec<String>, Group)>,
    decoder: Decoder,
    element: Element,
    /// Hidden states of a step, one row per slot.
    states: Vec<u16>,
    /// Logits of the last step.
    logits: Vec<u16>,
    /// Token drawn for each slot by the last step that drew one.
    drawn: Vec<u32>,
}

impl HostModel {
    pub(crate) fn open(
        decoder: &Decoder,
        devices: usize,
        weights: &Weights,
        sizes: &Sizes,
        progress: &mut impl FnMut(Loaded),
    ) -> Result<HostModel> {
        let Sizes { slots, context, rows, pages, element } = *sizes;
        let tables = decoder.tables(rows, context);
        let shares: Vec<Decoder> =
            (0..devices).map(|device| decoder.shard(device, devices)).collect::<Result<_>>()?;
        let cache = pages * shares[0].kv_heads * PAGE * decoder.columns;
        let (mut parts, mut loaded) = (Vec::new(), 0);
        for launch in page::launches(decoder) {
            let layers = launch.layers(decoder);
            let text = page::generation(&shares[0], &launch, sizes.caches(), element).text();
            let mut group = Group::on_host(&text, &[])?;
            for (device, share) in shares.iter().enumerate() {
                let session = group.session_mut(device)?;
                let named = session.inputs();
                let mut set = |weight: &Weight| -> Result<()> {
                    let (_, width) = session.shape(&weight.name)?;
                    Ok(session.set_bits(&weight.name, weights.read(weight, width, element)?)?)
                };
                for layer in layers.clone() {
                    let weights = share.layer_weights(layer);
                    weights.iter().filter(|w| named.contains(&w.name)).try_for_each(&mut set)?;
                    loaded += usize::from(launch.ends_layers());
                    progress(Loaded { layers: loaded, total: devices * decoder.layers });
                }
                if launch.has_head(decoder) {
                    share.head_weights().iter().try_for_each(&mut set)?;
                }
                for (name, table) in tables.iter().filter(|(name, _)| named.contains(name)) {
                    session.set_f32(name, table)?;
                }
                let caches =
                    layers.clone().flat_map(|layer| ["K", "V"].map(|name| format!("{name}_{layer}")));
                for name in caches.filter(|name| named.contains(name)) {
                    session.set_bits(&name, vec![0; cache])?;
                }
            }
            parts.push((launch.reads(), group));
        }
        let (states, drawn) = (vec![0; slots * decoder.width], vec![0; slots]);
        let (decoder, logits) = (decoder.clone(), Vec::new());
        Ok(HostModel { parts, decoder, element, states, logits, drawn })
    }

    /// Runs a step, and draws its tokens.
    pub(crate) fn step(
        &mut self,
        next: &[Next],
        lengths: &[i32],
        pool: &Pool,
        weights: &Weights,
    ) -> Result<()> {
        let (width, element) = (self.decoder.width, self.element);
        for Next { slot, token, .. } in next {
            let token = token.unwrap_or(self.drawn[*slot]);
            let row = &mut self.states[slot * width..(slot + 1) * width];
            weights.embed(&self.decoder, token, element, row)?;
        }
        let mut given = vec![self.states.clone()];
        for number in 0..self.parts.len() {
            let next = self.parts.get(number + 1).map(|(reads, _)| reads.clone());
            let (reads, part) = &mut self.parts[number];
            for device in 0..part.devices() {
                let session = part.session_mut(device)?;
                for (name, bits) in reads.iter().zip(&given) {
                    session.set_bits(name, bits.clone())?;
                }
                if session.inputs().iter().any(|name| name == "n") {
                    session.set_integers("n", lengths)?;
                    session.set_integers("pages", pool.table())?;
                }
            }
            part.run()?;
            // All devices have the same bits.
            let first = part.session(0)?;
            let names = match next {
                Some(names) if names != ["X"] => names,
                _ => first.outputs(),
            };
            let read = names.iter().map(|name| -> Result<Vec<u16>> {
                let values = first.read_f32(name)?;
                let mut bits = vec![0; values.len()];
                element.round(&values, &mut bits);
                Ok(bits)
            });
            given = read.collect::<Result<_>>()?;
        }
        let [logits] = &mut given[..] else {
            return Err(SessionError::Elsewhere("a launch has several results").into());
        };
        self.logits = std::mem::take(logits);
        let mut values = vec![0.0; self.decoder.vocabulary];
        for Next { slot, sampling, seed, .. } in next {
            let first = slot * self.decoder.logits();
            element.widen(&self.logits[first..first + values.len()], &mut values);
            self.drawn[*slot] = sampling.draw(&values, *seed, lengths[*slot] as u32);
        }
        Ok(())
    }

    pub(crate) fn drawn(&self) -> &[u32] {
        &self.drawn
    }

    /// Logits of all slots.
    pub(crate) fn logits(&self) -> &[u16] {
        &self.logits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture;
    use crate::config::ModelConfig;
    use crate::sample::Sampling;

    /// Logits of each device after steps of two sequences.
    fn steps(name: &str, devices: usize) -> Vec<Vec<Vec<f32>>> {
        let config = format!(
            r#"{{"architectures": ["{name}"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 9,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
                "rms_norm_eps": 1e-5, "max_position_embeddings": 128}}"#
        );
        let config = ModelConfig::from_json(&config).expect("JSON");
        let decoder = architecture::decoder(&config).expect("supported");
        let sizes = Sizes { slots: 2, context: 63, rows: 64, pages: 4, element: Element::Bf16 };
        let mut pool = Pool::new(2, 63, 128);
        (0..2).try_for_each(|slot| pool.resize(slot, 3)).expect("free pages");
        let mut loaded = Vec::new();
        let progress = &mut |now: Loaded| loaded.push(now);
        let mut model =
            HostModel::open(&decoder, devices, &Weights::Random, &sizes, progress).expect("opened");
        let total = devices * 9;
        let counted: Vec<Loaded> = (1..=total).map(|layers| Loaded { layers, total }).collect();
        assert_eq!(loaded, counted);
        let mut all = Vec::new();
        for (length, token) in [5, 80, 33].into_iter().enumerate() {
            let next = |slot: usize| Next {
                slot,
                token: Some(token + slot as u32),
                sampling: Sampling::default(),
                seed: 0,
            };
            model.step(&[0, 1].map(next), &[length as i32; 2], &pool, &Weights::Random).expect("it runs");
            let (_, part) = model.parts.last().expect("two launches");
            let logits = |device| part.session(device).and_then(|session| session.read_f32("logits"));
            all.push((0..devices).map(|device| logits(device).expect("it ran")).collect());
        }
        all
    }

    #[test]
    fn devices_have_the_same_bits_and_the_logits_of_one() {
        for name in ["LlamaForCausalLM", "Qwen2ForCausalLM", "Phi3ForCausalLM", "Gemma3ForCausalLM"] {
            for (one, two) in steps(name, 1).iter().zip(steps(name, 2)) {
                assert!(two[0] == two[1], "{name}");
                let norm =
                    |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
                let error = norm(&mut one[0].iter().zip(&two[0]).map(|(a, b)| a - b));
                // Both round nine layers to bf16; sums of other terms would differ by as much as the logits.
                let relative = (error / norm(&mut one[0].iter().copied())).sqrt();
                assert!(relative < 0.03, "{name}: {relative}");
            }
        }
    }
}
