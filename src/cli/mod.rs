//! The command line: arguments resolve once into a plain [`request::Request`], a command turns it into a
//! [`report::Report`], and [`print`] is the only place that writes.

mod against;
mod args;
mod bench;
mod calibrate;
mod check;
mod doctor;
mod explain;
mod fault;
mod generate;
mod print;
mod print_against;
mod print_calibrate;
mod print_dag;
mod print_tune;
mod progress;
mod prove;
mod report;
mod request;
mod run;
mod schedule;
mod simulate;
mod source;
mod timeline;
mod trace;
mod tune;

use std::process::ExitCode;

use clap::Parser;

use fault::Fault;
use report::Report;
use request::{Command, Request};

/// Runs the command that the process was started with.
pub(crate) fn main() -> ExitCode {
    let request = match args::Args::parse().resolve() {
        Ok(request) => request,
        Err(fault) => return print::fault(&fault),
    };
    match execute(&request) {
        Ok(report) => print::report(&report, &request.output),
        Err(fault) => print::fault(&fault),
    }
}

fn execute(request: &Request) -> Result<Report, Fault> {
    Ok(match &request.command {
        Command::Check(what) => Report::Check(check::check(what)?),
        Command::Explain(what) => Report::Explain(explain::explain(what)?),
        Command::Generate(what, dir) => Report::Generate(generate::generate(what, dir)?),
        Command::Simulate(what) => Report::Simulate(simulate::simulate(what)?),
        Command::Against(what) => Report::Against(Box::new(against::against(what)?)),
        Command::Run(what) => Report::Run(Box::new(run::run(what, &request.output)?)),
        Command::Bench(what) => Report::Bench(bench::bench(what, &request.output)?),
        Command::Trace(what) => Report::Trace(Box::new(trace::run(what, &request.output)?)),
        Command::Tune(what) => Report::Tune(Box::new(tune::tune(what, &request.output)?)),
        Command::Calibrate(what) => Report::Calibrate(Box::new(calibrate::run(what, &request.output)?)),
        Command::Schedule(what) => Report::Schedule(Box::new(schedule::schedule(what)?)),
        Command::Doctor => Report::Doctor(doctor::doctor()),
    })
}
