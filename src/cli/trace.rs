//! `cusync trace`: where the time of a fused run goes.

use cusync::device::Device;
use cusync::runtime::{Wishes, plan_text};
use cusync::trace::{TraceReport, events, trace};
use cusync_gen::check::Executor;

use super::fault::Fault;
use super::progress::Progress;
use super::request::{Output, TraceRequest};

/// Sets of inputs in rotation: weights come from device memory, as in a model.
const SETS: usize = 4;

pub(crate) fn run(request: &TraceRequest, output: &Output) -> Result<TraceReport, Fault> {
    let progress = Progress::start(output);
    let fault = |e: &dyn std::fmt::Display| Fault::input(e.to_string());
    let gpu = Device::open(0).map_err(|e| fault(&e))?;
    let profile = gpu.profile().ok_or_else(|| {
        Fault::input(format!("{} is older than compute capability 8.0", gpu.name())).help("use a Hopper GPU")
    })?;
    let source = &request.target.source;
    let (dims, decode) = (request.target.dims.clone(), request.decode);
    let wishes = Wishes { dims, decode, ..Wishes::default() };
    let plan = plan_text(&source.text, &source.origin, &wishes, &profile, Executor::Fused);
    let plan = plan.map_err(|e| fault(&e))?;
    progress.say(format!("tracing {} on {}", plan.graph().name, gpu.name()));
    let report = trace(&plan, &profile, 0, SETS, request.seed as u32).map_err(|e| fault(&e))?;
    if let Some(file) = &request.file {
        let failed = |e: &dyn std::fmt::Display| Fault::input(format!("{}: {e}", file.display()));
        let text = serde_json::to_string(&events(&report)).map_err(|e| failed(&e))?;
        std::fs::write(file, text).map_err(|e| failed(&e))?;
    }
    Ok(report)
}
