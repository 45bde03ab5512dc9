//! Generation: requests share the slots of a model, and come and go between tokens.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::{Sampler, Sampling};

/// A text to continue.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its tokens.
    pub prompt: Vec<u32>,
    /// Tokens to generate at most.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed of the choice.
    pub seed: u64,
    /// Tokens that end the text; they are not part of it.
    pub ends: Vec<u32>,
}

/// Reason why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model chose a token that ends it.
    Stop,
    /// It has as many tokens as the request allows.
    Length,
    /// It fills the context.
    Context,
}

impl End {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            End::Stop => "stop",
            End::Length => "length",
            End::Context => "context",
        }
    }
}

/// Something that happened to a request, named by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A token was generated.
    Token {
        /// The request.
        request: usize,
        /// The token.
        token: u32,
    },
    /// The text ended.
    End {
        /// The request.
        request: usize,
        /// Reason.
        reason: End,
    },
}

/// Whether generation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// It goes on.
    Continue,
    /// It ends before the next token.
    Stop,
}

/// Times of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Tokens of prompts.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub tokens: usize,
    /// Time until the first token of the first request.
    pub first: Duration,
    /// Time in steps that generated tokens.
    pub steps: Duration,
    /// Number of these steps.
    pub count: usize,
    /// Bytes that these steps had to read.
    pub bytes: u64,
}

impl Times {
    /// Tokens per second of all sequences together, prompts apart.
    pub fn rate(&self) -> f64 {
        self.tokens as f64 / self.steps.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A request in a slot.
struct Running {
    request: usize,
    sampler: Sampler,
    /// The token that the next step appends.
    next: u32,
    generated: usize,
}

/// Generates texts for all requests. A request takes a slot when one is free; each step extends every text
/// that has a slot by a token. A text depends only on its own request.
///
/// # Errors
/// A prompt is empty or leaves no room in the context, or a run failed.
pub fn generate(
    model: &mut Model,
    requests: &[Request],
    mut happened: impl FnMut(Event) -> Control,
) -> Result<Times> {
    for (number, request) in requests.iter().enumerate() {
        if request.prompt.is_empty() {
            return Err(Error::Request(format!("request {number} has an empty prompt")));
        }
        if request.prompt.len() >= model.context() {
            return Err(Error::Request(format!(
                "request {number} has {} tokens, and the context has {}\n  help: choose a longer context, or a shorter \
                 prompt",
                request.prompt.len(),
                model.context()
            )));
        }
    }
    let begin = Instant::now();
    let mut times = Times::default();
    let mut waiting: VecDeque<usize> =
        (0..requests.len()).filter(|number| requests[*number].max_tokens > 0).collect();
    let mut running: Vec<Option<Running>> = (0..model.slots()).map(|_| None).collect();
    loop {
        for (slot, place) in running.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
            let Some(number) = waiting.pop_front() else { break };
            let request = &requests[number];
            let (last, first) = request.prompt.split_last().unwrap_or((&0, &[]));
            model.clear(slot)?;
            model.append(slot, first)?;
            times.prompt_tokens += request.prompt.len();
            let sampler = Sampler::new(request.sampling, request.seed);
            *place = Some(Running { request: number, sampler, next: *last, generated: 0 });
        }
        let fed: Vec<(usize, u32)> =
            running.iter().enumerate().filter_map(|(slot, r)| Some((slot, r.as_ref()?.next))).collect();
        if fed.is_empty() {
            return Ok(times);
        }
        let start = Instant::now();
        let logits = model.step(&fed)?;
        let mut chosen = Vec::with_capacity(fed.len());
        for (row, (slot, _)) in fed.iter().enumerate() {
            let Some(running) = &mut running[*slot] else { continue };
            chosen.push(match running.sampler.sampling().is_greedy() {
                true => logits.best(row),
                false => running.sampler.pick(logits.row(row)),
            });
        }
        times.steps += start.elapsed();
        times.count += 1;
        times.bytes += model.step_bytes();
        for ((slot, _), token) in fed.into_iter().zip(chosen) {
            let Some(text) = &mut running[slot] else { continue };
            let request = &requests[text.request];
            let mut end = None;
            if request.ends.contains(&token) {
                end = Some(End::Stop);
            } else {
                if times.tokens == 0 {
                    times.first = begin.elapsed();
                }
                times.tokens += 1;
                text.generated += 1;
                text.next = token;
                if happened(Event::Token { request: text.request, token }) == Control::Stop {
                    return Ok(times);
                }
                if text.generated == request.max_tokens {
                    end = Some(End::Length);
                } else if model.length(slot)? == model.context() {
                    end = Some(End::Context);
                }
            }
            if let Some(reason) = end {
                let event = Event::End { request: text.request, reason };
                running[slot] = None;
                if happened(event) == Control::Stop {
                    return Ok(times);
                }
            }
        }
    }
}
