//! A model with its caches: tokens of sequences in, logits out.

use std::collections::VecDeque;
use std::path::Path;

use cusync::codegen::graph::Element;
use cusync::device::Device;

use crate::architecture::{self, Decoder};
use crate::checkpoint::Checkpoint;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::given::GivenWeight;
use crate::gpu::{GpuModel, LOOKAHEAD};
use crate::gpus::Gpus;
use crate::host::HostModel;
use crate::logits::Logits;
use crate::page::Sizes;
use crate::pool::{PAGE, Pool};
use crate::sample::{Next, Sampling};
use crate::weights::{Loaded, Weights};

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Place {
    /// On GPU 0 if there is one with kernels for all stages, else on the host.
    #[default]
    Best,
    /// On the host.
    Host,
    /// On this GPU; several devices are this one and those behind it.
    Gpu(u32),
}

/// Options of a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Sequences at once; 0: one.
    pub slots: usize,
    /// Tokens of a sequence at most; `None`: as many as the model was trained for, up to 4096.
    pub context: Option<usize>,
    /// Tokens that caches have room for, of all sequences together; `None`: a whole context for each slot. Sequences
    /// take pages of [`PAGE`] tokens as they grow.
    pub cache_tokens: Option<usize>,
    /// Element type; `None`: that of the checkpoint.
    pub element: Option<Element>,
    /// Where it runs.
    pub place: Place,
    /// GPUs, or groups of host threads, that share the work of each step; 0: one. See [`Decoder::shard`].
    pub devices: usize,
    /// Random weights in place of the checkpoint's: only `config.json` is read.
    pub random: bool,
}

pub(crate) enum Backend {
    Host(Box<HostModel>),
    Gpu(Box<Gpus>),
}

/// A model that holds up to `slots` sequences.
///
/// A slot holds a sequence: [`Model::append`], [`Model::step`] and [`Model::queue`] add tokens to it, and
/// [`Model::clear`] makes room for another. Slots do not influence each other.
pub struct Model {
    decoder: Decoder,
    element: Element,
    weights: Weights,
    backend: Backend,
    devices: usize,
    context: usize,
    lengths: Vec<usize>,
    pool: Pool,
    ends: Vec<u32>,
    /// Slots of the steps in flight, oldest first, in their order.
    queued: VecDeque<Vec<usize>>,
}

impl Model {
    /// Opens the checkpoint in a folder. Everything is checked before weights are loaded.
    ///
    /// # Errors
    /// The checkpoint is incomplete, its architecture is not supported, or memory is short.
    pub fn open(folder: &Path, options: &Options, progress: impl FnMut(Loaded)) -> Result<Model> {
        let config = ModelConfig::read(folder)?;
        architecture::decoder(&config)?;
        let weights = if options.random { Weights::Random } else { Weights::open(folder)? };
        Model::with_weights(&config, weights, options, progress)
    }

    /// Takes a model from weights in memory. `config`: the text of `config.json`.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_given(
        config: &str,
        weights: Vec<GivenWeight>,
        options: &Options,
        progress: impl FnMut(Loaded),
    ) -> Result<Model> {
        let config = ModelConfig::from_json(config)?;
        Model::with_weights(&config, Weights::Files(Checkpoint::given(weights)), options, progress)
    }

    fn with_weights(
        config: &ModelConfig,
        weights: Weights,
        options: &Options,
        mut progress: impl FnMut(Loaded),
    ) -> Result<Model> {
        let decoder = architecture::decoder(config)?;
        let element = options.element.map_or_else(|| config.element(), Ok)?;
        weights.check(&decoder)?;
        let slots = options.slots.max(1);
        let context = options.context.unwrap_or(decoder.context.min(4096));
        if context == 0 || context > decoder.context {
            return Err(Error::Request(format!(
                "a context of {context} tokens\n  help: this model has at most {}",
                decoder.context
            )));
        }
        let cache_tokens = options.cache_tokens.unwrap_or(slots * context.next_multiple_of(PAGE));
        if cache_tokens < context {
            return Err(Error::Request(format!(
                "caches of {cache_tokens} tokens have no room for a context of {context}\n  help: choose a shorter \
                 context, or larger caches"
            )));
        }
        let pool = Pool::new(slots, context, cache_tokens);
        // Slots that do not take part in a step write behind their last token, to a spare page if theirs are full.
        let rows = (context + 1).next_multiple_of(PAGE);
        let sizes = Sizes { slots, context, rows, pages: pool.pages() + slots, element };
        let devices = options.devices.max(1);
        let gpus = gpus(options.place, devices, &decoder.shard(0, devices)?, &sizes)?;
        let backend = match gpus.split_first() {
            Some(gpus) => {
                Backend::Gpu(Box::new(Gpus::open(&decoder, &weights, &sizes, gpus, &mut progress)?))
            }
            None => {
                let host = HostModel::open(&decoder, devices, &weights, &sizes, &mut progress)?;
                Backend::Host(Box::new(host))
            }
        };
        Ok(Model {
            lengths: vec![0; slots],
            pool,
            ends: config.eos_token_id.as_ref().map_or_else(Vec::new, |tokens| tokens.list()),
            decoder,
            element,
            weights,
            backend,
            devices,
            context,
            queued: VecDeque::new(),
        })
    }

    /// Sizes of the decoder.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Element type of weights and hidden states.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Bytes that its GPUs can read from memory per second, if their profile is known.
    pub fn read_bandwidth(&self) -> Option<f64> {
        match &self.backend {
            Backend::Host(_) => None,
            Backend::Gpu(gpus) => gpus.read_bandwidth(),
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.lengths.len()
    }

    /// Largest number of tokens of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Name of the GPU, with the number of them if there are several, or `host`.
    pub fn place(&self) -> &str {
        match &self.backend {
            Backend::Host(_) => "host",
            Backend::Gpu(gpus) => gpus.name(),
        }
    }

    /// Bytes that a step reads at least: all weights, but only those of the experts of one token, those of the head on
    /// every device, and the keys and values of every sequence.
    pub fn step_bytes(&self) -> u64 {
        let Decoder { layers, width, heads, kv_heads, columns, inner, .. } = self.decoder;
        let mlps = self.decoder.experts.map_or(1, |experts| experts.top_k);
        let layer = width * self.decoder.qkv() + heads * columns * width + 3 * width * inner * mlps;
        let cached: usize = self.lengths.iter().sum();
        let cache = cached * layers * 2 * kv_heads * columns;
        let head = self.devices * width * self.decoder.logits();
        2 * (layers * layer + head + cache) as u64
    }

    /// Tokens of the sequence in a slot.
    ///
    /// # Errors
    /// There is no such slot.
    pub fn length(&self, slot: usize) -> Result<usize> {
        self.lengths.get(slot).copied().ok_or_else(|| self.no_slot(slot))
    }

    fn no_slot(&self, slot: usize) -> Error {
        let reason = format!("the model has {} slots, numbered from 0", self.slots());
        Error::Slot { slot, reason }
    }

    /// Forgets the sequence in a slot.
    ///
    /// # Errors
    /// There is no such slot.
    pub fn clear(&mut self, slot: usize) -> Result<()> {
        self.assume(slot, 0)
    }

    /// Takes the first `length` tokens in a slot's cache as they are, whatever they contain: for measurements,
    /// and to return to an earlier length.
    ///
    /// # Errors
    /// There is no such slot, the context is shorter, or too few pages are free.
    pub fn assume(&mut self, slot: usize, length: usize) -> Result<()> {
        self.length(slot)?;
        if length > self.context {
            return Err(self.full(slot));
        }
        self.room(slot, length)?;
        self.lengths[slot] = length;
        Ok(())
    }

    /// Pages of [`PAGE`] tokens that caches have.
    pub fn pages(&self) -> usize {
        self.pool.pages()
    }

    /// Pages that no sequence has.
    pub fn free_pages(&self) -> usize {
        self.pool.free()
    }

    /// Gives a slot pages for so many tokens, and takes back those that it does not need.
    fn room(&mut self, slot: usize, tokens: usize) -> Result<()> {
        self.pool.resize(slot, tokens).ok_or_else(|| self.no_pages([(slot, tokens)].into_iter()))
    }

    /// Why some slots cannot have these numbers of tokens.
    fn no_pages(&self, lengths: impl Iterator<Item = (usize, usize)> + Clone) -> Error {
        let slot = lengths.clone().next().map_or(0, |(slot, _)| slot);
        let (lacks, free, pages) = (self.pool.lacks(lengths), self.pool.free(), self.pool.pages());
        let reason = format!(
            "its next tokens need {lacks} more pages of {PAGE} tokens, and {free} of {pages} are free\n  help: clear a \
             slot whose text has ended, or open the model with larger caches"
        );
        Error::Slot { slot, reason }
    }

    fn full(&self, slot: usize) -> Error {
        let reason = format!(
            "the sequence has {} of {} tokens, and no room for these\n  help: open the model with a longer context, or \
             clear the slot",
            self.lengths[slot], self.context
        );
        Error::Slot { slot, reason }
    }

    /// Appends tokens to the sequence in a slot, and computes no logits. Tokens of steps in flight are dropped.
    ///
    /// # Errors
    /// There is no such slot or token, the context is too short, too few pages are free, or a run failed.
    pub fn append(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        let length = self.length(slot)?;
        if length + tokens.len() > self.context {
            return Err(self.full(slot));
        }
        tokens.iter().try_for_each(|token| self.known(slot, *token))?;
        self.room(slot, length + tokens.len())?;
        self.settle()?;
        let mut rest = tokens;
        while let Backend::Gpu(gpus) = &mut self.backend
            && let Some(count) = gpus.prompt_tokens(self.lengths[slot], rest.len())
        {
            let (now, behind) = rest.split_at(count);
            gpus.prompt(self.pool.entries(slot), self.lengths[slot], now)?;
            self.lengths[slot] += count;
            rest = behind;
        }
        for token in rest {
            self.queue(&[Next { slot, token: Some(*token), sampling: Sampling::default(), seed: 0 }])?;
            self.drawn()?;
        }
        Ok(())
    }

    /// Waits for all steps in flight, and drops their tokens.
    pub(crate) fn settle(&mut self) -> Result<()> {
        while !self.queued.is_empty() {
            self.drawn()?;
        }
        Ok(())
    }

    fn known(&self, slot: usize, token: u32) -> Result<()> {
        if (token as usize) < self.decoder.vocabulary {
            return Ok(());
        }
        let reason = format!("there is no token {token}: the vocabulary has {}", self.decoder.vocabulary);
        Err(Error::Slot { slot, reason })
    }

    /// Steps that may be queued before the tokens of the first are read.
    pub fn lookahead(&self) -> usize {
        match self.backend {
            Backend::Host(_) => 1,
            Backend::Gpu(_) => LOOKAHEAD,
        }
    }

    /// Queues a step, which appends a token to each sequence named and draws the next one: see
    /// [`Model::drawn`]. On the host the step has run when this returns.
    ///
    /// # Errors
    /// There is no such slot or token, a slot is named twice or is full, too few pages are free, too many steps are in
    /// flight, or a run failed. Without a run, nothing has changed.
    pub fn queue(&mut self, next: &[Next]) -> Result<()> {
        for (n, &Next { slot, token, .. }) in next.iter().enumerate() {
            if self.length(slot)? + 1 > self.context {
                return Err(self.full(slot));
            }
            if next[..n].iter().any(|other| other.slot == slot) {
                return Err(Error::Slot { slot, reason: "it is named twice in one step".into() });
            }
            token.map_or(Ok(()), |token| self.known(slot, token))?;
        }
        if let Backend::Host(_) = &self.backend
            && !self.queued.is_empty()
        {
            return Err(Error::Request("a step is in flight: read its tokens first".into()));
        }
        let longer = next.iter().map(|next| (next.slot, self.lengths[next.slot] + 1));
        if self.pool.lacks(longer.clone()) > self.pool.free() {
            // Name a slot that needs a page.
            return Err(self.no_pages(longer.filter(|(_, tokens)| tokens % PAGE == 1)));
        }
        for next in next {
            self.room(next.slot, self.lengths[next.slot] + 1)?;
        }
        let lengths: Vec<i32> = self.lengths.iter().map(|length| *length as i32).collect();
        // Draws read the head's output.
        let factor = self.logit_factor();
        let scaled = |next: &Next| {
            let sampling = Sampling { temperature: next.sampling.temperature / factor, ..next.sampling };
            Next { sampling, ..*next }
        };
        let scaled: Vec<Next> = next.iter().map(scaled).collect();
        match &mut self.backend {
            Backend::Host(host) => host.step(&scaled, &lengths, &self.pool, &self.weights)?,
            Backend::Gpu(gpus) => gpus.queue(&scaled, &lengths, &self.pool)?,
        }
        next.iter().for_each(|next| self.lengths[next.slot] += 1);
        self.queued.push_back(next.iter().map(|next| next.slot).collect());
        Ok(())
    }

    /// Logits are the results of the head times this.
    fn logit_factor(&self) -> f32 {
        self.decoder.logit_cap.unwrap_or(1.0) as f32
    }

    /// Waits for the oldest step in flight, and returns the tokens that it drew, in the order of its sequences;
    /// none if no step is in flight.
    ///
    /// # Errors
    /// The run failed.
    pub fn drawn(&mut self) -> Result<Vec<u32>> {
        let Some(slots) = self.queued.pop_front() else { return Ok(Vec::new()) };
        let all = match &mut self.backend {
            Backend::Host(host) => host.drawn().to_vec(),
            Backend::Gpu(gpus) => gpus.drawn()?,
        };
        Ok(slots.into_iter().map(|slot| all[slot]).collect())
    }

    /// Appends one token to each of some sequences, and returns the logits of their next tokens, in the same
    /// order. Tokens of steps in flight are dropped.
    ///
    /// # Errors
    /// As [`Model::queue`].
    pub fn step(&mut self, tokens: &[(usize, u32)]) -> Result<Logits<'_>> {
        self.settle()?;
        let next = |&(slot, token)| Next { slot, token: Some(token), sampling: Sampling::default(), seed: 0 };
        self.queue(&tokens.iter().map(next).collect::<Vec<_>>())?;
        self.drawn()?;
        let factor = self.logit_factor();
        let bits = match &mut self.backend {
            Backend::Host(host) => host.logits(),
            Backend::Gpu(gpus) => gpus.logits()?,
        };
        let slots = tokens.iter().map(|(slot, _)| *slot).collect();
        let (width, vocabulary) = (self.decoder.logits(), self.decoder.vocabulary);
        Ok(Logits::new(bits, slots, width, vocabulary, self.element, factor))
    }
}

/// The GPUs that the parts of a model run on; none: the host.
fn gpus(place: Place, devices: usize, part: &Decoder, sizes: &Sizes) -> Result<Vec<Device>> {
    let (first, needed) = match place {
        Place::Host => return Ok(Vec::new()),
        Place::Best => (0, false),
        Place::Gpu(ordinal) => (ordinal, true),
    };
    let mut gpus = Vec::new();
    for ordinal in (first..).take(devices) {
        let device = match Device::open(ordinal) {
            Ok(device) => device,
            Err(error) if needed => return Err(error.into()),
            Err(_) => return Ok(Vec::new()),
        };
        match GpuModel::obstacle(part, sizes, &device)? {
            Some(reason) if needed => return Err(Error::Request(reason)),
            Some(_) => return Ok(Vec::new()),
            None => gpus.push(device),
        }
    }
    Ok(gpus)
}
