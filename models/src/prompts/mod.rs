//! Prompts on a GPU: one layer after another over many tokens of a sequence. Layers that are computed alike share a plan.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use cusync::codegen::check::Executor;
use cusync::device::helpers::{self, PagedCache};
use cusync::device::{Device, DeviceBuffer, Stream};
use cusync::runtime::{Options, Overrides, Pipeline};
use cusync::tune::{self, PlanCache};

use crate::architecture::Decoder;
use crate::error::{Error, Result};
use crate::page::{self, Part, Sizes};
use crate::pool::PAGE;

pub(crate) mod group;

/// Fewest tokens of a part of a prompt: fewer are appended one by one.
const FEWEST: usize = 16;

/// Tokens of the shortest plan.
const SHORTEST: usize = 64;

/// Fewest rows that a device of several sums.
const SHORTEST_PART: usize = 128;

/// Tokens of the longest plan.
pub(crate) const LONGEST: usize = 8192;

type Tensor = Arc<DeviceBuffer<u16>>;

/// Weights of a layer, and pages of its caches, by their names in a page.
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
    /// Keys and values of one layer for one sequence: plans read and write rows, not pages.
    rows: [Tensor; 2],
    /// Pages of the sequence.
    table: DeviceBuffer<i32>,
    /// Interleaved gate and up weights of each layer.
    packed: HashMap<usize, Tensor>,
    /// The tokens of a run.
    given: Arc<DeviceBuffer<i32>>,
    /// Cached tokens of the sequence that a run continues.
    cached: Arc<DeviceBuffer<i32>>,
    /// Orders the layers, whose plans differ.
    stream: Arc<Stream>,
    plans: HashMap<PlanKey, Plan>,
    /// Of one of several devices.
    exchange: Option<group::Exchange>,
}

/// Layers that are computed alike share a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlanKey {
    part: Part,
    tokens: usize,
    continues: bool,
    /// The first layer that is computed alike.
    layer: usize,
}

/// The pipeline of layers for prompts of one length.
struct Plan {
    pipeline: Pipeline,
    /// Sets by layer, and by the step of a sum.
    sets: HashMap<(usize, usize), usize>,
}

/// A set of a plan, which a run queues.
type Queued = (PlanKey, usize);

impl Prompts {
    pub(crate) fn new(
        decoder: &Decoder,
        sizes: &Sizes,
        device: &Device,
        layers: Vec<Layer>,
        tables: HashMap<String, Tensor>,
    ) -> Result<Prompts> {
        // Devices sum equal parts of the rows.
        let room = LONGEST.min(sizes.rows).next_multiple_of(decoder.devices) * decoder.width;
        let states = || DeviceBuffer::zeroed(device, room, "hidden states of a prompt").map(Arc::new);
        let states = [states()?, states()?];
        let cached = decoder.kv_heads * sizes.rows * decoder.columns;
        let rows = || DeviceBuffer::zeroed(device, cached, "rows of a layer's cache").map(Arc::new);
        let exchange = (decoder.devices > 1).then(|| group::Exchange::new(decoder, sizes, device));
        Ok(Prompts {
            decoder: decoder.clone(),
            sizes: *sizes,
            device: device.clone(),
            layers,
            tables,
            states,
            rows: [rows()?, rows()?],
            table: DeviceBuffer::zeroed(device, sizes.rows / PAGE, "pages of a sequence")?,
            packed: HashMap::new(),
            given: Arc::new(DeviceBuffer::zeroed(device, LONGEST.min(sizes.rows), "tokens of a prompt")?),
            cached: Arc::new(DeviceBuffer::zeroed(device, 1, "cached tokens of a sequence")?),
            stream: Arc::new(Stream::new(device)?),
            plans: HashMap::new(),
            exchange: exchange.transpose()?,
        })
    }

    /// Tokens of the plan for the next `tokens` tokens of a sequence with `cached` ones; `None`: there is none. A cache
    /// has room for all of a plan's tokens, though a prompt may have fewer.
    fn plan_tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        let room = self.sizes.rows.checked_sub(cached)?;
        // Sequences that begin with a prompt have a plan for a whole cache, those that continue have powers of two.
        let longest = LONGEST.min(if cached == 0 { room } else { 1 << room.checked_ilog2()? });
        let devices = self.decoder.devices;
        let shortest = if devices > 1 { SHORTEST_PART * devices.next_power_of_two() } else { SHORTEST };
        (longest >= shortest).then(|| tokens.next_power_of_two().clamp(shortest, longest))
    }

    /// How many of the next `tokens` tokens of a sequence with `cached` ones are computed at once.
    pub(crate) fn tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        Some(tokens.min(self.plan_tokens(cached, tokens)?)).filter(|count| *count >= FEWEST)
    }

    /// The plan of a part of a layer for the next `tokens` tokens of a sequence.
    fn key(&self, part: Part, layer: usize, tokens: usize, continues: bool) -> PlanKey {
        let span = if continues { self.sizes.rows } else { tokens };
        let Decoder { windows, rotated, .. } = &self.decoder;
        // The table of a rotation is bound, so its number makes no difference.
        let kind = |layer: usize| (windows[layer].filter(|window| *window < span), rotated[layer].is_some());
        let attends = matches!(part, Part::Whole | Part::Attend);
        let alike = (0..layer).find(|first| !attends || kind(*first) == kind(layer));
        PlanKey { part, tokens, continues: continues && attends, layer: alike.unwrap_or(layer) }
    }

    /// Appends the keys and values of tokens to the `cached` ones of a sequence on these pages.
    pub(crate) fn run(
        &mut self,
        pages: &[i32],
        cached: usize,
        tokens: &[u32],
        embedding: &Tensor,
    ) -> Result<()> {
        let length = self.length(cached, tokens)?;
        let ends = [self.state(0, length)?, self.state(1, length)?];
        // Whatever a run needs is there before the first of its layers is queued.
        let layers = 0..self.layers.len();
        let set = |layer: usize| {
            let key = self.key(Part::Whole, layer, length, cached > 0);
            let [x, z] = [0, 1].map(|end| ends[(layer + end) % 2].clone());
            self.set(key, layer, 0, &[("X", x), ("Z", z)])
        };
        let sets: Vec<Queued> = layers.map(set).collect::<Result<_>>()?;
        let span = cached..cached + tokens.len();
        self.begin(pages, cached, tokens, length, embedding)?;
        for (layer, set) in sets.into_iter().enumerate() {
            self.queue_attending(set, layer, &span)?;
        }
        self.end()
    }

    /// Queues a set that attends, between copies of its layer's cache: the tokens in front of `span` from pages to rows,
    /// and those of `span` back.
    fn queue_attending(&mut self, set: Queued, layer: usize, span: &Range<usize>) -> Result<()> {
        let stream = self.stream.clone();
        let pages = |tokens: Range<usize>| (tokens.start / PAGE) as u32..tokens.end.div_ceil(PAGE) as u32;
        let cache = self.cache(layer);
        if span.start > 0 {
            cache.gather(pages(0..span.start), &stream)?;
        }
        self.queue(set)?;
        Ok(self.cache(layer).scatter(pages(span.clone()), &stream)?)
    }

    /// A layer's cache of the sequence.
    fn cache(&self, layer: usize) -> PagedCache<'_> {
        let Decoder { kv_heads, columns, .. } = self.decoder;
        let pool = ["K", "V"].map(|name| &*self.layers[layer][&format!("{name}_{layer}")]);
        PagedCache {
            table: &self.table,
            pool,
            rows: self.rows.each_ref().map(|rows| &**rows),
            heads: kv_heads as u32,
            columns: columns as u32,
            capacity: self.sizes.rows as u32,
        }
    }

    /// Tokens of the plan for these tokens.
    fn length(&self, cached: usize, tokens: &[u32]) -> Result<usize> {
        let fault =
            || Error::Request(format!("there is no plan for {} tokens behind {cached}", tokens.len()));
        self.plan_tokens(cached, tokens.len()).ok_or_else(fault)
    }

    /// The hidden states of the first rows before an even or an odd layer.
    fn state(&self, layer: usize, rows: usize) -> Result<Tensor> {
        Ok(Arc::new(self.states[layer % 2].view(0..rows * self.decoder.width)?))
    }

    /// Queues the hidden states of tokens before the first layer.
    fn begin(
        &self,
        pages: &[i32],
        cached: usize,
        tokens: &[u32],
        length: usize,
        embedding: &Tensor,
    ) -> Result<()> {
        self.table.upload(pages)?;
        self.cached.upload(&[cached as i32])?;
        let mut padded: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
        // No token: the rows behind the prompt are zeros, which stay finite.
        padded.resize(length, -1);
        self.given.view(0..length)?.upload(&padded)?;
        let (given, width) = (Arc::new(self.given.view(0..length)?), self.decoder.width as u32);
        Ok(helpers::embed(&given, None, embedding, &*self.state(0, length)?, width, &self.stream)?)
    }

    fn queue(&mut self, (key, set): Queued) -> Result<()> {
        let stream = self.stream.clone();
        Ok(self.plan(key)?.pipeline.run_set_on(Executor::Serial, set, &stream)?)
    }

    /// Waits for what was queued.
    fn end(&mut self) -> Result<()> {
        self.stream.synchronize()?;
        let fault = self.plans.values_mut().find_map(|plan| plan.pipeline.fault());
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn plan(&mut self, key: PlanKey) -> Result<&mut Plan> {
        let PlanKey { part, tokens, continues, layer } = key;
        let entry = match self.plans.entry(key) {
            Entry::Occupied(entry) => return Ok(entry.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let Sizes { rows, element, .. } = self.sizes;
        let page = page::prompt_part(&self.decoder, (layer, part), tokens, rows, element, continues).text();
        let (overrides, options) = (Overrides::default(), Options::default());
        // `library` chooses between kernels by measurement, and a seed should always give the same text.
        let serial = Some(Executor::Serial);
        let cache = PlanCache::default();
        let planned = tune::plan(&page, "prompt", &overrides, &self.device, serial, &options, &cache)?;
        let pipeline = Pipeline::with_options(&planned.plan, &self.device, options)?;
        Ok(entry.insert(Plan { pipeline, sets: HashMap::new() }))
    }

    /// The set of a layer in a plan, with the rows that it reads and writes by their names. `number` tells sets of a layer
    /// apart.
    fn set(&mut self, key: PlanKey, layer: usize, number: usize, rows: &[(&str, Tensor)]) -> Result<Queued> {
        if let Some(set) = self.plan(key)?.sets.get(&(layer, number)) {
            return Ok((key, *set));
        }
        let gates = matches!(key.part, Part::Whole | Part::Gate) && self.decoder.experts.is_none();
        let packed = gates.then(|| self.packed(key, layer)).transpose()?;
        let (cached, [keys, values]) = (self.cached.clone(), self.rows.clone());
        let angles = self.decoder.angles(key.layer).zip(self.decoder.angles(layer));
        let table = angles.map(|(name, own)| (name, self.tables[&own].clone()));
        let tensors = self.layers[layer].clone();
        let Plan { pipeline, sets } = self.plan(key)?;
        let set = pipeline.sets();
        let named: HashSet<String> = pipeline.inputs().map(String::from).collect();
        for (name, tensor) in tensors {
            let (kind, _) = name.split_once('_').unwrap_or((&name, ""));
            let named_alike = format!("{kind}_{}", key.layer);
            if !named.contains(&named_alike) {
                continue;
            }
            let tensor = match kind {
                "K" => keys.clone(),
                "V" => values.clone(),
                _ => tensor,
            };
            pipeline.bind_in(set, &named_alike, tensor)?;
        }
        if let Some((name, table)) = table.filter(|(name, _)| named.contains(name)) {
            pipeline.bind_in(set, &name, table)?;
        }
        if key.continues {
            pipeline.bind_integers_in(set, "n", cached)?;
        }
        for (name, tensor) in rows {
            pipeline.bind_in(set, name, tensor.clone())?;
        }
        if let Some(packed) = packed {
            pipeline.bind_packed(set, &format!("gate_up_{}", key.layer), packed)?;
        }
        pipeline.prepare()?;
        sets.insert((layer, number), set);
        Ok((key, set))
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
