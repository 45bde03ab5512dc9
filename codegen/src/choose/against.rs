//! Compares predictions with a record of measurements.
//!
//! `cusync bench` saves the records. Entries are compared if they state their configuration: kernels one by one, chain
//! kernels or decode kernels, each in a graph. The schedule of a chain kernel is rebuilt with the profile it was built
//! with, if the record contains it; if the result differs from the measured schedule, the entry is counted and left
//! out.

use serde::{Deserialize, Deserializer};

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
    /// The profile that schedules were built with; `None`: the profile that predicts.
    pub profile: Option<Profile>,
    /// One entry per variant, size and regime.
    #[serde(deserialize_with = "named")]
    pub records: Vec<Measured>,
}

/// One measured time; other fields of a record are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// Pipeline.
    pub pipeline: String,
    /// Dims.
    pub dims: Vec<(String, u64)>,
    /// For example `programmatic auto graph`. Left out of files for sampled configurations, which are their own names.
    #[serde(default)]
    pub variant: String,
    /// `plain` or `programmatic`.
    pub joint: String,
    /// The complete configuration; `None` for third-party kernels.
    pub config: Option<Config>,
    /// The schedule of a chain kernel.
    pub schedule: Option<MeasuredSchedule>,
    /// `rested` or `sustained`.
    pub regime: String,
    /// Time of one run, microseconds.
    pub median_us: f64,
}

fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Measured>, D::Error> {
    let mut records = Vec::<Measured>::deserialize(deserializer)?;
    for record in records.iter_mut().filter(|record| record.variant.is_empty()) {
        if let Some(config) = &record.config {
            let joined = if record.joint == "programmatic" { " edges" } else { "" };
            record.variant = format!("{config}{joined} graph");
        }
    }
    Ok(records)
}

/// The schedule of a measured chain kernel.
#[derive(Clone, Debug, Deserialize)]
pub struct MeasuredSchedule {
    /// [`Schedule::digest`]; `None` for decode kernels.
    pub digest: Option<String>,
}

/// Predicts every entry that can be predicted; `spec` returns the text of a pipeline.
///
/// # Errors
/// As [`Rebuilt::from_measurements`].
pub fn compare(
    measurements: &Measurements,
    device: &Profile,
    spec: impl Fn(&str) -> Option<String>,
) -> Result<Comparison, Diagnostic> {
    Ok(Rebuilt::from_measurements(measurements, device, spec)?.predict(device))
}

/// Measured plans, rebuilt so that they can be predicted with any number of profiles.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    entries: Vec<(Measured, Candidate)>,
    /// Entries without a configuration, such as third-party kernels.
    unknown: usize,
    /// Chain kernels with a rebuilt schedule that differs from the measured one.
    other_schedules: usize,
}

impl Rebuilt {
    /// Rebuilds the plan of every entry with a configuration, with the profile it was planned with or, if the record
    /// has none, with `device`; `spec` returns the text of a pipeline.
    ///
    /// # Errors
    /// A pipeline has no spec, or its spec or a choice for it is rejected.
    pub fn from_measurements(
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

    /// The predictions of a profile for these plans.
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
                executor: candidate.launch.executor().name().into(),
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
    /// Whether a plan does less work than predicted: waits or arithmetic are left out, or caches are not full.
    fn is_probe(&self) -> bool {
        let probes = ["stream limit", "without waits", "decode ragged", "decode even"];
        probes.iter().any(|probe| self.variant.contains(probe))
    }

    /// The measured plan; `None` if the entry has no configuration.
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
