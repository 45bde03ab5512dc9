//! A model on the host.

use std::borrow::Cow;

use cusync::Session;
use cusync::SessionError;

use crate::architecture::Decoder;
use crate::error::Result;
use crate::model::{Loaded, Sizes};
use crate::page;
use crate::weights::Weights;

/// Pipelines of the layers, in order.
pub(crate) struct Host {
    parts: Vec<Session>,
    element: cusync::codegen::graph::Element,
}

impl Host {
    pub(crate) fn open(
        decoder: &Decoder,
        weights: &Weights,
        sizes: &Sizes,
        progress: &mut impl FnMut(Loaded),
    ) -> Result<Host> {
        let Sizes { slots, rows, element } = *sizes;
        let angles = decoder.rotary.table(rows);
        let cache = slots * decoder.kv_heads * rows * decoder.columns;
        let mut parts = Vec::new();
        for layers in page::launches(decoder.layers) {
            let text = page::generation(decoder, layers.clone(), slots, rows, element).text();
            let mut session = Session::on_host(&text, &[])?;
            session.set_f32("cs", &angles)?;
            let last = layers.end == decoder.layers;
            for layer in layers {
                for weight in decoder.layer_weights(layer) {
                    set(&mut session, &weight, weights, sizes)?;
                }
                for name in ["K", "V"] {
                    session.set_bits(&format!("{name}_{layer}"), vec![0; cache])?;
                }
                progress(Loaded { layers: layer + 1, of: decoder.layers });
            }
            if last {
                for weight in decoder.head_weights() {
                    set(&mut session, &weight, weights, sizes)?;
                }
            }
            parts.push(session);
        }
        Ok(Host { parts, element })
    }

    /// Logits of all slots.
    pub(crate) fn step(&mut self, states: &[u16], lengths: &[i32]) -> Result<Cow<'_, [u16]>> {
        use cusync::element::Bits;
        let mut bits = states.to_vec();
        for part in &mut self.parts {
            part.set_bits("X", bits)?;
            part.set_integers("n", lengths)?;
            part.run()?;
            let [out] = &part.outputs()[..] else {
                return Err(SessionError::Elsewhere("a launch has several results").into());
            };
            let values = part.read_f32(out)?;
            bits = vec![0; values.len()];
            self.element.round(&values, &mut bits);
        }
        Ok(Cow::Owned(bits))
    }
}

fn set(
    session: &mut Session,
    weight: &crate::architecture::Weight,
    weights: &Weights,
    sizes: &Sizes,
) -> Result<()> {
    let (_, width) = session.shape(&weight.name)?;
    session.set_bits(&weight.name, weights.read(weight, width, sizes.element)?)?;
    Ok(())
}
