//! `cusync model`: the pipelines, logits and times of a language model, and a small one to try.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use cusync::codegen::graph::Element;
use cusync_models::{Loaded, Model, ModelConfig, Next, Options, Place, Sampling, architecture, page, tiny};
use serde::Serialize;

use super::fault::Fault;
use super::files;
use super::names::TextReport;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;

/// The model and its place.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// Folder of a Hugging Face checkpoint: config.json, *.safetensors, tokenizer.json
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Texts that are generated side by side [default: as many as there are, up to 32]
    #[arg(long, value_name = "N", value_parser = slots)]
    pub(crate) slots: Option<usize>,
    /// Tokens that a text has room for, the prompt included [default: as many as are asked for]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// Element type [default: that of the checkpoint; bf16 for float32]
    #[arg(long, value_name = "TYPE")]
    pub(crate) element: Option<Elements>,
    /// Run on the host, even if there is a GPU
    #[arg(long, conflicts_with = "gpu")]
    pub(crate) cpu: bool,
    /// Run on this GPU, or fail
    #[arg(long, value_name = "N")]
    pub(crate) gpu: Option<u32>,
    /// Random weights: of the checkpoint, only config.json is read
    #[arg(long)]
    pub(crate) random: bool,
}

fn slots(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1024).contains(n)).ok_or_else(|| "give a number from 1 to 1024".into())
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Elements {
    F16,
    Bf16,
}

impl Elements {
    pub(crate) fn element(self) -> Element {
        match self {
            Elements::F16 => Element::F16,
            Elements::Bf16 => Element::Bf16,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Write a small checkpoint with random weights and a tokenizer of bytes
    Tiny {
        /// Folder to write to
        folder: PathBuf,
        /// Architecture
        #[arg(long, value_name = "NAME", default_value = "LlamaForCausalLM")]
        architecture: String,
    },
    /// Print a pipeline of the model, for `cusync check`, `explain`, `run` and `trace`
    Spec {
        #[command(flatten)]
        model: ModelArgs,
        /// Launch to print, from 0; each has some of the layers
        #[arg(long, value_name = "N", default_value_t = 0)]
        launch: usize,
        /// Print a layer for a prompt of this many tokens instead
        #[arg(long, value_name = "TOKENS", conflicts_with = "launch")]
        prompt: Option<usize>,
    },
    /// Write the logits after each token of a text: float32, one row of the vocabulary's size per token
    Logits {
        #[command(flatten)]
        model: ModelArgs,
        /// Tokens of the text
        #[arg(long, value_name = "N,N,...", value_delimiter = ',', required = true)]
        tokens: Vec<u32>,
        /// Compute this many tokens as a prompt, whose logits are left out
        #[arg(long, value_name = "N", default_value_t = 0)]
        prompt: usize,
        /// File to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Measure steps and prompts
    Bench {
        #[command(flatten)]
        model: ModelArgs,
        /// Numbers of texts
        #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,8,32")]
        batch: Vec<usize>,
        /// Tokens that every text has at the start
        #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "128,2048")]
        cached: Vec<usize>,
        /// Seconds of each measurement
        #[arg(long, value_name = "S", default_value_t = 1.0)]
        seconds: f64,
    },
}

#[derive(Serialize)]
pub(crate) struct WrittenReport {
    pub(crate) files: Vec<String>,
    pub(crate) next: String,
}

impl Answer for WrittenReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        self.files.iter().for_each(|file| page.line(format!("wrote {file}")));
        page.line(&self.next);
    }
}

/// Times of one number of texts and cached tokens.
#[derive(Serialize)]
pub(crate) struct PointReport {
    pub(crate) batch: usize,
    pub(crate) cached: usize,
    /// Median time of a step, tokens chosen.
    pub(crate) step_us: f64,
    pub(crate) tokens_per_s: f64,
    pub(crate) read_gb_per_s: f64,
    pub(crate) read_share: Option<f64>,
    /// Median time from a prompt of `cached` tokens to its first token.
    pub(crate) first_token_ms: f64,
}

#[derive(Serialize)]
pub(crate) struct ModelBenchReport {
    pub(crate) model: String,
    pub(crate) device: String,
    pub(crate) points: Vec<PointReport>,
}

impl Answer for ModelBenchReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(format!("{} on {}", self.model, self.device));
        let row = |p: &PointReport| {
            let share = p.read_share.map_or_else(String::new, |share| format!(" ({:.0} %)", share * 100.0));
            [
                p.batch.to_string(),
                p.cached.to_string(),
                format!("{:.0}", p.step_us),
                format!("{:.0}", p.tokens_per_s),
                format!("{:.0}{share}", p.read_gb_per_s),
                format!("{:.1}", p.first_token_ms),
            ]
        };
        page.table(
            ["texts", "cached", "us a step", "tokens/s", "GB/s (of the memory's rate)", "first token, ms"],
            self.points.iter().map(row),
        );
    }
}

pub(crate) fn run(task: &Task, output: &Output) -> Result<Box<dyn Answer>, Fault> {
    Ok(match task {
        Task::Tiny { folder, architecture } => {
            tiny::write(folder, architecture)?;
            let file = |name: &str| folder.join(name).display().to_string();
            Box::new(WrittenReport {
                files: ["config.json", "model.safetensors", "tokenizer.json"].map(file).to_vec(),
                next: format!("next: cusync generate {} --prompt \"Once upon a time\"", folder.display()),
            })
        }
        Task::Spec { model, launch, prompt } => Box::new(TextReport { text: spec(model, *launch, *prompt)? }),
        Task::Logits { model, tokens, prompt, output: file } => {
            let (mut model, _) = open(model, 1, tokens.len(), output)?;
            let (first, rest) = tokens.split_at((*prompt).min(tokens.len()));
            model.append(0, first)?;
            let mut bytes = Vec::new();
            for token in rest {
                let row = model.step(&[(0, *token)])?.row(0);
                bytes.extend(row.into_iter().flat_map(f32::to_le_bytes));
            }
            std::fs::write(file, &bytes).map_err(|e| files::unwritten(file, &e))?;
            let (rows, columns) = (rest.len(), model.decoder().vocabulary);
            let next = format!("{rows} rows of {columns} values of 4 bytes, computed on {}", model.place());
            Box::new(WrittenReport { files: vec![file.display().to_string()], next })
        }
        Task::Bench { model, batch, cached, seconds } => {
            Box::new(bench(model, batch, cached, *seconds, output)?)
        }
    })
}

fn spec(args: &ModelArgs, launch: usize, prompt: Option<usize>) -> Result<String, Fault> {
    let config = ModelConfig::read(&args.folder)?;
    let decoder = architecture::decoder(&config)?;
    let element = args.element.map_or_else(|| config.element(), |e| Ok(e.element()))?;
    let rows = (args.context.unwrap_or(decoder.context.min(4096)) + 1).next_multiple_of(64);
    if let Some(tokens) = prompt {
        return Ok(page::prompt(&decoder, tokens, rows.max(tokens), element).text());
    }
    let launches = page::launches(decoder.layers);
    let layers = launches.get(launch).cloned().ok_or_else(|| {
        let fault = Fault::input("bad-argument", format!("there is no launch {launch}"));
        fault.help(format!("the model has {} launches, from 0", launches.len()))
    })?;
    Ok(page::generation(&decoder, layers, args.slots.unwrap_or(1), rows, element).text())
}

fn bench(
    args: &ModelArgs,
    batch: &[usize],
    cached: &[usize],
    seconds: f64,
    output: &Output,
) -> Result<ModelBenchReport, Fault> {
    let longest = cached.iter().max().copied().unwrap_or(0);
    let mut report = ModelBenchReport {
        model: args.folder.display().to_string(),
        device: String::new(),
        points: Vec::new(),
    };
    for &texts in batch {
        let (mut model, _) = open(args, texts, longest + 1, output)?;
        report.device = model.place().to_owned();
        for &length in cached {
            let step_us = median(seconds, || steps(&mut model, length))?.as_secs_f64() * 1e6;
            let bytes = model.step_bytes() as f64;
            let prompt: Vec<u32> = (0..length as u32).map(|i| i % 200).collect();
            let first = median(seconds, || {
                model.clear(0)?;
                let begin = Instant::now();
                if let Some((last, before)) = prompt.split_last() {
                    model.append(0, before)?;
                    std::hint::black_box(model.step(&[(0, *last)])?.best(0));
                }
                Ok(begin.elapsed())
            })?;
            let read = bytes / step_us * 1e6;
            report.points.push(PointReport {
                batch: texts,
                cached: length,
                step_us,
                tokens_per_s: texts as f64 / step_us * 1e6,
                read_gb_per_s: read / 1e9,
                read_share: model.read_bandwidth().map(|rate| read / rate),
                first_token_ms: first.as_secs_f64() * 1e3,
            });
        }
    }
    Ok(report)
}

/// Steps of a sample.
const STEPS: u32 = 16;

/// Time of a step that appends the token drawn by the one before to every text, which then has `length` tokens again.
fn steps(model: &mut Model, length: usize) -> Result<Duration, Fault> {
    let begin = Instant::now();
    let mut flight = 0;
    for number in 0..STEPS {
        (0..model.slots()).try_for_each(|slot| model.assume(slot, length))?;
        let token = (number == 0).then_some(1);
        let next = |slot| Next { slot, token, sampling: Sampling::default(), seed: 0 };
        model.queue(&(0..model.slots()).map(next).collect::<Vec<_>>())?;
        flight += 1;
        if flight == model.lookahead() {
            model.drawn()?;
            flight -= 1;
        }
    }
    while !model.drawn()?.is_empty() {}
    Ok(begin.elapsed() / STEPS)
}

/// Median of as many samples as fit into the time, at least three, behind one that warms up.
fn median(seconds: f64, mut sample: impl FnMut() -> Result<Duration, Fault>) -> Result<Duration, Fault> {
    sample()?;
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || begin.elapsed().as_secs_f64() < seconds {
        times.push(sample()?);
    }
    times.sort();
    Ok(times[times.len() / 2])
}

/// Opens a model, with progress, and returns the time that it took.
pub(crate) fn open(
    args: &ModelArgs,
    slots: usize,
    context: usize,
    output: &Output,
) -> Result<(Model, f64), Fault> {
    let place = match (args.cpu, args.gpu) {
        (true, _) => Place::Host,
        (false, Some(ordinal)) => Place::Gpu(ordinal),
        (false, None) => Place::Best,
    };
    let options = Options {
        slots,
        context: args.context.or(Some(context)),
        element: args.element.map(Elements::element),
        place,
        random: args.random,
    };
    let progress = Progress::start(output);
    progress.say("opening the checkpoint");
    let begin = Instant::now();
    let model = Model::open(&args.folder, &options, |Loaded { layers, total }| {
        progress.say(format!("layer {layers} of {total}"));
    })?;
    Ok((model, begin.elapsed().as_secs_f64()))
}
