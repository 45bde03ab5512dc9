//! Prompts on a GPU: one layer after another over many tokens of a sequence. Layers that are computed alike share a plan.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use cusync::codegen::check::Executor;
use cusync::device::{Device, DeviceBuffer, Stream, helpers};
use cusync::runtime::{Options, Overrides, Pipeline};
use cusync::tune::{self, PlanCache};

use crate::architecture::Decoder;
use crate::error::{Error, Result};
use crate::page::{self, Sizes};

/// Fewest tokens of a part of a prompt: fewer are appended one by one.
const FEWEST: usize = 16;

/// Tokens of the shortest plan.
const SHORTEST: usize = 64;

/// Tokens of the longest plan.
pub(crate) const LONGEST: usize = 8192;

type Tensor = Arc<DeviceBuffer<u16>>;

/// Weights and caches of a layer by their names in a page.
pub(crate) type Layer = HashMap<String, Tensor>;

/// Plans and the memory that they share.
pub(crate) struct Prompts {
    decoder: Decoder,
    sizes: Sizes,
    device: Device,
    layers: Vec<Layer>,
    /// Tables of rotations by their names.
    tables: HashMap<String, Tensor>,
    /// Hidden states before and after a layer.
    states: [Tensor; 2],
    /// Interleaved gate and up weights of each layer.
    packed: HashMap<usize, Tensor>,
    /// Cached tokens of the sequence that a run continues.
    cached: Arc<DeviceBuffer<i32>>,
    /// Orders the layers, whose plans differ.
    stream: Arc<Stream>,
    plans: HashMap<PlanKey, Plan>,
}

/// Layers that are computed alike share a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlanKey {
    tokens: usize,
    continues: bool,
    /// The first layer that is computed alike.
    layer: usize,
}

/// The pipeline of layers for prompts of one length.
struct Plan {
    pipeline: Pipeline,
    /// Sets by slot and layer.
    sets: HashMap<(usize, usize), usize>,
}

impl Prompts {
    pub(crate) fn new(
        decoder: &Decoder,
        sizes: &Sizes,
        device: &Device,
        layers: Vec<Layer>,
        tables: HashMap<String, Tensor>,
    ) -> Result<Prompts> {
        let room = LONGEST.min(sizes.rows) * decoder.width;
        let states = || DeviceBuffer::zeroed(device, room, "hidden states of a prompt").map(Arc::new);
        let states = [states()?, states()?];
        Ok(Prompts {
            decoder: decoder.clone(),
            sizes: *sizes,
            device: device.clone(),
            layers,
            tables,
            states,
            packed: HashMap::new(),
            cached: Arc::new(DeviceBuffer::zeroed(device, 1, "cached tokens of a sequence")?),
            stream: Arc::new(Stream::new(device)?),
            plans: HashMap::new(),
        })
    }

    /// Tokens of the plan for the next `tokens` tokens of a sequence with `cached` ones; `None`: there is none. A cache
    /// has room for all of a plan's tokens, though a prompt may have fewer.
    fn plan_tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        let room = self.sizes.rows.checked_sub(cached)?;
        // Sequences that begin with a prompt have a plan for a whole cache, those that continue have powers of two.
        let longest = LONGEST.min(if cached == 0 { room } else { 1 << room.checked_ilog2()? });
        (longest >= SHORTEST).then(|| tokens.next_power_of_two().clamp(SHORTEST, longest))
    }

    /// How many of the next `tokens` tokens of a sequence with `cached` ones are computed at once.
    pub(crate) fn tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        Some(tokens.min(self.plan_tokens(cached, tokens)?)).filter(|count| *count >= FEWEST)
    }

    /// The plan of a layer for the next `tokens` tokens of a sequence.
    fn key(&self, layer: usize, tokens: usize, continues: bool) -> PlanKey {
        let span = if continues { self.sizes.rows } else { tokens };
        let Decoder { windows, rotated, .. } = &self.decoder;
        // The table of a rotation is bound, so its number makes no difference.
        let kind = |layer: usize| (windows[layer].filter(|window| *window < span), rotated[layer].is_some());
        let alike = (0..layer).find(|first| kind(*first) == kind(layer));
        PlanKey { tokens, continues, layer: alike.unwrap_or(layer) }
    }

    /// Appends the keys and values of tokens to the `cached` ones of a slot.
    pub(crate) fn run(
        &mut self,
        slot: usize,
        cached: usize,
        tokens: &[u32],
        embedding: &Tensor,
    ) -> Result<()> {
        let Some(length) = self.plan_tokens(cached, tokens.len()) else {
            return Err(Error::Request(format!(
                "there is no plan for {} tokens behind {cached}",
                tokens.len()
            )));
        };
        self.cached.upload(&[cached as i32])?;
        let values = length * self.decoder.width;
        let ends = [self.states[0].view(0..values)?, self.states[1].view(0..values)?].map(Arc::new);
        // Whatever a run needs is there before the first of its layers is queued.
        let keys = (0..self.layers.len()).map(|layer| self.key(layer, length, cached > 0));
        let keys: Vec<PlanKey> = keys.collect();
        let sets = (0..).zip(&keys).map(|(layer, key)| self.set(*key, slot, layer, &ends));
        let sets: Vec<usize> = sets.collect::<Result<_>>()?;
        let mut padded: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
        // No token: the rows behind the prompt are zeros, which stay finite.
        padded.resize(length, -1);
        let given = DeviceBuffer::from_slice(&self.device, &padded, "tokens of a prompt")?;
        helpers::embed(&given, None, embedding, &ends[0], self.decoder.width as u32, &self.stream)?;
        let stream = self.stream.clone();
        for (key, set) in keys.iter().zip(sets) {
            self.plan(*key)?.pipeline.run_set_on(Executor::Serial, set, &stream)?;
        }
        self.stream.synchronize()?;
        keys.iter().try_for_each(|key| self.plan(*key)?.pipeline.fault().map_or(Ok(()), |e| Err(e.into())))
    }

    fn plan(&mut self, key: PlanKey) -> Result<&mut Plan> {
        let PlanKey { tokens, continues, layer } = key;
        let entry = match self.plans.entry(key) {
            Entry::Occupied(entry) => return Ok(entry.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let Sizes { rows, element, .. } = self.sizes;
        let page = page::prompt(&self.decoder, layer, tokens, rows, element, continues).text();
        let (overrides, options) = (Overrides::default(), Options::default());
        // `library` chooses between kernels by measurement, and a seed should always give the same text.
        let serial = Some(Executor::Serial);
        let cache = PlanCache::default();
        let planned = tune::plan(&page, "prompt", &overrides, &self.device, serial, &options, &cache)?;
        let pipeline = Pipeline::with_options(&planned.plan, &self.device, options)?;
        Ok(entry.insert(Plan { pipeline, sets: HashMap::new() }))
    }

    /// The set of tensors of a slot and a layer in its plan. `ends`: hidden states before and after even layers.
    fn set(&mut self, key: PlanKey, slot: usize, layer: usize, ends: &[Tensor; 2]) -> Result<usize> {
        if let Some(set) = self.plan(key)?.sets.get(&(slot, layer)) {
            return Ok(*set);
        }
        let packed = self.decoder.experts.is_none().then(|| self.packed(key, layer)).transpose()?;
        let (slots, cached) = (self.sizes.slots, self.cached.clone());
        let angles = self.decoder.angles(key.layer).zip(self.decoder.angles(layer));
        let table = angles.map(|(name, own)| (name, self.tables[&own].clone()));
        let tensors = self.layers[layer].clone();
        let Plan { pipeline, sets } = self.plan(key)?;
        let set = pipeline.sets();
        for (name, tensor) in tensors {
            let (kind, _) = name.split_once('_').unwrap_or((&name, ""));
            let tensor = match kind {
                "K" | "V" => {
                    let part = tensor.len() / slots;
                    Arc::new(tensor.view(slot * part..(slot + 1) * part)?)
                }
                _ => tensor,
            };
            pipeline.bind_in(set, &format!("{kind}_{}", key.layer), tensor)?;
        }
        if let Some((name, table)) = table {
            pipeline.bind_in(set, &name, table)?;
        }
        if key.continues {
            pipeline.bind_integers_in(set, "n", cached)?;
        }
        pipeline.bind_in(set, "X", ends[layer % 2].clone())?;
        pipeline.bind_in(set, "Z", ends[(layer + 1) % 2].clone())?;
        if let Some(packed) = packed {
            pipeline.bind_packed(set, &format!("gate_up_{}", key.layer), packed)?;
        }
        pipeline.prepare()?;
        sets.insert((slot, layer), set);
        Ok(set)
    }

    /// Gate and up weights of a layer, interleaved; all plans share them.
    fn packed(&mut self, key: PlanKey, layer: usize) -> Result<Tensor> {
        if let Some(packed) = self.packed.get(&layer) {
            return Ok(packed.clone());
        }
        let find = |kind: &str| {
            let tensor = self.layers[layer].get(&format!("{kind}_{layer}")).cloned();
            tensor.ok_or_else(|| Error::Request(format!("layer {layer} has no {kind}")))
        };
        let (gate, up) = (find("Wg")?, find("Wu")?);
        let pipeline = &self.plan(key)?.pipeline;
        let name = format!("gate_up_{}", key.layer);
        let stage = pipeline.plan().graph().stages.iter().find(|stage| stage.name == name);
        let (k, n) = stage.map_or((0, 0), |stage| (stage.k, stage.n));
        let packed = Arc::new(DeviceBuffer::new(pipeline.device(), gate.len() + up.len(), "gate and up")?);
        helpers::pack_gated(&gate, &up, &packed, k, n, pipeline.stream())?;
        pipeline.stream().synchronize()?;
        self.packed.insert(layer, packed.clone());
        Ok(packed)
    }
}
