//! Measures kernel-level scheduling: the suite, random programs, chains, and tasks with different priorities.
//!
//! Peers are the alternatives available to users: serial launches, a captured serial stream, hand-written
//! streams and events, a hand-written graph, and the hand-written streams captured. Ours are the forms of one
//! distribution. Outputs are verified before timing, and all variants of one program are interleaved in one
//! process, in the two regimes of [`super`]: a rested sample is one run after 3 ms of idle time, a sustained
//! one ten runs back to back.
//!
//! ```
//! use cusync_bench::dag::SpinProgram;
//!
//! let chain = SpinProgram::chain(3, 4, 10).record_tiled("chain", 8.0, false)?;
//! assert_eq!(chain.recording.program().nodes().len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chains;
mod exact;
mod gates;
mod point;
mod profile;
mod race;
mod random;
mod report;
pub mod suite;
mod table;
mod tasks;
mod variant;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use random::{SpinProgram, SpinRecording};
pub use report::{
    ChainRecord, Contest, DagPoint, DagRecord, DagReport, ExactRecord, GateRecord, NodeShape, TaskRecord,
};
pub use table::{Table, tables};

use self::chains::ChainShape;
use self::point::{Bench, BenchProgram, Effort, fault};
use self::suite::{NAMES, SizeClass, WITH_COPIES};
use super::{Regime, Result};
use cusync::device::{Device, Module, Stream};

/// Arguments of the benchmark.
#[derive(Clone, Debug)]
pub struct DagArgs {
    /// Index of the GPU.
    pub gpu: u32,
    /// Regimes of the suite and of random programs.
    pub regimes: Vec<Regime>,
    /// Time limit; parts that do not fit are listed.
    pub seconds: f64,
    /// Only parts whose name contains one of these, such as `VEC`, `small`, `chains`, `random`, `MP`,
    /// `exact`; empty: all.
    pub only: Vec<String>,
    /// Excludes parts whose name contains one of these.
    pub without: Vec<String>,
    /// Number of random programs to compare with the host bit by bit.
    pub exact_programs: usize,
}

impl Default for DagArgs {
    fn default() -> Self {
        DagArgs {
            gpu: 0,
            regimes: vec![Regime::Rested, Regime::Sustained],
            seconds: 150.0,
            only: Vec::new(),
            without: Vec::new(),
            exact_programs: 1000,
        }
    }
}

/// A part of the benchmark.
#[derive(Clone, Copy)]
enum Part {
    Exact,
    Case(&'static str, SizeClass),
    Copies(&'static str, SizeClass),
    Chain(ChainShape),
    Random { kernels: usize, width: usize },
    Mix(&'static str, &'static [(&'static str, i32)]),
}

impl Part {
    fn name(self) -> String {
        match self {
            Part::Exact => "exact".into(),
            Part::Case(name, SizeClass::Small) => format!("{name} small"),
            Part::Case(name, SizeClass::Large) => format!("{name} large"),
            Part::Copies(name, size) => format!("{} with copies", Part::Case(name, size).name()),
            Part::Chain(shape) => shape.name(),
            Part::Random { kernels, width } => format!("random {kernels} kernels, width {width}"),
            Part::Mix(name, _) => name.into(),
        }
    }

    /// All parts, the most informative first, with their fraction of the time.
    fn all() -> Vec<(Part, f64)> {
        let mut parts: Vec<(Part, f64)> =
            NAMES.iter().map(|n| (Part::Case(n, SizeClass::Small), 1.0)).collect();
        parts.extend(ChainShape::ALL.map(|shape| (Part::Chain(shape), 0.4)));
        parts.extend(tasks::MIXES.map(|(name, tasks)| (Part::Mix(name, tasks), 1.0)));
        let random = [(10, 3), (50, 6), (200, 12), (1000, 8)];
        parts.extend(random.map(|(kernels, width)| (Part::Random { kernels, width }, 1.0)));
        parts.push((Part::Exact, 4.0));
        parts.extend(NAMES.iter().map(|n| (Part::Case(n, SizeClass::Large), 1.0)));
        parts.extend(WITH_COPIES.iter().map(|n| (Part::Copies(n, SizeClass::Small), 0.5)));
        parts
    }
}

/// Runs the benchmark. Calls `said` with every part before it begins, and with the report after it.
pub fn bench_dag(args: &DagArgs, said: &mut dyn FnMut(&str, &DagReport)) -> Result<DagReport> {
    let began = Instant::now();
    let device = Device::open(args.gpu)?;
    let bench = Bench {
        module: Module::suite(&device)?,
        main: Arc::new(Stream::new(&device)?),
        regimes: args.regimes.clone(),
        device,
    };
    let mut report = DagReport {
        device: bench.device.name().into(),
        points: Vec::new(),
        chains: Vec::new(),
        tasks: Vec::new(),
        gates: Vec::new(),
        exact: None,
        skipped: Vec::new(),
        wrong: Vec::new(),
    };
    let ns_per_round = bench.ns_per_round()?;
    let named = |list: &[String], name: &str| list.iter().any(|word| name.contains(word.as_str()));
    let mut parts = Part::all();
    parts.retain(|(part, _)| {
        let name = part.name();
        (args.only.is_empty() || named(&args.only, &name)) && !named(&args.without, &name)
    });
    let mut weight: f64 = parts.iter().map(|p| p.1).sum();
    for (part, share) in parts {
        let left = args.seconds - began.elapsed().as_secs_f64();
        let budget = left * share / weight;
        weight -= share;
        // Below this, there would be too few samples.
        if budget < 0.4 * share {
            report.skipped.push(format!("{}: the time limit", part.name()));
            continue;
        }
        said(&part.name(), &report);
        let mut wrong = std::mem::take(&mut report.wrong);
        let done = bench.part(part, budget, ns_per_round, args, &mut report, &mut wrong);
        report.wrong = wrong;
        done?;
    }
    said("done", &report);
    Ok(report)
}

impl Bench {
    fn part(
        &self,
        part: Part,
        budget: f64,
        ns_per_round: f64,
        args: &DagArgs,
        report: &mut DagReport,
        wrong: &mut Vec<String>,
    ) -> Result<()> {
        // About eighteen variants; a rested sample takes 3.4 ms each.
        let effort = Effort {
            samples: (0.2 * budget / (18.0 * 3.4e-3)).clamp(7.0, 61.0) as usize,
            window: Duration::from_secs_f64((0.1 * budget / 36.0).clamp(5e-3, 50e-3)),
            race: 0.25 * budget,
            contest: 0.3 * budget,
        };
        match part {
            Part::Case(name, size) => {
                if let Some(case) = suite::case(name, size) {
                    let subject = BenchProgram::of_case(case.map_err(fault)?, size);
                    report.points.push(self.point(subject, effort, wrong)?);
                }
            }
            Part::Copies(name, size) => {
                if let Some(case) = suite::case_with_copies(name, size) {
                    let mut subject = BenchProgram::of_case(case.map_err(fault)?, size);
                    subject.name.push_str(" with copies");
                    report.points.push(self.point(subject, effort, wrong)?);
                }
            }
            Part::Random { kernels, width } => {
                // Kernels of 1.5 to 20 us on 16 CTAs: eight of them fill the GPU.
                let rounds = (0.2e3 / ns_per_round) as u32..(18.5e3 / ns_per_round) as u32;
                let program = SpinProgram::strands(kernels as u64, kernels, width, 16, rounds);
                let recorded = program.record("random", ns_per_round, false).map_err(fault)?;
                let want = program.expected(1);
                let subject = BenchProgram {
                    name: part.name(),
                    class: None,
                    size: "kernels of 1.5 to 20 us, 16 CTAs".into(),
                    outputs: vec![recorded.arena],
                    recording: recorded.recording,
                    hand: None,
                    verify: Box::new(move |outputs| match outputs.first() == Some(&want) {
                        true => Ok(()),
                        false => Err("the arena differs".into()),
                    }),
                };
                report.points.push(self.point(subject, effort, wrong)?);
            }
            Part::Chain(shape) => {
                report.chains.extend(self.chain(shape, ns_per_round, effort.samples, wrong)?);
            }
            Part::Mix(name, tasks) => {
                let (records, gates) = self.mix(name, tasks, budget, wrong)?;
                report.tasks.extend(records);
                report.gates.extend(gates);
            }
            Part::Exact => {
                let until = Instant::now() + Duration::from_secs_f64(budget.max(1.0) * 2.0);
                let record = self.exact(args.exact_programs, &mut || Instant::now() < until)?;
                wrong.extend(record.wrong.iter().map(|w| format!("random programs with delays: {w}")));
                report.exact = Some(record);
            }
        }
        Ok(())
    }
}
