//! Generation: requests share the slots of a model, and come and go between tokens.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::{Next, Sampling};

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
    /// The text of this token ends with it; the others go on.
    Finish,
}

/// Times of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationTimes {
    /// Tokens of prompts.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub tokens: usize,
    /// Time until the first token of the first request.
    pub first: Duration,
    /// Time in prompts.
    pub prompts: Duration,
    /// All other time: that of steps.
    pub steps: Duration,
    /// Number of these steps.
    pub count: usize,
    /// Bytes that these steps had to read.
    pub bytes: u64,
}

impl GenerationTimes {
    /// Tokens per second of all sequences together, prompts apart.
    pub fn rate(&self) -> f64 {
        self.tokens as f64 / self.steps.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A request in a slot.
#[derive(Clone, Copy)]
struct Running {
    request: usize,
    /// The token of the next step, if no step has drawn it.
    token: Option<u32>,
    /// Tokens that queued steps draw.
    queued: usize,
    /// Tokens that are known.
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
) -> Result<GenerationTimes> {
    for (number, request) in requests.iter().enumerate() {
        if request.prompt.is_empty() {
            return Err(Error::Request(format!("request {number} has an empty prompt")));
        }
        let vocabulary = model.decoder().vocabulary;
        if let Some(token) = request.prompt.iter().find(|token| **token as usize >= vocabulary) {
            let fault = format!("request {number}: there is no token {token}");
            return Err(Error::Request(format!("{fault}\n  help: the vocabulary has {vocabulary} tokens")));
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
    // An earlier call may have ended with an error while steps were in flight.
    model.settle()?;
    let begin = Instant::now();
    let mut times = GenerationTimes::default();
    let mut waiting: VecDeque<usize> =
        (0..requests.len()).filter(|number| requests[*number].max_tokens > 0).collect();
    let mut running: Vec<Option<Running>> = vec![None; model.slots()];
    // Slot and request of each token of the steps in flight.
    let mut flight: VecDeque<Vec<(usize, usize)>> = VecDeque::new();
    loop {
        let room = !waiting.is_empty() && running.iter().any(Option::is_none);
        if room && flight.is_empty() {
            let start = Instant::now();
            for (slot, place) in running.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
                let Some(number) = waiting.pop_front() else { break };
                *place = Some(admit(model, slot, number, &requests[number])?);
                times.prompt_tokens += requests[number].prompt.len();
            }
            times.prompts += start.elapsed();
        }
        // The next text is admitted when no step is in flight.
        let next =
            if room && !flight.is_empty() { Vec::new() } else { queue(model, &mut running, requests)? };
        if !next.is_empty() {
            times.count += 1;
            times.bytes += model.step_bytes();
            flight.push_back(next);
        } else if flight.is_empty() {
            times.steps = begin.elapsed().saturating_sub(times.prompts);
            return Ok(times);
        }
        let more = running.iter().flatten().any(|text| open(text, &requests[text.request], model.context()));
        if more && !room && flight.len() < model.lookahead() {
            continue;
        }
        let tokens = model.drawn()?;
        for ((slot, number), token) in flight.pop_front().unwrap_or_default().into_iter().zip(tokens) {
            // A text that ended may have had another step in flight.
            let Some(text) = running[slot].as_mut().filter(|text| text.request == number) else { continue };
            let request = &requests[number];
            let mut end = None;
            let mut control = Control::Continue;
            if request.ends.contains(&token) {
                end = Some(End::Stop);
            } else {
                if times.tokens == 0 {
                    times.first = begin.elapsed();
                }
                times.tokens += 1;
                text.generated += 1;
                control = happened(Event::Token { request: number, token });
                if text.generated == request.max_tokens {
                    end = Some(End::Length);
                } else if request.prompt.len() + text.generated > model.context() {
                    end = Some(End::Context);
                }
                if control == Control::Finish {
                    (end, control) = (Some(End::Stop), Control::Continue);
                }
            }
            if let (Some(reason), Control::Continue) = (end, control) {
                running[slot] = None;
                control = happened(Event::End { request: number, reason });
            }
            if control == Control::Stop {
                model.settle()?;
                times.steps = begin.elapsed().saturating_sub(times.prompts);
                return Ok(times);
            }
        }
    }
}

/// Puts a request into a slot: all tokens of its prompt but the last, which the first step appends.
fn admit(model: &mut Model, slot: usize, number: usize, request: &Request) -> Result<Running> {
    let (last, first) = request.prompt.split_last().unwrap_or((&0, &[]));
    model.clear(slot)?;
    model.append(slot, first)?;
    Ok(Running { request: number, token: Some(*last), queued: 0, generated: 0 })
}

/// Whether a text has room for another step.
fn open(text: &Running, request: &Request, context: usize) -> bool {
    text.queued < request.max_tokens && request.prompt.len() + text.queued <= context
}

/// Queues a step for the texts that have room for one, and returns their slots and requests.
fn queue(
    model: &mut Model,
    running: &mut [Option<Running>],
    requests: &[Request],
) -> Result<Vec<(usize, usize)>> {
    let (mut next, mut named) = (Vec::new(), Vec::new());
    for (slot, text) in running.iter_mut().enumerate() {
        let Some(text) = text else { continue };
        let request = &requests[text.request];
        if !open(text, request, model.context()) {
            continue;
        }
        let seed = (request.seed ^ request.seed >> 32) as u32;
        next.push(Next { slot, token: text.token.take(), sampling: request.sampling, seed });
        named.push((slot, text.request));
        text.queued += 1;
    }
    if !next.is_empty() {
        model.queue(&next)?;
    }
    Ok(named)
}
