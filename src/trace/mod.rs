//! Where the time of a fused run goes, beside that of the same kernel run stage by stage.
//!
//! Every SM runs one CTA. What its arithmetic did, from the first item's beginning on any SM to the last item's end, falls into
//! five kinds that add up to that span ([`Shares`]). *Serial* is the same kernel (of the same tile and cluster, whole tiles
//! only; or the decode kernel), one launch a stage, one stage after the other on one stream: the same arithmetic, kernel
//! boundaries in place of semaphores.

mod alone;
mod chrome;
mod shares;

use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Device as Profile;
use cusync_gen::schedule::Mode;
use serde::Serialize;

pub use chrome::events;
pub use shares::Shares;

use crate::device::Device;
use crate::runtime::{
    ChainWish, Error, InputSets, ItemTrace, Options, Pipeline, Result, Wishes, plan_text, trace_runs,
};

/// One way of running a pipeline, traced.
#[derive(Clone, Debug, Serialize)]
pub struct Traced {
    /// `serial` or `fused`.
    pub name: &'static str,
    /// Over all SMs.
    pub shares: Shares,
    /// By stage: its name, and the time of an average SM in its items.
    pub stages: Vec<(String, Shares)>,
    /// Names of the stages of `items`, one list a kernel.
    #[serde(skip)]
    pub names: Vec<Vec<String>>,
    /// What was noted, one list a kernel.
    #[serde(skip)]
    pub items: Vec<Vec<ItemTrace>>,
}

/// A fused run beside a serial one.
#[derive(Clone, Debug, Serialize)]
pub struct TraceReport {
    /// Pipeline.
    pub pipeline: String,
    /// Dims.
    pub dims: Vec<(String, u32)>,
    /// GPU.
    pub device: String,
    /// The kernel of both.
    pub kernel: String,
    /// Both runs.
    pub runs: Vec<Traced>,
}

/// Traces a fused plan and its stages one by one, with random inputs in `sets` sets.
///
/// # Errors
/// The plan is not for the `fused` executor, or the GPU lacks what it needs.
pub fn trace(plan: &Plan, profile: &Profile, gpu: u32, sets: usize, seed: u32) -> Result<TraceReport> {
    let graph = plan.graph();
    let tile = graph.stages.first().map_or((0, 0), |s| (s.mma_tile.0, s.mma_tile.1));
    let (wish, kernel) = match (plan.schedule(), plan.decode()) {
        (Some(schedule), _) => {
            let (cluster, mode) = (schedule.cluster, Mode::Static);
            let wish = ChainWish { kernel: Some((tile, cluster)), mode, splits: false };
            let ((m, n), (i, j)) = (tile, cluster);
            (Some(wish), format!("{m} x {n} tiles, clusters of {i} x {j}"))
        }
        (_, Some(decode)) => (None, format!("decode kernel of {} tokens", decode.width)),
        _ => return Err(Error::NotProved { proved: plan.executor(), asked: Executor::Fused }),
    };
    let device = Device::open(gpu)?;
    let mut fused = vec![ready(plan, &device, sets, seed)?];
    let mut serial = Vec::new();
    for (index, stage) in graph.stages.iter().enumerate() {
        let decode = wish.is_none();
        let wishes = Wishes { element: Some(graph.element), chain: wish, decode, ..Wishes::default() };
        let text = alone::spec(graph, stage)?;
        let single = plan_text(&text, &stage.name, &wishes, profile, Executor::Fused)?;
        serial.push(ready(&single, &device, sets, seed.wrapping_add(1 + index as u32))?);
    }
    let names = |pipelines: &[Pipeline]| -> Vec<Vec<String>> {
        let of = |p: &Pipeline| p.plan().graph().stages.iter().map(|s| s.name.clone()).collect();
        pipelines.iter().map(of).collect()
    };
    let run = |name: &'static str, pipelines: &mut [Pipeline]| -> Result<Traced> {
        let items = trace_runs(pipelines)?;
        Ok(Traced::new(name, names(pipelines), items, device.sms()))
    };
    let runs = vec![run("fused", &mut fused)?, run("serial", &mut serial)?];
    Ok(TraceReport {
        pipeline: graph.name.clone(),
        dims: graph.dims.clone(),
        device: device.name().into(),
        kernel,
        runs,
    })
}

fn ready(plan: &Plan, device: &Device, sets: usize, seed: u32) -> Result<Pipeline> {
    let options = Options { trace: true, ..Options::default() };
    let mut pipeline = Pipeline::with_options(plan, device, options)?;
    InputSets::random(plan.graph(), device, sets.max(1), seed)?.bind(&mut pipeline)?;
    Ok(pipeline)
}

impl Traced {
    fn new(name: &'static str, names: Vec<Vec<String>>, items: Vec<Vec<ItemTrace>>, sms: u32) -> Self {
        let all: Vec<ItemTrace> = items.iter().flatten().copied().collect();
        let stages = names.iter().zip(&items).flat_map(|(names, items)| {
            names.iter().enumerate().map(|(stage, name)| {
                let own: Vec<ItemTrace> = items.iter().filter(|t| t.item.stage.0 == stage).copied().collect();
                (name.clone(), Shares::of(&own, sms))
            })
        });
        Traced { name, shares: Shares::of(&all, sms), stages: stages.collect(), names, items }
    }
}
