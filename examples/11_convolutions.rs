//! A ResNet residual block after a pool, in one launch: convolution tiles wait for the pixel rows around their own, not
//! for all images. On a Hopper GPU, eager and as a graph; without one, the same work lists on host threads.
//!
//!     cargo run --release --example 11_convolutions

use std::collections::HashMap;

use cusync::device::{Device, kernels_of};
use cusync::ffi::CUSYNC_FAMILY_CHAIN;
use cusync::inputs::Inputs;
use cusync::reference::Judge;
use cusync::runtime::cpu::{CpuOptions, CpuPipeline};
use cusync::runtime::{Overrides, RunOptions, plan_text, run_gpu};
use cusync_gen::check::Executor;
use cusync_gen::device::Profile;

const BLOCK: &str = r#"Pipeline(name: "block", dims: { "B": 2, "C": 64 }, stages: [
    Pool(name: "pool", input: "X(B,28,28,C)", kind: Max, window: (3,3), stride: (2,2), padding: (1,1), out: "P(B,14,14,C)"),
    Conv2d(name: "first", input: "P(B,14,14,C)", filter: "F1(3,3,C,2*C)", stride: (2,2), padding: (1,1), epilogue: Relu, out: "A(B,7,7,2*C)"),
    Conv2d(name: "shortcut", input: "P(B,14,14,C)", filter: "F0(1,1,C,2*C)", stride: (2,2), out: "S(B,7,7,2*C)"),
    Conv2d(name: "second", input: "A(B,7,7,2*C)", filter: "F2(3,3,2*C,2*C)", padding: (1,1), residual: "S(B,7,7,2*C)",
        residual_at: BeforeActivation, epilogue: Relu, out: "Y(B,7,7,2*C)"),
])"#;

fn on_gpu(profile: &Profile) -> Result<bool, Box<dyn std::error::Error>> {
    // The block in one launch, then in one kernel per stage.
    let mut right = true;
    for executor in [Executor::Fused, Executor::Serial] {
        let plan = plan_text(BLOCK, "block.ron", &Overrides::default(), profile, executor)?;
        let report = run_gpu(&plan, RunOptions::default())?;
        show(&format!("{}, {}: {:.1} us", report.device, report.executor, report.time_us));
        right &= report.verified;
    }
    Ok(right)
}

fn on_host(profile: &Profile) -> Result<bool, Box<dyn std::error::Error>> {
    let plan = &plan_text(BLOCK, "block.ron", &Overrides::default(), profile, Executor::Fused)?;
    let inputs = Inputs::checked_random(plan.graph(), 1)?;
    let mut pipeline = CpuPipeline::new(plan, &inputs, CpuOptions::default())?;
    let stats = pipeline.run()?;
    let judge = Judge::new(plan.graph(), &inputs, HashMap::new())?;
    let judged = judge.compare(&|tensor| pipeline.tensor(tensor).ok())?;
    show(&format!("{} waits had to spin", stats.blocked.waits));
    judged.iter().for_each(|tensor| show(&tensor.to_string()));
    Ok(judged.iter().all(|tensor| tensor.verified))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpu =
        Device::open(0).ok().filter(|g| g.capability().0 == 9 && !kernels_of(CUSYNC_FAMILY_CHAIN).is_empty());
    let profile = match &gpu {
        Some(gpu) => gpu.profile().ok_or("a Hopper GPU has a profile")?,
        None => Profile::named("h200").ok_or("the profile ships")?.clone(),
    };
    let right = if gpu.is_some() { on_gpu(&profile)? } else { on_host(&profile)? };
    if right { Ok(()) } else { Err("wrong result".into()) }
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
