//! Every chain kernel, mode and split at some sizes, for comparison with the scheduler's cost model.

use std::time::Instant;

use cusync_gen::check::Executor;
use cusync_gen::device::Profile;
use serde::Serialize;

use super::layers::LayerArgs;
use super::point::{Point, right};
use super::record::{ScheduleRecord, Size};
use super::{Error, Result, Summary};
use cusync::measure::{Ceilings, PipelineVariant, Regime, Variant, floor_us, interleaved};
use cusync::runtime::verify::Reference;
use cusync::runtime::{InputSets, Options, Overrides};
use cusync_gen::choose::space::chains;

/// Samples per configuration.
const SAMPLES: usize = 5;

/// One configuration at one size, rested.
#[derive(Clone, Debug, Serialize)]
pub struct SweepRecord {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Its dims.
    pub dims: Size,
    /// Schedule of the configuration.
    pub schedule: ScheduleRecord,
    /// Whether tiles may be split along k.
    pub splits: bool,
    /// Time of one run.
    #[serde(flatten)]
    pub time: Summary,
    /// Median of the same run without waits, microseconds.
    pub without_waits_us: f64,
    /// Lower bound of the time at this size, microseconds.
    pub floor_us: f64,
    /// Largest difference relative to the largest value.
    pub max_rel_err: f64,
}

/// Result of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct SweepReport {
    /// Name of the GPU.
    pub device: String,
    /// Measured rates for computing floors.
    pub ceilings: Ceilings,
    /// One record per configuration and size.
    pub records: Vec<SweepRecord>,
    /// Skipped measurements, with reasons.
    pub skipped: Vec<String>,
}

/// Times every configuration; ignores the variants in `args`. Calls `progress` with every size.
pub fn bench_sweep(args: &LayerArgs, progress: &mut dyn FnMut(&str, &Size)) -> Result<SweepReport> {
    let began = Instant::now();
    let (device, profile, ceilings) = super::layers::opened(args.gpu)?;
    let (records, skipped) = (Vec::new(), Vec::new());
    let mut report = SweepReport { device: device.name().into(), ceilings, records, skipped };
    for (name, dims) in &args.points {
        progress(name, dims);
        let point = Point::new(args, &device, &profile, &ceilings, name, dims);
        let outcome = size(&point, &profile, &began, &mut report);
        if let Err(e) = outcome {
            if e.is_fatal() && report.records.is_empty() {
                return Err(e);
            }
            report.skipped.push(format!("{}: {e}", point.label("")));
            if e.is_fatal() {
                return Ok(report);
            }
        }
    }
    Ok(report)
}

fn size(point: &Point<'_>, profile: &Profile, began: &Instant, report: &mut SweepReport) -> Result<()> {
    let model = point.plan(Executor::Serial, Overrides::default())?;
    let inputs = InputSets::random(model.graph(), point.device, point.args.sets.max(1), point.seed())?;
    let reference = Reference::new(&mut point.pipeline(&model, &inputs, Options::default())?, 0)?;
    let floor_us = floor_us(model.graph(), report.ceilings.rested);
    let sets = point.args.sets.max(1) as f64;
    for asked in chains(point.operations()?) {
        let label = point.label(&format!("{asked:?} on {}", profile.name));
        if point.args.seconds.is_some_and(|s| began.elapsed().as_secs_f64() > s) {
            report.skipped.push(format!("{label}: the time limit"));
            continue;
        }
        let one = || -> Result<SweepRecord> {
            let plan =
                point.plan(Executor::Fused, Overrides { chain: Some(asked), ..Overrides::default() })?;
            let schedule = ScheduleRecord::from_plan(&plan);
            let schedule = schedule.ok_or_else(|| Error::Argument("a plan without a schedule".into()))?;
            let mut pipeline = point.pipeline(&plan, &inputs, Options::default())?;
            pipeline.prepare()?;
            pipeline.poison_outputs()?;
            pipeline.run(Executor::Fused)?;
            let max_rel_err = right(&label, &reference.compare(&mut pipeline)?)?;
            let without = Options { skip_waits: true, ..Options::default() };
            let without = point.pipeline(&plan, &inputs, without)?;
            let mut variants: Vec<Box<dyn Variant>> = Vec::new();
            for pipeline in [pipeline, without] {
                variants.push(Box::new(PipelineVariant::new(pipeline, Executor::Fused, true, 1)?));
            }
            let no_window = std::time::Duration::ZERO;
            let times = interleaved(point.device, &mut variants, Regime::Rested, SAMPLES, no_window)?;
            let summary =
                |i: usize| Summary::from_times(&times[i].iter().map(|t| t / sets).collect::<Vec<_>>());
            Ok(SweepRecord {
                pipeline: model.graph().name.clone(),
                dims: model.graph().dims.clone(),
                schedule,
                splits: asked.splits,
                time: summary(0),
                without_waits_us: summary(1).median_us,
                floor_us,
                max_rel_err,
            })
        };
        match one() {
            Ok(record) => report.records.push(record),
            Err(e) if e.is_fatal() => return Err(e),
            Err(e) => report.skipped.push(format!("{label}: {e}")),
        }
    }
    Ok(())
}
