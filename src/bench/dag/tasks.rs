//! Independent tasks of different priorities in one program.

use std::time::Duration;

use super::chains::{fault, nanoseconds};
use super::point::Bench;
use super::report::TaskRecord;
use super::suite::{Check, Size, case};
use super::variant::Entry;
use crate::bench::measure::interleaved;
use crate::bench::{Error, Regime, Result, percentile};
use crate::dag::run::{Bound, Executable, LanePlan, Operand, Recording};
use crate::dag::{BufferId, Form, LaunchConfig, Mode};
use crate::runtime::Summary;

/// Tasks that run together: name, suite benchmark and priority of each, the highest first.
pub(super) const MIXES: [(&str, &[(&str, i32)]); 2] = [
    ("MP-1", &[("IMG", 3), ("VEC", 2), ("VEC", 2), ("HITS", 1)]),
    ("MP-2", &[("ML", 3), ("DL", 2), ("B&S", 1)]),
];

/// Runs that a median of a task's end is of.
const STAMPED_RUNS: usize = 21;

/// CTAs and threads of a stamp.
const ONE: LaunchConfig = LaunchConfig { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0 };

/// A mix with a stamp at the end of each task.
struct Mix {
    recording: Recording,
    stamps: BufferId,
    /// Outputs of all tasks.
    checks: Vec<Check>,
}

/// A stamp that is launched on the main stream before a mix, so that nothing of the mix runs before it.
struct Start {
    bound: Bound,
    stamp: BufferId,
    exec: Executable,
}

impl Start {
    fn new(bench: &Bench) -> Result<Start> {
        let mut r = Recording::new("start");
        let stamp = r.zeros("stamp", 2);
        r.launch("stamp", ONE, 1.5, &[r.write(stamp)]).map_err(fault)?;
        let bound = r.bind(&bench.device, &bench.module)?;
        let exec = bound.executable(&bench.main, &bench.schedule(&bound), Form::Serial)?;
        Ok(Start { bound, stamp, exec })
    }
}

impl Mix {
    fn new(tasks: &[(&str, i32)]) -> Result<Mix> {
        let mut r = Recording::new("mix");
        let stamps = r.zeros("stamps", 2 * tasks.len());
        let stamp = |place: usize| Operand::Words {
            buffer: stamps,
            first: 2 * place,
            words: 2,
            mode: Some(Mode::Write),
        };
        let mut checks = Vec::new();
        for (index, &(name, priority)) in tasks.iter().enumerate() {
            let found = case(name, Size::Small).ok_or_else(|| Error::Argument(format!("no task {name}")))?;
            let task = found.map_err(fault)?;
            let first = r.append(&task.recording, priority).map_err(fault)?;
            let moved = |check: &Check| Check { buffer: BufferId(check.buffer.0 + first), ..check.clone() };
            let own: Vec<Check> = task.checks.iter().map(moved).collect();
            let mut operands = vec![stamp(index)];
            operands.extend(own.iter().map(|check| Operand::Unpassed(check.buffer, Mode::Read)));
            r.launch("stamp", ONE, 1.5, &operands).map_err(fault)?;
            checks.extend(own);
        }
        Ok(Mix { recording: r, stamps, checks })
    }

    fn verify(&self, entry: &Entry, bound: &Bound) -> Result<std::result::Result<(), String>> {
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

    /// Microseconds from the start to the end of each task, medians.
    fn ends(&self, start: &Start, entry: &Entry, bound: &Bound) -> Result<Vec<f64>> {
        let mut ends: Vec<Vec<f64>> = Vec::new();
        for _ in 0..STAMPED_RUNS {
            start.exec.launch()?;
            entry.exec.launch()?;
            entry.exec.synchronize()?;
            let began = nanoseconds(&start.bound.download(start.stamp)?);
            let stamps = nanoseconds(&bound.download(self.stamps)?);
            ends.resize(stamps.len(), Vec::new());
            for (all, end) in ends.iter_mut().zip(&stamps) {
                all.push(end.saturating_sub(began[0]) as f64 / 1e3);
            }
        }
        Ok(ends.iter_mut().map(|times| percentile(times, 0.5)).collect())
    }
}

/// A stream a task, as if each had been started by somebody else, its nodes queued in turn with the others'.
fn uncoordinated(bound: &Bound) -> LanePlan {
    let mut queues: Vec<Vec<(usize, usize)>> = Vec::new();
    for (index, node) in bound.program().nodes().iter().enumerate() {
        // Zone 0 is the mix's own and has no nodes.
        let lane = node.zone.index().saturating_sub(1);
        queues.resize(queues.len().max(lane + 1), Vec::new());
        queues[lane].push((index, lane));
    }
    let longest = queues.iter().map(Vec::len).max().unwrap_or(0);
    let order = (0..longest).flat_map(|i| queues.iter().filter_map(move |q| q.get(i).copied())).collect();
    LanePlan { order, ..LanePlan::default() }
}

impl Bench {
    /// One mix in every form, with the tasks' own times.
    pub(super) fn mix(
        &self,
        name: &str,
        tasks: &[(&str, i32)],
        samples: usize,
        wrong: &mut Vec<String>,
    ) -> Result<Vec<TaskRecord>> {
        let (device, main) = (&self.device, &self.main);
        let mix = Mix::new(tasks)?;
        let bound = mix.recording.bind(device, &self.module)?;
        let schedule = self.schedule(&bound);
        let serial = LanePlan::serial(0..bound.calls().len());
        let apart = uncoordinated(&bound);
        let mut entries = vec![
            Entry::peer("serial launches", Executable::lanes(device, main, bound.calls(), &serial, false)?),
            Entry::peer("serial graph", Executable::captured(device, main, bound.calls(), &serial, false)?),
            Entry::peer(
                "uncoordinated streams",
                Executable::lanes(device, main, bound.calls(), &apart, false)?,
            ),
            Entry::peer(
                "uncoordinated, captured",
                Executable::captured(device, main, bound.calls(), &apart, false)?,
            ),
        ];
        entries[0].form = Some(Form::Serial);
        for form in self.forms().filter(|&form| form != Form::Serial) {
            match bound.executable(main, &schedule, form) {
                Ok(exec) => entries.push(Entry::ours(form, exec)),
                Err(fault) => wrong.push(format!("{name}, {}: {fault}", form.name())),
            }
        }
        let mut right = Vec::new();
        for entry in entries {
            match mix.verify(&entry, &bound)? {
                Ok(()) => right.push(entry),
                Err(fault) => wrong.push(format!("{name}, {}: {fault}", entry.name)),
            }
        }
        let mut variants: Vec<_> = right.iter().map(|e| e.timed(1)).collect();
        let times = interleaved(device, &mut variants, Regime::Rested, samples, Duration::ZERO)?;
        let mut alone = Vec::new();
        for task in tasks {
            let mix = Mix::new(&[*task])?;
            let bound = mix.recording.bind(device, &self.module)?;
            alone.push((mix, bound));
        }
        let start = Start::new(self)?;
        let mut records = Vec::new();
        for (entry, times) in right.iter().zip(&times) {
            let ends = mix.ends(&start, entry, &bound)?;
            let mut alone_us = Vec::new();
            for (mix, bound) in &alone {
                let own = self.schedule(bound);
                // Streams and graphs by hand have one task to run: serial.
                let form = match (entry.form, entry.name.contains("captured") || entry.name.contains("graph"))
                {
                    (Some(form), _) => form,
                    (None, true) => Form::SerialGraph,
                    (None, false) => Form::Serial,
                };
                let exec = bound.executable(main, &own, form)?;
                alone_us.extend(mix.ends(&start, &Entry::ours(form, exec), bound)?);
            }
            records.push(TaskRecord {
                mix: name.into(),
                variant: entry.name.clone(),
                chosen: entry.form == Some(schedule.form),
                time: Summary::of(times),
                tasks: tasks.iter().zip(ends).map(|((task, _), end)| ((*task).to_owned(), end)).collect(),
                alone_us,
            });
        }
        Ok(records)
    }
}
