//! Runs a LLaMA MLP and verifies it: on a GPU if there is one, otherwise on host threads with the same plan.
//!
//!     cargo run --release --example 03_run_mlp

use std::collections::HashMap;

use cusync::device::Device;
use cusync::inputs::Inputs;
use cusync::reference::Judge;
use cusync::runtime::cpu::{CpuOptions, CpuPipeline};
use cusync::runtime::{Overrides, RunOptions, plan_text, run_gpu, shipped};
use cusync_gen::check::Executor;
use cusync_gen::device::Profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = shipped("llama65_mlp").ok_or("the spec ships")?;
    let overrides = Overrides { dims: vec![("M".into(), 16)], ..Overrides::default() };

    if let Ok(gpu) = Device::open(0) {
        let profile = gpu.profile().ok_or("the GPU is too old")?;
        let executor = if profile.arch >= 90 { Executor::Programmatic } else { Executor::Streams };
        let plan = plan_text(source, "llama65_mlp", &overrides, &profile, executor)?;
        let report = run_gpu(&plan, RunOptions::default())?;
        show(&format!("{}: {:.1} us, right: {}", report.device, report.time_us, report.verified));
        return if report.verified { Ok(()) } else { Err("wrong result".into()) };
    }

    show("no GPU: running on the CPU");
    let profile = Profile::named("h200").ok_or("the profile ships")?;
    let plan = plan_text(source, "llama65_mlp", &overrides, profile, Executor::Cpu)?;
    let inputs = Inputs::checked_random(plan.graph(), 1)?;
    let mut pipeline = CpuPipeline::new(&plan, &inputs, CpuOptions::default())?;
    let stats = pipeline.run()?;

    let judge = Judge::new(plan.graph(), &inputs, HashMap::new())?;
    let judged = judge.compare(&|tensor| pipeline.tensor(tensor).ok())?;
    show(&format!("{} tiles in {:.0} ms", stats.tiles.len(), stats.time.as_secs_f64() * 1e3));
    judged.iter().for_each(|tensor| show(&tensor.to_string()));
    if judged.iter().all(|tensor| tensor.verified) { Ok(()) } else { Err("wrong result".into()) }
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
