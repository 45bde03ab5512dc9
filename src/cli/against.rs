//! `cusync simulate --against`: predictions held against what was measured.

use cusync::runtime::shipped;
use cusync_gen::simulate::against::{Measured, Measurements, compare};
use cusync_gen::simulate::comparison::{Comparison, Goal, Point, Row};
use serde::Serialize;

use super::fault::Fault;
use super::request::AgainstRequest;

/// What came of it; shares, not per cent.
#[derive(Serialize)]
pub(crate) struct AgainstReport {
    /// Where the measurements are from.
    pub(crate) record: String,
    pub(crate) measured_on: String,
    /// The profile that predicts.
    pub(crate) device: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) points: Vec<Point>,
    pub(crate) kinds: Vec<KindReport>,
    pub(crate) goals: Vec<GoalReport>,
    /// Entries that say nothing of how they were run.
    pub(crate) unknown: usize,
    /// Entries of chain kernels whose schedule was another one than today's.
    pub(crate) other_schedules: usize,
}

/// An executor, or a kind of chain kernel.
#[derive(Serialize)]
pub(crate) struct KindReport {
    pub(crate) kind: String,
    pub(crate) entries: usize,
    pub(crate) mean_error: f64,
    pub(crate) mean_magnitude: f64,
}

#[derive(Serialize)]
pub(crate) struct GoalReport {
    #[serde(flatten)]
    pub(crate) goal: Goal,
    pub(crate) met: bool,
}

pub(crate) fn against(request: &AgainstRequest) -> Result<AgainstReport, Fault> {
    let file = request.record.display().to_string();
    let text = std::fs::read_to_string(&request.record)
        .map_err(|e| Fault::input(format!("{file} cannot be read: {e}")).help(HELP))?;
    let mut measurements: Measurements = cusync_gen::columns::read(&text)
        .map_err(|e| Fault::input(format!("{file} is no record of a benchmark: {e}")).help(HELP))?;
    let only = request.source.as_ref().map(pipeline).transpose()?;
    let wanted = |m: &Measured| {
        let size = |(name, value): &(String, u64)| m.dims.contains(&(name.clone(), *value));
        only.as_ref().is_none_or(|name| *name == m.pipeline) && request.dims.iter().all(size)
    };
    measurements.records.retain(wanted);
    let spec = |name: &str| match &request.source {
        Some(source) => Some(source.text.clone()),
        None => shipped(name).map(str::to_owned),
    };
    let mut comparison =
        compare(&measurements, &request.device, spec).map_err(|d| Fault::input(d.message).help(HELP))?;
    if let Some(executor) = request.executor {
        comparison.rows.retain(|row| row.executor == executor.name());
    }
    if comparison.rows.is_empty() {
        return Err(Fault::input(format!("{file} has nothing that can be predicted here")).help(HELP));
    }
    Ok(report(file, measurements.device, request.device.name.clone(), comparison))
}

const HELP: &str = "`cusync bench mlp --spread 16 --save RECORD.json` makes a record; FILE, --dim and --executor choose among it";

/// The name that the measurements of a spec have.
fn pipeline(source: &super::source::Source) -> Result<String, Fault> {
    let spec = cusync_gen::spec::parse(&source.text, &source.origin);
    let resolved = spec.and_then(|spec| spec.resolve(&[]));
    resolved.map(|r| r.name).map_err(|d| Fault::input(d.render(&source.text, &source.origin, false)))
}

fn report(record: String, measured_on: String, device: String, comparison: Comparison) -> AgainstReport {
    let kinds = comparison.by_kind().into_iter();
    let goals = comparison.goals().into_iter();
    AgainstReport {
        record,
        measured_on,
        device,
        points: comparison.by_point(),
        kinds: kinds
            .map(|(kind, entries, mean_error, mean_magnitude)| KindReport {
                kind,
                entries,
                mean_error,
                mean_magnitude,
            })
            .collect(),
        goals: goals.map(|goal| GoalReport { met: goal.met(), goal }).collect(),
        unknown: comparison.unknown,
        other_schedules: comparison.other_schedules,
        rows: comparison.rows,
    }
}
