//! The MLP benchmark: every executor and policy against the serial pipeline and other people's kernels.

use std::time::{Duration, Instant};

use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Device as Profile;
use cusync_gen::graph::Element;
use cusync_gen::policy::Policy;

use super::ceiling::{Ceilings, Work};
use super::measure::{Regime, interleaved};
use super::peer::{MakePeer, PeerChain, PeerGemm};
use super::variant::{PipelineVariant, Variant};
use super::{Error, Result, Summary};
use crate::device::{CublasLt, Device, GemmArgs, StreamK};
use crate::runtime::verify::{self, Accuracy, Reference};
use crate::runtime::{InputSets, Options, Pipeline, Wishes, executor_name, plan_text, shipped};

/// The sizes of an MLP that are compared, tokens in flight.
pub const SIZES: [u32; 15] = [1, 8, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096];

/// The variant that others are compared with.
const BASELINE: &str = "serial graph";

/// What to measure.
#[derive(Clone, Debug)]
pub struct MlpArgs {
    /// Which GPU.
    pub gpu: u32,
    /// Shipped pipelines with a dim M.
    pub pipelines: Vec<String>,
    /// Values of M.
    pub sizes: Vec<u32>,
    /// Element type.
    pub element: Element,
    /// Regimes.
    pub regimes: Vec<Regime>,
    /// Time limit of the whole benchmark; sizes that do not fit are listed, not measured.
    pub seconds: Option<f64>,
    /// Also queue every variant without a graph. The serial and the automatic ones always are.
    pub all_eager: bool,
    /// Weight sets in rotation.
    pub sets: usize,
}

impl Default for MlpArgs {
    fn default() -> Self {
        MlpArgs {
            gpu: 0,
            pipelines: vec!["gpt3_mlp".into(), "llama65_mlp".into()],
            sizes: SIZES.to_vec(),
            element: Element::F16,
            regimes: vec![Regime::Rested, Regime::Sustained],
            seconds: None,
            all_eager: false,
            sets: 4,
        }
    }
}

/// One line: a variant of a pipeline at a size, in a regime.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Record {
    /// Pipeline.
    pub pipeline: String,
    /// Dims.
    pub dims: Vec<(String, u32)>,
    /// Element type, `f16` or `bf16`.
    pub element: String,
    /// Variant, such as `programmatic auto graph`.
    pub variant: String,
    /// MMA tile of each stage; empty for peers.
    pub tiles: Vec<String>,
    /// Policy of each edge; empty for peers.
    pub policies: Vec<String>,
    /// Regime.
    pub regime: Regime,
    /// Time of one run.
    #[serde(flatten)]
    pub time: Summary,
    /// The least time of this size, microseconds.
    pub floor_us: f64,
    /// Name of the baseline variant.
    pub baseline: String,
    /// Its median, microseconds.
    pub baseline_us: f64,
    /// Baseline over median.
    pub speedup: f64,
    /// Largest difference relative to the largest value; `None` for the variant without waits, whose results mean
    /// nothing.
    pub max_rel_err: Option<f64>,
}

/// The whole benchmark.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MlpReport {
    /// GPU.
    pub device: String,
    /// Measured rates.
    pub ceilings: Ceilings,
    /// One record a variant, size and regime.
    pub records: Vec<Record>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}

/// News while the benchmark runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A size begins: (pipeline, M, number of sizes done, number of all).
    Begin(&'a str, u32, usize, usize),
    /// A size is done.
    Done(&'a [Record]),
}

/// Runs the benchmark. Every variant is verified before it is timed.
pub fn bench_mlp(args: &MlpArgs, progress: &mut dyn FnMut(Progress<'_>)) -> Result<MlpReport> {
    let began = Instant::now();
    let device = Device::open(args.gpu)?;
    let profile = device
        .profile()
        .ok_or_else(|| Error::Argument(format!("{} is older than compute capability 8.0", device.name())))?;
    let ceilings = Ceilings::measure(&device)?;
    let mut report =
        MlpReport { device: device.name().into(), ceilings, records: Vec::new(), skipped: Vec::new() };
    let points: Vec<(&str, u32)> =
        args.pipelines.iter().flat_map(|p| args.sizes.iter().map(move |&m| (p.as_str(), m))).collect();
    let mut slowest = Duration::ZERO;
    for (done, &(name, m)) in points.iter().enumerate() {
        let left = args.seconds.map(|s| s - began.elapsed().as_secs_f64());
        if left.is_some_and(|left| left < slowest.as_secs_f64()) {
            report.skipped.push(format!("{name} M = {m}: the time limit"));
            continue;
        }
        progress(Progress::Begin(name, m, done, points.len()));
        let started = Instant::now();
        let share = left.map(|left| left / (points.len() - done) as f64);
        let bench = Bench { args, device: &device, profile: &profile, ceilings: &ceilings, name, m };
        let records = bench.run(share, &mut report.skipped)?;
        progress(Progress::Done(&records));
        report.records.extend(records);
        slowest = slowest.max(started.elapsed());
    }
    Ok(report)
}

/// One size of one pipeline.
struct Bench<'a> {
    args: &'a MlpArgs,
    device: &'a Device,
    profile: &'a Profile,
    ceilings: &'a Ceilings,
    name: &'a str,
    m: u32,
}

/// A variant with what its record says of it.
struct Entry {
    name: String,
    plan: Option<Plan>,
    max_rel_err: Option<f64>,
}

#[derive(Default)]
struct Field {
    entries: Vec<Entry>,
    variants: Vec<Box<dyn Variant>>,
}

impl Bench<'_> {
    fn plan(&self, executor: Executor, policy: Option<Policy>, like: Option<&Plan>) -> Result<Plan> {
        let source = shipped(self.name)
            .ok_or_else(|| Error::Argument(format!("{} is not a pipeline that ships", self.name)))?;
        let tile = |s: &cusync_gen::graph::Stage| (s.mma_tile.0, s.mma_tile.1);
        let wishes = Wishes {
            dims: vec![("M".into(), u64::from(self.m))],
            element: Some(self.args.element),
            policy,
            tiles: like.map(|plan| plan.graph().stages.iter().map(tile).collect()),
            chain: None,
        };
        Ok(plan_text(source, self.name, &wishes, self.profile, executor)?)
    }

    fn run(&self, share: Option<f64>, skipped: &mut Vec<String>) -> Result<Vec<Record>> {
        // Programmatic launch needs Hopper.
        let hopper = self.device.capability().0 >= 9;
        let overlapping =
            if hopper { vec![Executor::Streams, Executor::Programmatic] } else { vec![Executor::Streams] };
        let leading = if hopper { Executor::Programmatic } else { Executor::Streams };
        let leader = self.plan(leading, None, None)?;
        let inputs = InputSets::random(leader.graph(), self.device, self.args.sets.max(1), self.m)?;
        let mut model = self.pipeline(&leader, &inputs, Options::default())?;
        let reference = Reference::new(&mut model, 0)?;
        let mut field = Field::default();

        self.add(&mut field, "serial", &leader, Executor::Serial, true, &inputs, &reference)?;
        self.add(&mut field, "serial", &leader, Executor::Serial, false, &inputs, &reference)?;
        for executor in overlapping {
            let policies = [("auto", None), ("tile", Some(Policy::Tile)), ("row", Some(Policy::Row))];
            for (label, policy) in policies {
                let name = format!("{} {label}", executor_name(executor));
                let automatic = policy.is_none();
                let plan = match self.plan(executor, policy, Some(&leader)) {
                    Ok(plan) => plan,
                    Err(e) => {
                        skipped.push(format!("{} M = {} {name}: {e}", self.name, self.m));
                        continue;
                    }
                };
                self.add(&mut field, &name, &plan, executor, true, &inputs, &reference)?;
                if automatic || self.args.all_eager {
                    self.add(&mut field, &name, &plan, executor, false, &inputs, &reference)?;
                }
            }
        }
        let without = Options { skip_waits: true, ..Options::default() };
        let pipeline = self.pipeline(&leader, &inputs, without)?;
        let variant = PipelineVariant::new(pipeline, leader.executor(), true)?;
        field.variants.push(Box::new(variant));
        let name = format!("{} auto without waits graph", executor_name(leader.executor()));
        field.entries.push(Entry { name, plan: Some(leader.clone()), max_rel_err: None });

        let mut streamk: Box<MakeGemm> = Box::new(|device, args| Ok(Box::new(StreamK::new(device, args)?)));
        let mut cublaslt = cublaslt();
        for (name, make) in [("stream-k graph", &mut streamk), ("cublaslt graph", &mut cublaslt)] {
            if let Err(e) = self.add_peer(&mut field, name, &model, make.as_mut(), &reference) {
                skipped.push(format!("{} M = {} {name}: {e}", self.name, self.m));
            }
        }
        drop(reference);
        self.measure(field, &leader, share)
    }

    fn pipeline(&self, plan: &Plan, inputs: &InputSets, options: Options) -> Result<Pipeline> {
        let mut pipeline = Pipeline::with_options(plan, self.device, options)?;
        inputs.bind(&mut pipeline)?;
        Ok(pipeline)
    }

    #[allow(clippy::too_many_arguments)]
    fn add(
        &self,
        field: &mut Field,
        name: &str,
        plan: &Plan,
        executor: Executor,
        as_graph: bool,
        inputs: &InputSets,
        reference: &Reference,
    ) -> Result<()> {
        let name = if as_graph { format!("{name} graph") } else { name.to_owned() };
        let mut pipeline = self.pipeline(plan, inputs, Options::default())?;
        pipeline.prepare()?;
        pipeline.poison_outputs()?;
        if as_graph {
            let graph = pipeline.capture(executor, &[0])?;
            pipeline.replay(&graph)?;
            pipeline.synchronize()?;
        } else {
            pipeline.run(executor)?;
        }
        let max_rel_err = right(&name, &reference.compare(&mut pipeline)?)?;
        field.variants.push(Box::new(PipelineVariant::new(pipeline, executor, as_graph)?));
        field.entries.push(Entry { name, plan: Some(plan.clone()), max_rel_err: Some(max_rel_err) });
        Ok(())
    }

    fn add_peer(
        &self,
        field: &mut Field,
        name: &str,
        model: &Pipeline,
        make: MakePeer<'_>,
        reference: &Reference,
    ) -> Result<()> {
        let mut chain = PeerChain::new(model, make)?;
        let max_rel_err = right(name, &chain.verify(reference, model.stream())?)?;
        field.variants.push(Box::new(chain.into_graph(self.device)?));
        field.entries.push(Entry { name: name.into(), plan: None, max_rel_err: Some(max_rel_err) });
        Ok(())
    }

    fn measure(&self, mut field: Field, leader: &Plan, share: Option<f64>) -> Result<Vec<Record>> {
        let window = window(share, field.variants.len());
        let work = Work::of(leader.graph());
        let mut records = Vec::new();
        for &regime in &self.args.regimes {
            let times = interleaved(self.device, &mut field.variants, regime, 16, window)?;
            let sets = self.args.sets.max(1) as f64;
            let summaries: Vec<Summary> = times
                .iter()
                .map(|list| Summary::of(&list.iter().map(|t| t / sets).collect::<Vec<_>>()))
                .collect();
            let named = |name: &str| field.entries.iter().position(|e| e.name == name);
            let baseline_us = named(BASELINE).map_or(f64::NAN, |i| summaries[i].median_us);
            for (entry, time) in field.entries.iter().zip(summaries) {
                let graph = entry.plan.as_ref().map(Plan::graph);
                let tiles = graph.map_or_else(Vec::new, |g| {
                    g.stages.iter().map(|s| format!("{}x{}", s.mma_tile.0, s.mma_tile.1)).collect()
                });
                let edges = entry.plan.as_ref().map_or(&[][..], Plan::edges);
                records.push(Record {
                    pipeline: self.name.into(),
                    dims: leader.graph().dims.clone(),
                    element: match self.args.element {
                        Element::F16 => "f16".into(),
                        Element::Bf16 => "bf16".into(),
                    },
                    variant: entry.name.clone(),
                    tiles,
                    policies: edges.iter().map(|e| format!("{:?}", e.policy())).collect(),
                    regime,
                    time,
                    floor_us: work.floor_us(self.ceilings.of(regime)),
                    baseline: BASELINE.into(),
                    baseline_us,
                    speedup: baseline_us / time.median_us,
                    max_rel_err: entry.max_rel_err,
                });
            }
        }
        Ok(records)
    }
}

type MakeGemm = dyn FnMut(&Device, GemmArgs) -> Result<Box<dyn PeerGemm>>;

/// Makes cuBLASLt products, tuning each shape once: weight sets share what was found.
fn cublaslt() -> Box<MakeGemm> {
    let mut tuned: Vec<CublasLt> = Vec::new();
    Box::new(move |device, args| {
        let same = |t: &&CublasLt| t.args().shape == args.shape && t.args().activation == args.activation;
        if let Some(like) = tuned.iter().find(same) {
            return Ok(Box::new(like.like(args)?));
        }
        let first = CublasLt::new(device, args.clone())?;
        let gemm = first.like(args)?;
        tuned.push(first);
        Ok(Box::new(gemm))
    })
}

/// The largest relative difference of verified outputs.
fn right(variant: &str, outputs: &[Accuracy]) -> Result<f64> {
    let (l2, max) = verify::worst(outputs);
    if !outputs.is_empty() && outputs.iter().all(|a| a.verified) {
        return Ok(max);
    }
    Err(Error::Wrong { variant: variant.into(), l2, max })
}

/// Length of one sustained visit: 0.25 s, or less so that two visits of each variant take half of a size's share of
/// the time limit.
fn window(share: Option<f64>, variants: usize) -> Duration {
    let most = 0.25;
    let fair = share.map_or(most, |share| 0.5 * share / (2.0 * variants.max(1) as f64));
    Duration::from_secs_f64(fair.clamp(0.02, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_shrinks_with_the_time_limit_and_never_vanishes() {
        assert_eq!(window(None, 12), Duration::from_millis(250));
        assert_eq!(window(Some(1e6), 12), Duration::from_millis(250));
        assert_eq!(window(Some(4.8), 12), Duration::from_millis(100));
        assert_eq!(window(Some(0.0), 12), Duration::from_millis(20));
    }

    #[test]
    fn a_wrong_or_missing_output_is_refused() {
        let output =
            |verified| Accuracy { tensor: "Z".into(), relative_l2: 0.5, relative_max: 0.5, verified };
        assert!(right("x", &[]).is_err(), "no output was compared");
        assert!(right("x", &[output(true), output(false)]).is_err());
        assert_eq!(right("x", &[output(true)]).expect("verified"), 0.5);
    }
}
