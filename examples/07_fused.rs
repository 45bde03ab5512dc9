//! The fused executor: a whole chain in one launch. On a Hopper GPU, a graph of several runs in which weights stream in
//! while the previous run is still finishing; without one, the same plans on host threads, one per CTA.
//!
//!     cargo run --release --example 07_fused

use cusync::device::{Device, kernels_of};
use cusync::ffi::CUSYNC_FAMILY_CHAIN;
use cusync::inputs::Inputs;
use cusync::runtime::cpu::{CpuOptions, CpuPipeline};
use cusync::runtime::verify::Reference;
use cusync::runtime::{InputSets, Options, Overlap, Overrides, Pipeline, plan_text, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Profile;

/// A small MLP, fast on host threads too. Few tokens use a decode kernel, which repacks the weights.
fn plan(profile: &Profile, m: u64, decode: bool) -> Result<Plan, Box<dyn std::error::Error>> {
    let source = shipped("llama65_mlp").ok_or("the spec ships")?;
    let dims = [("M", m), ("H", 1024), ("I", 512)].map(|(name, value)| (name.to_owned(), value));
    let overrides = Overrides { dims: dims.to_vec(), decode, ..Overrides::default() };
    Ok(plan_text(source, "llama65_mlp.ron", &overrides, profile, Executor::Fused)?)
}

fn on_gpu(gpu: &Device, plan: &Plan) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options { overlap: Overlap::Captured, ..Options::default() };
    let mut pipeline = Pipeline::with_options(plan, gpu, options)?;
    InputSets::random(plan.graph(), gpu, 2, 1)?.bind(&mut pipeline)?;
    let reference = Reference::new(&mut pipeline, 0)?;
    // A decode kernel reads only the repacked weights, so the originals' memory can be freed.
    pipeline.release_originals()?;
    let graph = pipeline.capture(Executor::Fused, &[1, 0, 1, 0])?;
    pipeline.replay(&graph)?;
    let right = reference.compare(&mut pipeline)?.iter().all(|output| output.verified);
    if right { Ok(()) } else { Err("wrong result".into()) }
}

fn on_host(plan: &Plan) -> Result<(), Box<dyn std::error::Error>> {
    let inputs = Inputs::checked_random(plan.graph(), 1)?;
    let stats = CpuPipeline::new(plan, &inputs, CpuOptions::default())?.run()?;
    show(&format!("{} threads, {} waits had to spin", stats.threads, stats.blocked.waits));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpu =
        Device::open(0).ok().filter(|g| g.capability().0 == 9 && !kernels_of(CUSYNC_FAMILY_CHAIN).is_empty());
    let profile = match &gpu {
        Some(gpu) => gpu.profile().ok_or("a Hopper GPU has a profile")?,
        None => Profile::named("h200").ok_or("the profile ships")?.clone(),
    };
    for (m, decode) in [(8, true), (200, false)] {
        let plan = plan(&profile, m, decode)?;
        match &gpu {
            Some(gpu) => on_gpu(gpu, &plan)?,
            None => on_host(&plan)?,
        }
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
