//! Predictions held against a record of measurements.
//!
//! A record is what `cusync bench` saves; of its entries those are compared that say how they were run: kernels one by one,
//! chain kernels, decode kernels, each in a graph. A chain kernel's schedule is made anew, with the profile that it was made with
//! where the record has that; where it is not the one that was measured, the entry is counted and left out.

use serde::{Deserialize, Serialize};

use super::{Conditions, expected_us};
use crate::check::{Candidate, Executor};
use crate::choose::{self, ChainWish, Config};
use crate::device::Device;
use crate::diagnostic::{Diagnostic, Spanned};
use crate::graph::{Resolved, StatedEdge, StatedTile};
use crate::policy::Policy;
use crate::schedule::{Mode, Part, Schedule};

/// The record of a benchmark.
#[derive(Clone, Debug, Deserialize)]
pub struct Measurements {
    /// GPU.
    pub device: String,
    /// What schedules were made with; in older records the shipped profile of its day.
    #[serde(default)]
    pub profile: Option<Device>,
    /// One entry a variant, size and regime.
    pub records: Vec<Measured>,
}

/// One measured time; other fields of a record are not looked at.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// Pipeline.
    pub pipeline: String,
    /// Dims.
    pub dims: Vec<(String, u64)>,
    /// Such as `programmatic auto graph`.
    pub variant: String,
    /// `plain` or `programmatic`.
    pub joint: String,
    /// MMA tile of each stage, such as `128x256`.
    pub tiles: Vec<String>,
    /// All that was decided; older records have only the fields around it.
    #[serde(default)]
    pub config: Option<Config>,
    /// Of a chain or decode kernel.
    #[serde(default)]
    pub schedule: Option<MeasuredSchedule>,
    /// `rested` or `sustained`.
    pub regime: String,
    /// Time of one run, microseconds.
    pub median_us: f64,
}

/// The schedule of a measured chain or decode kernel.
#[derive(Clone, Debug, Deserialize)]
pub struct MeasuredSchedule {
    /// Such as `128x256`.
    pub tile: String,
    /// Such as `2x1`.
    pub cluster: String,
    /// `static`, `dynamic` or `decode`.
    pub mode: String,
    /// Items of all workers.
    pub items: usize,
    /// Tiles that are cut along k.
    pub cut: usize,
    /// Slabs of partial sums.
    pub slabs: u32,
    /// [`Schedule::digest`]; older records tell schedules by the numbers above.
    #[serde(default)]
    pub digest: Option<String>,
}

/// A measured time beside the predicted one, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Pipeline.
    pub pipeline: String,
    /// Dims.
    pub dims: Vec<(String, u64)>,
    /// Variant.
    pub variant: String,
    /// Regime.
    pub regime: String,
    /// Median of the measurement.
    pub measured_us: f64,
    /// The model's.
    pub predicted_us: f64,
}

impl Row {
    /// Predicted over measured, less 1.
    pub fn error(&self) -> f64 {
        self.predicted_us / self.measured_us - 1.0
    }

    fn same_point(&self, other: &Row) -> bool {
        self.pipeline == other.pipeline && self.dims == other.dims && self.regime == other.regime
    }
}

/// What came of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// What was compared, points together.
    pub rows: Vec<Row>,
    /// Entries that say nothing of how they were run, such as other people's kernels.
    pub unknown: usize,
    /// Chain kernels whose schedule was another one than today's.
    pub other_schedules: usize,
}

/// Predicts every entry that can be predicted; `spec` finds the text of a pipeline.
///
/// # Errors
/// A pipeline without a spec, and what its spec or a choice for it is refused for.
pub fn compare(
    measurements: &Measurements,
    device: &Device,
    spec: impl Fn(&str) -> Option<String>,
) -> Result<Comparison, Diagnostic> {
    let mut comparison = Comparison::default();
    for entry in &measurements.records {
        let text = spec(&entry.pipeline).ok_or_else(|| {
            Diagnostic::new("no-spec", format!("no spec of the measured pipeline `{}`", entry.pipeline))
        })?;
        let resolved = crate::spec::parse(&text, &entry.pipeline)?.resolve(&entry.dims)?;
        let made_with = measurements.profile.as_ref().unwrap_or(device);
        let Some(mut candidate) = entry.candidate(resolved, made_with)? else {
            comparison.unknown += 1;
            continue;
        };
        candidate.device = device.clone();
        if candidate.schedule.as_ref().is_some_and(|made| !entry.is_of(made)) {
            comparison.other_schedules += 1;
            continue;
        }
        let conditions =
            Conditions { sustained: entry.regime == "sustained", chained: entry.joint == "programmatic" };
        comparison.rows.push(Row {
            pipeline: entry.pipeline.clone(),
            dims: entry.dims.clone(),
            variant: entry.variant.clone(),
            regime: entry.regime.clone(),
            measured_us: entry.median_us,
            predicted_us: expected_us(&candidate, conditions),
        });
    }
    Ok(comparison)
}

/// `128x256`.
fn pair(text: &str) -> Option<(u32, u32)> {
    let (a, b) = text.split_once('x')?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

impl Measured {
    /// The plan as far as the entry tells it; `None` where it does not.
    fn candidate(&self, mut resolved: Resolved, device: &Device) -> Result<Option<Candidate>, Diagnostic> {
        let Some(way) = self.variant.strip_suffix(" graph") else { return Ok(None) };
        if ["stream limit", "without waits"].iter().any(|probe| way.contains(probe)) {
            return Ok(None);
        }
        if let Some(config) = &self.config {
            return config.candidate(&resolved, device).map(Some);
        }
        if let Some(schedule) = &self.schedule {
            let Some(cluster) = pair(&schedule.cluster) else { return Ok(None) };
            if schedule.mode == "decode" {
                // Workers of several CTAs are not built.
                return if cluster == (1, 1) {
                    choose::decode(&resolved, device).map(Some)
                } else {
                    Ok(None)
                };
            }
            let Some(tile) = pair(&schedule.tile) else { return Ok(None) };
            let mode = if schedule.mode == "dynamic" { Mode::Dynamic } else { Mode::Static };
            let wish = ChainWish { kernel: Some((tile, cluster)), mode, splits: schedule.cut > 0 };
            return choose::chain(&resolved, device, wish).map(Some);
        }
        let executor = match way.split(' ').next() {
            Some("serial") => Executor::Serial,
            Some("streams") => Executor::Streams,
            Some("programmatic") => Executor::Programmatic,
            _ => return Ok(None),
        };
        let policy = match way.split(' ').nth(1) {
            Some("tile") => Some(Policy::Tile),
            Some("row") => Some(Policy::Row),
            _ => None,
        };
        let tiles: Option<Vec<_>> = self.tiles.iter().map(|t| pair(t)).collect();
        let Some(tiles) = tiles.filter(|tiles| tiles.len() == resolved.stages.len()) else { return Ok(None) };
        for (stage, tile) in resolved.stages.iter_mut().zip(tiles) {
            stage.stated_tile = Some(Spanned::new(StatedTile { tile, k: None }, Default::default()));
        }
        if let Some(policy) = policy {
            let first = choose::candidate(&resolved, device, executor)?;
            resolved.edges = (first.graph.dependences.iter())
                .map(|d| StatedEdge {
                    span: Default::default(),
                    producer: d.producer,
                    consumer: d.consumer,
                    operand: None,
                    policy: Some(Spanned::new(policy.clone(), Default::default())),
                    wait_at: None,
                })
                .collect();
        }
        choose::candidate(&resolved, device, executor).map(Some)
    }

    /// Whether a schedule is, by its numbers, the measured one.
    fn is_of(&self, made: &Schedule) -> bool {
        let cut = |part: Part| matches!(part, Part::Finish { .. } | Part::Share { part: 0, .. });
        let cuts = made.sequence.iter().filter(|item| cut(item.part)).count();
        self.schedule.as_ref().is_some_and(|s| match &s.digest {
            Some(digest) => *digest == made.digest(),
            None => s.items == made.sequence.len() && s.cut == cuts && s.slabs == made.slabs,
        })
    }
}

impl Comparison {
    /// Mean of the magnitudes of [`Row::error`]; 0 of no rows.
    pub fn mean_error(&self) -> f64 {
        self.rows.iter().map(|row| row.error().abs()).sum::<f64>() / self.rows.len().max(1) as f64
    }

    /// The rows of each pipeline, size and regime.
    pub fn points(&self) -> Vec<Vec<&Row>> {
        let mut points: Vec<Vec<&Row>> = Vec::new();
        for row in &self.rows {
            match points.iter_mut().find(|point| point[0].same_point(row)) {
                Some(point) => point.push(row),
                None => points.push(vec![row]),
            }
        }
        points
    }

    /// Spearman's rank correlation of predicted and measured times among the ways of running one point, mean of the points
    /// with at least four; ways that were measured within 1 % of each other share a rank. `None` without such a point.
    pub fn rank_correlation(&self) -> Option<f64> {
        let points: Vec<f64> = self
            .points()
            .iter()
            .filter(|point| point.len() >= 4)
            .filter_map(|point| {
                let measured: Vec<f64> = point.iter().map(|r| r.measured_us).collect();
                let predicted: Vec<f64> = point.iter().map(|r| r.predicted_us).collect();
                correlation(&ranks(&measured, 0.01), &ranks(&predicted, 0.01))
            })
            .collect();
        (!points.is_empty()).then(|| points.iter().sum::<f64>() / points.len() as f64)
    }

    /// How much slower than the fastest measured way the one is that is predicted to be the fastest, by point.
    pub fn regrets(&self) -> Vec<f64> {
        let of = |point: &Vec<&Row>| {
            let best = |key: fn(&Row) -> f64| point.iter().min_by(|a, b| key(a).total_cmp(&key(b)));
            let (chosen, fastest) = (best(|r| r.predicted_us)?, best(|r| r.measured_us)?);
            Some(chosen.measured_us / fastest.measured_us - 1.0)
        };
        self.points().iter().filter_map(of).collect()
    }
}

/// Ranks from 0; values within `tie` of the first of a group share the group's mean rank.
fn ranks(values: &[f64], tie: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let first = values[order[begin]];
        let end = order[begin..].iter().take_while(|i| values[**i] <= first * (1.0 + tie)).count() + begin;
        let mean = (begin + end - 1) as f64 / 2.0;
        order[begin..end].iter().for_each(|i| ranks[*i] = mean);
        begin = end;
    }
    ranks
}

/// Pearson's; `None` where one side does not vary.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    let (saa, sbb) = (product(a, ma, a, ma), product(b, mb, b, mb));
    (saa > 0.0 && sbb > 0.0).then(|| product(a, ma, b, mb) / (saa * sbb).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(m: u64, variant: &str, measured_us: f64, predicted_us: f64) -> Row {
        Row {
            pipeline: "p".into(),
            dims: vec![("M".into(), m)],
            variant: variant.into(),
            regime: "rested".into(),
            measured_us,
            predicted_us,
        }
    }

    #[test]
    fn errors_ranks_and_regrets_are_reckoned_by_point() {
        let rows = vec![
            row(1, "a", 100.0, 110.0),
            row(2, "a", 50.0, 50.0),
            row(1, "b", 120.0, 108.0),
            row(1, "c", 200.0, 200.0),
            row(1, "d", 300.0, 300.0),
        ];
        let c = Comparison { rows, ..Comparison::default() };
        assert!((c.mean_error() - (0.1 + 0.0 + 0.1 + 0.0 + 0.0) / 5.0).abs() < 1e-12);
        assert_eq!(c.points().len(), 2);
        // Of four ways two are the wrong way round: 1 - 6 * 2 / (4 * 15).
        assert!((c.rank_correlation().expect("four ways") - 0.8).abs() < 1e-12);
        assert_eq!(c.regrets(), [0.2, 0.0].map(|r: f64| (1.0 + r) - 1.0).to_vec());
    }

    #[test]
    fn near_ties_share_a_rank() {
        assert_eq!(ranks(&[100.0, 100.5, 90.0, 150.0], 0.01), [1.5, 1.5, 0.0, 3.0]);
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
    }
}
