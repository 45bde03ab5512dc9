//! Shared by the GPU tests. They also run from a bundle on a machine without cargo, so nothing here reads a file.
#![allow(dead_code, unreachable_pub, clippy::print_stdout)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use cusync::device::Device;
use cusync::runtime::verify::{Accuracy, Reference, first_wrong};
use cusync::runtime::{InputSets, Options, Overrides, Pipeline, plan_text, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::sync::Policy;

/// Tests of one binary take turns: each may fill the GPU.
static TURN: Mutex<()> = Mutex::new(());

/// The GPU, held for the duration of this test's turn.
pub struct Gpu {
    pub device: Device,
    _turn: MutexGuard<'static, ()>,
}

/// Opens the GPU, or prints why the test is skipped.
pub fn gpu() -> Option<Gpu> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::open(0) {
        Ok(device) if device.profile().is_some() => {
            if cusync::device::kernels().is_empty() {
                println!("skipped: this binary was built without kernels (`cargo xtask setup` brings nvcc)");
                return None;
            }
            Some(Gpu { device, _turn: turn })
        }
        Ok(device) => {
            println!("skipped: {} is older than compute capability 8.0", device.name());
            None
        }
        Err(error) => {
            println!("skipped: no GPU ({})", error.to_string().lines().next().unwrap_or_default());
            None
        }
    }
}

/// Whether `CUSYNC_GPU_QUICK` requests only a few significant sizes.
pub fn quick() -> bool {
    std::env::var_os("CUSYNC_GPU_QUICK").is_some()
}

/// The executors that run on this GPU.
pub fn executors(gpu: &Gpu) -> Vec<Executor> {
    let mut list = vec![Executor::Serial, Executor::Streams];
    if gpu.device.capability().0 >= 9 {
        list.push(Executor::Programmatic);
    }
    list
}

/// Overrides with one dim, and one slot per row on every edge: the automatic choice may be not to overlap at all.
pub fn dim(name: &str, value: u64) -> Overrides {
    Overrides { dims: vec![(name.into(), value)], policy: Some(Policy::Row), ..Overrides::default() }
}

/// The plan of a shipped spec for this GPU.
pub fn plan(gpu: &Gpu, name: &str, overrides: &Overrides, executor: Executor) -> Plan {
    let source = shipped(name).expect("the spec ships");
    plan_of(gpu, source, overrides, executor)
}

/// The plan of a spec for this GPU.
pub fn plan_of(gpu: &Gpu, source: &str, overrides: &Overrides, executor: Executor) -> Plan {
    let profile = gpu.device.profile().expect("checked when the GPU was opened");
    plan_text(source, "test.ron", overrides, &profile, executor).unwrap_or_else(|e| panic!("{e}"))
}

/// A pipeline with random inputs.
pub fn pipeline(gpu: &Gpu, plan: &Plan, inputs: &InputSets, options: Options) -> Pipeline {
    let options = Options { check_pages: true, ..options };
    let mut pipeline = Pipeline::with_options(plan, &gpu.device, options).unwrap_or_else(|e| panic!("{e}"));
    inputs.bind(&mut pipeline).unwrap_or_else(|e| panic!("{e}"));
    pipeline
}

/// Panics on the first wrong tensor.
pub fn assert_right(label: &str, outputs: &[Accuracy]) {
    if let Some(why) = first_wrong(outputs) {
        panic!("{label}: {why}");
    }
}

/// [`assert_right`], and also checks that the accumulated rounding of all stages is at most 1e-2 in norm.
fn assert_right_to_the_end(label: &str, outputs: &[Accuracy]) {
    assert_right(label, outputs);
    let furthest = outputs.iter().filter_map(|output| output.end_to_end).fold(0.0, f64::max);
    assert!(furthest < 1e-2, "{label}: off by {furthest:.1e} end to end");
}

/// Runs a plan eagerly and as a replayed graph, each on poisoned outputs, and compares every output.
pub fn assert_runs_right(gpu: &Gpu, label: &str, plan: &Plan, inputs: &InputSets, reference: &Reference) {
    let executor = plan.executor();
    let mut pipeline = pipeline(gpu, plan, inputs, Options::default());
    let mut attempt = || -> cusync::runtime::Result<(Vec<Accuracy>, Vec<Accuracy>)> {
        pipeline.prepare()?;
        pipeline.poison_outputs()?;
        pipeline.run(executor)?;
        let eager = reference.compare(&mut pipeline)?;
        let graph = pipeline.capture(executor, &[0])?;
        pipeline.poison_outputs()?;
        pipeline.replay(&graph)?;
        Ok((eager, reference.compare(&mut pipeline)?))
    };
    let (eager, replayed) = attempt().unwrap_or_else(|e| panic!("{label}: {e}"));
    assert_right_to_the_end(&format!("{label}, eager"), &eager);
    assert_right_to_the_end(&format!("{label}, graph"), &replayed);
}
