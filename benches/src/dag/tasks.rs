//! Independent tasks of different priorities in one program.

use std::time::Duration;

use cusync_dag::{AccessMode, Admit, Argument, BufferId, Form, LaunchConfig, Recording, StreamPlan};

use super::chains::{fault, nanoseconds};
use super::gates::{Alone, Candidate, Field};
use super::point::Bench;
use super::report::{GateRecord, TaskRecord};
use super::suite::{Check, Size, case};
use super::variant::Entry;
use crate::{Error, Regime, Result};
use cusync::measure::interleaved;
use cusync::programs::{Bound, Executable};
use cusync::runtime::Summary;

/// Tasks that run together: name, suite benchmark and priority of each, highest first.
pub(super) const MIXES: [(&str, &[(&str, i32)]); 2] = [
    ("MP-1", &[("IMG", 3), ("VEC", 2), ("VEC", 2), ("HITS", 1)]),
    ("MP-2", &[("ML", 3), ("DL", 2), ("B&S", 1)]),
];

/// CTAs and threads of a stamp.
const ONE: LaunchConfig = LaunchConfig { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0 };

/// A mix with a stamp at the end of each task.
pub(super) struct Mix {
    pub(super) recording: Recording,
    stamps: BufferId,
    /// Outputs of all tasks.
    checks: Vec<Check>,
}

/// A stamp launched on the main stream before a mix, so that no part of the mix runs before it.
pub(super) struct Start {
    bound: Bound,
    stamp: BufferId,
    exec: Executable,
}

impl Start {
    pub(super) fn new(bench: &Bench) -> Result<Start> {
        let mut r = Recording::new("start").built_for_programmatic_edges();
        let stamp = r.zeros("stamp", 2);
        r.launch("stamp", ONE, 1.5, &[r.write(stamp)]).map_err(fault)?;
        let bound = Bound::new(&r, &bench.device, &bench.module)?;
        let exec = bound.executable(&bench.main, &bench.schedule(&bound), Form::SERIAL)?;
        Ok(Start { bound, stamp, exec })
    }
}

impl Mix {
    pub(super) fn new(tasks: &[(&str, i32)]) -> Result<Mix> {
        let mut r = Recording::new("mix").built_for_programmatic_edges();
        let stamps = r.zeros("stamps", 2 * tasks.len());
        let stamp = |place: usize| Argument::words(stamps, 2 * place, 2, Some(AccessMode::Write));
        let mut checks = Vec::new();
        for (index, &(name, priority)) in tasks.iter().enumerate() {
            let found = case(name, Size::Small).ok_or_else(|| Error::Argument(format!("no task {name}")))?;
            let task = found.map_err(fault)?;
            let first = r.append(&task.recording, priority).map_err(fault)?;
            let moved = |check: &Check| Check { buffer: BufferId(check.buffer.0 + first), ..check.clone() };
            let own: Vec<Check> = task.checks.iter().map(moved).collect();
            let mut operands = vec![stamp(index)];
            operands.extend(own.iter().map(|check| r.read(check.buffer).unpassed()));
            r.launch("stamp", ONE, 1.5, &operands).map_err(fault)?;
            checks.extend(own);
        }
        Ok(Mix { recording: r, stamps, checks })
    }

    pub(super) fn verify(&self, entry: &Entry, bound: &Bound) -> Result<std::result::Result<(), String>> {
        let outputs: Vec<BufferId> = self.checks.iter().map(|c| c.buffer).collect();
        bound.reset(&outputs)?;
        entry.exec.launch()?;
        entry.exec.synchronize()?;
        for check in &self.checks {
            if let Err(fault) = check.verify(&bound.download(check.buffer)?) {
                return Ok(Err(fault));
            }
        }
        Ok(Ok(()))
    }

    /// Microseconds from the start to the end of each task, for one run.
    pub(super) fn ends(&self, start: &Start, entry: &Entry, bound: &Bound) -> Result<Vec<f64>> {
        start.exec.launch()?;
        entry.exec.launch()?;
        entry.exec.synchronize()?;
        let began = nanoseconds(&start.bound.download(start.stamp)?);
        let stamps = nanoseconds(&bound.download(self.stamps)?);
        Ok(stamps.iter().map(|end| end.saturating_sub(began[0]) as f64 / 1e3).collect())
    }
}

/// One stream per task, as if started independently, with nodes queued in turn with those of the other tasks.
fn uncoordinated(bound: &Bound) -> StreamPlan {
    let mut queues: Vec<Vec<(usize, usize)>> = Vec::new();
    for (index, node) in bound.program().nodes().iter().enumerate() {
        // Zone 0 is the mix's own and has no nodes.
        let lane = node.zone.index().saturating_sub(1);
        queues.resize(queues.len().max(lane + 1), Vec::new());
        queues[lane].push((index, lane));
    }
    let longest = queues.iter().map(Vec::len).max().unwrap_or(0);
    let order = (0..longest).flat_map(|i| queues.iter().filter_map(move |q| q.get(i).copied())).collect();
    StreamPlan { order, ..StreamPlan::default() }
}

impl Bench {
    /// One mix: peers, every form without a gate, and the choices of the model and of a measurement.
    pub(super) fn mix(
        &self,
        name: &str,
        tasks: &[(&'static str, i32)],
        seconds: f64,
        wrong: &mut Vec<String>,
    ) -> Result<(Vec<TaskRecord>, Vec<GateRecord>)> {
        let (device, main) = (&self.device, &self.main);
        let mix = Mix::new(tasks)?;
        let bound = Bound::new(&mix.recording, device, &self.module)?;
        let serial = StreamPlan::serial(0..bound.program().nodes().len());
        let apart = uncoordinated(&bound);
        let lanes = |plan: &StreamPlan| bound.calls().planned(main, plan.clone());
        let captured = |plan: &StreamPlan| bound.calls().planned(main, plan.clone().captured());
        let mut entries = vec![
            Candidate::peer("serial launches", lanes(&serial)?, Form::SERIAL),
            Candidate::peer("serial graph", captured(&serial)?, Form::SERIAL_GRAPH),
            Candidate::peer("uncoordinated streams", lanes(&apart)?, Form::SERIAL),
            Candidate::peer("uncoordinated, captured", captured(&apart)?, Form::SERIAL_GRAPH),
        ];
        let free = self.schedule_with(&bound, Admit::Free);
        for form in self.forms().filter(|&form| form != Form::SERIAL) {
            entries.push(Candidate::ours(&bound, main, &free, form)?);
        }
        let model = self.schedule(&bound);
        entries.push(Candidate::ours(&bound, main, &model, model.form)?);
        let alone = self.alone(tasks)?;
        let start = Start::new(self)?;
        let field = Field { mix: &mix, bound: &bound, start: &start, alone: &alone };
        let (tuned, gates) = self.choose_gate(name, &field, &model, 0.5 * seconds, wrong)?;
        entries.extend(tuned);
        let mut right = Vec::new();
        for candidate in entries {
            match mix.verify(&candidate.entry, &bound)? {
                Ok(()) => right.push(candidate),
                Err(fault) => wrong.push(format!("{name}, {}: {fault}", candidate.entry.name)),
            }
        }
        let mut variants: Vec<_> = right.iter().map(|c| c.entry.timed(1)).collect();
        let samples = (0.2 * seconds / (20.0 * 3.5e-3)).clamp(7.0, 61.0) as usize;
        let times = interleaved(device, &mut variants, Regime::Rested, samples, Duration::ZERO)?;
        let rounds = (0.2 * seconds / (60.0 * 3e-4)).clamp(11.0, 101.0) as usize;
        let all: Vec<&Candidate> = right.iter().collect();
        let outcomes = field.outcomes(&all, rounds)?;
        let records =
            right.iter().zip(&times).zip(outcomes).map(|((candidate, times), outcome)| TaskRecord {
                mix: name.into(),
                variant: candidate.entry.name.clone(),
                chosen: candidate.form == model.form
                    && candidate.gate == model.admission.as_ref().and_then(|a| a.after)
                    && !candidate.entry.peer,
                tuned: candidate.tuned,
                gate: candidate.gate.map(|id| bound.program().node(id).name.clone()),
                time: Summary::from_times(times),
                tasks: tasks
                    .iter()
                    .zip(outcome.ends)
                    .map(|((task, _), end)| ((*task).to_owned(), end))
                    .collect(),
                alone_us: outcome.alone,
                alone_best_us: outcome.alone_best,
                highest: outcome.highest,
                share: outcome.share,
            });
        Ok((records.collect(), gates))
    }

    /// Each task alone, in every form.
    fn alone(&self, tasks: &[(&'static str, i32)]) -> Result<Vec<Alone>> {
        tasks
            .iter()
            .map(|task| {
                let mix = Mix::new(&[*task])?;
                let bound = Bound::new(&mix.recording, &self.device, &self.module)?;
                let schedule = self.schedule(&bound);
                let entry = |form| Ok(Entry::ours(form, bound.executable(&self.main, &schedule, form)?));
                let entries = self.forms().map(entry).collect::<Result<Vec<_>>>()?;
                Ok(Alone { mix, bound, entries })
            })
            .collect()
    }
}
