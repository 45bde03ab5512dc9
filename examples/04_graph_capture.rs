//! Captures a pipeline into a CUDA graph and mixes replays with eager runs. Semaphores are never cleared: the device
//! counts a run's epoch, so a replay works like a launch.
//!
//!     cargo run --release --example 04_graph_capture

use cusync::device::Device;
use cusync::inputs::Inputs;
use cusync::runtime::cpu::{CpuOptions, CpuPipeline};
use cusync::runtime::verify::Reference;
use cusync::runtime::{InputSets, Overrides, Pipeline, plan_text, shipped};
use cusync_gen::check::Executor;
use cusync_gen::device::Profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = shipped("two_gemms").ok_or("the spec ships")?;

    let Ok(gpu) = Device::open(0) else {
        show("no GPU, hence no CUDA graph: running twice on the CPU, the semaphores counting on");
        let profile = Profile::named("h200").ok_or("the profile ships")?;
        let plan = plan_text(source, "two_gemms", &Overrides::default(), profile, Executor::Cpu)?;
        let inputs = Inputs::checked_random(plan.graph(), 1)?;
        let mut pipeline =
            CpuPipeline::new(&plan, &inputs, CpuOptions { threads: 1, ..CpuOptions::default() })?;
        pipeline.run()?;
        let first = pipeline.written();
        pipeline.run()?;
        return if pipeline.written() == first { Ok(()) } else { Err("the runs differ".into()) };
    };

    let profile = gpu.profile().ok_or("the GPU is too old")?;
    let executor = if profile.arch >= 90 { Executor::Programmatic } else { Executor::Streams };
    let plan = plan_text(source, "two_gemms", &Overrides::default(), &profile, executor)?;
    let mut pipeline = Pipeline::new(&plan, &gpu)?;
    InputSets::random(plan.graph(), &gpu, 1, 1)?.bind(&mut pipeline)?;
    let reference = Reference::new(&mut pipeline, 0)?;

    let graph = pipeline.capture(executor, &[0])?;
    for _ in 0..100 {
        pipeline.replay(&graph)?;
        pipeline.run(executor)?;
    }
    pipeline.poison_outputs()?;
    pipeline.replay(&graph)?;
    let right = reference.compare(&mut pipeline)?.iter().all(|output| output.verified);
    show(&format!("100 replays mixed with 100 eager runs, right: {right}"));
    if right { Ok(()) } else { Err("wrong result".into()) }
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
