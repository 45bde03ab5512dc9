//! Independent tasks of different priorities in one program.

use std::sync::Arc;
use std::time::Duration;

use cusync_dag::{
    AccessMode, Admit, Argument, BufferId, Form, KernelSchedule, LaunchConfig, NodeId, Recording, StreamPlan,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::chains::nanoseconds;
use super::point::{Bench, fault};
use super::report::{GateRecord, TaskRecord};
use super::suite::{Check, SizeClass, case};
use super::variant::Entry;
use crate::{Error, Regime, Result, percentile};
use cusync::device::Stream;
use cusync::measure::interleaved;
use cusync::programs::{BoundRecording, Executable};
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
    bound: BoundRecording,
    stamp: BufferId,
    exec: Executable,
}

impl Start {
    pub(super) fn new(bench: &Bench) -> Result<Start> {
        let mut r = Recording::new("start").built_for_programmatic_edges();
        let stamp = r.zeros("stamp", 2);
        r.launch("stamp", ONE, 1.5, &[r.write(stamp)]).map_err(fault)?;
        let bound = BoundRecording::new(&r, &bench.device, &bench.module)?;
        let exec = bound.executable(&bench.main, &bench.schedule(&bound)?, Form::SERIAL)?;
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
            let found =
                case(name, SizeClass::Small).ok_or_else(|| Error::Argument(format!("no task {name}")))?;
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

    pub(super) fn verify(
        &self,
        entry: &Entry,
        bound: &BoundRecording,
    ) -> Result<std::result::Result<(), String>> {
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
    pub(super) fn ends(&self, start: &Start, entry: &Entry, bound: &BoundRecording) -> Result<Vec<f64>> {
        start.exec.launch()?;
        entry.exec.launch()?;
        entry.exec.synchronize()?;
        let began = nanoseconds(&start.bound.download(start.stamp)?);
        let stamps = nanoseconds(&bound.download(self.stamps)?);
        Ok(stamps.iter().map(|end| end.saturating_sub(began[0]) as f64 / 1e3).collect())
    }
}

/// A way of running the tasks together.
pub(super) struct Contender {
    pub(super) entry: Entry,
    /// Form for running its tasks alone; for a peer, our most similar form.
    pub(super) form: Form,
    pub(super) gate: Option<NodeId>,
    pub(super) tuned: bool,
    pub(super) predicted: f64,
}

impl Contender {
    pub(super) fn peer(name: &str, exec: Executable, form: Form) -> Contender {
        let entry = Entry::peer(name, exec);
        Contender { entry, form, gate: None, tuned: false, predicted: f64::NAN }
    }

    pub(super) fn ours(
        bound: &BoundRecording,
        main: &Arc<Stream>,
        schedule: &KernelSchedule,
        form: Form,
    ) -> Result<Contender> {
        let mut entry = Entry::ours(form, bound.executable(main, schedule, form)?);
        let gate = schedule.admission.as_ref().and_then(|a| a.after);
        if let Some(gate) = gate {
            entry.name = format!("{}, others after {}", entry.name, bound.program().node(gate).name);
        }
        let predicted = schedule.admission.as_ref().map_or(f64::NAN, |a| a.slowdown);
        Ok(Contender { entry, form, gate, tuned: false, predicted })
    }
}

/// A task alone.
pub(super) struct LoneTask {
    pub(super) mix: Mix,
    pub(super) bound: BoundRecording,
    /// One entry per form.
    pub(super) entries: Vec<Entry>,
}

/// Environment for measuring candidates.
pub(super) struct MixBench<'a> {
    pub(super) mix: &'a Mix,
    pub(super) bound: &'a BoundRecording,
    pub(super) start: &'a Start,
    pub(super) alone: &'a [LoneTask],
}

/// Result of a candidate; by task, microseconds.
pub(super) struct Outcome {
    pub(super) ends: Vec<f64>,
    pub(super) alone: Vec<f64>,
    pub(super) alone_best: Vec<f64>,
    pub(super) highest: f64,
    pub(super) share: f64,
    pub(super) total_us: f64,
}

fn median(values: &[f64]) -> f64 {
    percentile(&mut values.to_vec(), 0.5)
}

impl MixBench<'_> {
    /// Runs all candidates and all tasks alone, in random order in every round.
    pub(super) fn outcomes(&self, candidates: &[&Contender], rounds: usize) -> Result<Vec<Outcome>> {
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
                    let LoneTask { mix, bound, entries } = &self.alone[task];
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
        let outcome = |(candidate, ends): (&&Contender, Vec<Vec<f64>>)| {
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

/// One stream per task, as if started independently, with nodes queued in turn with those of the other tasks.
fn uncoordinated(bound: &BoundRecording) -> StreamPlan {
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
        let bound = BoundRecording::new(&mix.recording, device, &self.module)?;
        let serial = StreamPlan::serial(0..bound.program().nodes().len());
        let apart = uncoordinated(&bound);
        let lanes = |plan: &StreamPlan| bound.calls().planned(main, plan.clone());
        let captured = |plan: &StreamPlan| bound.calls().planned(main, plan.clone().captured());
        let mut entries = vec![
            Contender::peer("serial launches", lanes(&serial)?, Form::SERIAL),
            Contender::peer("serial graph", captured(&serial)?, Form::BRANCH_GRAPH),
            Contender::peer("uncoordinated streams", lanes(&apart)?, Form::SERIAL),
            Contender::peer("uncoordinated, captured", captured(&apart)?, Form::BRANCH_GRAPH),
        ];
        let free = self.schedule_with(&bound, Admit::Free)?;
        for form in self.forms().filter(|&form| form != Form::SERIAL) {
            entries.push(Contender::ours(&bound, main, &free, form)?);
        }
        let model = self.schedule(&bound)?;
        entries.push(Contender::ours(&bound, main, &model, model.form)?);
        let alone = self.alone(tasks)?;
        let start = Start::new(self)?;
        let field = MixBench { mix: &mix, bound: &bound, start: &start, alone: &alone };
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
        let all: Vec<&Contender> = right.iter().collect();
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
    fn alone(&self, tasks: &[(&'static str, i32)]) -> Result<Vec<LoneTask>> {
        tasks
            .iter()
            .map(|task| {
                let mix = Mix::new(&[*task])?;
                let bound = BoundRecording::new(&mix.recording, &self.device, &self.module)?;
                let schedule = self.schedule(&bound)?;
                let entry = |form| Ok(Entry::ours(form, bound.executable(&self.main, &schedule, form)?));
                let entries = self.forms().map(entry).collect::<Result<Vec<_>>>()?;
                Ok(LoneTask { mix, bound, entries })
            })
            .collect()
    }
}
