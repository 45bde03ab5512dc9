//! Chains of dependent kernels: measures how long the GPU idles between kernels.

use std::rc::Rc;
use std::time::Duration;

use cusync_dag::{BufferId, Form, KernelSchedule, Refine, Refinement, StreamPlan, refine};
use cusync_gen::device::DEVICES;

use super::point::{Bench, fault};
use super::random::{SpinProgram, SpinRecording};
use super::report::ChainRecord;
use super::variant::Entry;
use crate::{Error, Regime, Result, percentile};
use cusync::measure::{interleaved, quick};
use cusync::programs::BoundRecording;
use cusync::runtime::Summary;

/// Number of kernels in a chain.
const KERNELS: usize = 100;

impl Bench {
    /// Duration of one round of a spin kernel, nanoseconds.
    pub(super) fn ns_per_round(&self) -> Result<f64> {
        let rounds = [2_000, 12_000];
        let mut us = [0.0; 2];
        for (rounds, us) in rounds.into_iter().zip(&mut us) {
            let recorded =
                SpinProgram::chain(1, 1, rounds).record("calibration", 1.0, false).map_err(fault)?;
            let bound = BoundRecording::new(&recorded.recording, &self.device, &self.module)?;
            let exec = bound.executable(&self.main, &self.schedule(&bound)?, Form::SERIAL)?;
            let entry = Entry::ours(Form::SERIAL, exec);
            // Warm up: clocks are up when programs run.
            for _ in 0..200 {
                entry.exec.launch()?;
            }
            *us = quick(&self.device, entry.timed(8).as_mut(), 9)? / 8.0;
        }
        Ok((us[1] - us[0]) * 1e3 / f64::from(rounds[1] - rounds[0]))
    }

    /// Measures a chain with every way of running it.
    pub(super) fn chain(
        &self,
        shape: ChainShape,
        ns_per_round: f64,
        samples: usize,
        wrong: &mut Vec<String>,
    ) -> Result<Vec<ChainRecord>> {
        // Loads, stores and the stamps take about a microsecond of each kernel.
        let rounds = |us: f64| (us.max(0.0) * 1e3 / ns_per_round) as u32;
        let even = SpinProgram::chain(KERNELS, shape.ctas, rounds((shape.us - 1.0).max(0.2)));
        let program = even.uneven(rounds(shape.uneven_us), shape.shift);
        let mut ways = Vec::new();
        if shape.is_even() {
            let recorded = program.record("chain", ns_per_round, true).map_err(fault)?;
            self.kernels_wait(&mut ways, Subject::bind(self, recorded)?, "")?;
        }
        let recorded = program.record_tiled("chain", ns_per_round, true).map_err(fault)?;
        let subject = Subject::bind(self, recorded)?;
        if self.device.capability().0 >= 9 {
            self.tiles_wait(&mut ways, subject.clone())?;
        }
        self.kernels_wait(&mut ways, subject.clone(), ", early prologue")?;
        let bounds = bounds_us(&subject, &program, ns_per_round);

        let want = program.expected(1);
        let mut wrong_in = |candidate: &Way, when: &str| {
            let right = candidate.runs_right(&want)?;
            if !right {
                wrong.push(format!("{}, {}: the arena differs {when}", shape.name(), candidate.entry.name));
            }
            Ok::<_, Error>(right)
        };
        let mut right = Vec::new();
        for candidate in ways {
            if wrong_in(&candidate, "before it was timed")? {
                let stamps = stamps(&candidate)?;
                right.push((candidate, stamps));
            }
        }
        let mut variants: Vec<_> = right.iter().map(|(candidate, _)| candidate.entry.timed(1)).collect();
        let times = interleaved(&self.device, &mut variants, Regime::Rested, samples, Duration::ZERO)?;
        let mut records = Vec::new();
        for ((candidate, (body_us, idle_us)), times) in right.into_iter().zip(&times) {
            if !wrong_in(&candidate, "after it was timed")? {
                continue;
            }
            let time = Summary::from_times(times);
            records.push(ChainRecord {
                kernels: KERNELS,
                ctas: shape.ctas,
                target_us: shape.us,
                uneven_us: shape.uneven_us,
                neighbours: shape.shift > 0,
                ours: !candidate.entry.peer,
                chosen: candidate.chosen,
                body_us,
                variant: candidate.entry.name.clone(),
                time,
                idle_us,
                overhead_us: time.median_us / KERNELS as f64 - body_us,
                bounds_us: bounds,
            });
        }
        Ok(records)
    }

    /// Kernels that wait for kernels: the options available to users today, and our choice among the forms
    /// without refinement.
    fn kernels_wait(&self, ways: &mut Vec<Way>, subject: Subject, kind: &str) -> Result<()> {
        let serial = StreamPlan::serial(0..KERNELS);
        let mut peer = |name: &str, plan: StreamPlan| {
            let entry =
                Entry::peer(&format!("{name}{kind}"), subject.bound.calls().planned(&self.main, plan)?);
            ways.push(Way { entry, subject: subject.clone(), chosen: false });
            Ok::<_, Error>(())
        };
        if kind.is_empty() {
            peer("one stream", serial.clone())?;
        }
        peer("plain graph", serial.clone().captured())?;
        if self.device.capability().0 >= 9 {
            let early = serial.programmatic();
            if kind.is_empty() {
                peer("one stream, programmatic", early.clone())?;
            }
            peer("captured programmatic graph", early.captured())?;
        }
        if kind.is_empty() {
            let exec = subject.bound.executable(&self.main, &subject.schedule, subject.schedule.form)?;
            let entry = Entry::ours(subject.schedule.form, exec);
            ways.push(Way { entry, subject, chosen: false });
        }
        Ok(())
    }

    /// Kernels that can wait for tiles: unchanged, with an early trigger, and with tiles that wait for tiles.
    fn tiles_wait(&self, ways: &mut Vec<Way>, subject: Subject) -> Result<()> {
        let (program, schedule) = (subject.bound.program(), &subject.schedule);
        let refined = |which| refine(program, &schedule.dependences, &DEVICES[0], which);
        let early = refined(Refine::Everywhere);
        let mut late = early.clone();
        late.nodes.iter_mut().for_each(|node| node.early = false);
        let chosen = schedule.form.is_programmatic().then_some(&schedule.refinement);
        for (name, refinement) in [
            ("early prologue", Refinement::default()),
            ("early trigger", refined(Refine::EarlyOnly)),
            ("tiles", late),
            ("tiles, early trigger", early),
        ] {
            // A chain has one edge into each kernel, all of them programmatic.
            let form = Form::BRANCH_PROGRAMMATIC;
            let proved = refinement.clone().prove(program).map_err(cusync::programs::Error::from)?;
            let exec = subject.bound.refined(&proved)?.scheduled(&self.main, schedule, form)?;
            let entry = Entry { name: format!("ours: {name}"), ..Entry::ours(form, exec) };
            let same = |chosen: &Refinement| match refinement.is_empty() {
                true => chosen.is_empty(),
                false => chosen.nodes == refinement.nodes,
            };
            ways.push(Way { entry, subject: subject.clone(), chosen: chosen.is_some_and(same) });
        }
        Ok(())
    }
}

/// Shape of a measured chain: kernels of `ctas` CTAs of about `us` microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainShape {
    pub(super) us: f64,
    pub(super) ctas: u32,
    /// Maximum additional time of a CTA.
    pub(super) uneven_us: f64,
    /// Distance in words to the neighbor's result that each word needs; 0: only one other CTA's results are
    /// needed.
    pub(super) shift: usize,
}

impl ChainShape {
    /// The measured shapes.
    pub(super) const ALL: [ChainShape; 9] = [
        ChainShape { us: 2.0, ctas: 132, uneven_us: 0.0, shift: 0 },
        ChainShape { us: 2.0, ctas: 16, uneven_us: 0.0, shift: 0 },
        ChainShape { us: 5.0, ctas: 132, uneven_us: 0.0, shift: 0 },
        ChainShape { us: 5.0, ctas: 16, uneven_us: 0.0, shift: 0 },
        ChainShape { us: 1.0, ctas: 132, uneven_us: 0.0, shift: 0 },
        ChainShape { us: 2.0, ctas: 132, uneven_us: 3.0, shift: 0 },
        ChainShape { us: 2.0, ctas: 16, uneven_us: 3.0, shift: 0 },
        ChainShape { us: 2.0, ctas: 132, uneven_us: 3.0, shift: 64 },
        ChainShape { us: 2.0, ctas: 16, uneven_us: 3.0, shift: 64 },
    ];

    fn is_even(&self) -> bool {
        self.uneven_us == 0.0 && self.shift == 0
    }

    /// Name among the parts of the benchmark.
    pub(super) fn name(&self) -> String {
        let uneven =
            if self.uneven_us > 0.0 { format!(" to {}", self.us + self.uneven_us) } else { String::new() };
        let neighbours = if self.shift > 0 { ", neighbours" } else { "" };
        format!("chains of {}{uneven} us, {} CTAs{neighbours}", self.us, self.ctas)
    }
}

/// A recorded chain with its memory.
#[derive(Clone)]
struct Subject {
    bound: Rc<BoundRecording>,
    schedule: Rc<KernelSchedule>,
    arena: BufferId,
    stamps: BufferId,
}

impl Subject {
    fn bind(bench: &Bench, recorded: SpinRecording) -> Result<Subject> {
        let bound = BoundRecording::new(&recorded.recording, &bench.device, &bench.module)?;
        let schedule = Rc::new(bench.schedule(&bound)?);
        Ok(Subject { bound: Rc::new(bound), schedule, arena: recorded.arena, stamps: recorded.stamps })
    }
}

/// A way of running a chain.
struct Way {
    entry: Entry,
    subject: Subject,
    chosen: bool,
}

impl Way {
    fn runs_right(&self, want: &[u32]) -> Result<bool> {
        self.subject.bound.reset(&[])?;
        self.entry.exec.launch()?;
        self.entry.exec.synchronize()?;
        Ok(self.subject.bound.download(self.subject.arena)? == want)
    }
}

/// Duration of the arithmetic alone, microseconds per chain: if kernels wait for kernels, and if tiles wait
/// for tiles.
fn bounds_us(subject: &Subject, program: &SpinProgram, ns_per_round: f64) -> [f64; 2] {
    let recorded = subject.bound.program();
    let refinement = refine(recorded, &subject.schedule.dependences, &DEVICES[0], Refine::Everywhere);
    let (mut kernels, mut before): (u64, Vec<u64>) = (0, Vec::new());
    for (node, sync) in refinement.nodes.iter().enumerate() {
        let rounds = |cta: usize| u64::from(program.rounds(node, cta as u32));
        let ctas = recorded.nodes()[node].kernel().map_or(0, |k| k.launch.ctas() as usize);
        kernels += (0..ctas).map(rounds).max().unwrap_or(0);
        let first = |cta: usize| match &sync.waits {
            // In a chain these are all CTAs of the previous kernel.
            Some(waits) => waits[cta].iter().filter_map(|tile| before.get(tile.cta as usize)).max(),
            None => before.iter().max(),
        };
        before = (0..ctas).map(|cta| first(cta).copied().unwrap_or(0) + rounds(cta)).collect();
    }
    [kernels, before.into_iter().max().unwrap_or(0)].map(|rounds| rounds as f64 * ns_per_round / 1e3)
}

/// Median duration of a kernel's first CTA, and mean time between two, microseconds.
fn stamps(candidate: &Way) -> Result<(f64, f64)> {
    let (mut bodies, mut gaps) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        candidate.entry.exec.launch()?;
        candidate.entry.exec.synchronize()?;
        let stamps = nanoseconds(&candidate.subject.bound.download(candidate.subject.stamps)?);
        let (first, last) = (stamps[1], stamps[2 * KERNELS - 2]);
        let body: f64 = stamps.chunks(2).map(|s| s[1].saturating_sub(s[0]) as f64).sum();
        bodies.push(body / KERNELS as f64 / 1e3);
        let inside: f64 =
            stamps[2..2 * KERNELS - 2].chunks(2).map(|s| s[1].saturating_sub(s[0]) as f64).sum();
        gaps.push((last.saturating_sub(first) as f64 - inside) / (KERNELS - 1) as f64 / 1e3);
    }
    Ok((percentile(&mut bodies, 0.5), percentile(&mut gaps, 0.5)))
}

/// 64-bit words from pairs of 32-bit words.
pub(super) fn nanoseconds(words: &[u32]) -> Vec<u64> {
    words.chunks_exact(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect()
}
