//! Generation: requests share the slots of a model, and come and go between tokens.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::Model;
use crate::pool::PAGE;
use crate::sample::{Next, Sampling};

/// Tokens of a prompt that are computed at once: between such parts, other texts are extended.
const PART: usize = 2048;

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
    /// Tokens of its prompt in the cache, the last one left out.
    filled: usize,
    /// The token of the next step, if no step has drawn it.
    token: Option<u32>,
    /// Tokens that queued steps draw.
    queued: usize,
    /// Tokens that are known.
    generated: usize,
}

impl Running {
    /// Whether its prompt is not complete.
    fn fills(&self, requests: &[Request]) -> bool {
        self.filled + 1 < requests[self.request].prompt.len()
    }
}

/// Generates texts for all requests, in all slots of the model, which are cleared first. A request takes a slot when one
/// is free, and there are pages for all tokens that it may have. Each step extends every text whose prompt is complete by
/// a token. A text depends only on its own request.
///
/// # Errors
/// A prompt is empty or leaves no room in the context, or a run failed.
pub fn generate(
    model: &mut Model,
    requests: &[Request],
    happened: impl FnMut(Event) -> Control,
) -> Result<GenerationTimes> {
    check(model, requests)?;
    generate_in_parts(model, requests, PART, happened)
}

fn check(model: &Model, requests: &[Request]) -> Result<()> {
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
    Ok(())
}

/// [`generate`] with parts of prompts of this many tokens.
fn generate_in_parts(
    model: &mut Model,
    requests: &[Request],
    part: usize,
    mut happened: impl FnMut(Event) -> Control,
) -> Result<GenerationTimes> {
    // An earlier call may have ended with an error while steps were in flight.
    model.settle()?;
    (0..model.slots()).try_for_each(|slot| model.clear(slot))?;
    let begin = Instant::now();
    let mut times = GenerationTimes::default();
    let mut waiting: VecDeque<usize> =
        (0..requests.len()).filter(|number| requests[*number].max_tokens > 0).collect();
    let mut running: Vec<Option<Running>> = vec![None; model.slots()];
    // Slot and request of each token of the steps in flight.
    let mut flight: VecDeque<Vec<(usize, usize)>> = VecDeque::new();
    loop {
        if flight.is_empty() {
            let start = Instant::now();
            while let Some((slot, number)) = admitted(model, &running, &waiting, requests) {
                waiting.pop_front();
                let token = requests[number].prompt.last().copied();
                running[slot] = Some(Running { request: number, filled: 0, token, queued: 0, generated: 0 });
                times.prompt_tokens += requests[number].prompt.len();
            }
            fill(model, &mut running, requests, part)?;
            times.prompts += start.elapsed();
        }
        // Prompts are computed when no step is in flight.
        let fills = running.iter().flatten().any(|text| text.fills(requests))
            || admitted(model, &running, &waiting, requests).is_some();
        let next =
            if fills && !flight.is_empty() { Vec::new() } else { queue(model, &mut running, requests)? };
        if !next.is_empty() {
            times.count += 1;
            times.bytes += model.step_bytes();
            flight.push_back(next);
        } else if flight.is_empty() && fills {
            continue;
        } else if flight.is_empty() {
            times.steps = begin.elapsed().saturating_sub(times.prompts);
            return Ok(times);
        }
        let more = running.iter().flatten().any(|text| open(text, &requests[text.request], model.context()));
        if more && !fills && flight.len() < model.lookahead() {
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
                // Steps in flight may still write to its pages; what takes these pages is queued behind them.
                model.clear(slot)?;
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

/// The next request, and the slot that it takes: one is free, and all texts have pages for as many tokens as they may
/// have.
fn admitted(
    model: &Model,
    running: &[Option<Running>],
    waiting: &VecDeque<usize>,
    requests: &[Request],
) -> Option<(usize, usize)> {
    let pages = |number: usize| {
        let Request { prompt, max_tokens, .. } = &requests[number];
        // The last token that is drawn is not appended.
        (prompt.len() + max_tokens - 1).min(model.context()).div_ceil(PAGE)
    };
    let number = *waiting.front()?;
    let slot = running.iter().position(Option::is_none)?;
    let taken: usize = running.iter().flatten().map(|text| pages(text.request)).sum();
    (taken + pages(number) <= model.pages()).then_some((slot, number))
}

/// Computes the next parts of prompts. All tokens of a prompt but the last are filled in; the first step appends that.
fn fill(model: &mut Model, running: &mut [Option<Running>], requests: &[Request], part: usize) -> Result<()> {
    let mut appended = 0;
    for (slot, text) in running.iter_mut().enumerate() {
        let Some(text) = text.as_mut().filter(|text| text.fills(requests)) else { continue };
        // Parts begin at the same tokens whatever else runs, because roundings depend on them.
        let rest = &requests[text.request].prompt[text.filled..];
        let count = (rest.len() - 1).min(part);
        model.append(slot, &rest[..count])?;
        text.filled += count;
        appended += count;
        if appended >= part {
            break;
        }
    }
    Ok(())
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
        if text.fills(requests) || !open(text, request, model.context()) {
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

#[cfg(all(test, feature = "text"))]
mod tests {
    use super::*;
    use crate::model::{Options, Place};

    #[test]
    fn texts_go_on_between_the_parts_of_a_long_prompt() {
        let folder = tempfile::tempdir().expect("a folder");
        crate::tiny::write(folder.path(), "LlamaForCausalLM").expect("written");
        let options = Options { slots: 3, context: Some(64), place: Place::Host, ..Options::default() };
        let mut model = Model::open(folder.path(), &options, |_| ()).expect("opened");
        let request = |prompt: usize| Request {
            prompt: (0..prompt as u32).map(|token| token * 7).collect(),
            max_tokens: 6,
            sampling: Sampling::default(),
            seed: 0,
            ends: vec![],
        };
        let requests = [request(3), request(30), request(6)];
        let mut run = |requests: &[Request], part| {
            let mut events = Vec::new();
            let times = generate_in_parts(&mut model, requests, part, |event| {
                if let Event::Token { request, token } = event {
                    events.push((request, token));
                }
                Control::Continue
            });
            assert_eq!(times.expect("generated").tokens, events.len());
            events
        };
        let events = run(&requests, 8);
        let order: String = events.iter().map(|(request, _)| request.to_string()).collect();
        // The prompt of text 1 has parts of 8, 8, 8 and 5 tokens, the first beside that of text 0, the last beside that of
        // text 2. Steps of texts whose prompts are complete follow each.
        assert_eq!(order, "000012012012121212");
        for (number, request) in requests.iter().enumerate() {
            let alone: Vec<u32> =
                run(std::slice::from_ref(request), 2048).iter().map(|event| event.1).collect();
            let text = events.iter().filter(|event| event.0 == number).map(|event| event.1);
            assert!(text.eq(alone), "text {number}");
        }
    }
}
