//! `cusync generate`: texts of a language model.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;
use cusync_models::{
    Control, Event, GenerationTimes, MAX_GPU_SLOTS, Model, Pieces, Request, Sampling, Tokenizer,
};
use serde::Serialize;

use super::fault::Fault;
use super::model::{ModelArgs, interrupts, open, slots};
use super::print::{self, Answer, Output, Page, json};
use super::report::counted;

#[derive(Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Texts that are generated side by side [default: as many as there are, up to 32]
    #[arg(long, value_name = "N", value_parser = slots)]
    slots: Option<usize>,
    /// Text to continue
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["tokens", "batch"])]
    prompt: Option<String>,
    /// Tokens to continue, in place of a text
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', conflicts_with = "prompt")]
    tokens: Vec<u32>,
    /// File with a text to continue in each line; all are continued side by side
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "tokens"])]
    batch: Option<PathBuf>,
    /// Tokens to generate at most, for each text
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Divides logits before a token is drawn; 0: the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature, allow_negative_numbers = true)]
    temperature: f32,
    /// Draw from this many of the most likely tokens; 0: all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: u32,
    /// Draw from the most likely tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = probability)]
    top_p: f32,
    /// Seed of the draws
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Go on behind tokens that end a text
    #[arg(long)]
    ignore_end: bool,
}

fn number(text: &str, good: impl Fn(f32) -> bool, range: &str) -> Result<f32, String> {
    text.parse().ok().filter(|value| good(*value)).ok_or_else(|| format!("give a number {range}"))
}

fn temperature(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0 && value.is_finite(), "of at least 0")
}

fn probability(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0 && value <= 1.0, "above 0, and at most 1")
}

/// A continued text.
#[derive(Serialize)]
pub(crate) struct ContinuationReport {
    pub(crate) prompt_tokens: usize,
    pub(crate) tokens: Vec<u32>,
    /// The continuation; null if the checkpoint has no tokenizer.
    pub(crate) text: Option<String>,
    /// `stop`, `length` or `context`; null if it was interrupted.
    pub(crate) end: Option<&'static str>,
}

#[derive(Serialize)]
pub(crate) struct GenerateReport {
    pub(crate) model: String,
    /// Name of the GPU, or `host`.
    pub(crate) device: String,
    pub(crate) element: &'static str,
    pub(crate) slots: usize,
    pub(crate) context: usize,
    pub(crate) texts: Vec<ContinuationReport>,
    pub(crate) load_s: f64,
    pub(crate) first_token_ms: f64,
    pub(crate) tokens: usize,
    pub(crate) tokens_per_s: f64,
    /// Time of a step, which generates a token for every text that has a slot.
    pub(crate) step_us: f64,
    /// Bytes that a step reads at least, over its time.
    pub(crate) read_gb_per_s: f64,
    /// Share of the GPU's read bandwidth.
    pub(crate) read_share: Option<f64>,
    /// Whether the texts were printed while they grew.
    #[serde(skip)]
    printed: bool,
}

impl Answer for GenerateReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        if self.printed {
            page.line("");
        } else {
            for (number, text) in self.texts.iter().enumerate() {
                page.line(format!(
                    "{number}: {}",
                    text.text.as_deref().unwrap_or("(no tokenizer)").escape_debug()
                ));
            }
        }
        let share = self
            .read_share
            .map_or_else(String::new, |s| format!(", {:.0} % of the memory's rate", s * 100.0));
        page.line(format!(
            "\n{}: {}, {:.0} tokens/s, {:.0} us a step, {:.0} GB/s{share}; first token after {:.1} ms, opened in {:.1} s",
            self.device,
            counted(self.tokens, "token"),
            self.tokens_per_s,
            self.step_us,
            self.read_gb_per_s,
            self.first_token_ms,
            self.load_s
        ));
    }
}

pub(crate) fn generate(args: &GenerateArgs, output: &Output) -> Result<GenerateReport, Fault> {
    let folder = args.model.folder.as_path();
    // Tokens can be continued without a tokenizer.
    let text = match Tokenizer::open(folder) {
        Ok(text) => Some(text),
        Err(_) if !args.tokens.is_empty() => None,
        Err(error) => return Err(error.into()),
    };
    let prompts = prompts(args, text.as_ref())?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0) + args.max_tokens as usize;
    let slots = args.slots.unwrap_or_else(|| prompts.len().min(MAX_GPU_SLOTS));
    let (mut model, load_s) = open(&args.model, slots, longest, output)?;
    let sampling = Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p };
    let ends = if args.ignore_end { Vec::new() } else { model.ends().to_vec() };
    let requests: Vec<Request> = (args.seed..)
        .zip(prompts)
        .map(|(seed, prompt)| Request {
            prompt,
            max_tokens: args.max_tokens as usize,
            sampling,
            seed,
            ends: ends.clone(),
        })
        .collect();
    let interrupted = interrupts();
    let printed = requests.len() == 1 && text.is_some() && !output.json;
    let mut texts: Vec<ContinuationReport> = requests
        .iter()
        .map(|r| ContinuationReport {
            prompt_tokens: r.prompt.len(),
            tokens: Vec::new(),
            text: None,
            end: None,
        })
        .collect();
    let (mut pieces, mut fault) = (Pieces::default(), None);
    if let (true, Some(prompt)) = (printed, &args.prompt) {
        print::piece(prompt, output);
    }
    let times = cusync_models::generate(&mut model, &requests, |event| {
        match event {
            Event::Token { request, token } => {
                texts[request].tokens.push(token);
                if let (true, Some(text)) = (printed, &text) {
                    match pieces.push(text, token) {
                        Ok(piece) if print::piece(&piece, output) => {}
                        Ok(_) => return Control::Stop,
                        Err(error) => {
                            fault = Some(error);
                            return Control::Stop;
                        }
                    }
                }
            }
            Event::End { request, reason } => texts[request].end = Some(reason.name()),
        }
        if interrupted.load(Ordering::Relaxed) { Control::Stop } else { Control::Continue }
    })?;
    if let Some(error) = fault {
        return Err(error.into());
    }
    if let Some(text) = &text {
        for report in &mut texts {
            report.text = Some(text.text(&report.tokens)?);
        }
    }
    Ok(report(&model, folder, &times, texts, load_s, printed))
}

/// Tokens of the texts to continue.
fn prompts(args: &GenerateArgs, text: Option<&Tokenizer>) -> Result<Vec<Vec<u32>>, Fault> {
    let Some(text) = text else { return Ok(vec![args.tokens.clone()]) };
    if !args.tokens.is_empty() {
        return Ok(vec![args.tokens.clone()]);
    }
    if let Some(prompt) = &args.prompt {
        return Ok(vec![text.tokens(prompt)?]);
    }
    let Some(path) = &args.batch else { return Ok(Vec::new()) };
    let named = |message: String| Fault::input("unreadable", message).in_file(path.display().to_string());
    let lines = std::fs::read_to_string(path)
        .map_err(|e| named(format!("{}: {e}", path.display())).help("name a text file"))?;
    let prompts: Vec<Vec<u32>> = lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| text.tokens(line))
        .collect::<Result<_, _>>()?;
    if prompts.is_empty() {
        return Err(named(format!("{} has no text", path.display())).help("write a text in each line"));
    }
    Ok(prompts)
}

fn report(
    model: &Model,
    folder: &std::path::Path,
    times: &GenerationTimes,
    texts: Vec<ContinuationReport>,
    load_s: f64,
    printed: bool,
) -> GenerateReport {
    let seconds = times.steps.as_secs_f64().max(f64::MIN_POSITIVE);
    let read = times.bytes as f64 / seconds;
    GenerateReport {
        model: folder.display().to_string(),
        device: model.place().to_owned(),
        element: cusync::element::Bits::name(model.element()),
        slots: model.slots(),
        context: model.context(),
        texts,
        load_s,
        first_token_ms: times.first.as_secs_f64() * 1e3,
        tokens: times.tokens,
        tokens_per_s: times.rate(),
        step_us: seconds * 1e6 / times.count.max(1) as f64,
        read_gb_per_s: read / 1e9,
        read_share: model.read_bandwidth().map(|rate| read / rate),
        printed,
    }
}
