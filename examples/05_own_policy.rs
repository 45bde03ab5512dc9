//! A custom policy: any map from producer tiles to semaphore slots. `check` proves or refutes it; nothing is taken on
//! trust.
//!
//!     cargo run --release --example 05_own_policy

use cusync::inputs::Inputs;
use cusync::runtime::cpu::{CpuOptions, CpuPipeline, Workers};
use cusync::runtime::shipped;
use cusync_gen::check::{Executor, check};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::spec;
use cusync_gen::sync::Policy;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Profile::named("h200").ok_or("the profile ships")?;
    let source = shipped("two_gemms").ok_or("the spec ships")?;
    let refused = |d: cusync_gen::diagnostic::Diagnostic| d.render(source, "two_gemms", false);
    let resolved = spec::parse(source, "two_gemms").and_then(|s| s.resolve(&[])).map_err(refused)?;
    let mut candidate = choose::candidate(&resolved, device, Executor::Cpu).map_err(refused)?;

    // Diagonals share a slot. Slots are numbered from 0 without gaps; the table has one entry per tile, row by row.
    let (rows, cols) = candidate.graph.stages[0].grid;
    let diagonal = (0..rows).flat_map(|m| (0..cols).map(move |n| (m + n) % cols));
    candidate.edges[0].policy = Policy::Table(diagonal.collect());

    // A table without one tile's slot is refuted, with a counterexample.
    let mut short = candidate.clone();
    short.edges[0].policy = Policy::Table(vec![0; (rows * cols - 1) as usize]);
    match check(short) {
        Ok(_) => return Err("a short table must be refuted".into()),
        Err(refutation) => show(&format!("refuted, as it should be: {refutation}")),
    }

    let plan = check(candidate)?;
    let inputs = Inputs::checked_random(plan.graph(), 1)?;
    let options = CpuOptions { workers: Workers::TeamPerStage, ..CpuOptions::default() };
    let stats = CpuPipeline::new(&plan, &inputs, options)?.run()?;
    show(&format!("proved and run: {} slots, {} waits had to spin", plan.slot_count(), stats.blocked.waits));
    Ok(())
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
