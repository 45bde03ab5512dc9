//! A model on a GPU: launches of several layers, captured as one graph with the copies before and after.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use cusync::Session;
use cusync::device::{CopyCall, Device, DeviceBuffer, GraphExec, PinnedBuffer, Stream};
use cusync::runtime::{Options, Overlap, Overrides, resolve_text};

use crate::architecture::{Decoder, Weight};
use crate::error::{Error, Result};
use crate::model::{Loaded, MAX_GPU_SLOTS, Sizes};
use crate::page;
use crate::prompts::Prompts;
use crate::weights::Weights;

/// 16-bit values per word of a copy.
const HALVES: usize = 2;

/// Bytes of device memory left for results, semaphores and the driver.
const SPARE: u64 = 1 << 30;

/// Weights and caches of a layer by their names in a page.
pub(crate) type Layer = HashMap<String, Arc<DeviceBuffer<u16>>>;

pub(crate) struct Gpu {
    device: Device,
    stream: Stream,
    parts: Vec<Session>,
    /// Hidden states and lengths on their way to the GPU.
    inputs: (Arc<PinnedBuffer>, CopyCall),
    logits: (Arc<PinnedBuffer>, CopyCall),
    graph: Option<GraphExec>,
    prompts: Option<Prompts>,
    /// Values of the last step's logits.
    bits: Vec<u16>,
}

impl Gpu {
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
        let text = page::generation(decoder, 0..1, sizes.slots, sizes.rows, sizes.element).text();
        let resolved = resolve_text(&text, "layer", &Overrides::default())?;
        let fallback = cusync::codegen::choose::fallback(&resolved, &profile);
        Ok(fallback.map(|(_, reason)| format!("{}: {reason}", device.name())))
    }

    pub(crate) fn open(
        decoder: &Decoder,
        weights: &Weights,
        sizes: &Sizes,
        device: &Device,
        progress: &mut impl FnMut(Loaded),
    ) -> Result<Gpu> {
        let Sizes { slots, rows, element } = *sizes;
        let keeps = fit(decoder, sizes, device)?;
        let stream = Stream::new(device)?;
        let states = slots * decoder.width;
        // Lengths begin at a multiple of 16 bytes.
        let words = (states / HALVES).next_multiple_of(4) + slots;
        let buffer = Arc::new(DeviceBuffer::<u32>::zeroed(device, words, "hidden states and lengths")?);
        let pinned = Arc::new(PinnedBuffer::new(device, words)?);
        let inputs = (pinned.clone(), CopyCall::upload(&pinned, &buffer)?);
        let mut x = Arc::new(buffer.view::<u16>(0..states / HALVES)?);
        let lengths = Arc::new(buffer.view::<i32>(words - slots..words)?);
        let outputs = slots * decoder.logits();
        let buffer = Arc::new(DeviceBuffer::<u32>::zeroed(device, outputs / HALVES, "logits")?);
        let pinned = Arc::new(PinnedBuffer::new(device, outputs / HALVES)?);
        let logits = (pinned.clone(), CopyCall::download(&buffer, &pinned)?);
        let angles = {
            use cusync::element::Bits;
            let table = decoder.rotary.table(rows);
            let mut bits = vec![0; table.len()];
            element.round(&table, &mut bits);
            Arc::new(DeviceBuffer::from_slice(device, &bits, "angles")?)
        };
        let cache = slots * decoder.kv_heads * rows * decoder.columns;
        // Nothing writes weights while a graph runs.
        let options = Options { overlap: Overlap::All, ..Options::default() };
        let (mut parts, mut kept) = (Vec::new(), Vec::new());
        for layers in page::launches(decoder.layers) {
            let text = page::generation(decoder, layers.clone(), slots, rows, element).text();
            let mut session = Session::on_gpu(&text, &[], device, None, options)?;
            session.bind("X", x.clone())?;
            session.bind("cs", angles.clone())?;
            session.bind_integers("n", lengths.clone())?;
            let last = layers.end == decoder.layers;
            for layer in layers {
                let mut tensors = Layer::new();
                for weight in decoder.layer_weights(layer) {
                    tensors.insert(weight.name.clone(), load(&session, &weight, weights, sizes, device)?);
                }
                for name in ["K", "V"].map(|name| format!("{name}_{layer}")) {
                    let zeros = DeviceBuffer::zeroed(device, cache, &name)?;
                    tensors.insert(name, Arc::new(zeros));
                }
                for (name, tensor) in &tensors {
                    session.bind(name, tensor.clone())?;
                }
                kept.push(tensors);
                progress(Loaded { layers: layer + 1, of: decoder.layers });
            }
            if last {
                for weight in decoder.head_weights() {
                    session.bind(&weight.name, load(&session, &weight, weights, sizes, device)?)?;
                }
                session.bind("logits", Arc::new(buffer.view::<u16>(0..outputs / HALVES)?))?;
            } else {
                x = Arc::new(DeviceBuffer::zeroed(device, states, "hidden states")?);
                session.bind("Z", x.clone())?;
            }
            if !keeps {
                kept.clear();
            }
            session.pipeline()?.release_originals()?;
            parts.push(session);
        }
        let prompts = keeps.then(|| Prompts::new(decoder, sizes, device, kept, angles)).transpose()?;
        Ok(Gpu {
            device: device.clone(),
            stream,
            parts,
            inputs,
            logits,
            graph: None,
            prompts,
            bits: vec![0; outputs],
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Number of a new sequence's tokens that are computed as a prompt, out of `tokens`; `None`: none.
    pub(crate) fn prompt_tokens(&self, tokens: usize) -> Option<usize> {
        self.prompts.as_ref()?.tokens(tokens)
    }

    /// Fills the cache of a slot with a prompt's keys and values.
    pub(crate) fn prompt(&mut self, slot: usize, states: &[u16]) -> Result<()> {
        self.prompts.as_mut().map_or(Ok(()), |prompts| prompts.run(slot, states))
    }

    /// Logits of all slots.
    pub(crate) fn step(&mut self, states: &[u16], lengths: &[i32]) -> Result<Cow<'_, [u16]>> {
        let pinned = &self.inputs.0;
        let mut words: Vec<u32> =
            states.chunks_exact(HALVES).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect();
        words.resize(pinned.len() - lengths.len(), 0);
        words.extend(lengths.iter().map(|length| *length as u32));
        pinned.write(&words)?;
        match &self.graph {
            Some(graph) => graph.launch(&self.stream)?,
            None => {
                self.queue()?;
                self.finish()?;
                let stream = Stream::new(&self.device)?;
                let queue = std::mem::replace(&mut self.stream, stream);
                let graph =
                    queue.capture(|| queue_on(&mut self.parts, &self.inputs.1, &self.logits.1, &queue));
                self.stream = queue;
                self.graph = Some(graph?);
            }
        }
        self.finish()?;
        for (pair, word) in self.bits.chunks_exact_mut(HALVES).zip(self.logits.0.read()) {
            (pair[0], pair[1]) = (word as u16, (word >> 16) as u16);
        }
        Ok(Cow::Borrowed(&self.bits))
    }

    fn queue(&mut self) -> Result<()> {
        queue_on(&mut self.parts, &self.inputs.1, &self.logits.1, &self.stream)
    }

    /// Waits for the step, and reports a wait that timed out.
    fn finish(&mut self) -> Result<()> {
        let done = self.stream.synchronize();
        for part in &mut self.parts {
            part.pipeline()?.synchronize()?;
        }
        Ok(done?)
    }
}

/// Queues a step.
fn queue_on(parts: &mut [Session], inputs: &CopyCall, logits: &CopyCall, stream: &Stream) -> Result<()> {
    stream.copy(inputs)?;
    parts.iter_mut().try_for_each(|part| part.run_on(stream))?;
    Ok(stream.copy(logits)?)
}

fn load(
    session: &Session,
    weight: &Weight,
    weights: &Weights,
    sizes: &Sizes,
    device: &Device,
) -> Result<Arc<DeviceBuffer<u16>>> {
    let (_, width) = session.shape(&weight.name)?;
    let bits = weights.read(weight, width, sizes.element)?;
    Ok(Arc::new(DeviceBuffer::from_slice(device, &bits, &weight.name)?))
}

/// Whether row-major weights, which prompts read, fit beside the weights and caches of generation.
///
/// # Errors
/// The latter do not fit.
fn fit(decoder: &Decoder, sizes: &Sizes, device: &Device) -> Result<bool> {
    let Decoder { layers, width, heads, kv_heads, columns, inner, .. } = *decoder;
    let bytes = |elements: usize| 2 * elements as u64;
    let mlp = bytes(3 * width * inner);
    let layer = bytes(width * decoder.qkv() + heads * columns * width) + mlp;
    let head = bytes(width * decoder.logits());
    let cache = bytes(2 * layers * sizes.slots * kv_heads * sizes.rows * columns);
    let all = layers as u64 * layer + head;
    // Originals of one launch at a time, beside their repacked form.
    let longest = page::launches(layers).into_iter().map(|part| part.len() as u64).max().unwrap_or(0);
    let weights = all + longest * layer + head;
    let free = device.memory()?.0.saturating_sub(SPARE);
    if weights + cache > free {
        return Err(Error::Memory {
            place: "device",
            need_mib: (weights + cache) >> 20,
            free_mib: free >> 20,
            weights_mib: weights >> 20,
            cache_mib: cache >> 20,
        });
    }
    // Prompts read row-major weights, with gate and up interleaved.
    Ok(weights + all + layers as u64 * mlp + cache <= free)
}
