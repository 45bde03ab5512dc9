//! A model on a GPU. A step is a graph: embedding, launches of several layers each, and the draw of tokens. Steps
//! follow each other on one stream, and the host may queue a step before it knows the tokens of the one before.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use cusync::Session;
use cusync::device::{
    CopyCall, Device, DeviceBuffer, Event, GraphExec, PinnedBuffer, Stream, element_code, helpers,
};
use cusync::element::Bits;
use cusync::ffi::cusync_sampling;
use cusync::runtime::{Options, Overlap, Overrides, resolve_text};

use crate::architecture::{Decoder, Weight};
use crate::error::{Error, Result};
use crate::page::{self, Sizes};
use crate::pool::{PAGE, Pool};
use crate::prompts::group::Member;
use crate::prompts::{LONGEST, Layer, Prompts};
use crate::sample::Next;
use crate::weights::{Loaded, Weights};

/// Bytes of device memory left for results, semaphores and the driver.
const SPARE: u64 = 1 << 30;

/// 32-bit words of a slot's sampling.
const SAMPLING: usize = size_of::<cusync_sampling>() / size_of::<u32>();

/// Largest number of sequences of a decode kernel.
pub const MAX_GPU_SLOTS: usize = 32;

/// Steps that may be in flight: the host reads the tokens of one while the next one runs.
pub(crate) const LOOKAHEAD: usize = 2;

pub(crate) struct GpuModel {
    device: Device,
    stream: Stream,
    /// Pipelines of the layers, in order.
    pub(crate) parts: Vec<Session>,
    tokens: StepMemory,
    logits: (Arc<PinnedBuffer>, CopyCall),
    /// Copies of a step from and to the host; each step in flight has its own.
    turns: Vec<Turn>,
    /// Turns of the steps in flight, oldest first.
    queued: VecDeque<usize>,
    graph: Option<GraphExec>,
    prompts: Option<Prompts>,
    /// Values of the last logits that were read.
    bits: Vec<u16>,
}

/// Device memory around the layers of a step.
struct StepMemory {
    vocabulary: u32,
    element: u32,
    embedding: Arc<DeviceBuffer<u16>>,
    states: Arc<DeviceBuffer<u16>>,
    logits: Arc<DeviceBuffer<u16>>,
    /// Cached tokens of each slot.
    lengths: Arc<DeviceBuffer<i32>>,
    /// Token of each slot; negative for the token drawn last.
    given: Arc<DeviceBuffer<i32>>,
    sampling: Arc<DeviceBuffer<cusync_sampling>>,
    /// Pages of each slot.
    pages: Arc<DeviceBuffer<i32>>,
    drawn: Arc<DeviceBuffer<i32>>,
}

/// Copies of a step between host and device.
struct Turn {
    inputs: (Arc<PinnedBuffer>, CopyCall),
    drawn: (Arc<PinnedBuffer>, CopyCall),
    done: Event,
}

impl Turn {
    fn new(device: &Device, inputs: &Arc<DeviceBuffer<u32>>, drawn: &Arc<DeviceBuffer<u32>>) -> Result<Turn> {
        let pinned = |len| PinnedBuffer::new(device, len).map(Arc::new);
        let (from, to) = (pinned(inputs.len())?, pinned(drawn.len())?);
        Ok(Turn {
            inputs: (from.clone(), CopyCall::upload(&from, inputs)?),
            drawn: (to.clone(), CopyCall::download(drawn, &to)?),
            done: Event::ordering(device)?,
        })
    }
}

impl GpuModel {
    /// Reason why the model cannot run on a GPU.
    pub(crate) fn obstacle(decoder: &Decoder, sizes: &Sizes, device: &Device) -> Result<Option<String>> {
        if sizes.slots > MAX_GPU_SLOTS {
            let help = format!("choose at most {MAX_GPU_SLOTS}, or the host");
            return Ok(Some(format!("a GPU holds no {} slots\n  help: {help}", sizes.slots)));
        }
        let Some(profile) = device.profile().filter(|_| !cusync::device::kernels().is_empty()) else {
            let help = "`cusync doctor` says what is missing; the host needs no kernels";
            return Ok(Some(format!("there are no kernels for {}\n  help: {help}", device.name())));
        };
        // Later layers are like the first.
        for launch in page::launches(&Decoder { layers: 1, ..decoder.clone() }) {
            let text = page::generation(decoder, &launch, sizes.caches(), sizes.element).text();
            let resolved = resolve_text(&text, "layer", &Overrides::default())?;
            if let Some((_, reason)) = cusync::codegen::choose::fallback(&resolved, &profile) {
                return Ok(Some(format!("{}: {reason}", device.name())));
            }
        }
        Ok(None)
    }

    pub(crate) fn open(
        decoder: &Decoder,
        weights: &Weights,
        sizes: &Sizes,
        device: &Device,
        progress: &mut impl FnMut(Loaded),
    ) -> Result<GpuModel> {
        let Sizes { slots, context, rows, element, .. } = *sizes;
        // Prompts normalize heads where they rotate them, and add hidden states before they sum over devices.
        let rotated = !decoder.head_norm || decoder.rotated.iter().all(Option::is_some);
        let adds = decoder.devices == 1 || !decoder.norms_behind;
        let keeps = rotated && adds && fit(decoder, sizes, device)?;
        // Each of the four parts begins at a multiple of 16 bytes.
        let column = slots.next_multiple_of(4);
        let table = 2 * column + SAMPLING * slots;
        let words = |len, name| DeviceBuffer::<u32>::zeroed(device, len, name).map(Arc::new);
        let inputs = words(table + slots * rows / PAGE, "inputs of a step")?;
        let drawn = words(slots, "drawn tokens")?;
        let outputs = words(slots * decoder.logits() / 2, "logits")?;
        let state = || DeviceBuffer::zeroed(device, slots * decoder.width, "hidden states").map(Arc::new);
        let upload = |bits: &[u16], name: &str| DeviceBuffer::from_slice(device, bits, name).map(Arc::new);
        let tokens = StepMemory {
            vocabulary: decoder.vocabulary as u32,
            element: element_code(element),
            embedding: upload(&weights.embedding(decoder, element)?, "embedding")?,
            states: state()?,
            logits: Arc::new(outputs.view(0..outputs.len())?),
            lengths: Arc::new(inputs.view(0..slots)?),
            given: Arc::new(inputs.view(column..column + slots)?),
            sampling: Arc::new(inputs.view(2 * column..table)?),
            pages: Arc::new(inputs.view(table..inputs.len())?),
            drawn: Arc::new(drawn.view(0..slots)?),
        };
        let angles = |(name, table): (String, Vec<f32>)| -> Result<(String, Arc<DeviceBuffer<u16>>)> {
            let mut bits = vec![0; table.len()];
            element.round(&table, &mut bits);
            Ok((name, upload(&bits, "angles")?))
        };
        let tables: HashMap<_, _> =
            decoder.tables(rows, context).into_iter().map(angles).collect::<Result<_>>()?;
        let cache = sizes.pages * decoder.kv_heads * PAGE * decoder.columns;
        // Nothing writes weights while steps run.
        let options = Options { overlap: Overlap::All, ..Options::default() };
        let (mut parts, mut kept) = (Vec::<Session>::new(), vec![Layer::new(); decoder.layers]);
        let mut x = tokens.states.clone();
        for launch in page::launches(decoder) {
            let text = page::generation(decoder, &launch, sizes.caches(), element).text();
            let mut session = Session::on_gpu(&text, &[], device, None, options)?;
            let named = session.inputs();
            let load = |session: &Session, weight: &Weight| -> Result<Arc<DeviceBuffer<u16>>> {
                let (_, width) = session.shape(&weight.name)?;
                Ok(upload(&weights.read(weight, width, element)?, &weight.name)?)
            };
            for name in launch.reads() {
                let tensor = match parts.last_mut() {
                    // The launch before keeps what only this one reads.
                    Some(before) if name != "X" => before.pipeline()?.tensor(0, &name)?,
                    _ => x.clone(),
                };
                session.bind(&name, tensor)?;
            }
            for (name, table) in tables.iter().filter(|(name, _)| named.contains(name)) {
                session.bind(name, table.clone())?;
            }
            if named.iter().any(|name| name == "n") {
                session.bind_integers("n", tokens.lengths.clone())?;
                session.bind_integers("pages", tokens.pages.clone())?;
            }
            for layer in launch.layers(decoder) {
                let mut tensors = Layer::new();
                for weight in decoder.layer_weights(layer).iter().filter(|w| named.contains(&w.name)) {
                    tensors.insert(weight.name.clone(), load(&session, weight)?);
                }
                for name in ["K", "V"].map(|name| format!("{name}_{layer}")) {
                    if named.contains(&name) {
                        let zeros = DeviceBuffer::zeroed(device, cache, &name)?;
                        tensors.insert(name, Arc::new(zeros));
                    }
                }
                for (name, tensor) in &tensors {
                    session.bind(name, tensor.clone())?;
                }
                if keeps {
                    kept[layer].extend(tensors);
                }
                if launch.ends_layers() {
                    progress(Loaded { layers: layer + 1, total: decoder.layers });
                }
            }
            if launch.has_head(decoder) {
                for weight in decoder.head_weights() {
                    session.bind(&weight.name, load(&session, &weight)?)?;
                }
                session.bind("logits", tokens.logits.clone())?;
            } else if launch.ends_layers() {
                x = state()?;
                session.bind("Z", x.clone())?;
            }
            // What a step needs is there before memory is freed for the next part; a group must be formed first.
            if decoder.devices == 1 {
                session.pipeline()?.prepare()?;
            }
            session.pipeline()?.release_originals()?;
            parts.push(session);
        }
        let prompts = keeps.then(|| Prompts::new(decoder, sizes, device, kept, tables)).transpose()?;
        let pinned = Arc::new(PinnedBuffer::new(device, outputs.len())?);
        Ok(GpuModel {
            device: device.clone(),
            stream: Stream::new(device)?,
            parts,
            tokens,
            logits: (pinned.clone(), CopyCall::download(&outputs, &pinned)?),
            turns: (0..LOOKAHEAD).map(|_| Turn::new(device, &inputs, &drawn)).collect::<Result<_>>()?,
            queued: VecDeque::new(),
            graph: None,
            prompts,
            bits: vec![0; slots * decoder.logits()],
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// How many of the next `tokens` tokens of a sequence with `cached` ones are computed at once; `None`: none.
    pub(crate) fn prompt_tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        self.prompts.as_ref()?.tokens(cached, tokens)
    }

    /// Prompts and what they embed tokens by, behind the steps in flight.
    pub(crate) fn prompts(&mut self) -> Result<Option<Member<'_>>> {
        self.stream.synchronize()?;
        Ok(self.prompts.as_mut().map(|prompts| (prompts, &self.tokens.embedding)))
    }

    /// Captures a step, unless it has been captured.
    pub(crate) fn ready(&mut self) -> Result<()> {
        if self.graph.is_none() {
            self.graph = Some(self.capture()?);
        }
        Ok(())
    }

    /// Queues a step of a model that is ready. At most [`LOOKAHEAD`] may be in flight.
    pub(crate) fn queue(&mut self, next: &[Next], lengths: &[i32], pool: &Pool) -> Result<()> {
        let free = (0..self.turns.len()).find(|turn| !self.queued.contains(turn));
        let Some(turn) = free else {
            return Err(Error::Request(format!("{LOOKAHEAD} steps are in flight: read their tokens first")));
        };
        let column = lengths.len().next_multiple_of(4);
        let mut words = vec![0; self.turns[turn].inputs.0.len()];
        for (word, length) in words.iter_mut().zip(lengths) {
            *word = *length as u32;
        }
        let idle = cusync_sampling { temperature: -1.0, ..cusync_sampling::default() };
        let mut drawing = vec![idle; lengths.len()];
        for Next { slot, token, sampling, seed } in next {
            words[column + slot] = token.unwrap_or(u32::MAX);
            drawing[*slot] = cusync_sampling {
                temperature: sampling.temperature,
                top_p: sampling.top_p,
                top_k: sampling.top_k,
                seed: *seed,
            };
        }
        let (steps, table) = words.split_at_mut(2 * column + SAMPLING * lengths.len());
        table.iter_mut().zip(pool.table()).for_each(|(word, page)| *word = *page as u32);
        for (words, drawing) in steps[2 * column..].chunks_mut(SAMPLING).zip(drawing) {
            let cusync_sampling { temperature, top_p, top_k, seed } = drawing;
            words.copy_from_slice(&[temperature.to_bits(), top_p.to_bits(), top_k, seed]);
        }
        let Turn { inputs, drawn, done } = &self.turns[turn];
        inputs.0.write(&words)?;
        self.stream.copy(&inputs.1)?;
        if let Some(graph) = &self.graph {
            graph.launch(&self.stream)?;
        }
        self.stream.copy(&drawn.1)?;
        self.stream.record(done)?;
        self.queued.push_back(turn);
        Ok(())
    }

    /// Captures a step. Pipelines are prepared first, because loading their kernels would disturb a capture.
    fn capture(&mut self) -> Result<GraphExec> {
        self.parts.iter_mut().try_for_each(|part| part.pipeline()?.prepare().map_err(Error::from))?;
        let GpuModel { stream, parts, tokens, .. } = self;
        stream.capture(|| {
            let width = (tokens.states.len() / tokens.given.len()) as u32;
            let StepMemory { embedding, states, logits, lengths, given, sampling, drawn, .. } = &*tokens;
            helpers::embed(given, Some(drawn), embedding, states, width, stream)?;
            parts.iter_mut().try_for_each(|part| part.run_on(stream))?;
            Ok(helpers::draw(logits, tokens.vocabulary, sampling, lengths, drawn, tokens.element, stream)?)
        })
    }

    /// Waits for the oldest step in flight, and returns the token drawn for each slot.
    pub(crate) fn drawn(&mut self) -> Result<Vec<u32>> {
        let Some(turn) = self.queued.pop_front() else { return Ok(Vec::new()) };
        let done = self.turns[turn].done.synchronize();
        // A wait that timed out is reported as the edge that it waited for.
        for part in &mut self.parts {
            part.pipeline()?.synchronize()?;
        }
        done?;
        Ok(self.turns[turn].drawn.0.read())
    }

    /// Logits of all slots after the last step, which has been waited for.
    pub(crate) fn logits(&mut self) -> Result<&[u16]> {
        self.stream.copy(&self.logits.1)?;
        self.stream.synchronize()?;
        for (pair, word) in self.bits.chunks_exact_mut(2).zip(self.logits.0.read()) {
            (pair[0], pair[1]) = (word as u16, (word >> 16) as u16);
        }
        Ok(&self.bits)
    }
}

/// Whether row-major weights, which prompts read, fit beside the weights and caches of generation.
///
/// # Errors
/// The latter do not fit.
fn fit(decoder: &Decoder, sizes: &Sizes, device: &Device) -> Result<bool> {
    let Decoder { layers, width, heads, kv_heads, columns, inner, .. } = *decoder;
    let bytes = |elements: usize| 2 * elements as u64;
    let mlp = bytes(3 * width * inner);
    // Experts have one form for prompts and generation.
    let experts = decoder.experts.map_or(0, |experts| layers as u64 * experts.count as u64 * mlp);
    let mlp = if decoder.experts.is_some() { 0 } else { mlp };
    let layer = bytes(width * decoder.qkv() + heads * columns * width) + mlp;
    let head = bytes(width * decoder.logits());
    let token = bytes(2 * kv_heads * columns);
    let cache = (layers * sizes.pages * PAGE) as u64 * token;
    // The embedding is as large as the head.
    let all = layers as u64 * layer + 2 * head;
    // Originals of one launch at a time, beside their repacked form.
    let longest =
        page::launches(decoder).iter().map(|part| part.layers(decoder).len() as u64).max().unwrap_or(0);
    let weights = all + longest * layer + head + experts;
    let free = device.memory()?.0.saturating_sub(SPARE);
    if weights + cache > free {
        return Err(Error::Memory {
            need_mib: (weights + cache) >> 20,
            free_mib: free >> 20,
            weights_mib: weights >> 20,
            cache_mib: cache >> 20,
        });
    }
    // Plans of all lengths, for new sequences and for those that continue, have lists and rows of experts.
    let longest = sizes.rows.min(LONGEST);
    let lists = decoder.experts.map_or(0, |experts| bytes(4 * longest * experts.top_k * (inner + width)));
    // Prompts read row-major weights, with gate and up interleaved, and the rows of one layer's cache.
    let rows = sizes.rows as u64 * token;
    Ok(weights + all + layers as u64 * mlp + lists + rows + cache <= free)
}
