//! `cusync simulate --against`: compares predictions with measurements.

use std::path::PathBuf;

use cusync_bench::size_text;
use cusync_bench::source_of;
use cusync_gen::choose::against::{Measured, Measurements, compare};
use cusync_gen::choose::comparison::{ComparedPoint, Comparison, Goal, Row};
use serde::Serialize;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Page, json};
use super::report::signed_percent;
use super::source::{SPECS, SourceText};
use super::target::PlanArgs;

/// Result of the comparison; shares are fractions, not percent.
#[derive(Serialize)]
pub(crate) struct AgainstReport {
    /// File with the measurements.
    pub(crate) record: String,
    pub(crate) measured_on: String,
    /// Profile used for predictions.
    pub(crate) device: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) points: Vec<ComparedPoint>,
    pub(crate) kinds: Vec<KindReport>,
    pub(crate) goals: Vec<GoalReport>,
    /// Entries that do not state how they were run.
    pub(crate) unknown: usize,
    /// Entries of chain kernels with another schedule than today's.
    pub(crate) other_schedules: usize,
}

impl Answer for AgainstReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(format!(
            "{} of {}, predicted with the profile {}",
            self.record, self.measured_on, self.device
        ));
        page.table(
            ["pipeline", "size", "regime", "way", "measured us", "predicted us", "error"],
            self.rows.iter().map(row),
        );
        page.table(
            [
                "pipeline",
                "size",
                "regime",
                "ways",
                "error %",
                "rank correlation",
                "choice loses %",
                "choice",
                "fastest",
            ],
            self.points.iter().map(point),
        );
        page.table(["kind", "entries", "mean error", "mean magnitude %"], self.kinds.iter().map(kind));
        for g in &self.goals {
            let line = goal(page, g);
            page.line(line);
        }
        let worst = self.points.iter().map(|p| p.regret).fold(0.0, f64::max);
        let within = self.points.iter().filter(|p| p.regret <= 0.03).count();
        page.line(format!(
            "the worst choice loses {}; {within} of {} choices lose at most 3 %",
            percent(worst),
            self.points.len()
        ));
        page.line(format!(
            "not compared: {} entries that do not say how they were run, {} of chain kernels with other work lists than today's",
            self.unknown, self.other_schedules
        ));
    }
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

/// Compares with a record; optionally only one pipeline, only sizes with the plan's dims, and only entries of
/// its executor.
pub(crate) fn against(only: Option<String>, plan: PlanArgs, record: PathBuf) -> Result<AgainstReport, Fault> {
    let source = only.as_deref().map(|file| SourceText::find(file, &SPECS)).transpose()?;
    let device = plan.device()?;
    let file = record.display().to_string();
    let bad = |message: String| Fault::input("bad-record", message).in_file(file.as_str()).help(HELP);
    let text = files::read(&record).map_err(|fault| fault.help(HELP))?;
    let measurements: Result<Measurements, _> = cusync_gen::columns::read(&text);
    let mut measurements =
        measurements.map_err(|e| bad(format!("{file} is no record of a benchmark: {e}")).in_json(&e))?;
    let only = source.as_ref().map(pipeline).transpose()?;
    let wanted = |m: &Measured| {
        let size = |(name, value): &(String, u64)| m.dims.contains(&(name.clone(), *value));
        only.as_ref().is_none_or(|name| *name == m.pipeline) && plan.dims.iter().all(size)
    };
    measurements.records.retain(wanted);
    let spec = |name: &str| match &source {
        Some(source) => Some(source.text.clone()),
        None => source_of(name).map(Into::into),
    };
    let mut comparison = compare(&measurements, &device, spec).map_err(|d| bad(d.message))?;
    if let Some(executor) = plan.executor.stated() {
        comparison.rows.retain(|row| row.executor == executor.name());
    }
    if comparison.rows.is_empty() {
        return Err(bad(format!("{file} has nothing that can be predicted here")));
    }
    Ok(report(file, measurements.device, device.name, comparison))
}

const HELP: &str = "`cusync bench mlp --spread 16 --save RECORD.json` makes a record, `bench conv` too; FILE, --dim and --executor choose among it";

/// Name of a spec in measurements.
fn pipeline(source: &SourceText) -> Result<String, Fault> {
    let spec = cusync_gen::spec::parse(&source.text, &source.origin);
    let resolved = spec.and_then(|spec| spec.resolve(&[]));
    resolved.map(|r| r.name).map_err(|d| source.refused(&d))
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

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn row(r: &Row) -> [String; 7] {
    [
        r.pipeline.clone(),
        size_text(&r.dims),
        r.regime.clone(),
        r.variant.clone(),
        format!("{:.1}", r.measured_us),
        format!("{:.1}", r.predicted_us),
        signed_percent(r.error()),
    ]
}

fn point(p: &ComparedPoint) -> [String; 9] {
    [
        p.pipeline.clone(),
        size_text(&p.dims),
        p.regime.clone(),
        p.ways.to_string(),
        format!("{:.1}", p.mean_error * 100.0),
        p.rank_correlation.map_or_else(|| "-".into(), |r| format!("{r:.2}")),
        format!("{:.1}", p.regret * 100.0),
        p.chosen.clone(),
        p.fastest.clone(),
    ]
}

fn kind(k: &KindReport) -> [String; 4] {
    [
        k.kind.clone(),
        k.entries.to_string(),
        signed_percent(k.mean_error),
        format!("{:.1}", k.mean_magnitude * 100.0),
    ]
}

fn goal(page: &Page, g: &GoalReport) -> String {
    let show = |value: f64| if g.goal.at_least { format!("{value:.2}") } else { percent(value) };
    let bound = if g.goal.at_least { "at least" } else { "at most" };
    let have = g.goal.have.map_or_else(|| "nothing to judge".into(), show);
    let verdict = page.good(g.met, if g.met { "met" } else { "missed" });
    format!("{}: {have}, goal {bound} {}: {verdict}", g.goal.name, show(g.goal.bound))
}
