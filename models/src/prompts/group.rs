//! Prompts on several GPUs, each of which has a part of the heads and of the MLP's hidden layer.
//!
//! Both products behind those are sums over the GPUs. Each GPU sums an equal part of the rows: a part goes around all
//! GPUs, which add their products to what they receive, and ends at its own one, which copies it to the others. So all
//! have the same bits.

use std::sync::Arc;

use cusync::device::{Device, DeviceBuffer, Event, Stream};

use super::{LONGEST, Prompts, Queued, Tensor};
use crate::architecture::Decoder;
use crate::error::Result;
use crate::page::{Part, Sizes};

/// Rows that a GPU keeps between the parts of a layer, and those that it exchanges with others.
pub(super) struct Exchange {
    /// Hidden states between attention and MLP.
    middle: Tensor,
    attended: Tensor,
    inner: Tensor,
    /// Sums on their way to the next GPU.
    sent: Tensor,
    /// Sums of the GPU before, by the step that made them.
    received: Vec<Tensor>,
    /// Behind the last copy to another GPU.
    copied: Event,
}

impl Exchange {
    pub(super) fn new(decoder: &Decoder, sizes: &Sizes, device: &Device) -> Result<Exchange> {
        let Decoder { width, heads, columns, inner, devices, .. } = *decoder;
        let part = LONGEST.min(sizes.rows).div_ceil(devices);
        let zeroed = |len: usize| DeviceBuffer::zeroed(device, len, "rows of a prompt").map(Arc::new);
        Ok(Exchange {
            middle: zeroed(devices * part * width)?,
            attended: zeroed(devices * part * heads * columns)?,
            inner: zeroed(devices * part * inner)?,
            sent: zeroed(part * width)?,
            received: (1..devices).map(|_| zeroed(part * width)).collect::<cusync::device::Result<_>>()?,
            copied: Event::ordering(device)?,
        })
    }
}

/// Prompts of one of the GPUs, and its embedding.
pub(crate) type Member<'a> = (&'a mut Prompts, &'a Tensor);

/// What a GPU queues for a layer.
struct Layer {
    attend: Queued,
    project: Sum,
    gate: Queued,
    down: Sum,
}

/// A product that is summed over GPUs, by the part of the rows.
struct Sum {
    /// Products of this GPU in the order in which parts arrive; the last is its own.
    steps: Vec<Queued>,
    sent: Tensor,
    received: Vec<Tensor>,
    /// The sums, of all rows.
    out: Tensor,
}

/// The rows of part `number`, each of `width` values.
fn part(rows: &Tensor, number: usize, count: usize, width: usize) -> Result<Tensor> {
    Ok(Arc::new(rows.view(number * count * width..(number + 1) * count * width)?))
}

impl Prompts {
    fn exchange(&self) -> &Exchange {
        self.exchange.as_ref().expect("one of several devices")
    }

    /// The sets of a layer for `length` tokens.
    fn layer(&mut self, layer: usize, length: usize, continues: bool) -> Result<Layer> {
        let Decoder { width, heads, columns, inner, .. } = self.decoder;
        let Exchange { middle, attended, inner: hidden, .. } = self.exchange();
        let first = |rows: &Tensor, width: usize| rows.view(0..length * width).map(Arc::new);
        let (a, h, y) = (first(attended, heads * columns)?, first(middle, width)?, first(hidden, inner)?);
        let (attended, middle, hidden) = (attended.clone(), middle.clone(), hidden.clone());
        let [x, z] = [self.states[layer % 2].clone(), self.states[(layer + 1) % 2].clone()];
        let key = self.key(Part::Attend, layer, length, continues);
        let named = format!("A_{}", key.layer);
        let attend = self.set(key, layer, 0, &[("X", self.state(layer, length)?), (&named, a)])?;
        let project =
            self.sum(Part::Project, layer, length, [(attended, heads * columns), (x, width)], &middle)?;
        let key = self.key(Part::Gate, layer, length, false);
        let named = format!("Y_{}", key.layer);
        let gate = self.set(key, layer, 0, &[("X", h), (&named, y)])?;
        let down = self.sum(Part::Down, layer, length, [(hidden, inner), (middle, width)], &z)?;
        Ok(Layer { attend, project, gate, down })
    }

    /// The sets of a product for all parts of the rows of `a`, which begin with those of `residual`.
    fn sum(
        &mut self,
        product: Part,
        layer: usize,
        length: usize,
        [(a, a_width), (residual, width)]: [(Tensor, usize); 2],
        out: &Tensor,
    ) -> Result<Sum> {
        let Decoder { devices, device, .. } = self.decoder;
        let count = length.div_ceil(devices);
        let short = |rows: &Tensor| part(rows, 0, count, width);
        let received: Vec<Tensor> = self.exchange().received.iter().map(short).collect::<Result<_>>()?;
        let sent = short(&self.exchange().sent)?;
        let key = self.key(product, layer, count, false);
        let named = format!("{}_{}", if product == Part::Project { "A" } else { "Y" }, key.layer);
        let step = |step: usize| {
            let number = (device + devices - 1 - step) % devices;
            let added = match step.checked_sub(1) {
                Some(before) => received[before].clone(),
                None => part(&residual, number, count, width)?,
            };
            let to = if step + 1 == devices { part(out, number, count, width)? } else { sent.clone() };
            let rows = [(named.as_str(), part(&a, number, count, a_width)?), ("R", added), ("Z", to)];
            // The next layer reads and writes the other hidden states, and plans of other lengths other rows.
            self.set(key, layer, step, &rows)
        };
        let steps = (0..devices).map(step).collect::<Result<_>>()?;
        Ok(Sum { steps, received, sent, out: out.clone() })
    }
}

/// Appends the keys and values of tokens to the `cached` ones of a sequence on these pages of all GPUs.
pub(crate) fn run(all: &mut [Member<'_>], pages: &[i32], cached: usize, tokens: &[u32]) -> Result<()> {
    let Some((first, _)) = all.first() else { return Ok(()) };
    let length = first.length(cached, tokens)?;
    let layers = 0..first.layers.len();
    // Whatever a run needs is there before the first of its layers is queued.
    let each = |(prompts, _): &mut Member<'_>| {
        layers.clone().map(|layer| prompts.layer(layer, length, cached > 0)).collect()
    };
    let work: Vec<Vec<Layer>> = all.iter_mut().map(each).collect::<Result<_>>()?;
    for (prompts, embedding) in &mut *all {
        prompts.begin(pages, cached, tokens, length, embedding)?;
    }
    let span = cached..cached + tokens.len();
    let mut all: Vec<&mut Prompts> = all.iter_mut().map(|(prompts, _)| &mut **prompts).collect();
    for layer in layers {
        let of_layer =
            |find: fn(&Layer) -> &Sum| work.iter().map(|each| find(&each[layer])).collect::<Vec<_>>();
        for (prompts, work) in all.iter_mut().zip(&work) {
            prompts.queue_attending(work[layer].attend, layer, &span)?;
        }
        summed(&mut all, &of_layer(|layer| &layer.project))?;
        for (prompts, work) in all.iter_mut().zip(&work) {
            prompts.queue(work[layer].gate)?;
        }
        summed(&mut all, &of_layer(|layer| &layer.down))?;
    }
    // Every GPU is waited for, whether or not another one failed.
    let ended: Vec<Result<()>> = all.iter_mut().map(|prompts| prompts.end()).collect();
    ended.into_iter().collect()
}

/// Queues a product and its sum on all GPUs.
fn summed(all: &mut [&mut Prompts], sums: &[&Sum]) -> Result<()> {
    let devices = all.len();
    for step in 0..devices {
        // A step waits for what the step before has sent, not for what others send in this one.
        if step > 0 {
            for (device, prompts) in all.iter().enumerate() {
                prompts.stream.wait(&all[(device + devices - 1) % devices].exchange().copied)?;
            }
        }
        for device in 0..devices {
            all[device].queue(sums[device].steps[step])?;
            if step + 1 < devices {
                let to = &sums[(device + 1) % devices].received[step];
                send(all[device], to, &sums[device].sent)?;
            }
        }
    }
    for device in 0..devices {
        let (width, values) = (all[device].decoder.width, sums[device].sent.len());
        let own = part(&sums[device].out, device, values / width, width)?;
        for other in (0..devices).filter(|other| *other != device) {
            send(all[device], &*part(&sums[other].out, device, values / width, width)?, &own)?;
        }
    }
    for (device, prompts) in all.iter().enumerate() {
        for other in (0..devices).filter(|other| *other != device) {
            prompts.stream.wait(&all[other].exchange().copied)?;
        }
    }
    Ok(())
}

/// Copies rows to another GPU behind the work of this one.
fn send(from: &Prompts, to: &DeviceBuffer<u16>, rows: &DeviceBuffer<u16>) -> Result<()> {
    let stream: &Stream = &from.stream;
    to.copy_from(rows, stream)?;
    Ok(stream.record(&from.exchange().copied)?)
}

#[cfg(test)]
mod tests {
    use cusync::codegen::graph::Element;
    use cusync::element::Bits;

    use super::*;
    use crate::architecture;
    use crate::config::ModelConfig;
    use crate::pool::PAGE;
    use crate::prompts::Layer as Tensors;
    use crate::weights::Weights;

    const SIZES: Sizes = Sizes { slots: 1, context: 1000, rows: 1024, pages: 17, element: Element::Bf16 };
    /// Pages of the sequence, in any order.
    const TABLE: [i32; 16] = [3, 0, 16, 1, 2, 15, 14, 4, 5, 6, 9, 8, 7, 13, 11, 12];

    /// Prompts of a decoder with random weights, and its embedding.
    fn opened(decoder: &Decoder, device: &Device) -> Result<(Prompts, Tensor)> {
        let Sizes { context, rows, pages, element, .. } = SIZES;
        let upload = |bits: &[u16]| DeviceBuffer::from_slice(device, bits, "weights").map(Arc::new);
        let tensors = |layer: usize| -> Result<Tensors> {
            let mut tensors = Tensors::new();
            for weight in decoder.layer_weights(layer) {
                let width = weight.rows.iter().map(|rows| rows.count).sum();
                tensors.insert(weight.name.clone(), upload(&Weights::Random.read(&weight, width, element)?)?);
            }
            for name in ["K", "V"].map(|name| format!("{name}_{layer}")) {
                let cache = pages * decoder.kv_heads * PAGE * decoder.columns;
                tensors.insert(name, Arc::new(DeviceBuffer::zeroed(device, cache, "a cache")?));
            }
            Ok(tensors)
        };
        let layers = (0..decoder.layers).map(tensors).collect::<Result<_>>()?;
        let angles = |(name, table): (String, Vec<f32>)| -> Result<(String, Tensor)> {
            let mut bits = vec![0; table.len()];
            element.round(&table, &mut bits);
            Ok((name, upload(&bits)?))
        };
        let tables = decoder.tables(rows, context).into_iter().map(angles).collect::<Result<_>>()?;
        let embedding = upload(&Weights::Random.embedding(decoder, element)?)?;
        Ok((Prompts::new(decoder, &SIZES, device, layers, tables)?, embedding))
    }

    /// The last layer's cached keys and values, each of all heads in turn.
    fn cached(members: &[(Prompts, Tensor)], tokens: usize) -> Vec<f32> {
        let mut all = Vec::new();
        for name in ["K", "V"] {
            for (prompts, _) in members {
                let last = prompts.layers.len() - 1;
                let cache = &prompts.layers[last][&format!("{name}_{last}")];
                let mut bits = vec![0; cache.len()];
                cache.download(&mut bits).expect("readable");
                let (heads, page) = (prompts.decoder.kv_heads, PAGE * prompts.decoder.columns);
                let pages: Vec<&[u16]> = bits.chunks(page).collect();
                for head in 0..heads {
                    let rows = TABLE.iter().flat_map(|entry| pages[*entry as usize * heads + head]);
                    let rows: Vec<u16> = rows.copied().take(tokens * prompts.decoder.columns).collect();
                    let mut values = vec![0.0; rows.len()];
                    SIZES.element.widen(&rows, &mut values);
                    all.extend(values);
                }
            }
        }
        all
    }

    /// The GPU runs the part of each member in turn, or at once, so members need not be on GPUs of their own.
    #[test]
    fn members_have_the_caches_of_one_gpu() {
        let Some(device) = Device::open(0).ok().filter(|device| device.capability() == (9, 0)) else {
            println!("skipped: needs a GPU with kernels");
            return;
        };
        let config = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1536,
            "num_hidden_layers": 5, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64,
            "vocab_size": 256, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048}"#;
        let decoder = ModelConfig::from_json(config).and_then(|config| architecture::decoder(&config));
        let decoder = decoder.expect("supported");
        let tokens: Vec<u32> = (0..900).map(|token| token * 7 % 256).collect();
        let mut whole = opened(&decoder, &device).expect("opened");
        for part in [0..400, 400..900] {
            whole.0.run(&TABLE, part.start, &tokens[part], &whole.1).expect("it runs");
        }
        let expected = cached(std::slice::from_ref(&whole), tokens.len());
        for devices in [2, 4] {
            let open = |number| opened(&decoder.shard(number, devices).expect("divisible"), &device);
            let mut members: Vec<_> = (0..devices).map(open).collect::<Result<_>>().expect("opened");
            for part in [0..400, 400..900] {
                let mut all: Vec<Member<'_>> =
                    members.iter_mut().map(|(prompts, embedding)| (prompts, &*embedding)).collect();
                run(&mut all, &TABLE, part.start, &tokens[part]).expect("it runs");
            }
            let found = cached(&members, tokens.len());
            let norm = |values: Vec<f32>| values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            let error =
                norm(found.iter().zip(&expected).map(|(a, b)| a - b).collect()) / norm(expected.clone());
            // Both round five layers of bf16.
            assert!(error < 0.03, "{devices} members: {error}");
            assert!(error > 0.0, "sums over members are rounded otherwise");
        }
    }
}
