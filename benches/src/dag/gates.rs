//! Chooses the gate of lower-priority tasks by measuring: among the gates with which the highest-priority
//! task keeps its time, the one with the shortest total time.

use cusync_dag::{Admit, Form, KernelSchedule, MOST_SLOWDOWN, NodeId, SURE_SHARE};

use super::point::Bench;
use super::report::GateRecord;
use super::tasks::{Contender, MixBench, Outcome};
use crate::Result;

/// Forms in which gates are tried: those that were fast without one.
const FORMS: [Form; 3] = [Form::BRANCH_GRAPH, Form::BRANCH_PROGRAMMATIC, Form::FUNNEL_MIXED];
/// Number of gates that reach the second heat.
const FINALISTS: usize = 6;
/// Safety margin to the limit: among candidates that seem just within it, the one with the shortest total was
/// lucky.
const MARGIN: f64 = 0.015;

impl Bench {
    /// Tries a gate behind every node of the highest-priority task, and no gate; returns the best and all
    /// results.
    pub(super) fn choose_gate(
        &self,
        name: &str,
        field: &MixBench,
        model: &KernelSchedule,
        seconds: f64,
        wrong: &mut Vec<String>,
    ) -> Result<(Option<Contender>, Vec<GateRecord>)> {
        let program = field.bound.program();
        let priority = |id: NodeId| program.zones()[program.node(id).zone.index()].priority;
        let top = program.ids().map(priority).max();
        let nodes = program.ids().filter(|&id| Some(priority(id)) == top);
        let admissions = std::iter::once(Admit::Free).chain(nodes.map(Admit::After));
        let mut candidates = Vec::new();
        let allowed: Vec<Form> = self.forms().filter(|form| FORMS.contains(form)).collect();
        for admit in admissions {
            let schedule = self.schedule_with(field.bound, admit)?;
            for &form in &allowed {
                candidates.push(Contender::ours(field.bound, &self.main, &schedule, form)?);
            }
        }
        candidates.push(Contender::ours(field.bound, &self.main, model, model.form)?);
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
        let all: Vec<&Contender> = right.iter().collect();
        let outcomes = field.outcomes(&all, rounds(0.6, all.len()))?;
        let record = |(c, o): (&Contender, &Outcome)| GateRecord {
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
        let last: Vec<&Contender> = finalists.iter().map(|&at| &right[at]).collect();
        let outcomes = field.outcomes(&last, rounds(0.4, last.len()))?;
        let best = (0..last.len())
            .min_by(|&a, &b| merit(&outcomes[a], MARGIN).total_cmp(&merit(&outcomes[b], MARGIN)))
            .map(|at| finalists[at]);
        Ok((best.map(|at| Contender { tuned: true, ..right.swap_remove(at) }), records))
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
