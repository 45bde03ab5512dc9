//! `cusync model`: the pipelines, logits and times of a language model, and a small one to try.

mod bench;
mod peer;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use cusync::codegen::graph::{Element, MAX_DEVICES};
use cusync_models::page::{self, Caches};
use cusync_models::{Loaded, Model, ModelConfig, Options, PAGE, Place, architecture, tiny};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::fault::Fault;
use crate::files;
use crate::names::TextReport;
use crate::print::{Answer, Output, Page, json};
use crate::progress::Progress;

/// The model and its place.
#[derive(Args, Clone)]
pub(crate) struct ModelArgs {
    /// Folder of a Hugging Face checkpoint: config.json, *.safetensors, tokenizer.json
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Tokens that a text has room for, the prompt included [default: as many as are asked for]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// Tokens that caches have room for, of all texts together [default: the context of each text]
    #[arg(long, value_name = "N")]
    pub(crate) cache_tokens: Option<usize>,
    /// Element type [default: that of the checkpoint; bf16 for float32]
    #[arg(long, value_name = "TYPE")]
    pub(crate) element: Option<Elements>,
    /// Run on the host, even if there is a GPU
    #[arg(long, conflicts_with = "gpu")]
    pub(crate) cpu: bool,
    /// Run on this GPU, or fail
    #[arg(long, value_name = "N")]
    pub(crate) gpu: Option<u32>,
    /// GPUs that share the work of each step, from GPU 0 or --gpu on; on the host, groups of threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEVICES)), default_value_t = 1)]
    pub(crate) devices: u32,
    /// Random weights: of the checkpoint, only config.json is read
    #[arg(long)]
    pub(crate) random: bool,
}

/// A number of texts side by side.
pub(crate) fn slots(text: &str) -> Result<usize, String> {
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
        /// Texts that the pipeline has room for
        #[arg(long, value_name = "N", value_parser = slots, default_value_t = 1)]
        slots: usize,
        /// Launch to print, from 0; each has some of the layers
        #[arg(long, value_name = "N", default_value_t = 0)]
        launch: usize,
        /// Print a layer for a prompt of this many tokens instead
        #[arg(long, value_name = "TOKENS", conflicts_with = "launch")]
        prompt: Option<usize>,
        /// Layer to print for a prompt, from 0
        #[arg(long, value_name = "N", requires = "prompt", default_value_t = 0)]
        layer: usize,
        /// The prompt continues a sequence: it attends to cached tokens, and is appended behind them
        #[arg(long, requires = "prompt")]
        continues: bool,
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
    /// Measure steps and prompts, beside PyTorch where Python has torch and transformers
    Bench(bench::BenchArgs),
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
        Task::Spec { model, slots, launch, prompt, layer, continues } => {
            let prompt = prompt.map(|tokens| (tokens, *layer, *continues));
            Box::new(TextReport { text: spec(model, *slots, *launch, prompt)? })
        }
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
        Task::Bench(args) => Box::new(bench::bench(args, output)?),
    })
}

/// `prompt`: the tokens of a prompt, a layer, and whether the prompt continues a sequence.
fn spec(
    args: &ModelArgs,
    slots: usize,
    launch: usize,
    prompt: Option<(usize, usize, bool)>,
) -> Result<String, Fault> {
    let config = ModelConfig::read(&args.folder)?;
    let decoder = architecture::decoder(&config)?.shard(0, args.devices as usize)?;
    let element = args.element.map_or_else(|| config.element(), |e| Ok(e.element()))?;
    let rows = (args.context.unwrap_or(decoder.context.min(4096)) + 1).next_multiple_of(PAGE);
    if let Some((tokens, layer, continues)) = prompt {
        if layer >= decoder.layers {
            let fault = Fault::input("bad-argument", format!("there is no layer {layer}"));
            return Err(fault.help(format!("the model has {} layers, from 0", decoder.layers)));
        }
        return Ok(page::prompt(&decoder, layer, tokens, rows.max(tokens), element, continues).text());
    }
    let launches = page::launches(&decoder);
    let launch = launches.get(launch).ok_or_else(|| {
        let fault = Fault::input("bad-argument", format!("there is no launch {launch}"));
        fault.help(format!("the model has {} launches, from 0", launches.len()))
    })?;
    // As in an opened model: a spare page for each text.
    let pages = args.cache_tokens.map_or(slots * (rows / PAGE), |tokens| tokens.div_ceil(PAGE)) + slots;
    let caches = Caches { slots, rows, pages: Some(pages) };
    Ok(page::generation(&decoder, launch, caches, element).text())
}

/// A flag that an interrupt or a request to terminate sets from now on, in place of ending the command.
pub(crate) fn interrupts() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Without a handler, a signal ends the command at once, and leaves temporary folders.
        let _ = flag::register(signal, interrupted.clone());
    }
    interrupted
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
        cache_tokens: args.cache_tokens,
        element: args.element.map(Elements::element),
        place,
        devices: args.devices as usize,
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
