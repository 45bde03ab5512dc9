//! Chooses the gate of lower-priority tasks by measuring: among the gates with which the highest-priority
//! task keeps its time, the one with the shortest total time.

use std::sync::Arc;

use cusync_dag::{Admit, Form, KernelSchedule, MOST_SLOWDOWN, NodeId, SURE_SHARE};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::point::Bench;
use super::report::GateRecord;
use super::tasks::{Mix, Start};
use super::variant::Entry;
use crate::{Result, percentile};
use cusync::device::Stream;
use cusync::programs::{Bound, Executable};

/// Forms in which gates are tried: those that were fast without one.
const FORMS: [Form; 3] = [Form::BRANCH_GRAPH, Form::BRANCH_PROGRAMMATIC, Form::BRANCH_MIXED];
/// Number of gates that reach the second heat.
const FINALISTS: usize = 6;
/// Safety margin to the limit: among candidates that seem just within it, the one with the shortest total was
/// lucky.
const MARGIN: f64 = 0.015;

/// A way of running the tasks together.
pub(super) struct Candidate {
    pub(super) entry: Entry,
    /// Form for running its tasks alone.
    pub(super) form: Form,
    pub(super) gate: Option<NodeId>,
    pub(super) tuned: bool,
    predicted: f64,
}

impl Candidate {
    pub(super) fn peer(name: &str, exec: Executable, form: Form) -> Candidate {
        let entry = Entry::peer(name, exec);
        Candidate { entry, form, gate: None, tuned: false, predicted: f64::NAN }
    }

    pub(super) fn ours(
        bound: &Bound,
        main: &Arc<Stream>,
        schedule: &KernelSchedule,
        form: Form,
    ) -> Result<Candidate> {
        let mut entry = Entry::ours(form, bound.executable(main, schedule, form)?);
        let gate = schedule.admission.as_ref().and_then(|a| a.after);
        if let Some(gate) = gate {
            entry.name = format!("{}, others after {}", entry.name, bound.program().node(gate).name);
        }
        let predicted = schedule.admission.as_ref().map_or(f64::NAN, |a| a.slowdown);
        Ok(Candidate { entry, form, gate, tuned: false, predicted })
    }
}

/// A task alone.
pub(super) struct Alone {
    pub(super) mix: Mix,
    pub(super) bound: Bound,
    /// One entry per form.
    pub(super) entries: Vec<Entry>,
}

/// Environment for measuring candidates.
pub(super) struct Field<'a> {
    pub(super) mix: &'a Mix,
    pub(super) bound: &'a Bound,
    pub(super) start: &'a Start,
    pub(super) alone: &'a [Alone],
}

/// Result of a candidate; by task, microseconds.
pub(super) struct Outcome {
    pub(super) ends: Vec<f64>,
    pub(super) alone: Vec<f64>,
    pub(super) alone_best: Vec<f64>,
    pub(super) highest: f64,
    pub(super) share: f64,
    total_us: f64,
}

fn median(values: &[f64]) -> f64 {
    percentile(&mut values.to_vec(), 0.5)
}

impl Field<'_> {
    /// Runs all candidates and all tasks alone, in random order in every round.
    pub(super) fn outcomes(&self, candidates: &[&Candidate], rounds: usize) -> Result<Vec<Outcome>> {
        let tasks = self.alone.len();
        let alone: Vec<(usize, usize)> =
            (0..tasks).flat_map(|t| (0..self.alone[t].entries.len()).map(move |e| (t, e))).collect();
        // Ends by candidate, task and round; then those of tasks alone, by task, form and round.
        let mut together = vec![vec![Vec::with_capacity(rounds); tasks]; candidates.len()];
        let mut single: Vec<Vec<Vec<f64>>> =
            self.alone.iter().map(|a| vec![Vec::with_capacity(rounds); a.entries.len()]).collect();
        let mut order: Vec<usize> = (0..candidates.len() + alone.len()).collect();
        let mut rng = SmallRng::seed_from_u64(rounds as u64);
        // The first round uploads graphs and triggers lazy loading.
        for round in 0..=rounds {
            order.shuffle(&mut rng);
            for &at in &order {
                if let Some(candidate) = candidates.get(at) {
                    let ends = self.mix.ends(self.start, &candidate.entry, self.bound)?;
                    if round > 0 {
                        together[at].iter_mut().zip(ends).for_each(|(all, end)| all.push(end));
                    }
                } else {
                    let (task, form) = alone[at - candidates.len()];
                    let Alone { mix, bound, entries } = &self.alone[task];
                    let ends = mix.ends(self.start, &entries[form], bound)?;
                    if round > 0 {
                        single[task][form].extend(ends);
                    }
                }
            }
        }
        let medians: Vec<Vec<f64>> =
            single.iter().map(|forms| forms.iter().map(|t| median(t)).collect()).collect();
        let best = |task: usize| {
            let forms = 0..medians[task].len();
            forms.min_by(|&a, &b| medians[task][a].total_cmp(&medians[task][b])).unwrap_or(0)
        };
        let bests: Vec<usize> = (0..tasks).map(best).collect();
        let alone_best: Vec<f64> = (0..tasks).map(|t| medians[t][bests[t]]).collect();
        let outcome = |(candidate, ends): (&&Candidate, Vec<Vec<f64>>)| {
            let same = |task: usize| {
                let found = self.alone[task].entries.iter().position(|e| e.form == Some(candidate.form));
                found.map_or(f64::NAN, |form| medians[task][form])
            };
            let medians: Vec<f64> = ends.iter().map(|e| median(e)).collect();
            let ratios: Vec<f64> = ends[0].iter().zip(&single[0][bests[0]]).map(|(e, a)| e / a).collect();
            let share = |task: usize| alone_best[task] / medians[task] * tasks as f64;
            let last: Vec<f64> = (0..rounds).map(|r| ends.iter().map(|e| e[r]).fold(0.0, f64::max)).collect();
            Outcome {
                alone: (0..tasks).map(same).collect(),
                alone_best: alone_best.clone(),
                highest: median(&ratios),
                share: (1..tasks).map(share).fold(f64::INFINITY, f64::min),
                total_us: median(&last),
                ends: medians,
            }
        };
        Ok(candidates.iter().zip(together).map(outcome).collect())
    }
}

impl Bench {
    /// Tries a gate behind every node of the highest-priority task, and no gate; returns the best and all
    /// results.
    pub(super) fn choose_gate(
        &self,
        name: &str,
        field: &Field,
        model: &KernelSchedule,
        seconds: f64,
        wrong: &mut Vec<String>,
    ) -> Result<(Option<Candidate>, Vec<GateRecord>)> {
        let program = field.bound.program();
        let priority = |id: NodeId| program.zones()[program.node(id).zone.index()].priority;
        let top = program.ids().map(priority).max();
        let nodes = program.ids().filter(|&id| Some(priority(id)) == top);
        let admissions = std::iter::once(Admit::Free).chain(nodes.map(Admit::After));
        let mut candidates = Vec::new();
        let allowed: Vec<Form> = self.forms().filter(|form| FORMS.contains(form)).collect();
        for admit in admissions {
            let schedule = self.schedule_with(field.bound, admit);
            for &form in &allowed {
                candidates.push(Candidate::ours(field.bound, &self.main, &schedule, form)?);
            }
        }
        candidates.push(Candidate::ours(field.bound, &self.main, model, model.form)?);
        let mut right = Vec::new();
        for candidate in candidates {
            match field.mix.verify(&candidate.entry, field.bound)? {
                Ok(()) => right.push(candidate),
                Err(fault) => wrong.push(format!("{name}, {}: {fault}", candidate.entry.name)),
            }
        }
        // A run with its stamps takes about 0.3 ms.
        let singles: usize = field.alone.iter().map(|a| a.entries.len()).sum();
        let rounds = |share: f64, count: usize| {
            (share * seconds / ((count + singles) as f64 * 3e-4)).clamp(7.0, 101.0) as usize
        };
        let all: Vec<&Candidate> = right.iter().collect();
        let outcomes = field.outcomes(&all, rounds(0.6, all.len()))?;
        let record = |(c, o): (&Candidate, &Outcome)| GateRecord {
            mix: name.into(),
            form: c.form,
            gate: c.gate.map(|id| program.node(id).name.clone()),
            highest: o.highest,
            share: o.share,
            total_us: o.total_us,
            predicted: c.predicted,
        };
        let records = right.iter().zip(&outcomes).map(record).collect();
        let mut places: Vec<usize> = (0..right.len()).collect();
        places.sort_by(|&a, &b| merit(&outcomes[a], MARGIN).total_cmp(&merit(&outcomes[b], MARGIN)));
        let finalists: Vec<usize> = places.into_iter().take(FINALISTS).collect();
        let last: Vec<&Candidate> = finalists.iter().map(|&at| &right[at]).collect();
        let outcomes = field.outcomes(&last, rounds(0.4, last.len()))?;
        let best = (0..last.len())
            .min_by(|&a, &b| merit(&outcomes[a], MARGIN).total_cmp(&merit(&outcomes[b], MARGIN)))
            .map(|at| finalists[at]);
        Ok((best.map(|at| Candidate { tuned: true, ..right.swap_remove(at) }), records))
    }
}

/// Lower is better: the total if the highest-priority task keeps its time and nothing starves; otherwise the
/// distance from that, ranked behind all candidates that satisfy it.
fn merit(outcome: &Outcome, margin: f64) -> f64 {
    let slow = (outcome.highest - (MOST_SLOWDOWN - margin)).max(0.0);
    let starved = (SURE_SHARE - outcome.share).max(0.0);
    if slow + starved > 0.0 { 1e9 * (1.0 + slow + starved) } else { outcome.total_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(highest: f64, share: f64, total_us: f64) -> Outcome {
        let (ends, alone, alone_best) = (Vec::new(), Vec::new(), Vec::new());
        Outcome { ends, alone, alone_best, highest, share, total_us }
    }

    #[test]
    fn the_least_total_wins_among_those_that_keep_the_highest_and_starve_nobody() {
        let merits = [
            outcome(1.04, 0.8, 100.0),
            outcome(1.01, 0.8, 101.0),
            outcome(1.01, 0.3, 90.0),
            outcome(1.2, 0.8, 80.0),
            outcome(1.06, 0.8, 120.0),
        ]
        .map(|o| merit(&o, 0.0));
        assert!(merits[0] < merits[1]);
        assert!(merits[1] < merits[4] && merits[4] < merits[3]);
        assert!(merits[1] < merits[2]);
        assert!(merit(&outcome(1.045, 0.8, 50.0), MARGIN) > 1e9, "too near the limit");
    }
}
