//! One program: every variant is verified, then timed against the others.

use std::sync::Arc;
use std::time::Duration;

use cusync_dag::{
    Admit, BufferId, Dependences, Form, GraphPlan, KernelSchedule, LaunchPlan, NodeDependence, Recording,
    ScheduleOptions, StreamPlan, schedule,
};
use cusync_gen::device::DEVICES;

use super::profile::measure_durations;
use super::report::{DagPoint, DagRecord, NodeShape};
use super::suite::{Case, KESCO_A100, NAMES, SizeClass};
use super::variant::Entry;
use crate::{Error, Regime, Result, percentile};
use cusync::device::{Device, Module, Stream};
use cusync::measure::{interleaved, quick};
use cusync::programs::BoundRecording;
use cusync::runtime::Summary;

/// Runs of a sustained sample: short programs would otherwise measure the events between samples.
const RUNS: usize = 10;
/// Programs with more kernels than this are long enough by themselves.
const LONG: usize = 100;
/// Number of program copies that fill the GPU together.
const COPIES: usize = 4;

/// Runs of one sample.
pub(super) fn runs_of(regime: Regime, kernels: usize) -> usize {
    if regime == Regime::Sustained && kernels <= LONG { RUNS } else { 1 }
}

/// Environment for measuring programs.
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) module: Module,
    pub(super) main: Arc<Stream>,
    pub(super) regimes: Vec<Regime>,
}

/// Amount of measurement.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Rested samples of each variant.
    pub(super) samples: usize,
    /// Duration of each of the two sustained visits to a variant.
    pub(super) window: Duration,
    /// Seconds for the race of our forms.
    pub(super) race: f64,
    /// Seconds for the contests of our choices against the best peers.
    pub(super) contest: f64,
}

/// Compares the words of a program's outputs with the expected ones.
pub(super) type Verify = Box<dyn Fn(&[Vec<u32>]) -> std::result::Result<(), String>>;

/// A program to be measured.
pub(super) struct BenchProgram {
    pub(super) name: String,
    pub(super) class: Option<SizeClass>,
    pub(super) size: String,
    pub(super) recording: Recording,
    pub(super) hand: Option<StreamPlan>,
    pub(super) outputs: Vec<BufferId>,
    /// Checks the contents of the outputs after one run.
    pub(super) verify: Verify,
}

impl BenchProgram {
    pub(super) fn of_case(case: Case, class: SizeClass) -> BenchProgram {
        let checks = case.checks.clone();
        BenchProgram {
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
    /// Forms that this GPU supports.
    pub(super) fn forms(&self) -> impl Iterator<Item = Form> + use<> {
        let early = self.device.capability().0 >= 9;
        Form::ALL.into_iter().filter(move |form| early || !form.is_programmatic())
    }

    /// Schedule of a program on this GPU.
    pub(super) fn schedule(&self, bound: &BoundRecording) -> Result<KernelSchedule> {
        self.schedule_with(bound, Admit::Model)
    }

    /// Schedule of a program with the given admission of lower-priority tasks.
    pub(super) fn schedule_with(&self, bound: &BoundRecording, admit: Admit) -> Result<KernelSchedule> {
        let device = self.device.profile().unwrap_or_else(|| DEVICES[0].clone());
        let forms = self.forms().collect();
        let options = ScheduleOptions { forms, device, admit, ..ScheduleOptions::default() };
        schedule(bound.program(), &options).map_err(fault)
    }

    /// Measures one program. Variants with wrong results are named in `wrong` and not timed.
    pub(super) fn point(
        &self,
        subject: BenchProgram,
        effort: Effort,
        wrong: &mut Vec<String>,
    ) -> Result<DagPoint> {
        let mut bound = BoundRecording::new(&subject.recording, &self.device, &self.module)?;
        // Random programs have as many different kernels as nodes, so their estimates are calibrated instead
        // of measured.
        let kernel_us = match subject.class {
            Some(_) => measure_durations(&mut bound, &self.main)?,
            None => bound.program().nodes().iter().map(|node| node.us).collect(),
        };
        let schedule = self.schedule(&bound)?;
        let mut entries = self.peers(&bound, &schedule.dependences, subject.hand.as_ref())?;
        for form in self.forms().filter(|&form| form != Form::SERIAL) {
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
        // Serial execution takes about this long; no variant worth measuring takes longer.
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
            Some(SizeClass::Large) => Some(self.saturated_us(&subject.recording)?),
            _ => None,
        };
        let shape = |node: &cusync_dag::Node| {
            node.kernel().map_or_else(NodeShape::default, |k| NodeShape {
                ctas: k.launch.ctas(),
                ctas_per_sm: k.ctas_per_sm,
                traffic_bytes: k.traffic_bytes,
            })
        };
        let shapes = bound.program().nodes().iter().map(shape).collect();
        let kesco = NAMES.iter().position(|n| *n == subject.name).map(|i| KESCO_A100[i]);
        Ok(DagPoint {
            name: subject.name,
            class: subject.class,
            size: subject.size,
            kernels,
            edges: schedule.dependences.edges.len(),
            reduced_edges: schedule.dependences.reduced_edges().count(),
            streams: schedule.chosen.streams(),
            waits: schedule.chosen.wait_count(),
            kernel_us,
            shapes,
            kesco,
            predicted: schedule.predictions.iter().map(|p| (p.form.id().into(), p.us)).collect(),
            model: schedule.form.id().into(),
            tuned: tuned.id().into(),
            contests,
            critical_us: schedule.times.critical_us(),
            saturated_us,
            records,
        })
    }

    /// Realistic alternatives: serial code as is and captured; the same with hand-written streams, as a
    /// hand-written graph, and captured.
    fn peers(
        &self,
        bound: &BoundRecording,
        dependences: &Dependences,
        hand: Option<&StreamPlan>,
    ) -> Result<Vec<Entry>> {
        let nodes = bound.program().nodes().len();
        let peer = |name: &str, plan: LaunchPlan| {
            Ok::<_, Error>(Entry::peer(name, bound.calls().planned(&self.main, plan)?))
        };
        let serial = StreamPlan::serial(0..nodes);
        let mut peers = vec![
            peer("serial launches", serial.clone().into())?,
            peer("serial graph", serial.captured().into())?,
        ];
        // Serial launches are also one of our forms: the fallback of the schedule.
        peers[0].form = Some(Form::SERIAL);
        if let Some(hand) = hand {
            peers.push(peer("streams by hand", hand.clone().into())?);
            peers.push(peer("branch graph by hand", GraphPlan::from(hand).into())?);
            peers.push(peer("captured streams", hand.clone().captured().into())?);
        } else {
            // Random programs have no hand-written version: every dependence becomes an edge, as in a simple
            // tool.
            let edge = |e: NodeDependence| (e.before.index(), e.after.index(), false);
            let edges = dependences.edges.iter().map(edge).collect();
            let plan = GraphPlan { order: (0..nodes).collect(), edges, ..GraphPlan::default() };
            peers.push(peer("branch graph by hand", plan.into())?);
        }
        Ok(peers)
    }

    /// Time that one more independent copy of a program adds to copies that run together, microseconds.
    fn saturated_us(&self, recording: &Recording) -> Result<f64> {
        let mut us = [0.0; 2];
        for (copies, us) in [1, COPIES].into_iter().zip(&mut us) {
            let mut together = Recording::new("copies").built_for_programmatic_edges();
            for _ in 0..copies {
                together.append(recording, 0).map_err(fault)?;
            }
            let bound = BoundRecording::new(&together, &self.device, &self.module)?;
            let exec = bound.executable(&self.main, &self.schedule(&bound)?, Form::BRANCH_GRAPH)?;
            *us = quick(&self.device, Entry::ours(Form::BRANCH_GRAPH, exec).timed(1).as_mut(), 15)?;
        }
        Ok((us[1] - us[0]) / (COPIES - 1) as f64)
    }

    /// Records of all entries relative to the first, in every regime.
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
                let time = Summary::from_times(times);
                let speedup = serial / time.median_us;
                records.push(DagRecord {
                    variant: entry.name.clone(),
                    peer: entry.peer,
                    form: entry.form.map(|form| form.id().into()),
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

pub(super) fn fault(error: cusync_dag::DagError) -> Error {
    Error::Argument(error.to_string())
}
