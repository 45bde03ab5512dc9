//! `cusync bench`.

use std::path::Path;

use cusync::bench::dag::bench_dag;
use cusync::bench::{self, MlpArgs, MlpReport, add_pytorch, bench_mlp, bench_semaphores, bench_sweep};

use super::fault::Fault;
use super::progress::Progress;
use super::report::BenchReport;
use super::request::{MlpRequest, Output, Suite};

/// Repetitions of a post or wait that one figure is the mean of.
const SEMAPHORE_COUNT: u32 = 10_000;

pub(crate) fn bench(suite: &Suite, output: &Output) -> Result<BenchReport, Fault> {
    let progress = Progress::start(output);
    match suite {
        Suite::Sync => {
            progress.say("measuring semaphores");
            bench_semaphores(0, SEMAPHORE_COUNT).map(BenchReport::Sync).map_err(fault)
        }
        Suite::Mlp(request) => mlp(request, &progress).map(|r| BenchReport::Mlp(Box::new(r))),
        Suite::Sweep(request) => {
            let told = &mut |name: &str, m| progress.say(format!("{name} M = {m}"));
            let report = bench_sweep(&request.args, told).map_err(fault)?;
            save(request.save.as_deref(), &report)?;
            Ok(BenchReport::Sweep(Box::new(report)))
        }
        Suite::Dag(request) => {
            let mut unsaved = None;
            let report = bench_dag(&request.args, &mut |part, report| {
                progress.say(part);
                // A benchmark that is cut short leaves the parts that were done.
                unsaved = save(request.save.as_deref(), report).err();
            })
            .map_err(fault)?;
            unsaved.map_or(Ok(BenchReport::Dag(Box::new(report))), Err)
        }
    }
}

fn mlp(request: &MlpRequest, progress: &Progress) -> Result<MlpReport, Fault> {
    let mut report = if request.from.is_empty() {
        let mut unsaved = None;
        let args = MlpArgs { tuned: request.tuned.load()?, ..request.args.clone() };
        let report = bench_mlp(&args, &mut |news| match news {
            bench::Progress::Begin(name, m, done, all) => {
                progress.say(format!("{name} M = {m} ({} of {all})", done + 1));
            }
            // A benchmark that is cut short leaves the sizes that were done.
            bench::Progress::Done(report) => unsaved = save(request.save.as_deref(), report).err(),
        })
        .map_err(fault)?;
        unsaved.map_or(Ok(report), Err)?
    } else {
        earlier(request)?
    };
    for file in &request.pytorch {
        let added = add_pytorch(&mut report, &read(file)?);
        added.map_err(|e| Fault::input(format!("{}: {e}", file.display())))?;
    }
    save(request.save.as_deref(), &report)?;
    Ok(report)
}

/// The reports of earlier runs, as one.
fn earlier(request: &MlpRequest) -> Result<MlpReport, Fault> {
    let mut all: Option<MlpReport> = None;
    for file in &request.from {
        let report: MlpReport = cusync_gen::columns::read(&read(file)?)
            .map_err(|e| Fault::input(format!("{}: not a saved report: {e}", file.display())))?;
        match &mut all {
            Some(all) => all.absorb(report),
            None => all = Some(report),
        }
    }
    all.ok_or_else(|| Fault::input("no file to read"))
}

fn read(file: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(file).map_err(|e| Fault::input(format!("{}: {e}", file.display())))
}

fn save(file: Option<&Path>, report: &impl serde::Serialize) -> Result<(), Fault> {
    let Some(file) = file else { return Ok(()) };
    let failed = |e: &dyn std::fmt::Display| Fault::input(format!("{}: {e}", file.display()));
    let text = cusync_gen::columns::write(report).map_err(|e| failed(&e))?;
    std::fs::write(file, text).map_err(|e| failed(&e))
}

fn fault(error: bench::Error) -> Fault {
    match error {
        bench::Error::Wrong { .. } => Fault::refuted(error.to_string()),
        other => Fault::input(other.to_string()).help("`cusync doctor` says what is missing"),
    }
}
