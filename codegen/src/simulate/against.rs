//! Predictions held against a record of measurements.
//!
//! A record is what `cusync bench` saves; of its entries those are compared that say how they were run: kernels one by one,
//! chain kernels, decode kernels, each in a graph. A chain kernel's schedule is made anew, with the profile that it was made with
//! where the record has that; where it is not the one that was measured, the entry is counted and left out.

use serde::Deserialize;

use super::comparison::{Comparison, Row};
use super::{Conditions, expected_us};
use crate::check::{Candidate, Executor};
use crate::choose::{self, ChainWish, Config};
use crate::device::Device;
use crate::diagnostic::{Diagnostic, Spanned};
use crate::graph::{Resolved, StatedEdge, StatedTile};
use crate::schedule::{Mode, Part, Schedule};
use crate::sync::Policy;

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
    #[serde(default)]
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

/// Predicts every entry that can be predicted; `spec` finds the text of a pipeline.
///
/// # Errors
/// As [`Rebuilt::of`].
pub fn compare(
    measurements: &Measurements,
    device: &Device,
    spec: impl Fn(&str) -> Option<String>,
) -> Result<Comparison, Diagnostic> {
    Ok(Rebuilt::of(measurements, device, spec)?.predict(device))
}

/// What was measured, planned again: to be predicted with any number of profiles.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    entries: Vec<(Measured, Candidate)>,
    /// Entries that say nothing of how they were run, such as other people's kernels.
    unknown: usize,
    /// Chain kernels whose schedule was another one than today's.
    other_schedules: usize,
}

impl Rebuilt {
    /// Plans every entry that says how it was run, with the profile that it was planned with or, where the record has none,
    /// with `device`; `spec` finds the text of a pipeline.
    ///
    /// # Errors
    /// A pipeline without a spec, and what its spec or a choice for it is refused for.
    pub fn of(
        measurements: &Measurements,
        device: &Device,
        spec: impl Fn(&str) -> Option<String>,
    ) -> Result<Rebuilt, Diagnostic> {
        let made_with = measurements.profile.as_ref().unwrap_or(device);
        let mut rebuilt = Rebuilt { entries: Vec::new(), unknown: 0, other_schedules: 0 };
        for entry in &measurements.records {
            // Regimes and joints share a plan.
            let of_point = |e: &Measured| e.pipeline == entry.pipeline && e.dims == entry.dims;
            let mut there = rebuilt.entries.iter().rev().take_while(|(e, _)| of_point(e));
            let like = there.find(|(e, _)| e.config.is_some() && e.config == entry.config);
            let candidate = match like {
                Some((_, candidate)) => Some(candidate.clone()),
                None => {
                    let text = spec(&entry.pipeline).ok_or_else(|| {
                        let message = format!("no spec of the measured pipeline `{}`", entry.pipeline);
                        Diagnostic::new("no-spec", message)
                    })?;
                    let resolved = crate::spec::parse(&text, &entry.pipeline)?.resolve(&entry.dims)?;
                    entry.candidate(resolved, made_with)?
                }
            };
            match candidate {
                None => rebuilt.unknown += 1,
                Some(c) if c.launch.lists().is_some_and(|made| !entry.is_of(made)) => {
                    rebuilt.other_schedules += 1;
                }
                Some(candidate) => rebuilt.entries.push((entry.clone(), candidate)),
            }
        }
        Ok(rebuilt)
    }

    /// What a profile predicts of them.
    pub fn predict(&self, device: &Device) -> Comparison {
        let row = |(entry, candidate): &(Measured, Candidate)| {
            let mut candidate = candidate.clone();
            candidate.device = device.clone();
            let conditions =
                Conditions { sustained: entry.regime == "sustained", chained: entry.joint == "programmatic" };
            Row {
                pipeline: entry.pipeline.clone(),
                dims: entry.dims.clone(),
                variant: entry.variant.clone(),
                executor: entry
                    .config
                    .as_ref()
                    .map_or_else(|| candidate.launch.executor(), |config| config.executor)
                    .name()
                    .into(),
                kind: candidate.launch.kind().into(),
                regime: entry.regime.clone(),
                measured_us: entry.median_us,
                predicted_us: expected_us(&candidate, conditions),
            }
        };
        Comparison {
            rows: self.entries.iter().map(row).collect(),
            unknown: self.unknown,
            other_schedules: self.other_schedules,
        }
    }
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
