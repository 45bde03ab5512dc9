//! Shows where the time of a run goes: timelines of real fused runs, from records of their kernels, and of
//! predicted runs, in one form ([`Timeline`]), with the cause of each wait.
//!
//! Every SM runs one CTA. The time of its math warps, from the start of the first item on any SM to the end
//! of the last, is divided into five kinds that add up to that span ([`Shares`]). In a real trace, *serial*
//! is the same kernel (same tile and cluster, whole tiles only; or the decode kernel), launched once per
//! stage, one stage after the other on one stream: the same arithmetic, with kernel boundaries in place of
//! semaphores.
//!
//! ```
//! use cusync::codegen::check::Executor;
//! use cusync::codegen::choose;
//! use cusync::codegen::device::Profile;
//! use cusync::runtime::{Overrides, resolve_text, shipped};
//! use cusync::trace::{page, simulated, simulated_run};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let resolved = resolve_text(shipped("two_gemms").expect("it ships"), "two_gemms", &Overrides::default())?;
//! let chosen = choose::candidate(&resolved, h200, Executor::Fused).expect("a kernel runs it");
//! let mut timeline = simulated(&chosen);
//! timeline.runs.push(simulated_run(&chosen, Executor::Fused));
//! assert!(page(&timeline).starts_with("<!doctype html>"));
//! # Ok::<(), cusync::runtime::Error>(())
//! ```

mod cause;
mod chrome;
mod handed;
mod measured;
mod page;
mod program;
mod shares;
mod simulated;
mod timeline;

use cusync_gen::check::{Executor, Launch, Plan};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::{Resolved, StageId};
use cusync_gen::schedule::Hand;
use serde::Serialize;

pub use chrome::events;
pub use handed::{joined, shift};
pub use page::page;
pub use program::scheduled;
pub use shares::Shares;
pub use simulated::{simulated, simulated_run};
pub use timeline::{Edge, HostEvent, HostRow, Kind, Phase, Run, TimeSource, Timeline, TraceSpan, defect};

use crate::device::Device;
use crate::inputs::Inputs;
use crate::runtime::copilot::{Handing, Items, JobSession, SessionNotes, Settings};
use crate::runtime::cpu::CpuOptions;
use crate::runtime::{ChainOverride, Error, InputSets, ItemTrace, Options, Pipeline, Result, trace_runs};
use cause::Edges;

/// Numbers of one run of a pipeline.
#[derive(Clone, Debug, Serialize)]
pub struct Traced {
    /// Name of the executor.
    pub name: String,
    /// Shares over all SMs.
    pub shares: Shares,
    /// Name of each stage, and the time of an average SM in its items.
    pub stages: Vec<(String, Shares)>,
    /// Name of each edge that was waited on, and microseconds that an average SM waited.
    pub waits: Vec<(String, f64)>,
}

/// Runs of a pipeline side by side.
#[derive(Clone, Debug, Serialize)]
pub struct TraceReport {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Dims by name.
    pub dims: Vec<(String, u32)>,
    /// GPU, or the profile of one.
    pub device: String,
    /// Source of the times.
    pub origin: TimeSource,
    /// Kernel of the synchronized run.
    pub kernel: String,
    /// Runs; the synchronized one last.
    pub runs: Vec<Traced>,
    /// Timeline of the numbers.
    #[serde(skip)]
    pub timeline: Timeline,
}

impl TraceReport {
    /// Numbers of a timeline.
    pub fn new(timeline: Timeline) -> TraceReport {
        let one = |run: &Run| {
            let stages = timeline.stages.iter().enumerate();
            let waits = run.waits_us(timeline.edges.len());
            let names = timeline.edges.iter().map(|e| e.name.as_str()).chain(["partial sums"]);
            Traced {
                name: run.name.clone(),
                shares: run.shares(None),
                stages: stages.map(|(s, name)| (name.clone(), run.shares(Some(s)))).collect(),
                waits: names.zip(waits).filter(|(_, us)| *us > 0.0).map(|(n, us)| (n.into(), us)).collect(),
            }
        };
        TraceReport {
            pipeline: timeline.pipeline.clone(),
            dims: timeline.dims.clone(),
            device: timeline.device.clone(),
            origin: timeline.origin,
            kernel: timeline.runs.last().map_or_else(String::new, |r| r.what.clone()),
            runs: timeline.runs.iter().map(one).collect(),
            timeline,
        }
    }
}

/// Each stage of a pipeline as a plan of its own, for one chain kernel or, without one, for decode kernels.
fn stage_by_stage(
    resolved: &Resolved,
    profile: &Profile,
    kernel: Option<ChainOverride>,
) -> Result<Vec<Plan>> {
    let refused = |d: Diagnostic| Error::Refused(d.message);
    let plan = |stage: usize| {
        let one = resolved.only(StageId(stage));
        let candidate = match kernel {
            Some(asked) => choose::chain(&one, profile, asked),
            None => choose::decode(&one, profile),
        };
        candidate.and_then(|candidate| choose::prove(&one, candidate)).map_err(refused)
    };
    (0..resolved.stages.len()).map(plan).collect()
}

/// Traces a fused plan of a resolved spec, and its stages one by one, with random inputs in `sets` sets.
///
/// # Errors
/// The plan is not for the `fused` executor, or the GPU does not support it.
pub fn trace(resolved: &Resolved, plan: &Plan, gpu: u32, sets: usize, seed: u32) -> Result<TraceReport> {
    let graph = plan.graph();
    let (m, n, _) = graph.kernel_tile();
    let (asked, kernel) = match plan.launch() {
        Launch::Lists(schedule) => {
            let (cluster, mode) = (schedule.cluster, Hand::Fixed);
            let asked = ChainOverride { kernel: Some(((m, n), cluster)), mode, splits: false };
            let (i, j) = cluster;
            (Some(asked), format!("{m} x {n} tiles, clusters of {i} x {j}"))
        }
        Launch::Shares(decode) => (None, format!("decode kernel of {} tokens", decode.width)),
        Launch::Stages { .. } => {
            return Err(Error::NotProved { proved: plan.executor(), asked: Executor::Fused });
        }
    };
    let device = Device::open(gpu)?;
    let mut fused = vec![ready(plan, &device, sets, seed)?];
    let mut serial = Vec::new();
    for (index, single) in (1..).zip(stage_by_stage(resolved, plan.device(), asked)?) {
        serial.push(ready(&single, &device, sets, seed.wrapping_add(index))?);
    }
    let runs = vec![
        measured::serial(
            plan,
            &format!("a launch a stage; {kernel}"),
            &trace_runs(&mut serial)?,
            device.sms(),
        ),
        measured::fused(plan, &format!("one launch; {kernel}"), &trace_runs(&mut fused)?, device.sms()),
    ];
    Ok(TraceReport::new(Timeline {
        pipeline: graph.name.clone(),
        dims: graph.dims.clone(),
        device: device.name().into(),
        origin: TimeSource::Measured,
        stages: graph.stages.iter().map(|s| s.name.clone()).collect(),
        edges: Edges::names(graph),
        rows: "SM",
        runs,
    }))
}

/// Traces a session of a plan: a job of a decode kernel, or one job of each kind with items handed out by the
/// host. On a GPU, next to the same kernel in one launch; otherwise threads take the jobs.
///
/// # Errors
/// As [`JobSession::open`] or [`Items::open`].
pub fn trace_session(plan: &Plan, gpu: Option<&Device>, seed: u32) -> Result<TraceReport> {
    let graph = plan.graph();
    let (kernel, workers) = match plan.launch() {
        Launch::Shares(decode) => (format!("decode kernel of {} tokens", decode.width), decode.workers()),
        launch => {
            let (m, n, _) = graph.kernel_tile();
            (format!("{m} x {n} tiles"), launch.work().map_or(0, |work| work.lists.len() as u32))
        }
    };
    let mut runs = Vec::new();
    let of_jobs = |mut session: JobSession<'_>| -> Result<(SessionNotes, Vec<ItemTrace>)> {
        let rows = graph.stages.iter().map(|stage| stage.m).min().unwrap_or(1);
        for number in 0..WARM + 1 {
            if number == WARM {
                session.take_notes();
            }
            let job = session.submit(0, rows)?;
            session.wait(job)?;
        }
        let (notes, items) = (session.take_notes(), session.take_trace()?);
        session.close()?;
        Ok((notes, items))
    };
    let of_items = |mut session: Items<'_>| -> Result<(SessionNotes, Vec<ItemTrace>)> {
        for number in 0..WARM + 1 {
            if number == WARM {
                session.take_notes();
            }
            let jobs = (0..session.kinds()).map(|kind| session.submit(kind)).collect::<Result<Vec<_>>>()?;
            jobs.into_iter().try_for_each(|job| session.wait(job))?;
        }
        let (notes, items) = (session.take_notes(), session.take_trace()?);
        session.close()?;
        Ok((notes, items))
    };
    let decodes = plan.launch().shares().is_some();
    let (sms, device, (notes, items)) = match gpu {
        Some(device) => {
            let mut pipelines = [ready(plan, device, 1, seed)?];
            let alone = trace_runs(&mut pipelines)?;
            runs.push(measured::fused(plan, &format!("one launch; {kernel}"), &alone, device.sms()));
            let [pipeline] = &mut pipelines;
            pipeline.take_trace()?;
            let noted = match decodes {
                true => of_jobs(JobSession::open(pipeline, Settings::default())?)?,
                false => of_items(Items::open(pipeline, Handing::default())?)?,
            };
            (device.sms(), device.name().to_owned(), noted)
        }
        None => {
            let inputs = Inputs::checked_random(graph, u64::from(seed))?;
            let options = CpuOptions::default();
            let noted = match decodes {
                true => of_jobs(JobSession::on_host(plan, &[inputs], options, Settings::default())?)?,
                false => of_items(Items::on_host(plan, &inputs, options, Handing::default())?)?,
            };
            (workers, "threads of this host".to_owned(), noted)
        }
    };
    let kernel = format!("a session; {kernel}");
    // A worker's record of an item persists if another worker had the item in a later job.
    let items = match decodes {
        true => items,
        false => handed::joined(plan, &notes, &items).into_iter().map(|(_, item)| *item).collect(),
    };
    let run =
        Run { name: "copilot".into(), ..measured::fused(plan, &kernel, std::slice::from_ref(&items), sms) };
    runs.push(handed::beside_host(run, plan, &notes, &items));
    Ok(TraceReport::new(Timeline {
        pipeline: graph.name.clone(),
        dims: graph.dims.clone(),
        device,
        origin: TimeSource::Measured,
        stages: graph.stages.iter().map(|s| s.name.clone()).collect(),
        edges: Edges::names(graph),
        rows: "SM",
        runs,
    }))
}

/// Jobs before the traced one: they bring clocks and caches to a steady state.
const WARM: usize = 20;

fn ready(plan: &Plan, device: &Device, sets: usize, seed: u32) -> Result<Pipeline> {
    let options = Options { trace: true, ..Options::default() };
    let mut pipeline = Pipeline::with_options(plan, device, options)?;
    let mut inputs = InputSets::random(plan.graph(), device, sets.max(1), seed)?;
    inputs.fill_caches(plan.graph(), device)?;
    inputs.bind(&mut pipeline)?;
    Ok(pipeline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Overrides, SHIPPED, resolve_text};

    #[test]
    fn every_stage_of_every_shipped_spec_stands_alone() {
        let device = Profile::named("h200").expect("the profile ships");
        let mut count = 0;
        for (name, source) in SHIPPED {
            let tokens = source.contains("\"M\":");
            let dims = tokens.then(|| ("M".to_owned(), 200)).into_iter().collect();
            let overrides = Overrides { dims, ..Overrides::default() };
            let resolved = resolve_text(source, name, &overrides).expect("it resolves");
            if choose::obstacle(&resolved, device, Executor::Fused).is_some() {
                continue;
            }
            let decodes = resolved.stages.iter().any(|stage| !stage.op.in_chain());
            let kernel = (!decodes).then(ChainOverride::default);
            let plans = stage_by_stage(&resolved, device, kernel).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(plans.len(), resolved.stages.len(), "{name}");
            for (plan, stage) in plans.iter().zip(&resolved.stages) {
                let [alone] = &plan.graph().stages[..] else { panic!("{name}: one stage") };
                assert_eq!(
                    (&alone.name, alone.m, alone.n, alone.k),
                    (&stage.name.value, stage.m, stage.n, stage.k)
                );
                assert_eq!(plan.graph().element, resolved.element);
                assert_eq!(plan.launch().shares().is_some(), decodes, "{name}");
                count += 1;
            }
        }
        assert!(count > 80, "{count} stages");
    }
}
