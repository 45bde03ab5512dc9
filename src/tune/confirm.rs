//! Measures a shortlist: each configuration is proved, verified, and timed in turn with all others.

use cusync_gen::check::{Executor, Plan, check};
use cusync_gen::graph::Resolved;

use super::answer::profile;
use super::cache::{CacheEntry, Tried, now};
use super::error::{Error, Result};
use super::key::{Key, Machine};
use super::proposals::{Proposal, shortlist};
use crate::device::Device;
use crate::measure::{self, PipelineVariant, Regime, Variant, interleaved};
use crate::runtime::verify::{Reference, first_wrong};
use crate::runtime::{InputSets, Options, Overlap, Pipeline, Summary};

/// Settings for measuring a shortlist.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Maximum number of configurations.
    pub candidates: usize,
    /// Samples of each, rested and interleaved; each sample is a graph of some runs of every weight set.
    pub samples: usize,
    /// Weight sets in rotation.
    pub sets: usize,
    /// Seed of the random inputs.
    pub seed: u32,
    /// Overlap of consecutive runs in a graph.
    pub overlap: Overlap,
}

impl Default for Measure {
    fn default() -> Self {
        Measure { candidates: 8, samples: 15, sets: 4, seed: 1, overlap: Overlap::Plain }
    }
}

/// Result of measuring a shortlist.
#[derive(Clone, Debug, Default)]
pub struct Confirmed {
    /// Measured configurations, fastest first.
    pub tried: Vec<Tried>,
    /// Configurations that were not measured, with reasons.
    pub skipped: Vec<String>,
    /// Configurations with wrong results; not among `tried`.
    pub wrong: Vec<String>,
}

/// Length of a sample that justifies a graph launch, microseconds, and maximum number of runs per weight set
/// in a sample.
const SAMPLE_US: f64 = 1500.0;
const MAX_ROUNDS: usize = 5;

/// Measures the best proposals on a GPU. Calls `progress` as each begins.
///
/// # Errors
/// No proposal can be run, or the GPU failed.
pub fn confirm(
    proposals: &[Proposal],
    device: &Device,
    how: &Measure,
    progress: &mut dyn FnMut(&str),
) -> Result<Confirmed> {
    profile(device)?;
    let mut found = Confirmed::default();
    let mut taken: Vec<(&Proposal, usize)> = Vec::new();
    let mut variants: Vec<Box<dyn Variant>> = Vec::new();
    let listed = shortlist(proposals, how.candidates);
    let fastest = listed.iter().map(|p| p.predicted_us).fold(f64::INFINITY, f64::min);
    let runs = SAMPLE_US / (fastest.max(1.0) * how.sets.max(1) as f64);
    let rounds = (runs.ceil() as usize).clamp(1, MAX_ROUNDS);
    let mut bench: Option<(InputSets, Reference)> = None;
    for proposal in &listed {
        let name = proposal.config.to_string();
        progress(&name);
        let plan = match check(proposal.candidate.clone()) {
            Ok(plan) => plan,
            Err(refutation) => {
                found.skipped.push(format!("{name}: {refutation}"));
                continue;
            }
        };
        match ready(&plan, device, how, &mut bench) {
            Ok(Ready { pipeline, error: None }) => {
                let executor = plan.executor();
                variants.push(Box::new(PipelineVariant::new(pipeline, executor, true, rounds)?));
                taken.push((proposal, variants.len() - 1));
            }
            Ok(Ready { error: Some(why), .. }) => found.wrong.push(format!("{name}: {why}")),
            Err(e) if e.is_fatal() => return Err(e.into()),
            // A kernel that was not built does not prevent measuring the others.
            Err(e) => found.skipped.push(format!("{name}: {e}")),
        }
    }
    if variants.is_empty() && found.wrong.is_empty() {
        let reasons = found.skipped.join("\n  ");
        return Err(Error::Unsupported(format!(
            "no configuration can be run on {}:\n  {reasons}",
            device.name()
        )));
    }
    progress("all in turn");
    let window = std::time::Duration::ZERO;
    let times = interleaved(device, &mut variants, Regime::Rested, how.samples.max(1), window)?;
    let runs = (how.sets.max(1) * rounds) as f64;
    for (proposal, at) in taken {
        let time = Summary::from_times(&times[at].iter().map(|us| us / runs).collect::<Vec<_>>());
        let Proposal { config, predicted_us, .. } = proposal.clone();
        found.tried.push(Tried { config, predicted_us, time });
    }
    found.tried.sort_by(|a, b| a.time.median_us.total_cmp(&b.time.median_us));
    Ok(found)
}

/// A pipeline that has run once, and the error in its results, if any.
struct Ready {
    pipeline: Pipeline,
    error: Option<String>,
}

fn ready(
    plan: &Plan,
    device: &Device,
    how: &Measure,
    bench: &mut Option<(InputSets, Reference)>,
) -> measure::Result<Ready> {
    let executor = plan.executor();
    let chains = plan.launch().is_one_kernel() || plan.launch().is_in_turn();
    let overlap = if chains { how.overlap } else { Overlap::Plain };
    let options = Options { overlap, ..Options::default() };
    let mut pipeline = Pipeline::with_options(plan, device, options)?;
    if let Some((inputs, _)) = bench {
        inputs.bind(&mut pipeline)?;
    } else {
        let inputs = InputSets::random(plan.graph(), device, how.sets.max(1), how.seed)?;
        inputs.bind(&mut pipeline)?;
        *bench = Some((inputs, Reference::new(&mut pipeline, 0)?));
    }
    pipeline.prepare()?;
    pipeline.poison_outputs()?;
    // The reference's set comes last.
    let sets: Vec<usize> = (0..pipeline.sets()).rev().collect();
    let graph = pipeline.capture(executor, &sets)?;
    pipeline.replay(&graph)?;
    pipeline.synchronize()?;
    let outputs = match bench {
        Some((_, reference)) => reference.compare(&mut pipeline)?,
        None => Vec::new(),
    };
    Ok(Ready { pipeline, error: first_wrong(&outputs) })
}

impl Confirmed {
    /// Cache entries of a measurement: for the question asked and, if it was for any executor, for each
    /// executor that was measured.
    pub fn entries(
        &self,
        resolved: &Resolved,
        machine: &Machine,
        executor: Option<Executor>,
        overlap: Overlap,
    ) -> Vec<CacheEntry> {
        let measured = now();
        let mut overrides = vec![executor];
        if executor.is_none() {
            let measured = |e: &Executor| self.tried.iter().any(|t| t.config.executor() == *e);
            overrides.extend(Executor::GPU.into_iter().filter(measured).map(Some));
        }
        let answer = |asked: Option<Executor>| {
            let fits = |t: &&Tried| asked.is_none_or(|e| t.config.answers(e));
            let mut tried = self.tried.iter().filter(fits).cloned();
            Some(CacheEntry {
                pipeline: resolved.name.clone(),
                key: Key::new(resolved, machine, asked, overlap),
                measured: measured.clone(),
                best: tried.next()?,
                others: tried.collect(),
            })
        };
        overrides.into_iter().filter_map(answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::tests::{machine, resolved};
    use super::*;
    use cusync_gen::choose::{Config, StageExecutor};
    use cusync_gen::schedule::Hand;

    #[test]
    fn a_measurement_answers_for_any_executor_and_for_each_that_was_measured() {
        let tried = |config: Config, us: f64| Tried {
            config,
            predicted_us: us,
            time: Summary { median_us: us, p10_us: us, p90_us: us, samples: 9 },
        };
        let chain = |tile| Config::chain((tile, (1, 1)), Hand::Fixed, true);
        let (stages, edges) = (Vec::new(), Vec::new());
        let serial = Config::Stages { executor: StageExecutor::Serial, stages, edges };
        let found = Confirmed {
            tried: vec![
                tried(chain((128, 256)), 90.0),
                tried(serial.clone(), 95.0),
                tried(chain((64, 256)), 99.0),
            ],
            ..Confirmed::default()
        };
        let resolved = resolved("gpt3_mlp", 512);
        let entries = found.entries(&resolved, &machine(), None, Overlap::Plain);
        let seen: Vec<_> = entries.iter().map(|e| (e.key.executor, e.candidates())).collect();
        assert_eq!(seen, [(None, 3), (Some(Executor::Serial), 1), (Some(Executor::Fused), 2)]);
        assert_eq!(entries[1].best.config, serial);
        assert_eq!(entries[0].best.time.median_us, 90.0);
        let only = found.entries(&resolved, &machine(), Some(Executor::Fused), Overlap::Captured);
        assert_eq!((only.len(), only[0].key.overlap, only[0].candidates()), (1, Overlap::Captured, 2));
        // If only streams are asked for, a serial chain is their fallback.
        let streams = found.entries(&resolved, &machine(), Some(Executor::Streams), Overlap::Plain);
        assert!(streams.len() == 1 && streams[0].best.config == serial && streams[0].others.is_empty());
        assert!(found.entries(&resolved, &machine(), Some(Executor::Library), Overlap::Plain).is_empty());
    }
}
