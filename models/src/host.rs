//! A model on the host.

use cusync::codegen::graph::Element;
use cusync::element::Bits;
use cusync::{Session, SessionError};

use crate::architecture::{Decoder, Weight};
use crate::error::Result;
use crate::page::{self, Sizes};
use crate::sample::Next;
use crate::weights::{Loaded, Weights};

/// Pipelines of the layers, in order.
pub(crate) struct HostModel {
    parts: Vec<Session>,
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
        weights: &Weights,
        sizes: &Sizes,
        progress: &mut impl FnMut(Loaded),
    ) -> Result<HostModel> {
        let Sizes { slots, rows, element } = *sizes;
        let angles = decoder.rotary.table(rows);
        let cache = slots * decoder.kv_heads * rows * decoder.columns;
        let mut parts = Vec::new();
        for layers in page::launches(decoder.layers) {
            let text = page::generation(decoder, layers.clone(), slots, rows, element).text();
            let mut session = Session::on_host(&text, &[])?;
            let mut set = |weight: &Weight| -> Result<()> {
                let (_, width) = session.shape(&weight.name)?;
                Ok(session.set_bits(&weight.name, weights.read(weight, width, element)?)?)
            };
            let last = layers.end == decoder.layers;
            for layer in layers.clone() {
                decoder.layer_weights(layer).iter().try_for_each(&mut set)?;
                progress(Loaded { layers: layer + 1, total: decoder.layers });
            }
            if last {
                decoder.head_weights().iter().try_for_each(&mut set)?;
            }
            session.set_f32("cs", &angles)?;
            for name in layers.flat_map(|layer| ["K", "V"].map(|name| format!("{name}_{layer}"))) {
                session.set_bits(&name, vec![0; cache])?;
            }
            parts.push(session);
        }
        let (states, drawn) = (vec![0; slots * decoder.width], vec![0; slots]);
        Ok(HostModel { parts, decoder: decoder.clone(), element, states, logits: Vec::new(), drawn })
    }

    /// Runs a step, and draws its tokens.
    pub(crate) fn step(&mut self, next: &[Next], lengths: &[i32], weights: &Weights) -> Result<()> {
        let (width, element) = (self.decoder.width, self.element);
        for Next { slot, token, .. } in next {
            let token = token.unwrap_or(self.drawn[*slot]);
            let row = &mut self.states[slot * width..(slot + 1) * width];
            weights.embed(&self.decoder.embedding(), token, element, row)?;
        }
        let mut bits = self.states.clone();
        for part in &mut self.parts {
            part.set_bits("X", bits)?;
            part.set_integers("n", lengths)?;
            part.run()?;
            let [out] = &part.outputs()[..] else {
                return Err(SessionError::Elsewhere("a launch has several results").into());
            };
            let values = part.read_f32(out)?;
            bits = vec![0; values.len()];
            element.round(&values, &mut bits);
        }
        self.logits = bits;
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
