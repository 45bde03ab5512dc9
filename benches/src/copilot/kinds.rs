//! Long jobs back to back and short ones that arrive at random, with shared weights: in one stream, in two
//! with priorities, with long jobs in parts, and as items handed out by a host.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Profile;
use cusync_gen::schedule::Hand;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::super::{Error, Result};
use super::cases::chain;
use super::turns::{Flagged, JobTimes};
use super::{chains_of, llama};
use cusync::device::{Device, Stream};
use cusync::runtime::copilot::{Handing, Items, Job};
use cusync::runtime::{InputSets, Overrides, Pipeline, plan_text};

/// Rows of a long job, of one of its parts, and of a short job.
const LONG: u64 = 2048;
const PART: u64 = 256;
const SHORT: u64 = 8;
/// Mean time between two short jobs.
const EVERY_US: f64 = 2000.0;
/// Lead of words if short jobs must not wait behind them.
const LATE: Option<Duration> = Some(Duration::from_micros(8));
/// Duration of a measurement, and number of measurements.
const LENGTH: Duration = Duration::from_millis(1000);
const TURNS: usize = 2;

/// Results of one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TwoKinds {
    /// Name of the way.
    pub way: String,
    /// Short jobs, from arrival until the host sees the end.
    pub short: JobTimes,
    /// Long jobs per second while short ones arrive, by turn.
    pub long_rates: Vec<f64>,
    /// Long jobs per second without short ones, by turn.
    pub alone_rates: Vec<f64>,
}

/// Maximum number of concurrent short jobs.
const SLOTS: usize = 3;

/// Both kinds as one pipeline: the shipped layer, and its stages again for few rows, once per concurrent
/// short job.
fn both() -> String {
    let chain = |i: &str, m: &str| {
        let up = format!(
            "GatedGemm(name: \"up{i}\", a: \"X{i}({m},H)\", gate: \"W(H,F)\", up: \"U(H,F)\", out: \"Y{i}({m},F)\")"
        );
        let down =
            format!("Gemm(name: \"down{i}\", a: \"Y{i}({m},F)\", b: \"V(F,H)\", out: \"Z{i}({m},H)\")");
        format!("    {up},\n    {down},\n")
    };
    let short: String = (0..SLOTS).map(|i| chain(&i.to_string(), "S")).collect();
    let dims = format!("\"M\": {LONG}, \"S\": {SHORT}, \"H\": 8192, \"F\": 2752");
    format!("Pipeline(name: \"both\", dims: {{ {dims} }}, stages: [\n{}{short}])", chain("", "M"))
}

/// Runs jobs: begins one in a place, and tells whether the job there is over. Place 0 is for long jobs, the
/// others for short ones.
trait Runs {
    fn begin(&mut self, place: usize) -> Result<()>;
    fn is_over(&mut self, place: usize) -> Result<bool>;
}

impl Runs for Vec<Flagged> {
    fn begin(&mut self, place: usize) -> Result<()> {
        self[place].restart()
    }

    fn is_over(&mut self, place: usize) -> Result<bool> {
        Ok(self[place].is_over())
    }
}

struct Handed<'a> {
    items: Items<'a>,
    first: bool,
    jobs: [Option<Job>; 1 + SLOTS],
}

impl Runs for Handed<'_> {
    fn begin(&mut self, place: usize) -> Result<()> {
        let first = place > 0 && self.first;
        let job = if first { self.items.submit_first(place)? } else { self.items.submit(place)? };
        self.jobs[place] = Some(job);
        Ok(())
    }

    fn is_over(&mut self, place: usize) -> Result<bool> {
        match self.jobs[place] {
            Some(job) => Ok(self.items.poll(job)?),
            None => Ok(false),
        }
    }
}

/// Runs long jobs one after the other for `length`, and short ones as they arrive; a short job without a free
/// place waits for one.
fn measure(runs: &mut dyn Runs, with_short: bool, length: Duration, seed: u64) -> Result<(Vec<f64>, f64)> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut next = || Duration::from_secs_f64(-(1.0 - rng.random::<f64>()).ln() * EVERY_US * 1e-6);
    let begin = Instant::now();
    let (mut comes, mut waiting) = (begin + next(), VecDeque::new());
    let (mut running, mut long, mut times) = ([None; SLOTS], 0, Vec::new());
    runs.begin(0)?;
    while begin.elapsed() < length {
        if runs.is_over(0)? {
            long += 1;
            runs.begin(0)?;
        }
        let now = Instant::now();
        if with_short && now >= comes {
            waiting.push_back(comes);
            comes += next();
        }
        for (place, from) in running.iter_mut().enumerate() {
            if from.is_some() && runs.is_over(1 + place)? {
                times.extend(from.take().map(|from: Instant| from.elapsed().as_secs_f64() * 1e6));
            }
            if from.is_none()
                && let Some(first) = waiting.pop_front()
            {
                runs.begin(1 + place)?;
                *from = Some(first);
            }
        }
    }
    let rate = f64::from(long) / begin.elapsed().as_secs_f64();
    for place in (0..=SLOTS).filter(|place| *place == 0 || running[place - 1].is_some()) {
        while !runs.is_over(place)? {
            if begin.elapsed() > length + Duration::from_secs(5) {
                return Err(Error::Argument("a job was not over within 5 s".into()));
            }
        }
    }
    Ok((times, rate))
}

fn of_rows(m: u64, profile: &Profile) -> Result<Plan> {
    let overrides = Overrides { dims: vec![("M".into(), m)], ..Overrides::default() };
    Ok(plan_text(llama()?, "llama65_mlp", &overrides, profile, Executor::Fused)?)
}

/// All ways, in turns.
pub(super) fn two_kinds(device: &Device, progress: &mut dyn FnMut(&str)) -> Result<Vec<TwoKinds>> {
    let profile = chains_of(device)?;
    let (low, high) = Stream::priorities(device)?;
    let pipeline = |m: u64| -> Result<Pipeline> {
        let plan = of_rows(m, &profile)?;
        let mut pipeline = Pipeline::new(&plan, device)?;
        InputSets::random(plan.graph(), device, 1, 3)?.bind(&mut pipeline)?;
        pipeline.prepare()?;
        Ok(pipeline)
    };
    let mut pipelines = [pipeline(LONG)?, pipeline(PART)?, pipeline(SHORT)?];
    let mut graphs = |parts: bool, apart: bool| -> Result<Vec<Flagged>> {
        let long = Arc::new(Stream::with_priority(device, low)?);
        let short = if apart { Arc::new(Stream::with_priority(device, high)?) } else { long.clone() };
        let mut made = Vec::new();
        for place in 0..=SLOTS {
            let (stream, at, times) = match (place, parts) {
                (0, false) => (&long, 0, 1),
                (0, true) => (&long, 1, LONG / PART),
                _ => (&short, 2, 1),
            };
            let mut runs = |stream: &Stream| -> Result<()> {
                (0..times).try_for_each(|_| Ok(pipelines[at].run_on(Executor::Fused, stream)?))
            };
            made.push(Flagged::captured(device, stream.clone(), &mut runs)?);
        }
        Ok(made)
    };
    let names = ["one stream", "two streams, priorities", "two streams, long jobs in parts"];
    let mut handed = Vec::new();
    let usual = Handing::default().lead;
    // Tiles, whether short jobs have precedence, and the lead of words.
    let settings = [
        ("in order", (128, 128), false, usual),
        ("short first", (128, 128), true, usual),
        ("short first, words late", (128, 128), true, LATE),
        ("short first", (128, 256), true, usual),
        ("short first, words late", (128, 256), true, LATE),
    ];
    for (order, tile, first, lead) in settings {
        let overrides = Overrides { chain: Some(chain(Hand::Drawn, tile)), ..Overrides::default() };
        let plan = plan_text(&both(), "both", &overrides, &profile, Executor::Fused)?;
        let mut pipeline = Pipeline::new(&plan, device)?;
        InputSets::random(plan.graph(), device, 1, 3)?.bind(&mut pipeline)?;
        handed.push((format!("co-pilot, {order}, {}x{}", tile.0, tile.1), pipeline, first, lead));
    }
    let mut ways: Vec<(String, Box<dyn Runs + '_>)> = Vec::new();
    for (name, (parts, apart)) in names.into_iter().zip([(false, false), (false, true), (true, true)]) {
        ways.push((name.into(), Box::new(graphs(parts, apart)?)));
    }
    for (name, pipeline, first, lead) in &mut handed {
        let items = Items::open(pipeline, Handing { lead: *lead, ..Handing::default() })?;
        ways.push((name.clone(), Box::new(Handed { items, first: *first, jobs: [None; 1 + SLOTS] })));
    }
    let empty = |name: &String| (name.clone(), Vec::new(), Vec::new(), Vec::new());
    let mut found: Vec<_> = ways.iter().map(|(name, _)| empty(name)).collect();
    for turn in 0..TURNS {
        // In one order and then in the reverse.
        for place in 0..ways.len() {
            let place = if turn % 2 == 0 { place } else { ways.len() - 1 - place };
            let (name, runs) = &mut ways[place];
            progress(name);
            let seed = 21 + turn as u64;
            measure(runs.as_mut(), true, LENGTH / 10, seed)?;
            let (_, alone) = measure(runs.as_mut(), false, LENGTH / 4, seed)?;
            let (short, long) = measure(runs.as_mut(), true, LENGTH, seed)?;
            found[place].1.extend(short);
            found[place].2.push(long);
            found[place].3.push(alone);
            // A host kernel leaves after an idle period.
            std::thread::sleep(Handing::default().idle * 5);
        }
    }
    let one = |(name, short, long_rates, alone_rates)| TwoKinds {
        way: name,
        short: JobTimes::from_times(short),
        long_rates,
        alone_rates,
    };
    Ok(found.into_iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cusync_gen::check::Ledger;

    #[test]
    fn long_jobs_and_short_ones_are_kinds_of_their_own() {
        let h200 = Profile::named("h200").expect("it ships");
        let overrides = Overrides { chain: Some(chain(Hand::Drawn, (128, 128))), ..Overrides::default() };
        let plan = plan_text(&both(), "both", &overrides, h200, Executor::Fused).expect("proved");
        let ledger = Ledger::from_plan(&plan).expect("drawn");
        assert_eq!(ledger.kinds(), 1 + SLOTS);
        // The short job's products have one row of tiles, the long job's sixteen.
        assert_eq!(ledger.items(0).len(), 16 * ledger.items(1).len());
    }

    /// Jobs that each take a fixed number of polls.
    struct Counted([Option<u32>; 1 + SLOTS], u32);

    impl Runs for Counted {
        fn begin(&mut self, place: usize) -> Result<()> {
            assert!(self.0[place].is_none(), "two jobs in one place");
            self.0[place] = Some(if place == 0 { 50 } else { 5 });
            self.1 += u32::from(place > 0);
            Ok(())
        }

        fn is_over(&mut self, place: usize) -> Result<bool> {
            let left = self.0[place].as_mut().expect("a job is there");
            *left = left.saturating_sub(1);
            let over = *left == 0;
            if over {
                self.0[place] = None;
            }
            Ok(over)
        }
    }

    #[test]
    fn every_short_job_that_came_is_timed_or_awaited() {
        let mut runs = Counted([None; 1 + SLOTS], 0);
        let (times, rate) = measure(&mut runs, true, Duration::from_millis(60), 4).expect("over");
        assert!(rate > 0.0 && times.len() + SLOTS >= runs.1 as usize && !times.is_empty());
        assert!(runs.0.iter().all(Option::is_none), "what was begun has been awaited");
        let (times, _) = measure(&mut runs, false, Duration::from_millis(5), 4).expect("over");
        assert!(times.is_empty());
    }
}
