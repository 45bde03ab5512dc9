//! One size of one pipeline: its variants, created and verified, then timed against each other.

use std::borrow::Cow;
use std::time::Duration;

use cusync_gen::check::{Executor, Plan};
use cusync_gen::choose::space::{COMPARED, executors};
use cusync_gen::choose::{self, Config};
use cusync_gen::device::{Operations, Profile};
use cusync_gen::graph::{Element, Resolved};

use super::derived::source_of;
use super::layers::LayerArgs;
use super::peer::{MakePeer, PeerChain, PeerGemm};
use super::record::{LayerReport, Record, Role, ScheduleRecord, Size, size_text};
use super::sample::sample;
use super::{Error, Result, Summary, ragged, tune};
use cusync::device::{BoundStage, CublasLt, Device, StreamK};
use cusync::measure::{Ceilings, PipelineVariant, Variant, clocks_mhz, floor_us, interleaved};
use cusync::runtime::verify::{self, Accuracy, Reference};
use cusync::runtime::{
    InputSets, Options, Overlap, Overrides, Pipeline, executor_name, plan_text, resolve_text,
};
use cusync::tune::Origin;

/// Baseline variant.
const BASELINE: &str = "serial graph";

/// Length of a graph that justifies its launch, microseconds, and maximum number of runs in it.
const GRAPH_US: f64 = 1500.0;
const MAX_RUNS: usize = 20;

pub(super) struct Point<'a> {
    pub(super) args: &'a LayerArgs,
    pub(super) device: &'a Device,
    pub(super) profile: &'a Profile,
    ceilings: &'a Ceilings,
    name: &'a str,
    pub(super) size: &'a Size,
}

/// A variant with data for its record.
struct Entry {
    name: String,
    role: Role,
    overlap: bool,
    plan: Option<Plan>,
    config: Option<Config>,
    max_rel_err: Option<f64>,
}

/// Properties of a pipeline variant.
#[derive(Clone, Copy)]
pub(super) struct VariantSpec<'a> {
    pub(super) name: &'a str,
    pub(super) role: Role,
    pub(super) as_graph: bool,
    pub(super) options: Options,
    /// Stated configuration; if absent, all that the plan tells.
    pub(super) config: Option<&'a Config>,
}

impl VariantSpec<'_> {
    /// A contender, as a graph.
    pub(super) fn graph(name: &str, role: Role) -> VariantSpec<'_> {
        VariantSpec { name, role, as_graph: true, options: Options::default(), config: None }
    }
}

/// The variants of a point.
pub(super) struct Field {
    entries: Vec<Entry>,
    variants: Vec<Box<dyn Variant>>,
    pub(super) inputs: InputSets,
    pub(super) reference: Reference,
    /// Runs of each weight set in one sample.
    rounds: usize,
}

impl<'a> Point<'a> {
    pub(super) fn new(
        args: &'a LayerArgs,
        device: &'a Device,
        profile: &'a Profile,
        ceilings: &'a Ceilings,
        name: &'a str,
        size: &'a Size,
    ) -> Self {
        Point { args, device, profile, ceilings, name, size }
    }

    /// The spec, and overrides of its size and element type.
    fn spec(&self, overrides: Overrides) -> Result<(Cow<'static, str>, Overrides)> {
        let source = source_of(self.name)
            .ok_or_else(|| Error::Argument(format!("{} is not a pipeline that is measured", self.name)))?;
        let dims = self.size.iter().map(|(dim, value)| (dim.clone(), u64::from(*value))).collect();
        Ok((source, Overrides { dims, element: Some(self.args.element), ..overrides }))
    }

    /// Plan for this size.
    pub(super) fn plan(&self, executor: Executor, overrides: Overrides) -> Result<Plan> {
        let (source, overrides) = self.spec(overrides)?;
        Ok(plan_text(&source, self.name, &overrides, self.profile, executor)?)
    }

    /// Tuned plan of this size with the given overlap; `None` if there is none, or if it is refused.
    pub(super) fn kept(&self, overlap: Overlap) -> Result<Option<(Plan, Origin)>> {
        let (source, overrides) = self.spec(Overrides::default())?;
        let (options, tuned) = (Options { overlap, ..Options::default() }, &self.args.tuned);
        let found = cusync::tune::plan(&source, self.name, &overrides, self.device, None, &options, tuned);
        let found = found.map_err(|e| Error::Plan(e.to_string()))?;
        Ok(matches!(found.origin, Origin::Tuned { .. }).then_some((found.plan, found.origin)))
    }

    /// Seed of this size's inputs.
    pub(super) fn seed(&self) -> u32 {
        self.size.iter().fold(0, |seed, (_, value)| seed ^ value)
    }

    fn resolved(&self) -> Result<Resolved> {
        let (source, overrides) = self.spec(Overrides::default())?;
        Ok(resolve_text(&source, self.name, &overrides)?)
    }

    /// Operations that a kernel for all stages must support.
    pub(super) fn operations(&self) -> Result<Operations> {
        Ok(self.resolved()?.operations())
    }

    /// Whether each stage has a kernel that follows an order; otherwise one kernel runs all of them, or each has a
    /// launch between kernel boundaries.
    fn has_own_kernels(&self) -> Result<bool> {
        Ok(self.resolved()?.own_kernels(self.profile))
    }

    /// Label of this size.
    pub(super) fn label(&self, variant: &str) -> String {
        format!("{} {} {variant}", self.name, size_text(self.size))
    }

    /// Measures every variant. The report lists variants that cannot run or are wrong.
    pub(super) fn run(&self, share: Option<f64>, report: &mut LayerReport) -> Result<Vec<Record>> {
        let hopper = self.device.capability().0 >= 9;
        let own_kernels = self.has_own_kernels()?;
        let leading = choose::usual_executor(&self.resolved()?, self.profile);
        let leader = self.plan(leading, Overrides::default())?;
        let mut inputs = InputSets::random(leader.graph(), self.device, self.args.sets.max(1), self.seed())?;
        inputs.fill_caches(leader.graph(), self.device)?;
        let mut model = self.pipeline(&leader, &inputs, Options::default())?;
        let reference = Reference::new(&mut model, 0)?;
        let floor_us = floor_us(leader.graph(), self.ceilings.rested);
        let rounds = GRAPH_US / (floor_us * self.args.sets.max(1) as f64);
        let rounds = (rounds.ceil() as usize).clamp(1, (MAX_RUNS / self.args.sets.max(1)).max(1));
        let mut field = Field { entries: Vec::new(), variants: Vec::new(), inputs, reference, rounds };

        if let Some(count) = self.args.spread {
            self.add_spread(&mut field, count, report)?;
            return self.measure(field, &leader, share);
        }
        if leader.launch().shares().is_some() {
            super::fused::add_decode(self, &mut field, report)?;
            ragged::add(self, &mut field, report)?;
            tune::add_kept(self, &mut field, report)?;
            return self.measure(field, &leader, share);
        }
        if !own_kernels {
            self.add_in_turn(&mut field, report)?;
            if leading == Executor::Fused {
                super::fused::add(self, &mut field, report)?;
            }
            tune::add_kept(self, &mut field, report)?;
            return self.measure(field, &leader, share);
        }
        self.add_serial(&mut field, &leader, report)?;
        let library = "library graph";
        let added = self.plan(Executor::Library, Overrides::default()).and_then(|plan| {
            self.add(&mut field, VariantSpec::graph(library, Role::Library), &plan, Executor::Library)
        });
        self.note(library, added, report)?;
        self.add_overlapping(&mut field, &leader, report)?;
        if hopper {
            super::fused::add(self, &mut field, report)?;
            super::fused::add_decode(self, &mut field, report)?;
        }
        tune::add_kept(self, &mut field, report)?;
        let mut streamk: Box<MakeGemm> =
            Box::new(|device, args, _| Ok(Box::new(StreamK::new(device, args)?)));
        let mut cublaslt = cublaslt();
        for (name, make) in [("stream-k graph", &mut streamk), ("cublaslt graph", &mut cublaslt)] {
            let added = self.add_peer(&mut field, name, &model, make.as_mut());
            self.note(name, added, report)?;
        }
        self.measure(field, &leader, share)
    }

    /// Turns the failure of one variant into a line of the report. GPU errors are returned, because nothing
    /// can run after them.
    pub(super) fn note(&self, variant: &str, outcome: Result<()>, report: &mut LayerReport) -> Result<()> {
        let line = |e: &Error| format!("{}: {e}", self.label(variant));
        match outcome {
            Ok(()) => {}
            Err(e @ Error::Wrong { .. }) => report.wrong.push(line(&e)),
            Err(e) if e.is_fatal() => return Err(e),
            Err(e) => report.skipped.push(line(&e)),
        }
        Ok(())
    }

    fn add_serial(&self, field: &mut Field, leader: &Plan, report: &mut LayerReport) -> Result<()> {
        let serial = Executor::Serial;
        for as_graph in [true, false] {
            let (name, role) = if as_graph { (BASELINE, Role::Peer) } else { ("serial", Role::Probe) };
            let kind = VariantSpec { as_graph, ..VariantSpec::graph(name, role) };
            let added = self.add(field, kind, leader, serial);
            self.note(name, added, report)?;
        }
        let best = "serial best graph";
        if !self.args.wants(best) {
            return Ok(());
        }
        let added = tune::serial_tiles(self, &field.inputs).and_then(|tiles| {
            let leaders = leader.graph().stages.iter().map(|s| (s.mma_tile.0, s.mma_tile.1));
            if self.args.wants(BASELINE) && leaders.eq(tiles.iter().copied()) {
                return Ok(());
            }
            let plan = self.plan(serial, Overrides { tiles: Some(tiles), ..Overrides::default() })?;
            self.add(field, VariantSpec::graph(best, Role::Peer), &plan, serial)
        });
        self.note(best, added, report)
    }

    /// One kernel per stage, or cuBLASLt products between them: as predicted and, if tuning is requested, the
    /// fastest for each stage.
    fn add_in_turn(&self, field: &mut Field, report: &mut LayerReport) -> Result<()> {
        let resolved = self.resolved()?;
        for (executor, role) in [(Executor::Serial, Role::Peer), (Executor::Library, Role::Library)] {
            if choose::obstacle(&resolved, self.profile, executor).is_some() {
                continue;
            }
            for (how, tuned, overlap) in [
                ("", false, Overlap::Plain),
                (" edges", false, Overlap::Captured),
                (" tuned", true, Overlap::Plain),
                (" tuned edges", true, Overlap::Captured),
            ] {
                let name = format!("{}{how} graph", executor_name(executor));
                if !self.args.wants(&name) || tuned && !self.args.tune {
                    continue;
                }
                let plan = match tuned {
                    true => tune::in_turn(self, &resolved, executor),
                    false => self.plan(executor, Overrides::default()),
                };
                let kind = VariantSpec {
                    options: Options { overlap, ..Options::default() },
                    ..VariantSpec::graph(&name, role)
                };
                let added = plan.and_then(|plan| self.add(field, kind, &plan, executor));
                self.note(&name, added, report)?;
            }
        }
        Ok(())
    }

    /// A sample of all configurations.
    fn add_spread(&self, field: &mut Field, count: usize, report: &mut LayerReport) -> Result<()> {
        let resolved = self.resolved()?;
        for sampled in sample(&resolved, self.profile, count) {
            let name = sampled.name();
            let role = if sampled.config.executor() == Executor::Fused { Role::Fused } else { Role::Peer };
            let options = Options { overlap: sampled.overlap, ..Options::default() };
            let kind =
                VariantSpec { options, config: Some(&sampled.config), ..VariantSpec::graph(&name, role) };
            let added = self.add(field, kind, &sampled.plan, sampled.config.executor());
            self.note(&name, added, report)?;
        }
        Ok(())
    }

    /// One kernel per stage, overlapping.
    fn add_overlapping(&self, field: &mut Field, leader: &Plan, report: &mut LayerReport) -> Result<()> {
        let leading = choose::one_by_one(self.profile);
        let overlapping = |e: &Executor| matches!(e, Executor::Streams | Executor::Programmatic);
        let tile = |s: &cusync_gen::graph::Stage| (s.mma_tile.0, s.mma_tile.1);
        let tiles: Vec<_> = leader.graph().stages.iter().map(tile).collect();
        for executor in executors(self.profile).into_iter().filter(overlapping) {
            for policy in COMPARED {
                let label = policy.as_ref().map_or("auto".into(), |p| p.to_string().to_lowercase());
                let eager = format!("{} {label}", executor_name(executor));
                let graph = format!("{eager} graph");
                let eager_too = policy.is_none() || self.args.all_eager;
                if !(self.args.wants(&graph) || eager_too && self.args.wants(&eager)) {
                    continue;
                }
                let overrides = Overrides { policy, tiles: Some(tiles.clone()), ..Overrides::default() };
                let plan = match self.plan(executor, overrides) {
                    Ok(plan) => plan,
                    Err(e) => {
                        self.note(&graph, Err(e), report)?;
                        continue;
                    }
                };
                let added = self.add(field, VariantSpec::graph(&graph, Role::Peer), &plan, executor);
                self.note(&graph, added, report)?;
                if eager_too {
                    let kind = VariantSpec { as_graph: false, ..VariantSpec::graph(&eager, Role::Probe) };
                    let added = self.add(field, kind, &plan, executor);
                    self.note(&eager, added, report)?;
                }
            }
        }
        let name = format!("{} auto without waits graph", executor_name(leading));
        let options = Options { skip_waits: true, ..Options::default() };
        let kind = VariantSpec { options, ..VariantSpec::graph(&name, Role::Probe) };
        let added = self.add(field, kind, leader, leading);
        self.note(&name, added, report)
    }

    pub(super) fn pipeline(&self, plan: &Plan, inputs: &InputSets, options: Options) -> Result<Pipeline> {
        let mut pipeline = Pipeline::with_options(plan, self.device, options)?;
        inputs.bind(&mut pipeline)?;
        Ok(pipeline)
    }

    /// Adds a pipeline as a variant, if it is requested and its results are correct. Without waits, results
    /// are not checked.
    pub(super) fn add(
        &self,
        field: &mut Field,
        kind: VariantSpec<'_>,
        plan: &Plan,
        executor: Executor,
    ) -> Result<()> {
        if !self.args.wants(kind.name) {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_options(plan, self.device, kind.options)?;
        match plan.launch().shares() {
            Some(_) => field.inputs.bind_decode(&mut pipeline)?,
            None => field.inputs.bind(&mut pipeline)?,
        }
        pipeline.prepare()?;
        let mut max_rel_err = None;
        if !(kind.options.skip_waits || kind.options.stream_only) {
            pipeline.poison_outputs()?;
            if kind.as_graph {
                // Several runs that end with the reference's set, so that overlap is verified too.
                let sets: Vec<usize> = (0..pipeline.sets()).rev().collect();
                let graph = pipeline.capture(executor, &sets)?;
                pipeline.replay(&graph)?;
                pipeline.synchronize()?;
            } else {
                pipeline.run(executor)?;
            }
            max_rel_err = Some(right(kind.name, &field.reference.compare(&mut pipeline)?)?);
        }
        let variant = PipelineVariant::new(pipeline, executor, kind.as_graph, field.rounds)?;
        field.variants.push(Box::new(variant));
        let overlap = kind.options.overlap != Overlap::Plain;
        let config = kind.config.cloned().or_else(|| Config::from_plan(plan, executor));
        let (name, plan) = (kind.name.into(), Some(plan.clone()));
        field.entries.push(Entry { name, role: kind.role, overlap, plan, config, max_rel_err });
        Ok(())
    }

    fn add_peer(&self, field: &mut Field, name: &str, model: &Pipeline, make: MakePeer<'_>) -> Result<()> {
        if !self.args.wants(name) {
            return Ok(());
        }
        let mut chain = PeerChain::new(model, make)?;
        let max_rel_err = right(name, &chain.verify(&field.reference, model)?)?;
        field.variants.push(Box::new(chain.into_graph(self.device, field.rounds)?));
        let (role, overlap) = (Role::Peer, false);
        field.entries.push(Entry {
            name: name.into(),
            role,
            overlap,
            plan: None,
            config: None,
            max_rel_err: Some(max_rel_err),
        });
        Ok(())
    }

    fn measure(&self, mut field: Field, leader: &Plan, share: Option<f64>) -> Result<Vec<Record>> {
        let window = window(share, field.variants.len() * self.args.regimes.len().max(1));
        let mut records = Vec::new();
        for &regime in &self.args.regimes {
            let times = interleaved(self.device, &mut field.variants, regime, self.args.samples, window)?;
            let clocks = clocks_mhz(self.device, &mut field.variants, regime, window)?;
            let runs = (self.args.sets.max(1) * field.rounds) as f64;
            let summaries: Vec<Summary> = times
                .iter()
                .map(|list| Summary::from_times(&list.iter().map(|t| t / runs).collect::<Vec<_>>()))
                .collect();
            let named = |name: &str| field.entries.iter().position(|e| e.name == name);
            let baseline_us = named(BASELINE).map(|i| summaries[i].median_us);
            for ((entry, time), clock) in field.entries.iter().zip(summaries).zip(clocks) {
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
                    role: entry.role,
                    overlap: entry.overlap,
                    tiles,
                    policies: edges.iter().map(|e| e.policy().to_string()).collect(),
                    config: entry.config.clone(),
                    schedule: entry.plan.as_ref().and_then(ScheduleRecord::from_plan),
                    regime,
                    time,
                    clock_mhz: Some(clock),
                    floor_us: floor_us(leader.graph(), self.ceilings.in_regime(regime)),
                    baseline: BASELINE.into(),
                    baseline_us,
                    speedup: baseline_us.map(|us| us / time.median_us),
                    max_rel_err: entry.max_rel_err,
                });
            }
        }
        Ok(records)
    }
}

type MakeGemm = dyn FnMut(&Device, BoundStage, bool) -> Result<Box<dyn PeerGemm>>;

/// Creates cuBLASLt products and tunes each shape once: weight sets share the result.
fn cublaslt() -> Box<MakeGemm> {
    let mut tuned: Vec<(bool, CublasLt)> = Vec::new();
    Box::new(move |device, args, constant| {
        let same = |(was, t): &&(bool, CublasLt)| *was == constant && t.stage().is_like(&args);
        if let Some((_, like)) = tuned.iter().find(same) {
            return Ok(Box::new(like.like(args)?));
        }
        let first = CublasLt::new(device, args.clone(), constant)?;
        let gemm = first.like(args)?;
        tuned.push((constant, first));
        Ok(Box::new(gemm))
    })
}

/// Largest relative difference of verified outputs.
pub(super) fn right(variant: &str, outputs: &[Accuracy]) -> Result<f64> {
    match verify::first_wrong(outputs) {
        None => Ok(verify::worst(outputs).1),
        Some(why) => Err(Error::Wrong { variant: variant.into(), why }),
    }
}

/// Length of one sustained visit: 0.25 s, or less so that two visits of each variant take half of a size's
/// share of the time limit.
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
        let output = |verified| Accuracy {
            tensor: "Z".into(),
            relative_l2: 0.5,
            relative_max: 0.5,
            of_bound: 0.5,
            end_to_end: None,
            verified,
            wrong: None,
        };
        assert!(right("x", &[]).is_err(), "no output was compared");
        assert!(right("x", &[output(true), output(false)]).is_err());
        assert_eq!(right("x", &[output(true)]).expect("verified"), 0.5);
    }
}
