//! One chain kernel with four ways of distributing items: prebuilt lists, a device counter, a scheduler
//! worker, and a host. All use the same tiles, kernel and inputs; measures complete jobs, and the gaps of a
//! worker between items.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cusync_gen::check::{Executor, Ledger, Plan};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::super::{Error, Result, percentile};
use super::cases::{Plans, even, uneven, zipf};
use super::taker::{SmTaker, TAKEN};
use super::turns::{Flagged, JobTimes, Turns, Ways};
use super::{IDLE, chains_of, llama};
use cusync::device::{Device, Stream};
use cusync::runtime::copilot::{Handing, Items, Scheduled, SessionNotes};
use cusync::runtime::{self, InputSets, ItemTrace, Options, Overlap, Pipeline};
use cusync::trace::{joined, shift};

/// Maximum number of items per worker if a host or a scheduler hands them out.
const AHEAD: u32 = 2;
/// Ways of distributing items.
const WAYS: [&str; 4] = ["static lists", "counter", "device scheduler", "co-pilot"];
/// Index of the host.
const PILOT: usize = 3;

/// One way in one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedOut {
    /// Description of the run and of concurrent work.
    pub case: String,
    /// Way of distributing items.
    pub way: String,
    /// From the host's decision until it sees the end.
    pub times: JobTimes,
    /// From the first item's start to the last one's end on the device, microseconds, median; for a host,
    /// with a kernel that is already running, unless there is concurrent work.
    pub span_us: f64,
    /// From the end of an item to the start of its worker's next, nanoseconds: median, ninetieth percentile,
    /// mean.
    pub gap_ns: [f64; 3],
    /// Time that workers wait inside their items for the first operands, microseconds per run.
    pub waits_us: f64,
    /// Number of items.
    pub items: usize,
    /// If a host hands out and has to launch: from its decision until the launch was queued, its first word
    /// was written, and the first item began, microseconds, medians.
    pub begins_us: Option<[f64; 3]>,
}

/// Host cost of numbering an item and writing its word, nanoseconds each.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HostCost {
    /// Checking and numbering an item in the ledger, and recording that it is done.
    pub ledger_ns: f64,
    /// One poll of the progress of all workers.
    pub look_ns: f64,
}

/// Keeps the last run of each item: if another worker has run an item since, the first worker's record still
/// exists.
fn latest(items: Vec<ItemTrace>) -> Vec<ItemTrace> {
    let mut last: HashMap<_, ItemTrace> = HashMap::new();
    for item in items {
        let latest = last.entry((item.item.stage.0, item.item.m, item.item.n)).or_insert(item);
        if latest.begin < item.begin {
            *latest = item;
        }
    }
    last.into_values().collect()
}

/// Time from first start to last end, the gaps between a worker's items, their waiting time, and the number
/// of items.
fn spans(items: Vec<ItemTrace>) -> (f64, Vec<f64>, f64, usize) {
    let mut items = latest(items);
    items.sort_by_key(|item| (item.worker, item.begin));
    let first = items.iter().map(|item| item.begin).min().unwrap_or(0);
    let last = items.iter().map(|item| item.end).max().unwrap_or(0);
    let pairs = items.windows(2).filter(|pair| pair[0].worker == pair[1].worker);
    let gaps = pairs.map(|pair| pair[1].begin.saturating_sub(pair[0].end) as f64).collect();
    let workers = items.chunk_by(|a, b| a.worker == b.worker).count().max(1);
    let waits: u64 = items.iter().map(|item| item.loaded.saturating_sub(item.begin)).sum();
    (last.saturating_sub(first) as f64 / 1e3, gaps, waits as f64 / 1e3 / workers as f64, items.len())
}

/// Latency of the first job of a launch, in microseconds from its submission until the call returned, the
/// first word was written, and the first item began.
fn begins(plan: &Plan, notes: &SessionNotes, records: &[ItemTrace]) -> Option<[f64; 3]> {
    let pairs = joined(plan, notes, records);
    let ns = |time: Duration| time.as_nanos() as i64;
    let (shift, _) = shift(
        pairs.iter().map(|(sent, item)| (ns(sent.at), item.begin as i64)),
        pairs.iter().map(|(sent, item)| (item.end as i64, ns(sent.seen))),
    )?;
    let from = ns(notes.jobs.iter().map(|job| job.at).min()?);
    let launched = ns(notes.launches.last()?.1);
    let word = pairs.iter().map(|(sent, _)| ns(sent.at)).min()?;
    let item = pairs.iter().map(|(_, item)| item.begin as i64 + shift).min()?;
    Some([launched, word, item].map(|at| (at - from) as f64 * 1e-3))
}

/// The four ways of one case, prepared.
struct FourWays<'a> {
    fixed: Pipeline,
    drawn: Pipeline,
    scheduled: Scheduled<'a>,
    session: Items<'a>,
    flagged: [Flagged; PILOT],
    taker: Option<&'a SmTaker>,
}

/// Runs jobs of all kinds.
fn hand_out(session: &mut Items<'_>) -> Result<()> {
    let kinds = session.kinds();
    let submitted = (0..kinds).map(|kind| session.submit(kind)).collect::<runtime::Result<Vec<_>>>()?;
    submitted.into_iter().try_for_each(|job| Ok(session.wait(job)?))
}

impl Ways for FourWays<'_> {
    fn before(&mut self) -> Result<()> {
        let Some(taker) = self.taker else { return Ok(()) };
        // A running host kernel would not give way; the others need a free GPU, like the host.
        std::thread::sleep(IDLE * 3);
        taker.synchronize()?;
        taker.take()
    }

    fn job(&mut self, index: usize) -> Result<()> {
        let FourWays { fixed, drawn, scheduled, session, flagged, taker } = self;
        let beside = taker.is_some();
        match index {
            0 => flagged[0].job(&mut |s| Ok(fixed.run_on(Executor::Fused, s)?)),
            1 => flagged[1].job(&mut |s| Ok(drawn.run_on(Executor::Fused, s)?)),
            2 => flagged[2].job(&mut |s| Ok(scheduled.run_on(s, beside)?)),
            _ => hand_out(session),
        }
    }

    fn after(&mut self, index: usize) {
        if index == PILOT {
            std::thread::sleep(IDLE * 3);
        }
    }
}

impl FourWays<'_> {
    /// Records since the last call.
    fn take_trace(&mut self, index: usize) -> Result<Vec<ItemTrace>> {
        Ok(match index {
            0 => self.fixed.take_trace()?,
            1 => self.drawn.take_trace()?,
            2 => self.scheduled.pipeline().take_trace()?,
            _ => self.session.take_trace()?,
        })
    }
}

/// Creates the four ways of a case and calls `measure`.
fn with_ways<T>(
    device: &Device,
    plans: &Plans,
    (taker, trace): (Option<&SmTaker>, bool),
    measure: impl FnOnce(&mut FourWays<'_>) -> Result<T>,
) -> Result<T> {
    let beside = taker.is_some();
    let inputs = InputSets::random(plans.drawn.graph(), device, 1, 11)?;
    let made = |plan: &Plan| -> Result<Pipeline> {
        // Next to another kernel, all begin with the SMs that they get.
        let overlap = if beside { Overlap::All } else { Overlap::Plain };
        let options = Options { trace, overlap, ..Options::default() };
        let mut pipeline = Pipeline::with_options(plan, device, options)?;
        inputs.bind(&mut pipeline)?;
        pipeline.prepare()?;
        Ok(pipeline)
    };
    let (mut fixed, mut drawn) = (made(&plans.fixed)?, made(&plans.drawn)?);
    let (mut third, mut handed) = (made(&plans.drawn)?, made(&plans.drawn)?);
    let scheduled = Scheduled::new(&mut third, AHEAD)?;
    let flagged = |run: &mut dyn FnMut(&Stream) -> Result<()>| {
        let stream = Arc::new(Stream::new(device)?);
        if beside { Flagged::queued(device, stream) } else { Flagged::captured(device, stream, run) }
    };
    let flagged = [
        flagged(&mut |s| Ok(fixed.run_on(Executor::Fused, s)?))?,
        flagged(&mut |s| Ok(drawn.run_on(Executor::Fused, s)?))?,
        flagged(&mut |s| Ok(scheduled.run_on(s, beside)?))?,
    ];
    let handing = Handing { idle: IDLE, ahead: AHEAD, beside, ..Handing::default() };
    let session = Items::open(&mut handed, handing)?;
    let mut ways = FourWays { fixed, drawn, scheduled, session, flagged, taker };
    let found = measure(&mut ways)?;
    ways.session.close()?;
    Ok(found)
}

/// Measurements from traced runs of a way.
#[derive(Default)]
struct Traced {
    span_us: Vec<f64>,
    gaps: Vec<f64>,
    waits_us: Vec<f64>,
    items: usize,
    begins: [Vec<f64>; 3],
}

/// Traced runs, with the records taken after each job, because the next job may place items elsewhere. For a
/// host kernel launched for a job, also measures how it began; without concurrent work, two more jobs measure
/// the second one in a running kernel.
fn traced(ways: &mut FourWays<'_>, plan: &Plan) -> Result<[Traced; 4]> {
    let mut found: [Traced; 4] = Default::default();
    Turns { rounds: 5, jobs: 1, untimed: 1 }.each(WAYS.len(), ways, &mut |ways, index, counts| {
        ways.session.take_notes();
        ways.job(index)?;
        let mut records = ways.take_trace(index)?;
        let traced = &mut found[index];
        if counts && index == PILOT {
            let us = begins(plan, &ways.session.take_notes(), &records);
            traced.begins.iter_mut().zip(us.into_iter().flatten()).for_each(|(all, us)| all.push(us));
        }
        if index == PILOT && ways.taker.is_none() {
            ways.job(index)?;
            ways.job(index)?;
            records = ways.take_trace(index)?;
        }
        if counts {
            let (span, between, waited, count) = spans(records);
            traced.waits_us.push(waited);
            traced.span_us.push(span);
            traced.gaps.extend(between);
            traced.items = count;
        }
        Ok(())
    })?;
    Ok(found)
}

/// The four ways of one case, in turns.
fn four_ways(
    device: &Device,
    case: &str,
    plans: &Plans,
    jobs: usize,
    taken_us: Option<f64>,
) -> Result<Vec<HandedOut>> {
    const TURN: usize = 10;
    let taker = taken_us.map(|us| SmTaker::new(device, us)).transpose()?;
    let turns = Turns { rounds: jobs.div_ceil(TURN), jobs: TURN, untimed: 2 };
    let times = with_ways(device, plans, (taker.as_ref(), false), |ways| turns.timed(WAYS.len(), ways))?;
    let traced = with_ways(device, plans, (taker.as_ref(), true), |ways| traced(ways, &plans.drawn))?;
    let one = |((name, times), mut traced): ((&str, Vec<f64>), Traced)| {
        let mean = traced.gaps.iter().sum::<f64>() / traced.gaps.len().max(1) as f64;
        let begins_us = (!traced.begins[0].is_empty())
            .then(|| std::array::from_fn(|at| percentile(&mut traced.begins[at], 0.5)));
        HandedOut {
            case: case.into(),
            way: name.into(),
            times: JobTimes::from_times(times),
            span_us: percentile(&mut traced.span_us, 0.5),
            gap_ns: [percentile(&mut traced.gaps, 0.5), percentile(&mut traced.gaps, 0.9), mean],
            waits_us: percentile(&mut traced.waits_us, 0.5),
            items: traced.items,
            begins_us,
        }
    };
    Ok(WAYS.into_iter().zip(times).zip(traced).map(one).collect())
}

/// The three cases: even tiles, rows by Zipf's law, and both next to a kernel that occupies SMs half of the
/// time.
pub(super) fn handed_out(
    device: &Device,
    jobs: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<(Vec<HandedOut>, HostCost)> {
    let profile = chains_of(device)?;
    let mut found = Vec::new();
    let mut costs = HostCost::default();
    for tile in [(128, 256), (128, 128)] {
        let name = format!("llama65_mlp M=1024, tiles of {}x{}", tile.0, tile.1);
        let plans = even(llama()?, 1024, tile, &profile)?;
        progress(&name);
        let alone = four_ways(device, &name, &plans, jobs, None)?;
        let half = alone[1].times.p50_us / 2.0;
        found.extend(alone);
        progress(&format!("{name}, {TAKEN} SMs taken"));
        found.extend(four_ways(device, &format!("{name}, {TAKEN} SMs taken"), &plans, jobs / 2, Some(half))?);
        costs = host_cost(&plans.drawn)?;
    }
    let mut rng = SmallRng::seed_from_u64(8);
    for draw in 0..3 {
        let rows = zipf(&mut rng);
        let name = format!("eight products, rows {rows:?}");
        progress(&name);
        let plans = uneven(&rows, (128, 128), &profile)?;
        let alone = four_ways(device, &name, &plans, jobs, None)?;
        let half = alone[1].times.p50_us / 2.0;
        found.extend(alone);
        if draw == 0 {
            found.extend(four_ways(
                device,
                &format!("{name}, {TAKEN} SMs taken"),
                &plans,
                jobs / 2,
                Some(half),
            )?);
        }
    }
    Ok((found, costs))
}

/// Measured without a GPU: the ledger alone, and a poll of mailboxes that nothing writes.
fn host_cost(plan: &Plan) -> Result<HostCost> {
    let refused = |e: cusync_gen::check::Refutation| Error::Argument(e.message);
    let mut ledger = Ledger::from_plan(plan).map_err(refused)?;
    let begin = Instant::now();
    const JOBS: u32 = 20;
    let mut count = 0;
    for _ in 0..JOBS {
        for kind in 0..ledger.kinds() {
            ledger.begin(kind).map_err(refused)?;
            let items = ledger.items(kind).to_vec();
            for item in &items {
                std::hint::black_box(ledger.number(*item).map_err(refused)?);
            }
            for item in &items {
                ledger.done(*item).map_err(refused)?;
            }
            count += items.len();
        }
    }
    let ledger_ns = begin.elapsed().as_secs_f64() * 1e9 / count.max(1) as f64;
    let workers = plan.launch().work().map_or(1, |work| work.lists.len());
    let mail = cusync::device::HostMail::new(workers);
    let boxes = mail.boxes().ok_or_else(|| Error::Argument("no mailboxes".into()))?;
    let begin = Instant::now();
    const LOOKS: u32 = 1000;
    for _ in 0..LOOKS {
        std::hint::black_box((0..workers).map(|worker| boxes.done(worker)).max());
    }
    Ok(HostCost { ledger_ns, look_ns: begin.elapsed().as_secs_f64() * 1e9 / f64::from(LOOKS) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_between_items_of_one_worker() {
        let item = |n| cusync_gen::schedule::Item {
            stage: cusync_gen::graph::StageId(0),
            m: 0,
            n,
            k_begin: 0,
            k_end: 1,
            part: cusync_gen::schedule::Part::Whole,
        };
        let record = |worker, n, begin, end| ItemTrace {
            worker,
            cta: 0,
            sm: 0,
            item: item(n),
            begin,
            ready: begin,
            loaded: begin + if worker == 1 { 200 } else { 0 },
            math_end: end,
            end,
        };
        // The second item was run earlier by another worker, whose record still exists.
        let all =
            [record(1, 0, 500, 900), record(0, 1, 700, 1000), record(1, 1, 10, 90), record(0, 2, 100, 600)];
        assert_eq!(spans(all.to_vec()), (0.9, vec![100.0], 0.1, 3));
    }
}
