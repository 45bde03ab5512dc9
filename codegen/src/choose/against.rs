//! Predictions held against a record of measurements.
//!
//! A record is what `cusync bench` saves; of its entries those are compared that say how they were run: kernels one by one,
//! chain kernels, decode kernels, each in a graph. A chain kernel's schedule is made anew, with the profile that it was made with
//! where the record has that; where it is not the one that was measured, the entry is counted and left out.

use serde::Deserialize;

use super::Config;
use super::comparison::{Comparison, Row};
use crate::check::Candidate;
use crate::device::Profile;
use crate::diagnostic::Diagnostic;
use crate::graph::Resolved;
use crate::schedule::Schedule;
use crate::simulate::{Conditions, expected_us};

/// The record of a benchmark.
#[derive(Clone, Debug, Deserialize)]
pub struct Measurements {
    /// GPU.
    pub device: String,
    /// What schedules were made with; `None`: the profile that predicts.
    pub profile: Option<Profile>,
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
    /// All that was decided; peers have none.
    pub config: Option<Config>,
    /// What is known of the work lists of a chain kernel.
    pub schedule: Option<MeasuredSchedule>,
    /// `rested` or `sustained`.
    pub regime: String,
    /// Time of one run, microseconds.
    pub median_us: f64,
}

/// The schedule of a measured chain kernel.
#[derive(Clone, Debug, Deserialize)]
pub struct MeasuredSchedule {
    /// [`Schedule::digest`]; decode kernels have none.
    pub digest: Option<String>,
}

/// Predicts every entry that can be predicted; `spec` finds the text of a pipeline.
///
/// # Errors
/// As [`Rebuilt::of`].
pub fn compare(
    measurements: &Measurements,
    device: &Profile,
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
        device: &Profile,
        spec: impl Fn(&str) -> Option<String>,
    ) -> Result<Rebuilt, Diagnostic> {
        let made_with = measurements.profile.as_ref().unwrap_or(device);
        let mut rebuilt = Rebuilt { entries: Vec::new(), unknown: 0, other_schedules: 0 };
        for entry in &measurements.records {
            // Regimes share a plan.
            let of_point = |e: &Measured| e.pipeline == entry.pipeline && e.dims == entry.dims;
            let mut there = rebuilt.entries.iter().rev().take_while(|(e, _)| of_point(e));
            let like = there.find(|(e, _)| e.config.is_some() && e.config == entry.config);
            let candidate = match like {
                _ if entry.is_probe() => None,
                Some((_, candidate)) => Some(candidate.clone()),
                None => {
                    let text = spec(&entry.pipeline).ok_or_else(|| {
                        let message = format!("no spec of the measured pipeline `{}`", entry.pipeline);
                        Diagnostic::new("no-spec", message)
                    })?;
                    let resolved = crate::spec::parse(&text, &entry.pipeline)?.resolve(&entry.dims)?;
                    entry.candidate(&resolved, made_with)?
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
    pub fn predict(&self, device: &Profile) -> Comparison {
        let row = |(entry, candidate): &(Measured, Candidate)| {
            let mut candidate = candidate.clone();
            candidate.device = device.clone();
            let conditions =
                Conditions { sustained: entry.regime == "sustained", overlap: entry.joint == "programmatic" };
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

impl Measured {
    /// Whether a plan does less than it is predicted for: its waits or its arithmetic are left out, or its caches are not full.
    fn is_probe(&self) -> bool {
        let probes = ["stream limit", "without waits", "decode ragged", "decode even"];
        probes.iter().any(|probe| self.variant.contains(probe))
    }

    /// The plan that was measured; `None` where the entry does not say how it was run.
    fn candidate(&self, resolved: &Resolved, device: &Profile) -> Result<Option<Candidate>, Diagnostic> {
        match &self.config {
            Some(config) if self.variant.ends_with(" graph") => config.candidate(resolved, device).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether a schedule is the measured one.
    fn is_of(&self, made: &Schedule) -> bool {
        self.schedule.as_ref().and_then(|s| s.digest.as_ref()).is_some_and(|digest| *digest == made.digest())
    }
}
