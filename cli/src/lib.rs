//! The command line. Each command has a file with its arguments, its implementation, and its answer as text
//! and JSON. Only `print` writes output. Other programs call [`command`], or a few commands by [`embed`].

mod against;
mod bench;
mod calibrate;
mod check;
mod devices;
mod doctor;
pub mod embed;
mod explain;
mod fault;
mod files;
#[cfg(feature = "models")]
mod generate;
mod kernel;
mod memory;
#[cfg(feature = "models")]
mod model;
mod names;
mod print;
mod progress;
mod prove;
mod render;
mod report;
mod run;
mod schedule;
mod schedule_report;
mod setup;
mod simulate;
mod source;
mod target;
mod timeline;
mod toolchain;
mod trace;
mod tune;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

use fault::Fault;
use print::{Answer, Output};

/// Tile-synchronized execution of dependent GPU kernels, proved before it runs.
#[derive(Parser)]
#[command(name = "cusync", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Answer in JSON (docs/json.md)
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Prove that a pipeline can neither race nor hang, or refute it with a counterexample
    Check(check::CheckArgs),
    /// List the shipped specs and programs
    List,
    /// Print a shipped spec or program
    Show(names::ShowArgs),
    /// Write a first spec to start from
    Init(names::InitArgs),
    /// Show tiles, dependences, policies, orders and launch mode, with the reasons for each choice
    Explain(target::TargetArgs),
    /// Render the C++ header and the Rust handle
    Gen(render::RenderArgs),
    /// Predict the time of every executor, or compare predictions with measurements
    Simulate(simulate::SimulateArgs),
    /// Run and verify against an independent reference: on the GPU if there is one, else on the CPU
    Run(run::RunArgs),
    /// Find the fastest configuration: predict, measure the best few if there is a GPU, and store the result
    Tune(tune::TuneArgs),
    /// Measure against the baselines (needs a GPU)
    #[command(subcommand)]
    Bench(bench::Suite),
    /// Show where the time of a fused run goes, compared with the same kernel stage by stage (needs a Hopper
    /// GPU, or --simulate)
    Trace(trace::TraceArgs),
    /// Measure and write a device profile (needs a GPU)
    Calibrate(calibrate::CalibrateArgs),
    /// Put the kernels of serial code on streams with the fewest waits, and choose how to run them
    Schedule(schedule::ScheduleArgs),
    /// Continue texts with a language model: a folder with a Hugging Face checkpoint
    #[cfg(feature = "models")]
    Generate(generate::GenerateArgs),
    /// Look into a language model: print its pipelines, compute logits, measure, or write a small one to try
    #[cfg(feature = "models")]
    #[command(subcommand)]
    Model(model::Task),
    /// Print driver, GPUs, toolchain and kernels, with a command to fix each problem
    Doctor,
    /// Install the pinned CUDA toolchain for building the kernels (about 130 MB, with Python's pip)
    Setup(setup::SetupArgs),
    /// Print the completions of a shell, such as `cusync completions bash > /etc/bash_completion.d/cusync`
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
}

/// Runs a command line, which begins with the program's name. Prints the answer and returns the exit status.
pub fn command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let Arguments { command, json } = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return print::usage(&error),
    };
    let output = Output::new(json);
    match command.run(&output) {
        Ok(answer) => print::answer(answer.as_ref(), &output),
        Err(fault) => print::fault(&fault, json),
    }
}

impl Command {
    fn run(self, output: &Output) -> Result<Box<dyn Answer>, Fault> {
        Ok(match self {
            Command::Check(args) => Box::new(check::run(args)?),
            Command::List => Box::new(names::list()),
            Command::Show(args) => Box::new(names::show(&args)?),
            Command::Init(args) => Box::new(names::init(&args)?),
            Command::Explain(args) => Box::new(explain::explain(&args.resolve()?)?),
            Command::Gen(args) => Box::new(render::render(args)?),
            Command::Simulate(args) => simulate::simulate(args)?,
            Command::Run(args) => Box::new(run::run(args, output)?),
            Command::Tune(args) => Box::new(tune::tune(args, output)?),
            Command::Bench(suite) => Box::new(bench::bench(&suite, output)?),
            Command::Trace(args) => Box::new(trace::trace(args, output)?),
            Command::Calibrate(args) => Box::new(calibrate::calibrate(&args, output)?),
            Command::Schedule(args) => Box::new(schedule::schedule(&args)?),
            #[cfg(feature = "models")]
            Command::Generate(args) => Box::new(generate::generate(&args, output)?),
            #[cfg(feature = "models")]
            Command::Model(task) => model::run(&task, output)?,
            Command::Doctor => Box::new(doctor::doctor()),
            Command::Setup(args) => Box::new(setup::setup(args, output)?),
            Command::Completions { shell } => Box::new(names::completions(shell, &mut Arguments::command())),
        })
    }
}
