//! Determines the fastest form, and compares it with the best peers, at a resolution of one percent.
//!
//! Medians from separate measurements differ by two percent between two instances of the same graph, so all
//! comparisons here use times of the same round.

use std::time::Duration;

use cusync_dag::Form;

use super::point::{Bench, runs_of};
use super::report::Contest;
use super::variant::Entry;
use crate::{Regime, Result, percentile};
use cusync::measure::paired;

/// Duration of one sustained visit.
const WINDOW: Duration = Duration::from_millis(2);
/// Number of forms that reach the second heat.
const FINALISTS: usize = 4;
/// Number of peers to compare with the choices: the fastest in each regime.
const PEERS: usize = 3;
/// Minimum number of meaningful rounds.
const LEAST: usize = 5;

/// Rounds in each regime.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    rested: usize,
    sustained: usize,
}

impl Rounds {
    /// Number of rounds that fit `seconds`, for `entries` programs of about `us` each, with `runs` runs per
    /// sustained sample.
    pub(super) fn within(seconds: f64, entries: usize, us: f64, runs: usize) -> Rounds {
        // 3 ms of rest, and a few hundred microseconds to wake up.
        let rested = 3.4e-3 + us * 1e-6;
        // A window has at least five samples and one to warm up.
        let sustained = f64::max(WINDOW.as_secs_f64(), 6.0 * runs as f64 * us * 1e-6) + 3e-4;
        let fit = |share: f64, each: f64| (share * seconds / (entries as f64 * each)) as usize;
        Rounds {
            rested: fit(0.6, rested).clamp(LEAST, 201),
            sustained: fit(0.4, sustained).clamp(LEAST, 201),
        }
    }

    fn in_regime(self, regime: Regime) -> usize {
        if regime == Regime::Rested { self.rested } else { self.sustained }
    }
}

impl Bench {
    /// Time of one run of each entry, by round, microseconds.
    fn rounds(
        &self,
        entries: &[&Entry],
        kernels: usize,
        regime: Regime,
        rounds: Rounds,
    ) -> Result<Vec<Vec<f64>>> {
        let runs = runs_of(regime, kernels);
        let mut variants: Vec<_> = entries.iter().map(|e| e.timed(runs)).collect();
        let mut times = paired(&self.device, &mut variants, regime, rounds.in_regime(regime), WINDOW)?;
        times.iter_mut().flatten().for_each(|t| *t /= runs as f64);
        Ok(times)
    }

    /// Our form with the smallest ratio to the best one, in its worst regime. All forms run a short heat, the
    /// best a longer one.
    pub(super) fn race(
        &self,
        entries: &[Entry],
        kernels: usize,
        us: f64,
        seconds: f64,
    ) -> Result<Option<Form>> {
        let mut ours: Vec<&Entry> = entries.iter().filter(|e| e.form.is_some()).collect();
        for (share, keep) in [(0.35, FINALISTS), (0.65, 1)] {
            let runs = runs_of(Regime::Sustained, kernels);
            let rounds = Rounds::within(share * seconds, ours.len(), us, runs);
            let mut all = Vec::new();
            for &regime in &self.regimes {
                all.push(self.rounds(&ours, kernels, regime, rounds)?);
            }
            let scores = worst_over_best(&all);
            let mut places: Vec<usize> = (0..ours.len()).collect();
            places.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            ours = places.into_iter().take(keep).map(|at| ours[at]).collect();
        }
        Ok(ours.first().and_then(|e| e.form))
    }

    /// Contests of our choices against the best peers, in every regime. `medians` gives a first time of each
    /// entry in a regime.
    pub(super) fn contests(
        &self,
        entries: &[Entry],
        choices: &[Form],
        kernels: usize,
        us: f64,
        seconds: f64,
        medians: &dyn Fn(&Entry, Regime) -> f64,
    ) -> Result<Vec<Contest>> {
        let mut contests = Vec::new();
        for &regime in &self.regimes {
            let mut peers: Vec<&Entry> = entries.iter().filter(|e| e.peer).collect();
            peers.sort_by(|a, b| medians(a, regime).total_cmp(&medians(b, regime)));
            peers.truncate(PEERS);
            let chosen = |e: &&Entry| e.form.is_some_and(|form| choices.contains(&form));
            let mut all: Vec<&Entry> = entries.iter().filter(chosen).collect();
            let known: Vec<*const Entry> = all.iter().map(|e| std::ptr::from_ref(*e)).collect();
            // Serial launches are both a peer and a form.
            all.extend(peers.iter().filter(|p| !known.contains(&std::ptr::from_ref(**p))));
            let runs = runs_of(Regime::Sustained, kernels);
            let rounds = Rounds::within(seconds / self.regimes.len() as f64 * 2.0, all.len(), us, runs);
            let times = self.rounds(&all, kernels, regime, rounds)?;
            for (entry, ours) in all.iter().zip(&times) {
                let Some(form) = entry.form.filter(|form| choices.contains(form)) else { continue };
                for (peer, theirs) in all.iter().zip(&times).filter(|(e, _)| e.peer) {
                    let mut ratios: Vec<f64> = theirs.iter().zip(ours).map(|(t, o)| t / o).collect();
                    let [low, ratio, high] = median_interval(&mut ratios);
                    contests.push(Contest {
                        form: form.id().into(),
                        regime,
                        peer: peer.name.clone(),
                        ours_us: percentile(&mut ours.clone(), 0.5),
                        peer_us: percentile(&mut theirs.clone(), 0.5),
                        ratio,
                        low,
                        high,
                        rounds: ratios.len(),
                    });
                }
            }
        }
        Ok(contests)
    }
}

/// For each entry: the median over rounds of its time relative to the mean of its round, divided by the
/// smallest such median, in its worst regime. `all`: by regime, entry and round; 1 is the best.
fn worst_over_best(all: &[Vec<Vec<f64>>]) -> Vec<f64> {
    let mut worst = vec![1.0; all.first().map_or(0, Vec::len)];
    for times in all {
        let rounds = times.first().map_or(0, Vec::len);
        let mean = |round: usize| times.iter().map(|t| t[round].ln()).sum::<f64>() / times.len() as f64;
        let means: Vec<f64> = (0..rounds).map(|round| mean(round).exp()).collect();
        let median = |t: &Vec<f64>| {
            percentile(&mut t.iter().zip(&means).map(|(t, m)| t / m).collect::<Vec<f64>>(), 0.5)
        };
        let medians: Vec<f64> = times.iter().map(median).collect();
        let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
        worst.iter_mut().zip(&medians).for_each(|(worst, m)| *worst = f64::max(*worst, m / best));
    }
    worst
}

/// Median with a 95 % confidence interval, by the ranks of a binomial distribution.
fn median_interval(values: &mut [f64]) -> [f64; 3] {
    let n = values.len() as f64;
    let half = 0.98 / n.sqrt();
    [0.5 - half, 0.5, 0.5 + half].map(|at| percentile(values, at.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_best_in_one_regime_and_bad_in_the_other_does_not_win() {
        // Two states of the machine, one twice as fast: separate medians would not distinguish the first two
        // entries.
        let state = [1.0, 2.0, 1.0, 2.0, 1.0];
        let times = |each: [f64; 3]| each.map(|t| state.map(|s| s * t).to_vec()).to_vec();
        let scores = worst_over_best(&[times([10.0, 10.1, 10.4]), times([12.0, 10.1, 10.0])]);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} against {b}");
        close(scores[0], 1.2);
        close(scores[1], 1.01);
        close(scores[2], 1.04);
    }

    #[test]
    fn more_rounds_make_the_interval_narrower() {
        let values = |n: usize| (0..n).map(|i| i as f64 / (n - 1) as f64).collect::<Vec<f64>>();
        let [low, median, high] = median_interval(&mut values(25));
        assert!((median - 0.5).abs() < 1e-9 && (low - 0.304).abs() < 0.03 && (high - 0.696).abs() < 0.03);
        let [low, _, high] = median_interval(&mut values(401));
        assert!(high - low < 0.11, "{low} to {high}");
    }

    #[test]
    fn rounds_fit_the_time() {
        let short = Rounds::within(1.0, 5, 20.0, 10);
        assert!((30..40).contains(&short.rested) && (30..40).contains(&short.sustained), "{short:?}");
        let long = Rounds::within(1.0, 5, 12_000.0, 1);
        assert!(long.rested < 10 && long.sustained == LEAST, "{long:?}");
    }
}
