//! Sessions against what hosts do without them: graphs, launches, and a flag or a synchronise to learn of the end.
//!
//! Each job's time is from the host's decision to its knowledge of the end, and the next decision is taken then. Everything of one
//! size is measured in turns of [`TURN`] jobs in one process. A graph's flag is a word of page-locked memory that the stream writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Profile;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::handing::{HandedOut, HostCost, Taker, exact_items, handed_out};
use super::kinds::{TwoKinds, two_kinds};
use super::{Error, Result, percentile};
use crate::device::{Device, DeviceBuffer, Event, GraphExec, PinnedBuffer, Stream};
use crate::runtime::copilot::{Session, Settings};
use crate::runtime::{self, InputSets, Options, Overrides, Pipeline, Tensor, plan_text, shipped};

/// What to measure.
#[derive(Clone, Debug)]
pub struct CopilotArgs {
    /// Which GPU.
    pub gpu: u32,
    /// Jobs of each latency.
    pub jobs: usize,
    /// Jobs held against `fused` bit for bit, of a small pipeline; the large one has a twentieth.
    pub exact: usize,
    /// SMs that sessions leave free.
    pub free_sms: u32,
    /// Delays inside kernels that are built for them, nanoseconds at most.
    pub delays_ns: u32,
    /// Only parts whose name contains one of these: `exact`, `latency`, `items`, `handed`, `kinds`, `rows`, `ahead`,
    /// `stopped`; empty: all.
    pub only: Vec<String>,
}

impl Default for CopilotArgs {
    fn default() -> Self {
        CopilotArgs { gpu: 0, jobs: 4000, exact: 100_000, free_sms: 0, delays_ns: 0, only: Vec::new() }
    }
}

/// Jobs between two changes of who runs them.
const TURN: usize = 50;
/// Sets of weights.
const SETS: usize = 3;
/// Rows of a session's plan.
const ROWS: u32 = 64;

/// Times of jobs, microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobTimes {
    /// Median.
    pub p50_us: f64,
    /// Tenth percentile.
    pub p10_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Longest.
    pub max_us: f64,
    /// Jobs.
    pub jobs: usize,
    /// Jobs by whole microseconds.
    pub histogram: BTreeMap<u32, usize>,
}

impl JobTimes {
    pub(super) fn of(mut us: Vec<f64>) -> JobTimes {
        let mut histogram = BTreeMap::new();
        us.iter().for_each(|us| *histogram.entry(*us as u32).or_default() += 1);
        let mut at = |part| percentile(&mut us, part);
        let (p50_us, p10_us, p99_us, max_us) = (at(0.5), at(0.1), at(0.99), at(1.0));
        JobTimes { p50_us, p10_us, p99_us, max_us, jobs: us.len(), histogram }
    }
}

/// Jobs held against `fused`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExactJobs {
    /// Pipeline.
    pub pipeline: String,
    /// Jobs.
    pub jobs: usize,
    /// How many of them had a bit that differs.
    pub wrong: usize,
    /// Launches of the kernel.
    pub launches: u32,
}

/// One size, with a host decision after each job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobLatency {
    /// Pipeline.
    pub pipeline: String,
    /// Rows of each job.
    pub m: u32,
    /// The kernel of `fused` for so many rows, in a graph of twenty, microseconds a run.
    pub kernel_us: f64,
    /// Ways, by name, and their times.
    pub ways: Vec<(String, JobTimes)>,
}

/// All numbers of rows in one session, and in graphs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AllRows {
    /// Way.
    pub way: String,
    /// Times of jobs of 1 to 64 rows, drawn anew each time.
    pub times: JobTimes,
    /// Planning, memory, kernels and graphs, milliseconds.
    pub setup_ms: f64,
    /// Device memory, inputs and weights apart.
    pub bytes: u64,
}

/// Jobs that are handed over while others run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobsAhead {
    /// Pipeline.
    pub pipeline: String,
    /// Jobs that the host is ahead.
    pub ahead: u32,
    /// Microseconds a job.
    pub us: f64,
    /// The same of as many replays of a graph of one run, back to back.
    pub replay_us: f64,
}

/// What a stopped host costs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoppedHost {
    /// From the end of the last job that it had submitted until the GPU was idle, microseconds; the longest of several times.
    pub idle_after_us: f64,
    /// What a session says whose kernel stands still.
    pub unfinished: String,
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CopilotReport {
    /// GPU.
    pub device: String,
    /// Jobs held against `fused`.
    pub exact: Vec<ExactJobs>,
    /// Times of single jobs.
    pub latency: Vec<JobLatency>,
    /// All numbers of rows.
    pub rows: Vec<AllRows>,
    /// Jobs ahead.
    pub ahead: Vec<JobsAhead>,
    /// A host that stops.
    pub stopped: Option<StoppedHost>,
    /// Items of one chain kernel, handed out in four ways.
    pub handed: Vec<HandedOut>,
    /// Long jobs, and short ones that come at random.
    pub kinds: Vec<TwoKinds>,
    /// What handing them out costs a host.
    pub host: Option<HostCost>,
}

/// Two products of 512 x 512: the end is there before a launch would be.
const SMALL: &str = r#"Pipeline(name: "small", dims: { "M": 64, "H": 512 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
])"#;
/// Two products of 2048 x 2048.
const MIDDLE: &str = r#"Pipeline(name: "middle", dims: { "M": 64, "H": 2048 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
])"#;

/// A pipeline at 64 rows, and the same at others with its weights.
struct Bench<'a> {
    device: &'a Device,
    profile: Profile,
    name: &'static str,
    text: &'static str,
    inputs: InputSets,
}

impl<'a> Bench<'a> {
    fn new(device: &'a Device, args: &CopilotArgs, name: &'static str, text: &'static str) -> Result<Self> {
        let none = || Error::Argument(format!("{} has no decode kernels", device.name()));
        let whole = device.profile().filter(|p| p.arch == 90).ok_or_else(none)?;
        let profile = Profile { sms: whole.sms - args.free_sms.min(whole.sms - 1), ..whole };
        let plan = Self::planned(text, name, &profile, ROWS)?;
        let inputs = InputSets::random(plan.graph(), device, SETS, 7)?;
        Ok(Bench { device, profile, name, text, inputs })
    }

    fn planned(text: &str, name: &str, profile: &Profile, m: u32) -> Result<Plan> {
        let overrides = Overrides { dims: vec![("M".into(), m.into())], ..Overrides::default() };
        Ok(plan_text(text, name, &overrides, profile, Executor::Copilot)?)
    }

    /// The pipeline of 64 rows with all sets.
    fn pipeline(&mut self, options: Options) -> Result<Pipeline> {
        let plan = Self::planned(self.text, self.name, &self.profile, ROWS)?;
        let mut pipeline = Pipeline::with_options(&plan, self.device, options)?;
        self.inputs.bind_decode(&mut pipeline)?;
        Ok(pipeline)
    }

    /// Set 1 of another pipeline's, with the input of set 0.
    fn add_set(&self, to: &mut Pipeline, like: &Pipeline) -> Result<()> {
        let graph = to.plan().graph().clone();
        for tensor in graph.tensors.iter().filter(|t| t.producer.is_none()) {
            let (first, own) = (to.tensor(0, &tensor.name)?, like.tensor(1, &tensor.name)?);
            to.bind_in(1, &tensor.name, if first.len() == own.len() { own } else { first })?;
        }
        for stage in &graph.stages {
            if let Some(weights) = like.repacked(1, &stage.name) {
                to.bind_repacked(1, &stage.name, weights)?;
            }
        }
        Ok(to.prepare()?)
    }

    /// The pipeline of `m` rows, with the weights of another one's set 0.
    fn of_rows(&self, m: u32, like: &Pipeline) -> Result<Pipeline> {
        let plan = Self::planned(self.text, self.name, &self.profile, m)?;
        let mut pipeline = Pipeline::new(&plan, self.device)?;
        let graph = plan.graph();
        for tensor in graph.tensors.iter().filter(|t| t.producer.is_none()) {
            let whole = like.tensor(0, &tensor.name)?;
            let length = tensor.elements() as usize;
            let own = if length == whole.len() {
                whole
            } else {
                let mut bits = vec![0; length];
                whole.download_first(&mut bits)?;
                Arc::new(DeviceBuffer::from_slice(self.device, &bits, &tensor.name)?)
            };
            pipeline.bind(&tensor.name, own)?;
        }
        for stage in &graph.stages {
            if let Some(weights) = like.repacked(0, &stage.name) {
                pipeline.bind_repacked(0, &stage.name, weights)?;
            }
        }
        pipeline.prepare()?;
        Ok(pipeline)
    }
}

fn result_of(pipeline: &Pipeline) -> Result<Tensor> {
    let graph = pipeline.plan().graph();
    let name = runtime::outputs(graph).map(|id| graph.tensors[id.0].name.clone()).next();
    let name = name.ok_or_else(|| Error::Argument("a pipeline without a result".into()))?;
    Ok(pipeline.tensor(0, &name)?)
}

/// Runs jobs of random sets and rows, and looks at every bit of the rows of each, and at one behind them. With `taken` another kernel has
/// SMs whenever the session's has left, so that the next launch waits for them.
fn exact(bench: &mut Bench<'_>, jobs: usize, delays_ns: u32, taken: bool) -> Result<ExactJobs> {
    let delays = crate::device::Delays { seed: 1, limit_ns: delays_ns };
    let mut pipeline = bench.pipeline(Options { delays, ..Options::default() })?;
    let out = result_of(&pipeline)?;
    let mut want = Vec::new();
    for set in 0..SETS {
        pipeline.run_set(Executor::Fused, set)?;
        pipeline.synchronize()?;
        let mut bits = vec![0u16; out.len()];
        out.download(&mut bits)?;
        want.push(bits);
    }
    let cols = out.len() / ROWS as usize;
    let mut rng = SmallRng::seed_from_u64(3);
    let (mut wrong, mut last) = (0, SETS);
    let mut have = vec![0u16; out.len()];
    let mut behind = want[SETS - 1].clone();
    let taker = if taken { Some(Taker::new(bench.device, 300.0)?) } else { None };
    let mut session = Session::open(&mut pipeline, Settings::default())?;
    for _ in 0..jobs {
        // Another set than before: what is not written differs from what should be there.
        let set = (0..SETS).map(|_| rng.random_range(0..SETS)).find(|set| *set != last).unwrap_or(0);
        last = set;
        let m = rng.random_range(1..=ROWS);
        // Of the announcements some turn out right.
        let job = match rng.random_range(0..SETS) {
            0 => session.submit(set, m)?,
            next => session.submit_announcing(set, m, (set + next) % SETS)?,
        };
        session.wait(job)?;
        let rows = m as usize * cols;
        let look = (rows + cols).min(have.len());
        out.download_first(&mut have[..look])?;
        wrong += usize::from(have[..rows] != want[set][..rows] || have[rows..look] != behind[rows..look]);
        behind[..rows].copy_from_slice(&want[set][..rows]);
        // Now and then the kernel leaves in between.
        if rng.random_ratio(1, 500) {
            std::thread::sleep(Duration::from_micros(rng.random_range(900..1200)));
            taker.as_ref().map_or(Ok(()), Taker::take)?;
        }
    }
    let launches = session.launches();
    session.close()?;
    let beside = if taken { ", SMs taken" } else { "" };
    Ok(ExactJobs { pipeline: format!("{}{beside}", bench.name), jobs, wrong, launches })
}

/// A run, and a word that is set behind it.
struct Flagged {
    pipeline: Pipeline,
    stream: Stream,
    graph: GraphExec,
    flag: PinnedBuffer,
}

impl Flagged {
    fn new(mut pipeline: Pipeline, device: &Device) -> Result<Flagged> {
        let stream = Stream::new(device)?;
        let flag = PinnedBuffer::new(device, 1)?;
        pipeline.prepare()?;
        let graph = stream.capture::<runtime::Error>(|| {
            pipeline.run_on(Executor::Fused, &stream)?;
            Ok(stream.write_word(&flag, 0, 1)?)
        })?;
        graph.upload(&stream)?;
        stream.synchronize()?;
        Ok(Flagged { pipeline, stream, graph, flag })
    }

    fn awaited(&self) -> Result<()> {
        let begin = Instant::now();
        while self.flag.word(0) != Some(1) {
            std::hint::spin_loop();
            if begin.elapsed() > Duration::from_secs(5) {
                return Err(Error::Argument("a run was not over within 5 s".into()));
            }
        }
        Ok(())
    }

    fn replay(&self) -> Result<()> {
        self.flag.set_word(0, 0)?;
        self.graph.launch(&self.stream)?;
        self.awaited()
    }

    fn replay_and_synchronise(&self) -> Result<()> {
        self.graph.launch(&self.stream)?;
        Ok(self.stream.synchronize()?)
    }

    fn launch(&mut self) -> Result<()> {
        self.flag.set_word(0, 0)?;
        self.pipeline.run_on(Executor::Fused, &self.stream)?;
        self.stream.write_word(&self.flag, 0, 1)?;
        self.awaited()
    }

    /// The time of a run among twenty in one graph.
    fn kernel_us(&mut self, device: &Device) -> Result<f64> {
        const RUNS: usize = 20;
        let graph = self.stream.capture::<runtime::Error>(|| {
            (0..RUNS).try_for_each(|_| self.pipeline.run_on(Executor::Fused, &self.stream))
        })?;
        let (begin, end) = (Event::timing(device)?, Event::timing(device)?);
        let mut us = Vec::new();
        for _ in 0..12 {
            self.stream.record(&begin)?;
            graph.launch(&self.stream)?;
            self.stream.record(&end)?;
            end.synchronize()?;
            us.push(end.us_since(&begin)? / RUNS as f64);
        }
        Ok(percentile(&mut us[2..], 0.5))
    }
}

/// Whoever runs a job from the decision to the knowledge of its end.
type Way<'a> = (&'a str, Box<dyn FnMut() -> Result<()> + 'a>);

fn timed(ways: &mut [Way<'_>], jobs: usize) -> Result<Vec<(String, JobTimes)>> {
    let mut times = vec![Vec::with_capacity(jobs); ways.len()];
    for round in 0..jobs.div_ceil(TURN) + 1 {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            for turn in 0..TURN + 5 {
                let begin = Instant::now();
                way.1()?;
                // The first turns of each are nobody's time: others left the caches as they are.
                if round > 0 && turn >= 5 {
                    times.push(begin.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
    }
    Ok(ways.iter().zip(times).map(|((name, _), times)| ((*name).to_owned(), JobTimes::of(times))).collect())
}

fn latency(bench: &mut Bench<'_>, m: u32, jobs: usize, busy: bool) -> Result<JobLatency> {
    let pipeline = bench.pipeline(Options::default())?;
    let flagged = Flagged::new(bench.of_rows(m, &pipeline)?, bench.device)?;
    let same = Flagged::new(bench.of_rows(m, &pipeline)?, bench.device)?;
    let mut third = Flagged::new(bench.of_rows(m, &pipeline)?, bench.device)?;
    let kernel_us = third.kernel_us(bench.device)?;
    // The host's turns of the others would make it leave; that is not what is measured.
    let settings = Settings { idle: Duration::from_millis(20), ..Settings::default() };
    // Of as many rows as the graphs; the second set is there so that nothing is announced by itself.
    let mut own = bench.of_rows(m, &pipeline)?;
    bench.add_set(&mut own, &pipeline)?;
    let mut session = Session::open(&mut own, settings)?;
    let stop = AtomicBool::new(false);
    let cores = if busy { std::thread::available_parallelism().map_or(1, usize::from) } else { 0 };
    let ways = std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // One kernel of all SMs at a time: a session has to be closed before another way's turn, so it is timed by itself.
        let session = RefCell::new(&mut session);
        let job = |announced: bool| -> Result<()> {
            let mut session = session.borrow_mut();
            let job = if announced { session.submit_announcing(0, m, 0)? } else { session.submit(0, m)? };
            Ok(session.wait(job)?)
        };
        let own: &mut [Way<'_>] = &mut [
            ("copilot", Box::new(|| job(false))),
            ("copilot, next set announced", Box::new(|| job(true))),
        ];
        let others: &mut [Way<'_>] = &mut [
            ("graph, flag", Box::new(|| flagged.replay())),
            ("graph, synchronise", Box::new(|| same.replay_and_synchronise())),
            ("launch, flag", Box::new(|| third.launch())),
        ];
        let both = (|| {
            let (mut first, mut rest) = (Vec::new(), Vec::new());
            for _ in 0..4 {
                first.extend(timed(own, jobs / 4)?);
                std::thread::sleep(settings.idle * 2);
                rest.extend(timed(others, jobs / 4)?);
            }
            Ok::<_, Error>(merged(first.into_iter().chain(rest)))
        })();
        stop.store(true, Ordering::Relaxed);
        both
    })?;
    session.close()?;
    let pipeline = if busy { format!("{}, host busy", bench.name) } else { bench.name.into() };
    Ok(JobLatency { pipeline, m, kernel_us, ways })
}

/// Times of the same name as one: percentiles of the middle of the parts, and all of their histograms.
fn merged(parts: impl Iterator<Item = (String, JobTimes)>) -> Vec<(String, JobTimes)> {
    let mut all: Vec<(String, Vec<JobTimes>)> = Vec::new();
    for (name, times) in parts {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, list)) => list.push(times),
            None => all.push((name, vec![times])),
        }
    }
    let one = |list: Vec<JobTimes>| {
        let of =
            |f: fn(&JobTimes) -> f64, part| percentile(&mut list.iter().map(f).collect::<Vec<_>>(), part);
        let mut histogram = BTreeMap::new();
        for (us, count) in list.iter().flat_map(|times| &times.histogram) {
            *histogram.entry(*us).or_default() += count;
        }
        JobTimes {
            p50_us: of(|t| t.p50_us, 0.5),
            p10_us: of(|t| t.p10_us, 0.5),
            p99_us: of(|t| t.p99_us, 1.0),
            max_us: of(|t| t.max_us, 1.0),
            jobs: list.iter().map(|t| t.jobs).sum(),
            histogram,
        }
    };
    all.into_iter().map(|(name, list)| (name, one(list))).collect()
}

/// Jobs of 1 to 64 rows: one session, a graph each, and graphs of 8, 16, 32 and 64.
fn all_rows(bench: &mut Bench<'_>, jobs: usize) -> Result<Vec<AllRows>> {
    let mut found = Vec::new();
    let device = bench.device;
    let mut pipeline = bench.pipeline(Options::default())?;
    let free = || Ok::<_, Error>(device.memory()?.0);
    let draw = |seed| {
        let mut rng = SmallRng::seed_from_u64(seed);
        move || rng.random_range(1..=ROWS)
    };
    for (way, sizes) in [("a graph each", (1..=ROWS).collect::<Vec<_>>()), ("padded", vec![8, 16, 32, 64])] {
        let (before, begin) = (free()?, Instant::now());
        let graphs = sizes.iter().map(|m| Flagged::new(bench.of_rows(*m, &pipeline)?, device));
        let graphs = graphs.collect::<Result<Vec<_>>>()?;
        let (setup_ms, bytes) = (begin.elapsed().as_secs_f64() * 1e3, before.saturating_sub(free()?));
        let mut m = draw(5);
        let job = || {
            let m = m();
            graphs[sizes.partition_point(|size| *size < m)].replay()
        };
        let times = timed(&mut [(way, Box::new(job))], jobs)?.remove(0).1;
        found.push(AllRows { way: way.into(), times, setup_ms, bytes });
    }
    let (before, begin) = (free()?, Instant::now());
    // What the graphs pay too: a plan, its memory, its kernel.
    let mut own = bench.of_rows(ROWS, &pipeline)?;
    let mut session = Session::open(&mut own, Settings::default())?;
    let (setup_ms, bytes) = (begin.elapsed().as_secs_f64() * 1e3, before.saturating_sub(free()?));
    let mut m = draw(5);
    let job = || {
        let job = session.submit(0, m())?;
        Ok(session.wait(job)?)
    };
    let times = timed(&mut [("one session", Box::new(job))], jobs)?.remove(0).1;
    found.push(AllRows { way: "one session".into(), times, setup_ms, bytes });
    session.close()?;
    pipeline.synchronize()?;
    Ok(found)
}

/// Jobs that the host hands over before those before them are over.
fn ahead(bench: &mut Bench<'_>, jobs: usize) -> Result<JobsAhead> {
    const AHEAD: u32 = 8;
    let mut pipeline = bench.pipeline(Options::default())?;
    let flagged = Flagged::new(bench.of_rows(8, &pipeline)?, bench.device)?;
    let begin = Instant::now();
    for _ in 0..jobs {
        flagged.graph.launch(&flagged.stream)?;
    }
    flagged.stream.synchronize()?;
    let replay_us = begin.elapsed().as_secs_f64() * 1e6 / jobs as f64;
    let mut session = Session::open(&mut pipeline, Settings::default())?;
    let begin = Instant::now();
    let mut submitted = Vec::with_capacity(jobs);
    for number in 0..jobs {
        submitted.push(session.submit(0, 8)?);
        if let Some(before) = number.checked_sub(AHEAD as usize) {
            session.wait(submitted[before])?;
        }
    }
    submitted.last().map_or(Ok(()), |last| session.wait(*last))?;
    let us = begin.elapsed().as_secs_f64() * 1e6 / jobs as f64;
    session.close()?;
    Ok(JobsAhead { pipeline: bench.name.into(), ahead: AHEAD, us, replay_us })
}

/// A host that submits and is then gone, and a kernel that stands still: the last takes the context along.
fn stopped(bench: &mut Bench<'_>) -> Result<StoppedHost> {
    let mut pipeline = bench.pipeline(Options::default())?;
    let device = bench.device.clone();
    let mut idle_after_us = 0.0;
    for _ in 0..20 {
        let mut session = Session::open(&mut pipeline, Settings::default())?;
        for set in 0..SETS {
            session.submit(set, 1)?;
        }
        let begin = Instant::now();
        while session.unfinished() > 0 && begin.elapsed() < Duration::from_secs(1) {
            std::hint::spin_loop();
        }
        // From here on the session is not touched: nobody submits, polls or closes.
        let end = Instant::now();
        device.synchronize()?;
        idle_after_us = f64::max(idle_after_us, end.elapsed().as_secs_f64() * 1e6);
        session.close()?;
    }
    drop(pipeline);
    let mut starved =
        bench.pipeline(Options { starve: true, timeout_ns: 1_000_000, ..Options::default() })?;
    let mut session = Session::open(&mut starved, Settings::default())?;
    session.submit(0, 1)?;
    let last = session.submit(1, 2)?;
    let unfinished = session.wait(last).err().map_or_else(String::new, |e| e.to_string());
    Ok(StoppedHost { idle_after_us, unfinished })
}

/// Measures. `told` hears of each part before it begins.
pub fn bench_copilot(args: &CopilotArgs, told: &mut dyn FnMut(&str)) -> Result<CopilotReport> {
    let device = Device::open(args.gpu)?;
    let llama = shipped("llama65_mlp").ok_or_else(|| Error::Argument("llama65_mlp ships no more".into()))?;
    let mut small = Bench::new(&device, args, "small", SMALL)?;
    let mut middle = Bench::new(&device, args, "middle", MIDDLE)?;
    let mut llama = Bench::new(&device, args, "llama65_mlp", llama)?;
    let wanted = |part: &str| args.only.is_empty() || args.only.iter().any(|word| part.contains(word));
    let mut report = CopilotReport { device: device.name().into(), ..CopilotReport::default() };
    for (bench, share) in [(&mut small, 1), (&mut middle, 4), (&mut llama, 20)] {
        if wanted("exact") {
            told(&format!("exact, {}", bench.name));
            for taken in [false, true] {
                report.exact.push(exact(bench, args.exact / share, args.delays_ns, taken)?);
            }
        }
        for m in [1, 8, 32] {
            if wanted("latency") {
                told(&format!("latency, {} M={m}", bench.name));
                report.latency.push(latency(bench, m, args.jobs, false)?);
            }
        }
        if wanted("busy") {
            told(&format!("latency with a busy host, {}", bench.name));
            report.latency.push(latency(bench, 8, args.jobs, true)?);
        }
        if wanted("ahead") {
            told(&format!("ahead, {}", bench.name));
            report.ahead.push(ahead(bench, args.jobs)?);
        }
    }
    for taken in [false, true] {
        if wanted("items") {
            told("items, held against fused");
            report.exact.push(exact_items(&device, args.exact, args.delays_ns, taken)?);
        }
    }
    if wanted("handed") {
        let (handed, host) = handed_out(&device, args.jobs.min(200), told)?;
        (report.handed, report.host) = (handed, Some(host));
    }
    if wanted("kinds") {
        report.kinds = two_kinds(&device, told)?;
    }
    if wanted("rows") {
        told("rows, llama65_mlp");
        report.rows = all_rows(&mut llama, args.jobs)?;
    }
    if wanted("stopped") {
        told("stopped, small");
        report.stopped = Some(stopped(&mut small)?);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_planned_at_every_number_of_rows() {
        let h200 = Profile::named("h200").expect("it ships");
        for (name, text) in
            [("small", SMALL), ("middle", MIDDLE), ("llama65_mlp", shipped("llama65_mlp").expect("it ships"))]
        {
            for m in [1, 8, 33, ROWS] {
                let plan = Bench::planned(text, name, h200, m).expect("planned");
                assert!(plan.launch().shares().is_some() && plan.runs_as(Executor::Fused), "{name} {m}");
            }
        }
    }

    #[test]
    fn parts_of_a_measurement_become_one() {
        let part = |us: &[f64]| ("way".to_owned(), JobTimes::of(us.to_vec()));
        let all = merged([part(&[1.0, 2.0, 3.5]), part(&[5.0, 5.0, 5.0])].into_iter());
        let times = &all[0].1;
        assert_eq!((all.len(), times.jobs, times.max_us, times.p99_us), (1, 6, 5.0, 5.0));
        assert_eq!(times.histogram, [(1, 1), (2, 1), (3, 1), (5, 3)].into());
    }
}
