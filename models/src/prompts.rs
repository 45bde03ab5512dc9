//! Prompts on a GPU: one layer after another over many tokens of a sequence.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use cusync::codegen::check::Executor;
use cusync::device::{Device, DeviceBuffer, helpers};
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
    /// Plans by their length and by whether they continue a sequence.
    plans: HashMap<(usize, bool), Plan>,
}

/// The pipeline of a layer for prompts of one length.
struct Plan {
    pipeline: Pipeline,
    /// First set of each slot; a slot has one set per layer.
    slots: HashMap<usize, usize>,
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
            plans: HashMap::new(),
        })
    }

    /// Tokens of the longest plan. A plan runs all layers, so it is not longer than a window that only some have.
    fn longest(&self) -> usize {
        let windows = &self.decoder.windows;
        let shortest = windows.iter().flatten().min().filter(|_| windows.iter().any(|w| *w != windows[0]));
        LONGEST.min(self.sizes.rows).min(shortest.map_or(LONGEST, |window| window / SHORTEST * SHORTEST))
    }

    /// Tokens of the plan for the next `tokens` tokens of a sequence with `cached` ones; `None`: there is none. A cache
    /// has room for all of a plan's tokens, though a prompt may have fewer.
    fn plan_tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        let length = tokens.next_power_of_two();
        if cached == 0 {
            let longest = self.longest();
            return (longest >= SHORTEST).then(|| length.clamp(SHORTEST, longest));
        }
        let windows = &self.decoder.windows;
        let room = self.sizes.rows.checked_sub(cached).and_then(usize::checked_ilog2)?;
        let length = length.clamp(SHORTEST, LONGEST).min(1 << room);
        (length >= SHORTEST && windows.iter().all(|window| *window == windows[0])).then_some(length)
    }

    /// How many of the next `tokens` tokens of a sequence with `cached` ones are computed at once.
    pub(crate) fn tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        Some(tokens.min(self.plan_tokens(cached, tokens)?)).filter(|count| *count >= FEWEST)
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
        let continues = cached > 0;
        let plan = match self.plans.entry((length, continues)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let Sizes { rows, element, .. } = self.sizes;
                let page = page::prompt(&self.decoder, length, rows, element, continues).text();
                let overrides = Overrides::default();
                let options = Options::default();
                // `library` chooses between kernels by measurement, and a seed should always give the same text.
                let serial = Some(Executor::Serial);
                let cache = PlanCache::default();
                let planned =
                    tune::plan(&page, "prompt", &overrides, &self.device, serial, &options, &cache)?;
                let pipeline = Pipeline::with_options(&planned.plan, &self.device, options)?;
                entry.insert(Plan { pipeline, slots: HashMap::new() })
            }
        };
        let Plan { pipeline, slots } = plan;
        let values = length * self.decoder.width;
        let ends = [self.states[0].view(0..values)?, self.states[1].view(0..values)?].map(Arc::new);
        let first = match slots.get(&slot) {
            Some(first) => *first,
            None => {
                let first = pipeline.sets();
                for (number, layer) in self.layers.iter().enumerate() {
                    let set = first + number;
                    for (name, tensor) in layer {
                        // The pipeline has the names of layer 0.
                        let (kind, _) = name.split_once('_').unwrap_or((name, ""));
                        let tensor = match kind {
                            "K" | "V" => {
                                let part = tensor.len() / self.sizes.slots;
                                Arc::new(tensor.view(slot * part..(slot + 1) * part)?)
                            }
                            _ => tensor.clone(),
                        };
                        pipeline.bind_in(set, &format!("{kind}_0"), tensor)?;
                    }
                    if let (Some(name), Some(own)) = (self.decoder.angles(0), self.decoder.angles(number)) {
                        pipeline.bind_in(set, &name, self.tables[&own].clone())?;
                    }
                    if continues {
                        pipeline.bind_integers_in(set, "n", self.cached.clone())?;
                    }
                    pipeline.bind_in(set, "X", ends[number % 2].clone())?;
                    pipeline.bind_in(set, "Z", ends[(number + 1) % 2].clone())?;
                    if self.decoder.experts.is_none() {
                        let packed = packed(&mut self.packed, layer, number, pipeline)?;
                        pipeline.bind_packed(set, "gate_up_0", packed)?;
                    }
                }
                pipeline.prepare()?;
                slots.insert(slot, first);
                first
            }
        };
        let mut padded: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
        // No token: the rows behind the prompt are zeros, which stay finite.
        padded.resize(length, -1);
        let given = DeviceBuffer::from_slice(&self.device, &padded, "tokens of a prompt")?;
        let width = self.decoder.width as u32;
        helpers::embed(&given, None, embedding, &ends[0], width, pipeline.stream())?;
        (first..first + self.layers.len()).try_for_each(|set| pipeline.run_set(Executor::Serial, set))?;
        Ok(pipeline.synchronize()?)
    }
}

/// Gate and up weights of a layer, interleaved; pipelines of all lengths share them.
fn packed(
    all: &mut HashMap<usize, Tensor>,
    layer: &Layer,
    number: usize,
    pipeline: &Pipeline,
) -> Result<Tensor> {
    if let Some(packed) = all.get(&number) {
        return Ok(packed.clone());
    }
    let device = pipeline.device();
    let find = |name: &str| layer.iter().find(|(full, _)| full.starts_with(name)).map(|(_, tensor)| tensor);
    let (Some(gate), Some(up)) = (find("Wg_"), find("Wu_")) else {
        return Err(Error::Request(format!("layer {number} has no gate")));
    };
    let stage = pipeline.plan().graph().stages.iter().find(|stage| stage.name == "gate_up_0");
    let (k, n) = stage.map_or((0, 0), |stage| (stage.k, stage.n));
    let packed = Arc::new(DeviceBuffer::new(device, gate.len() + up.len(), "gate and up")?);
    helpers::pack_gated(gate, up, &packed, k, n, pipeline.stream())?;
    pipeline.stream().synchronize()?;
    all.insert(number, packed.clone());
    Ok(packed)
}
