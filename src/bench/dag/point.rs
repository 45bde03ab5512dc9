//! One program: every variant verified, then timed against each other.

use std::sync::Arc;
use std::time::Duration;

use super::chains::fault;
use super::profile::measure_durations;
use super::report::{DagPoint, DagRecord};
use super::suite::{Case, KESCO_A100, NAMES, Size};
use super::variant::Entry;
use crate::bench::measure::{interleaved, quick};
use crate::bench::{Regime, Result, percentile};
use crate::dag::run::{Bound, Executable, GraphPlan, LanePlan, Recording};
use crate::dag::{Admit, BufferId, Costs, Dependences, Edge, Form, Options, Schedule, schedule};
use crate::device::{Device, EdgeKind, Module, Stream};
use crate::runtime::Summary;

/// Runs of a sustained sample: short programs would otherwise measure the events between samples.
const RUNS: usize = 10;
/// Programs of more kernels than this are long enough by themselves.
const LONG: usize = 100;
/// Copies of a program that fill the GPU together.
const COPIES: usize = 4;

/// Runs of one sample.
pub(super) fn runs_of(regime: Regime, kernels: usize) -> usize {
    if regime == Regime::Sustained && kernels <= LONG { RUNS } else { 1 }
}

/// What is needed to measure programs.
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) module: Module,
    pub(super) main: Arc<Stream>,
    pub(super) regimes: Vec<Regime>,
}

/// How much is measured.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Rested samples of each variant.
    pub(super) samples: usize,
    /// Of each of the two sustained visits to a variant.
    pub(super) window: Duration,
    /// Seconds of the race of our forms.
    pub(super) race: f64,
    /// Seconds of the contests of our choices with the best peers.
    pub(super) contest: f64,
}

/// Holds the words of a program's outputs against what they must be.
pub(super) type Verify = Box<dyn Fn(&[Vec<u32>]) -> std::result::Result<(), String>>;

/// A program that is about to be measured.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) class: Option<Size>,
    pub(super) size: String,
    pub(super) recording: Recording,
    pub(super) hand: Option<LanePlan>,
    pub(super) outputs: Vec<BufferId>,
    /// Whether the contents of the outputs after one run are right.
    pub(super) verify: Verify,
}

impl Subject {
    pub(super) fn of_case(case: Case, class: Size) -> Subject {
        let checks = case.checks.clone();
        Subject {
            name: case.name.into(),
            class: Some(class),
            size: case.size.clone(),
            outputs: case.outputs(),
            recording: case.recording,
            hand: Some(case.hand),
            verify: Box::new(move |outputs| {
                checks.iter().zip(outputs).try_for_each(|(check, words)| check.verify(words))
            }),
        }
    }
}

impl Bench {
    /// Forms that this GPU runs.
    pub(super) fn forms(&self) -> impl Iterator<Item = Form> + use<> {
        let early = self.device.capability().0 >= 9;
        Form::ALL.into_iter().filter(move |form| early || !form.is_programmatic())
    }

    /// The schedule of a program on this GPU.
    pub(super) fn schedule(&self, bound: &Bound) -> Schedule {
        self.schedule_with(bound, Admit::Model)
    }

    /// The same with tasks of lower priority admitted so.
    pub(super) fn schedule_with(&self, bound: &Bound, admit: Admit) -> Schedule {
        let costs = self.device.profile().map_or_else(Costs::h200, |profile| Costs::of(&profile));
        schedule(
            bound.program(),
            &Options { forms: self.forms().collect(), costs, admit, ..Options::default() },
        )
    }

    /// Measures one program. Variants with wrong results are named in `wrong` and not timed.
    pub(super) fn point(
        &self,
        subject: Subject,
        effort: Effort,
        wrong: &mut Vec<String>,
    ) -> Result<DagPoint> {
        let mut bound = subject.recording.bind(&self.device, &self.module)?;
        // Random programs have as many kernels of different lengths as they have nodes: their estimates are calibrated.
        let kernel_us = match subject.class {
            Some(_) => measure_durations(&mut bound, &self.main)?,
            None => bound.program().nodes().iter().map(|node| node.us).collect(),
        };
        let schedule = self.schedule(&bound);
        let mut entries = self.peers(&bound, &schedule.dependences, subject.hand.as_ref())?;
        for form in self.forms().filter(|&form| form != Form::Serial) {
            match bound.executable(&self.main, &schedule, form) {
                Ok(exec) => entries.push(Entry::ours(form, exec)),
                Err(fault) => wrong.push(format!("{}, {}: {fault}", subject.name, form.name())),
            }
        }
        let mut right = Vec::new();
        for entry in entries {
            bound.reset(&subject.outputs)?;
            entry.exec.launch()?;
            entry.exec.synchronize()?;
            let outputs = subject
                .outputs
                .iter()
                .map(|&b| bound.download(b))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            match (subject.verify)(&outputs) {
                Ok(()) => right.push(entry),
                Err(fault) => {
                    wrong.push(format!("{} ({}), {}: {fault}", subject.name, subject.size, entry.name))
                }
            }
        }
        let kernels = bound.program().nodes().len();
        // What runs one after the other takes about this long; what does not win takes no longer.
        let us = kernel_us.iter().sum::<f64>() + 10.0;
        let tuned = self.race(&right, kernels, us, effort.race)?.unwrap_or(schedule.form);
        let records = self.records(&right, kernels, effort)?;
        let median = |entry: &Entry, regime: Regime| {
            let found = records.iter().find(|r| r.variant == entry.name && r.regime == regime);
            found.map_or(f64::INFINITY, |r| r.time.median_us)
        };
        let choices = [tuned, schedule.form];
        let contests = self.contests(&right, &choices, kernels, us, effort.contest, &median)?;
        let saturated_us = match subject.class {
            Some(Size::Large) => Some(self.saturated_us(&subject.recording)?),
            _ => None,
        };
        let shape = |node: &crate::dag::Node| {
            node.kernel().map_or((0, 0, 0), |k| (k.launch.ctas(), k.ctas_per_sm, k.traffic_bytes))
        };
        let shapes = bound.program().nodes().iter().map(shape).collect();
        let kesco = NAMES.iter().position(|n| *n == subject.name).map(|i| KESCO_A100[i]);
        Ok(DagPoint {
            name: subject.name,
            class: subject.class,
            size: subject.size,
            kernels,
            edges: schedule.dependences.edges.len(),
            reduced_edges: schedule.dependences.reduced.len(),
            streams: schedule.chosen.streams(),
            waits: schedule.chosen.waits.len(),
            kernel_us,
            shapes,
            kesco,
            predicted: schedule.predictions.iter().map(|p| (p.form, p.us)).collect(),
            model: schedule.form,
            tuned,
            contests,
            critical_us: schedule.times.critical_us(),
            saturated_us,
            records,
        })
    }

    /// What a user would run: serial code as it is and captured; the same with streams by hand, as a graph by hand, and
    /// captured.
    fn peers(&self, bound: &Bound, dependences: &Dependences, hand: Option<&LanePlan>) -> Result<Vec<Entry>> {
        let (device, main, calls) = (&self.device, &self.main, bound.calls());
        let serial = LanePlan::serial(0..calls.len());
        let mut peers = vec![
            Entry::peer("serial launches", Executable::lanes(device, main, calls, &serial, false)?),
            Entry::peer("serial graph", Executable::captured(device, main, calls, &serial, false)?),
        ];
        // Serial launches are also one of our forms: what the schedule falls back to.
        peers[0].form = Some(Form::Serial);
        if let Some(hand) = hand {
            let lanes = Executable::lanes(device, main, calls, hand, false)?;
            peers.push(Entry::peer("streams by hand", lanes));
            let graph = Executable::graph(device, main, calls, &graph_by_hand(hand))?;
            peers.push(Entry::peer("branch graph by hand", graph));
            let captured = Executable::captured(device, main, calls, hand, false)?;
            peers.push(Entry::peer("captured streams", captured));
        } else {
            // Nobody writes a random program by hand: every dependence is an edge, as a simple tool would have it.
            let edge = |e: &Edge| (e.before.index(), e.after.index(), EdgeKind::Full);
            let edges = dependences.edges.iter().map(edge).collect();
            let plan = GraphPlan { order: (0..calls.len()).collect(), edges, priorities: Vec::new() };
            peers.push(Entry::peer("branch graph by hand", Executable::graph(device, main, calls, &plan)?));
        }
        Ok(peers)
    }

    /// What one more independent copy of a program adds to copies that run together, microseconds.
    fn saturated_us(&self, recording: &Recording) -> Result<f64> {
        let mut us = [0.0; 2];
        for (copies, us) in [1, COPIES].into_iter().zip(&mut us) {
            let mut together = Recording::new("copies");
            for _ in 0..copies {
                together.append(recording, 0).map_err(fault)?;
            }
            let bound = together.bind(&self.device, &self.module)?;
            let exec = bound.executable(&self.main, &self.schedule(&bound), Form::BranchGraph)?;
            *us = quick(&self.device, Entry::ours(Form::BranchGraph, exec).timed(1).as_mut(), 15)?;
        }
        Ok((us[1] - us[0]) / (COPIES - 1) as f64)
    }

    /// Every entry against the first, in every regime.
    fn records(&self, entries: &[Entry], kernels: usize, effort: Effort) -> Result<Vec<DagRecord>> {
        let mut records = Vec::new();
        if entries.is_empty() {
            return Ok(records);
        }
        let hosts = entries.iter().map(|e| e.host_us(15)).collect::<Result<Vec<_>>>()?;
        for &regime in &self.regimes {
            let runs = runs_of(regime, kernels);
            let mut variants: Vec<_> = entries.iter().map(|e| e.timed(runs)).collect();
            let times = interleaved(&self.device, &mut variants, regime, effort.samples, effort.window)?;
            let each = |times: &Vec<f64>| times.iter().map(|t| t / runs as f64).collect::<Vec<f64>>();
            let times: Vec<Vec<f64>> = times.iter().map(each).collect();
            let serial = percentile(&mut times[0].clone(), 0.5);
            for ((entry, times), host_us) in entries.iter().zip(&times).zip(&hosts) {
                let time = Summary::of(times);
                let speedup = serial / time.median_us;
                records.push(DagRecord {
                    variant: entry.name.clone(),
                    peer: entry.peer,
                    form: entry.form,
                    regime,
                    time,
                    speedup,
                    host_us: *host_us,
                });
            }
        }
        Ok(records)
    }
}

/// The graph whose edges are the order of the lanes and the waits between them.
fn graph_by_hand(hand: &LanePlan) -> GraphPlan {
    let mut last = std::collections::HashMap::new();
    let mut edges: Vec<_> =
        hand.waits.iter().map(|&(before, after)| (before, after, EdgeKind::Full)).collect();
    for &(node, lane) in &hand.order {
        edges.extend(last.insert(lane, node).map(|before| (before, node, EdgeKind::Full)));
    }
    GraphPlan { order: hand.order.iter().map(|&(node, _)| node).collect(), edges, priorities: Vec::new() }
}
