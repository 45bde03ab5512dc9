//! `cusync bench`.

use cusync::bench::{self, MlpArgs, bench_mlp, bench_semaphores};
use cusync_gen::graph::Element;

use super::fault::Fault;
use super::progress::Progress;
use super::report::BenchReport;
use super::request::{Output, Suite};

/// Repetitions of a post or wait that one figure is the mean of.
const SEMAPHORE_COUNT: u32 = 10_000;

pub(crate) fn bench(suite: &Suite, output: &Output) -> Result<BenchReport, Fault> {
    let progress = Progress::start(output);
    let fault = |e: bench::Error| match e {
        bench::Error::Wrong { .. } => Fault::refuted(e.to_string()),
        other => Fault::input(other.to_string()).help("`cusync doctor` says what is missing"),
    };
    match suite {
        Suite::Sync => {
            progress.say("measuring semaphores");
            bench_semaphores(0, SEMAPHORE_COUNT).map(BenchReport::Sync).map_err(fault)
        }
        Suite::Mlp { pipelines, sizes, bf16, seconds } => {
            let mut args = MlpArgs { seconds: *seconds, ..MlpArgs::default() };
            if !pipelines.is_empty() {
                args.pipelines.clone_from(pipelines);
            }
            if !sizes.is_empty() {
                args.sizes.clone_from(sizes);
            }
            if *bf16 {
                args.element = Element::Bf16;
            }
            let report = bench_mlp(&args, &mut |news| {
                if let bench::Progress::Begin(name, m, done, all) = news {
                    progress.say(format!("{name} M = {m} ({} of {all})", done + 1));
                }
            });
            report.map(BenchReport::Mlp).map_err(fault)
        }
    }
}
