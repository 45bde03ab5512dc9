//! Sessions of decode kernels compared with hosts that do not use them: graphs or launches, with a flag or a
//! synchronization to detect the end. The host decides on the next job after it has seen the end of the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Profile;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::super::{Error, Result, percentile};
use super::turns::{Flagged, JobTimes, Turns};
use super::{CopilotArgs, chains_of};
use cusync::device::{Device, DeviceBuffer, Event, Stream};
use cusync::runtime::copilot::{JobSession, Settings};
use cusync::runtime::{self, InputSets, Options, Overrides, Pipeline, plan_text};

/// Turns for `jobs` jobs.
fn turns(jobs: usize) -> Turns {
    const TURN: usize = 50;
    Turns { rounds: jobs.div_ceil(TURN), jobs: TURN, untimed: 5 }
}

/// Sets of weights.
pub(super) const SETS: usize = 3;
/// Rows of a session's plan.
pub(super) const ROWS: u32 = 64;

/// One size, with a host decision after each job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobLatency {
    /// Pipeline.
    pub pipeline: String,
    /// Rows per job.
    pub m: u32,
    /// Time of the `fused` kernel for `m` rows, in a graph of twenty runs, microseconds per run.
    pub kernel_us: f64,
    /// Names of the ways, and their times.
    pub ways: Vec<(String, JobTimes)>,
}

/// All row counts in one session, and in graphs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AllRows {
    /// Way.
    pub way: String,
    /// Times of jobs of 1 to 64 rows, drawn at random each time.
    pub times: JobTimes,
    /// Planning, memory, kernels and graphs, milliseconds.
    pub setup_ms: f64,
    /// Device memory, without inputs and weights.
    pub bytes: u64,
}

/// Jobs submitted while others run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobsAhead {
    /// Pipeline.
    pub pipeline: String,
    /// Number of jobs that the host is ahead.
    pub ahead: u32,
    /// Microseconds per job.
    pub us: f64,
    /// Microseconds per replay for the same number of back-to-back replays of a single-run graph.
    pub replay_us: f64,
}

/// Cost of a stopped host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoppedHost {
    /// From the end of its last submitted job until the GPU was idle, microseconds; the longest of several
    /// measurements.
    pub idle_after_us: f64,
    /// From then until memory was allocated, cleared and freed elsewhere, which waits for an idle GPU; the
    /// longest.
    pub memory_us: f64,
    /// Error of a session with a stalled kernel.
    pub unfinished: String,
}

/// Two products of 512 x 512: they end before a launch would.
pub(super) const SMALL: &str = r#"Pipeline(name: "small", dims: { "M": 64, "H": 512 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
])"#;
/// Two products of 2048 x 2048.
pub(super) const MIDDLE: &str = r#"Pipeline(name: "middle", dims: { "M": 64, "H": 2048 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
])"#;

/// A pipeline with 64 rows, and with other row counts and the same weights.
pub(super) struct CopilotBench<'a> {
    pub(super) device: &'a Device,
    profile: Profile,
    pub(super) name: &'static str,
    text: &'static str,
    inputs: InputSets,
}

impl<'a> CopilotBench<'a> {
    pub(super) fn new(
        device: &'a Device,
        args: &CopilotArgs,
        name: &'static str,
        text: &'static str,
    ) -> Result<Self> {
        let whole = chains_of(device)?;
        let profile = Profile { sms: whole.sms - args.free_sms.min(whole.sms - 1), ..whole };
        let plan = Self::planned(text, name, &profile, ROWS)?;
        let inputs = InputSets::random(plan.graph(), device, SETS, 7)?;
        Ok(CopilotBench { device, profile, name, text, inputs })
    }

    fn planned(text: &str, name: &str, profile: &Profile, m: u32) -> Result<Plan> {
        let overrides = Overrides { dims: vec![("M".into(), m.into())], ..Overrides::default() };
        Ok(plan_text(text, name, &overrides, profile, Executor::Copilot)?)
    }

    /// Pipeline with 64 rows and all sets.
    pub(super) fn pipeline(&mut self, options: Options) -> Result<Pipeline> {
        let plan = Self::planned(self.text, self.name, &self.profile, ROWS)?;
        let mut pipeline = Pipeline::with_options(&plan, self.device, options)?;
        self.inputs.bind_decode(&mut pipeline)?;
        Ok(pipeline)
    }

    /// Copies set 1 of another pipeline, with the input of set 0.
    fn add_set(&self, to: &mut Pipeline, like: &Pipeline) -> Result<()> {
        let graph = to.plan().graph().clone();
        for tensor in graph.tensors.iter().filter(|t| t.producer.is_none()) {
            // This memory is K x N already.
            assert!(!tensor.transposed, "layout: NK");
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

    /// Pipeline with `m` rows, with the weights of set 0 of another.
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

/// A pipeline whose runs end with a flag word.
struct Replayed {
    pipeline: Pipeline,
    flagged: Flagged,
}

impl Replayed {
    fn new(mut pipeline: Pipeline, device: &Device) -> Result<Replayed> {
        pipeline.prepare()?;
        let stream = Arc::new(Stream::new(device)?);
        let mut run = |stream: &Stream| Ok(pipeline.run_on(Executor::Fused, stream)?);
        let flagged = Flagged::captured(device, stream, &mut run)?;
        Ok(Replayed { pipeline, flagged })
    }

    fn replay_and_synchronise(&self) -> Result<()> {
        self.flagged.restart()?;
        Ok(self.flagged.stream.synchronize()?)
    }

    /// Time of a run among twenty in one graph.
    fn kernel_us(&mut self, device: &Device) -> Result<f64> {
        const RUNS: usize = 20;
        let stream = &self.flagged.stream;
        let graph = stream.capture::<runtime::Error>(|| {
            (0..RUNS).try_for_each(|_| self.pipeline.run_on(Executor::Fused, stream))
        })?;
        let (begin, end) = (Event::timing(device)?, Event::timing(device)?);
        let mut us = Vec::new();
        for _ in 0..12 {
            stream.record(&begin)?;
            graph.launch(stream)?;
            stream.record(&end)?;
            end.synchronize()?;
            us.push(end.us_since(&begin)? / RUNS as f64);
        }
        Ok(percentile(&mut us[2..], 0.5))
    }
}

/// Ways of running a job in a session; `OTHERS` do not use one.
const OWN: [&str; 2] = ["copilot", "copilot, next set announced"];
const OTHERS: [&str; 3] = ["graph, flag", "graph, synchronise", "launch, flag"];

pub(super) fn latency(bench: &mut CopilotBench<'_>, m: u32, jobs: usize, busy: bool) -> Result<JobLatency> {
    let pipeline = bench.pipeline(Options::default())?;
    let mut other = Replayed::new(bench.of_rows(m, &pipeline)?, bench.device)?;
    let mut launched = bench.of_rows(m, &pipeline)?;
    launched.prepare()?;
    let queued = Flagged::queued(bench.device, Arc::new(Stream::new(bench.device)?))?;
    let kernel_us = other.kernel_us(bench.device)?;
    // It would leave during the turns of the other ways; that is not to be measured.
    let settings = Settings { idle: Duration::from_millis(20), ..Settings::default() };
    // It has as many rows as the graphs; with a second set, nothing is announced automatically.
    let mut own = bench.of_rows(m, &pipeline)?;
    bench.add_set(&mut own, &pipeline)?;
    let mut session = JobSession::open(&mut own, settings)?;
    let stop = AtomicBool::new(false);
    let cores = if busy { std::thread::available_parallelism().map_or(1, usize::from) } else { 0 };
    let times = std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut job = |index: usize| -> Result<()> {
            let job = if index == 1 { session.submit_announcing(0, m, 0)? } else { session.submit(0, m)? };
            Ok(session.wait(job)?)
        };
        let mut without = |index: usize| match index {
            0 => other.flagged.replay(),
            1 => other.replay_and_synchronise(),
            _ => queued.job(&mut |stream| Ok(launched.run_on(Executor::Fused, stream)?)),
        };
        // Only one kernel can use all SMs at a time: a session must leave before another way's turn, so it is
        // timed separately.
        const PARTS: usize = 4;
        let mut times = vec![Vec::new(); OWN.len() + OTHERS.len()];
        let all = (0..PARTS).try_for_each(|_| {
            let mut part = turns(jobs / PARTS).timed(OWN.len(), &mut job)?;
            std::thread::sleep(settings.idle * 2);
            part.extend(turns(jobs / PARTS).timed(OTHERS.len(), &mut without)?);
            times.iter_mut().zip(part).for_each(|(all, part)| all.extend(part));
            Ok::<_, Error>(())
        });
        stop.store(true, Ordering::Relaxed);
        all.map(|()| times)
    })?;
    session.close()?;
    let pipeline = if busy { format!("{}, host busy", bench.name) } else { bench.name.into() };
    let names = OWN.into_iter().chain(OTHERS).map(String::from);
    Ok(JobLatency {
        pipeline,
        m,
        kernel_us,
        ways: names.zip(times.into_iter().map(JobTimes::from_times)).collect(),
    })
}

/// Jobs of 1 to 64 rows: one session, one graph per row count, and graphs of 8, 16, 32 and 64.
pub(super) fn all_rows(bench: &mut CopilotBench<'_>, jobs: usize) -> Result<Vec<AllRows>> {
    let mut found = Vec::new();
    let device = bench.device;
    let mut pipeline = bench.pipeline(Options::default())?;
    let free = || Ok::<_, Error>(device.memory()?.0);
    let draw = |seed| {
        let mut rng = SmallRng::seed_from_u64(seed);
        move || rng.random_range(1..=ROWS)
    };
    for (name, sizes) in [("a graph each", (1..=ROWS).collect::<Vec<_>>()), ("padded", vec![8, 16, 32, 64])] {
        let (before, begin) = (free()?, Instant::now());
        let graphs = sizes.iter().map(|m| Replayed::new(bench.of_rows(*m, &pipeline)?, device));
        let graphs = graphs.collect::<Result<Vec<_>>>()?;
        let (setup_ms, bytes) = (begin.elapsed().as_secs_f64() * 1e3, before.saturating_sub(free()?));
        let mut m = draw(5);
        let mut job = |_| {
            let m = m();
            graphs[sizes.partition_point(|size| *size < m)].flagged.replay()
        };
        let times = turns(jobs).timed(1, &mut job)?.concat();
        found.push(AllRows { way: name.into(), times: JobTimes::from_times(times), setup_ms, bytes });
    }
    let (before, begin) = (free()?, Instant::now());
    // Includes costs that the graphs also have: a plan, its memory, its kernel.
    let mut own = bench.of_rows(ROWS, &pipeline)?;
    let mut session = JobSession::open(&mut own, Settings::default())?;
    let (setup_ms, bytes) = (begin.elapsed().as_secs_f64() * 1e3, before.saturating_sub(free()?));
    let mut m = draw(5);
    let mut job = |_| {
        let job = session.submit(0, m())?;
        Ok(session.wait(job)?)
    };
    let times = turns(jobs).timed(1, &mut job)?.concat();
    found.push(AllRows { way: "one session".into(), times: JobTimes::from_times(times), setup_ms, bytes });
    session.close()?;
    pipeline.synchronize()?;
    Ok(found)
}

/// Jobs that the host submits before earlier ones are over.
pub(super) fn ahead(bench: &mut CopilotBench<'_>, jobs: usize) -> Result<JobsAhead> {
    const AHEAD: u32 = 8;
    let mut pipeline = bench.pipeline(Options::default())?;
    let replayed = Replayed::new(bench.of_rows(8, &pipeline)?, bench.device)?;
    let begin = Instant::now();
    (0..jobs).try_for_each(|_| replayed.flagged.restart())?;
    replayed.flagged.stream.synchronize()?;
    let replay_us = begin.elapsed().as_secs_f64() * 1e6 / jobs as f64;
    let mut session = JobSession::open(&mut pipeline, Settings::default())?;
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

/// A host that stops after submitting, and a kernel that stalls; the latter ruins the context, so it comes
/// last.
pub(super) fn stopped(bench: &mut CopilotBench<'_>) -> Result<StoppedHost> {
    let mut pipeline = bench.pipeline(Options::default())?;
    let device = bench.device.clone();
    let mut longest = |wait: &dyn Fn() -> Result<()>| -> Result<f64> {
        let mut longest = 0.0;
        for _ in 0..20 {
            let mut session = JobSession::open(&mut pipeline, Settings::default())?;
            for set in 0..SETS {
                session.submit(set, 1)?;
            }
            let begin = Instant::now();
            while session.unfinished() > 0 && begin.elapsed() < Duration::from_secs(1) {
                std::hint::spin_loop();
            }
            // The session is not used from here on: no submit, poll or close.
            let end = Instant::now();
            wait()?;
            longest = f64::max(longest, end.elapsed().as_secs_f64() * 1e6);
            let next = session.submit(0, 1)?;
            session.wait(next)?;
            session.close()?;
        }
        Ok(longest)
    };
    let idle_after_us = longest(&|| Ok(device.synchronize()?))?;
    let memory_us = longest(&|| {
        drop(DeviceBuffer::<u32>::zeroed(&device, 1 << 20, "memory elsewhere")?);
        Ok(())
    })?;
    drop(pipeline);
    let mut starved =
        bench.pipeline(Options { starve: true, timeout_ns: 1_000_000, ..Options::default() })?;
    let mut session = JobSession::open(&mut starved, Settings::default())?;
    session.submit(0, 1)?;
    let last = session.submit(1, 2)?;
    let unfinished = session.wait(last).err().map_or_else(String::new, |e| e.to_string());
    Ok(StoppedHost { idle_after_us, memory_us, unfinished })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_planned_at_every_number_of_rows() {
        let h200 = Profile::named("h200").expect("it ships");
        for (name, text) in
            [("small", SMALL), ("middle", MIDDLE), ("llama65_mlp", super::super::llama().expect("it ships"))]
        {
            for m in [1, 8, 33, ROWS] {
                let plan = CopilotBench::planned(text, name, h200, m).expect("planned");
                assert!(plan.launch().shares().is_some() && plan.runs_as(Executor::Fused), "{name} {m}");
            }
        }
    }
}
