//! Plans from the cache if it has an entry, otherwise from the prediction, with the origin of the plan.

use cusync_gen::check::{Candidate, Executor, Plan, judge};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::Resolved;

use super::cache::{CacheEntry, PlanCache};
use super::error::{Error, Result};
use super::key::{Key, Machine};
use super::proposals::predicted;
use crate::device::Device;
use crate::runtime::{Options, Overrides, Pipeline, resolve_text};

/// Origin of a choice. Its text follows `plan: `.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Chosen by the model.
    Predicted {
        /// Reason why an existing cache entry was not used.
        refused: Option<String>,
    },
    /// Fastest of the measured configurations.
    Tuned {
        /// Time of the measurement: UTC, RFC 3339.
        measured: String,
        /// Name of the measured GPU.
        gpu: String,
        /// Number of measured configurations.
        candidates: usize,
        /// Median of the winner at that time, microseconds.
        median_us: f64,
    },
}

impl Origin {
    /// Origin stated by a cache entry.
    pub fn from_entry(entry: &CacheEntry) -> Origin {
        Origin::Tuned {
            measured: entry.measured.clone(),
            gpu: entry.key.machine.gpu.clone(),
            candidates: entry.candidates(),
            median_us: entry.best.time.median_us,
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Predicted { refused: None } => write!(f, "predicted"),
            Origin::Predicted { refused: Some(why) } => {
                write!(f, "predicted; the cache's entry was refused: {why}")
            }
            Origin::Tuned { measured, gpu, candidates, median_us: _ } => {
                let day = measured.get(..10).unwrap_or(measured);
                let plural = if *candidates == 1 { "" } else { "s" };
                write!(f, "tuned {day} on {gpu}, {candidates} candidate{plural}")
            }
        }
    }
}

/// A choice and its origin.
#[derive(Clone, Debug)]
pub struct SourcedCandidate {
    /// The caller still has to prove it; one from the cache has been checked once already.
    pub candidate: Candidate,
    /// Origin of the choice.
    pub origin: Origin,
}

/// The entry's choice if it fits this spec and is proved, otherwise the predicted one.
///
/// # Errors
/// No prediction is possible either: no kernel allows a statement of the spec.
pub fn answer(
    resolved: &Resolved,
    profile: &Profile,
    executor: Option<Executor>,
    entry: Option<&CacheEntry>,
) -> std::result::Result<SourcedCandidate, Diagnostic> {
    let refused = match entry.map(|entry| (entry, proved(resolved, profile, executor, entry))) {
        Some((entry, Ok(candidate))) => {
            return Ok(SourcedCandidate { candidate, origin: Origin::from_entry(entry) });
        }
        Some((_, Err(why))) => Some(why),
        None => None,
    };
    Ok(SourcedCandidate {
        candidate: predicted(resolved, profile, executor)?,
        origin: Origin::Predicted { refused },
    })
}

fn proved(
    resolved: &Resolved,
    profile: &Profile,
    executor: Option<Executor>,
    entry: &CacheEntry,
) -> std::result::Result<Candidate, String> {
    let config = &entry.best.config;
    if executor.is_some_and(|asked| !config.answers(asked)) {
        return Err(format!("it is not for the executor that it is an answer for: {config}"));
    }
    let candidate = config.candidate(resolved, profile).map_err(|d| d.message)?;
    match judge(&candidate).refutations.first() {
        Some(refutation) => Err(refutation.to_string()),
        None => Ok(candidate),
    }
}

/// A plan and its origin.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The proved plan.
    pub plan: Plan,
    /// Origin of the plan.
    pub origin: Origin,
}

/// Plans a spec for a GPU, from the cache if it has been tuned. `executor`: `None` for the best of all. Uses
/// the entry for the overlap in `options`.
///
/// # Errors
/// The spec is refused, or there are no kernels for this GPU.
pub fn plan(
    source: &str,
    origin: &str,
    overrides: &Overrides,
    device: &Device,
    executor: Option<Executor>,
    options: &Options,
    cache: &PlanCache,
) -> Result<Planned> {
    let profile = profile(device)?;
    let resolved = resolve_text(source, origin, overrides)?;
    let key = Key::new(&resolved, &Machine::for_device(device)?, executor, options.overlap);
    let refused = |d: Diagnostic| Error::Refused(d.render(source, origin, false));
    let SourcedCandidate { candidate, origin: from } =
        answer(&resolved, &profile, executor, cache.get(&key)).map_err(refused)?;
    Ok(Planned { plan: choose::prove(&resolved, candidate).map_err(refused)?, origin: from })
}

/// [`plan`], and a pipeline for it.
///
/// # Errors
/// Errors of [`plan`] and [`Pipeline::with_options`].
pub fn pipeline(
    source: &str,
    origin: &str,
    overrides: &Overrides,
    device: &Device,
    executor: Option<Executor>,
    options: Options,
    cache: &PlanCache,
) -> Result<(Pipeline, Origin)> {
    let planned = plan(source, origin, overrides, device, executor, &options, cache)?;
    Ok((Pipeline::with_options(&planned.plan, device, options)?, planned.origin))
}

/// Profile for proving plans for a GPU.
pub(super) fn profile(device: &Device) -> Result<Profile> {
    let old = || Error::Unsupported(format!("{} is older than compute capability 8.0", device.name()));
    device.profile().ok_or_else(old)
}

#[cfg(test)]
mod tests {
    use super::super::cache::Tried;
    use super::super::key::tests::{machine, resolved};
    use super::*;
    use crate::runtime::{Overlap, Summary};
    use cusync_gen::check::check;
    use cusync_gen::choose::Config;
    use cusync_gen::schedule::Hand;

    fn h200() -> &'static Profile {
        Profile::named("h200").expect("the profile ships")
    }

    fn entry(resolved: &Resolved, executor: Option<Executor>, config: Config) -> CacheEntry {
        let time = Summary { median_us: 99.0, p10_us: 98.0, p90_us: 100.0, samples: 9 };
        let best = Tried { config, predicted_us: 101.0, time };
        CacheEntry {
            pipeline: resolved.name.clone(),
            key: Key::new(resolved, &machine(), executor, Overlap::Plain),
            measured: "2026-11-21T12:00:00Z".into(),
            others: vec![best.clone(), best.clone()],
            best,
        }
    }

    #[test]
    fn an_entry_is_taken_proved_and_told() {
        let resolved = resolved("gpt3_mlp", 512);
        let config = Config::chain(((128, 128), (1, 1)), Hand::Drawn, true);
        let entry = entry(&resolved, None, config.clone());
        let found = answer(&resolved, h200(), None, Some(&entry)).expect("it fits");
        assert_eq!(found.origin.to_string(), "tuned 2026-11-21 on NVIDIA H200, 3 candidates");
        assert_eq!(Config::from_candidate(&found.candidate), Some(config));
        let plan = check(found.candidate).expect("it was judged before");
        assert_eq!(plan.graph().stages[0].mma_tile.1, 128);
        let without = answer(&resolved, h200(), None, None).expect("there is a prediction");
        assert_eq!(without.origin.to_string(), "predicted");
    }

    #[test]
    fn a_wrong_or_stale_entry_is_never_launched_and_the_prediction_stands_in() {
        let resolved = resolved("gpt3_mlp", 512);
        let prediction =
            Config::from_candidate(&predicted(&resolved, h200(), None).expect("there is a choice"));
        let chosen = choose::candidate(&resolved, h200(), Executor::Programmatic).expect("a choice");
        // Waits for slots that are posted later, and the tile order belongs to another grid.
        let mut stale = Config::from_candidate(&chosen).expect("a launch on a GPU");
        if let Config::Stages { stages, .. } = &mut stale {
            stages.reverse();
        }
        let wrong = [stale, Config::Decode, Config::chain(((100, 100), (1, 1)), Hand::Fixed, true)];
        for config in wrong {
            let entry = entry(&resolved, None, config.clone());
            let found = answer(&resolved, h200(), None, Some(&entry)).expect("there is a prediction");
            assert!(
                found.origin.to_string().starts_with("predicted; the cache's entry was refused: "),
                "{config}"
            );
            assert_eq!(Config::from_candidate(&found.candidate), prediction);
        }
        // The plan is for another executor than requested.
        let config = Config::chain(((128, 128), (1, 1)), Hand::Fixed, true);
        let serial = Some(Executor::Serial);
        let found =
            answer(&resolved, h200(), serial, Some(&entry(&resolved, serial, config))).expect("a choice");
        assert_eq!(found.candidate.launch.executor(), Executor::Serial);
        assert!(matches!(found.origin, Origin::Predicted { refused: Some(_) }));
    }
}
