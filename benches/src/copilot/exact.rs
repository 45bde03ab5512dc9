//! Compares jobs of sessions with `fused`, bit by bit.

use std::time::Duration;

use cusync_gen::check::Executor;
use cusync_gen::schedule::Hand;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::super::{Error, Result};
use super::cases::{TWO, planned};
use super::sessions::{CopilotBench, ROWS, SETS};
use super::taker::SmTaker;
use super::{IDLE, chains_of};
use cusync::device::{Delays, Device, Stream};
use cusync::runtime::copilot::{Handing, Items, JobSession, Settings};
use cusync::runtime::{self, InputSets, Options, Pipeline, TensorBuffer};

/// Result of comparing jobs with `fused`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExactJobs {
    /// Pipeline.
    pub pipeline: String,
    /// Number of jobs.
    pub jobs: usize,
    /// Number of jobs with any wrong bit.
    pub wrong: usize,
    /// Number of kernel launches.
    pub launches: u32,
}

fn result_of(pipeline: &Pipeline) -> Result<TensorBuffer> {
    let graph = pipeline.plan().graph();
    let name = runtime::outputs(graph).map(|id| graph.tensors[id.0].name.clone()).next();
    let name = name.ok_or_else(|| Error::Argument("a pipeline without a result".into()))?;
    Ok(pipeline.tensor(0, &name)?)
}

/// Runs jobs with random sets and row counts, and checks every bit of the rows of each, and one row beyond
/// them. With `taken`, another kernel occupies SMs whenever the session's kernel has left, so that the next
/// launch waits for them.
pub(super) fn exact(
    bench: &mut CopilotBench<'_>,
    jobs: usize,
    delays_ns: u32,
    taken: bool,
) -> Result<ExactJobs> {
    let delays = cusync::device::Delays { seed: 1, limit_ns: delays_ns };
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
    let taker = if taken { Some(SmTaker::new(bench.device, 300.0)?) } else { None };
    let mut session = JobSession::open(&mut pipeline, Settings::default())?;
    for _ in 0..jobs {
        // Another set than before, so that unwritten data differs from the expected result.
        let set = (0..SETS).map(|_| rng.random_range(0..SETS)).find(|set| *set != last).unwrap_or(0);
        last = set;
        let m = rng.random_range(1..=ROWS);
        // Some announcements are right, others wrong.
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
        // Sometimes lets the kernel leave in between.
        if rng.random_ratio(1, 500) {
            std::thread::sleep(Duration::from_micros(rng.random_range(900..1200)));
            taker.as_ref().map_or(Ok(()), SmTaker::take)?;
        }
    }
    let launches = session.launches();
    session.close()?;
    let beside = if taken { ", SMs taken" } else { "" };
    Ok(ExactJobs { pipeline: format!("{}{beside}", bench.name), jobs, wrong, launches })
}

/// Jobs of both kinds with inputs that change from job to job; every bit is compared with `fused`. Sometimes
/// the kernel leaves in between; with `taken`, another kernel then occupies SMs, and the kernel begins with
/// the remaining ones.
pub(super) fn exact_items(device: &Device, jobs: usize, delays_ns: u32, taken: bool) -> Result<ExactJobs> {
    const INPUTS: usize = 3;
    let plan = planned(TWO, &[], Hand::Drawn, (128, 128), &chains_of(device)?)?;
    let inputs = InputSets::random(plan.graph(), device, 1, 5)?;
    let delays = Delays { seed: 1, limit_ns: delays_ns };
    let mut pipeline = Pipeline::with_options(&plan, device, Options { delays, ..Options::default() })?;
    inputs.bind(&mut pipeline)?;
    let mut rng = SmallRng::seed_from_u64(9);
    let names = [["X", "Z"], ["XS", "ZS"]];
    let tensor = |pipeline: &Pipeline, name: &str| pipeline.tensor(0, name);
    let mut given = Vec::new();
    let mut want = Vec::new();
    for _ in 0..INPUTS {
        let mut values = Vec::new();
        for [input, _] in names {
            let to = tensor(&pipeline, input)?;
            // Halves in (-1, 1).
            let bits: Vec<u16> =
                (0..to.len()).map(|_| half::f16::from_f32(rng.random_range(-1.0..1.0)).to_bits()).collect();
            to.upload(&bits)?;
            values.push(bits);
        }
        pipeline.run(Executor::Fused)?;
        pipeline.synchronize()?;
        let mut results = Vec::new();
        for [_, output] in names {
            let from = tensor(&pipeline, output)?;
            let mut bits = vec![0u16; from.len()];
            from.download(&mut bits)?;
            results.push(bits);
        }
        given.push(values);
        want.push(results);
    }
    let mut tensors = Vec::new();
    for [input, output] in names {
        tensors.push((tensor(&pipeline, input)?, tensor(&pipeline, output)?));
    }
    let taker = if taken { Some(SmTaker::new(device, 300.0)?) } else { None };
    let handing = Handing { idle: IDLE, beside: taken, ..Handing::default() };
    let stream = Stream::new(device)?;
    let mut session = Items::open(&mut pipeline, handing)?;
    let (mut wrong, mut have) = (0, vec![0u16; want[0].iter().map(Vec::len).max().unwrap_or(0)]);
    for number in 0..jobs.div_ceil(2) {
        let with = number % INPUTS;
        for (values, (to, _)) in given[with].iter().zip(&tensors) {
            to.upload_on(values, &stream)?;
        }
        // Submitted in either order.
        let long = session.submit(0)?;
        let short = if number % 2 == 0 { session.submit_first(1)? } else { session.submit(1)? };
        session.wait(short)?;
        session.wait(long)?;
        for (values, (_, from)) in want[with].iter().zip(&tensors) {
            from.download(&mut have[..values.len()])?;
            wrong += usize::from(have[..values.len()] != values[..]);
        }
        if rng.random_ratio(1, 500) {
            std::thread::sleep(IDLE * 3);
            taker.as_ref().map_or(Ok(()), SmTaker::take)?;
        }
    }
    let launches = session.launches();
    session.close()?;
    let name = if taken { "two kinds of items, SMs taken" } else { "two kinds of items" };
    Ok(ExactJobs { pipeline: name.into(), jobs: 2 * jobs.div_ceil(2), wrong, launches })
}
