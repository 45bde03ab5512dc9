//! One chain kernel whose items come to workers in four ways: lists that were made before, a device counter, a worker that schedules, and a
//! host. The same tiles, kernel and inputs in each; who is whole, and how long a worker has nothing between two items.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cusync_gen::check::{Candidate, Executor, Ledger, Plan, check};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::StageId;
use cusync_gen::schedule::Hand;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::copilot::{ExactJobs, JobTimes};
use super::{Error, Result, percentile};
use crate::device::{
    Arg, Delays, Device, DeviceBuffer, GraphExec, KernelCall, Module, PinnedBuffer, Shape, Stream,
};
use crate::runtime::copilot::{Handing, Items, Scheduled, SessionNotes};
use crate::runtime::{
    self, ChainOverride, InputSets, ItemTrace, Options, Overlap, Overrides, Pipeline, plan_text,
    resolve_text, shipped,
};
use crate::trace::{joined, shift};

/// What queues a run on a stream.
type Queue<'a> = dyn Fn(&Stream) -> Result<()> + 'a;

/// Items that a worker has at most where a host or a scheduler hands them out.
const AHEAD: u32 = 2;
/// Jobs between two changes of who runs them.
const TURN: usize = 10;
/// SMs that a kernel beside takes.
const TAKEN: u32 = 16;
/// Without work for so long a host's kernel leaves, so that another can have its turn.
const IDLE: Duration = Duration::from_micros(400);

/// One way in one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedOut {
    /// What is run, and beside what.
    pub case: String,
    /// How items come to workers.
    pub way: String,
    /// From the host's decision to its knowledge of the end.
    pub times: JobTimes,
    /// From the first item's begin to the last one's end on the device, microseconds, median; 0 beside another kernel.
    pub span_us: f64,
    /// From the end of an item to the begin of its worker's next, nanoseconds: median, ninetieth percentile, mean.
    pub gap_ns: [f64; 3],
    /// What a worker waits inside its items for the first operands of each, from what is known of it to what it needs, microseconds a run.
    pub waits_us: f64,
    /// Items.
    pub items: usize,
    /// Where a host hands out and has to launch: from its decision until the launch was queued, its first word was written and the first item
    /// began, microseconds, medians.
    pub begins_us: Option<[f64; 3]>,
}

/// What it costs a host to number an item and to write its word, nanoseconds each.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HostCost {
    /// The ledger's check, its number, and the note that it is done.
    pub ledger_ns: f64,
    /// One look at what all workers have done.
    pub look_ns: f64,
}

/// Tiles and how they are handed out; products are never cut along k, so results agree to the bit.
pub(super) fn chain(mode: Hand, tile: (u32, u32)) -> ChainOverride {
    ChainOverride { kernel: Some((tile, (1, 1))), mode, splits: false }
}

/// The plans of one case.
struct Plans {
    fixed: Plan,
    drawn: Plan,
}

fn planned(
    text: &str,
    dims: &[(&str, u64)],
    mode: Hand,
    tile: (u32, u32),
    profile: &Profile,
) -> Result<Plan> {
    let dims = dims.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let overrides = Overrides { dims, chain: Some(chain(mode, tile)), ..Overrides::default() };
    Ok(plan_text(text, "bench", &overrides, profile, Executor::Fused)?)
}

/// Even tiles.
fn even(text: &str, m: u64, tile: (u32, u32), profile: &Profile) -> Result<Plans> {
    let dims = [("M", m)];
    Ok(Plans {
        fixed: planned(text, &dims, Hand::Fixed, tile, profile)?,
        drawn: planned(text, &dims, Hand::Drawn, tile, profile)?,
    })
}

/// Products of one input with weights of their own.
const EXPERTS: usize = 8;
/// Rows of all of them.
const EXPERT_ROWS: u64 = 4096;

fn experts(rows: &[u64; EXPERTS]) -> String {
    use std::fmt::Write as _;
    let (mut dims, mut stages) = (String::new(), String::new());
    for (i, rows) in rows.iter().enumerate() {
        let _ = write!(dims, "\"M{i}\": {rows}, ");
        let _ = writeln!(
            stages,
            "    Gemm(name: \"e{i}\", a: \"X{i}(M{i},K)\", b: \"W{i}(K,N)\", out: \"Y{i}(M{i},N)\"),"
        );
    }
    format!("Pipeline(name: \"experts\", dims: {{ {dims}\"K\": 2048, \"N\": 4096 }}, stages: [\n{stages}])")
}

/// Rows by Zipf's law: the r-th most wanted has 1 / r of the first's. Who is wanted is drawn.
fn zipf(rng: &mut SmallRng) -> [u64; EXPERTS] {
    let all: f64 = (1..=EXPERTS).map(|r| 1.0 / r as f64).sum();
    let mut rows: [u64; EXPERTS] =
        std::array::from_fn(|r| (EXPERT_ROWS as f64 / all / (r + 1) as f64).round() as u64);
    rows.shuffle(rng);
    rows
}

/// Plans of rows that are known only now; the lists are those that were made for as many rows of each, and a tile below them is with
/// the worker that has the same place in the rows above.
fn uneven(rows: &[u64; EXPERTS], tile: (u32, u32), profile: &Profile) -> Result<Plans> {
    let text = experts(rows);
    let drawn = planned(&text, &[], Hand::Drawn, tile, profile)?;
    let even = planned(&experts(&[EXPERT_ROWS / EXPERTS as u64; EXPERTS]), &[], Hand::Fixed, tile, profile)?;
    let lists = even.launch().lists().ok_or_else(|| Error::Argument("no lists".into()))?;
    let mut of_tile = BTreeMap::new();
    for (worker, list) in lists.lists.iter().enumerate() {
        for item in list.iter().map(|i| &lists.sequence[*i as usize]) {
            of_tile.insert((item.stage.0, item.m, item.n), worker);
        }
    }
    let rows_of = |stage: StageId| even.graph().stages[stage.0].grid.0;
    let overrides = Overrides { chain: Some(chain(Hand::Fixed, tile)), ..Overrides::default() };
    let resolved = resolve_text(&text, "bench", &overrides)?;
    let refused = |e: &dyn std::fmt::Debug| Error::Argument(format!("the lists of even rows: {e:?}"));
    let mut candidate: Candidate =
        choose::chain(&resolved, profile, chain(Hand::Fixed, tile)).map_err(|e| refused(&e))?;
    let Some(schedule) = candidate.launch.lists_mut() else { return Err(Error::Argument("no lists".into())) };
    schedule.lists.iter_mut().for_each(Vec::clear);
    for (at, item) in schedule.sequence.iter().enumerate() {
        let worker = of_tile.get(&(item.stage.0, item.m % rows_of(item.stage), item.n)).copied().unwrap_or(0);
        schedule.lists[worker].push(at as u32);
    }
    let fixed = check(candidate).map_err(|e| refused(&e))?;
    Ok(Plans { fixed, drawn })
}

/// A kernel of so many CTAs, each on an SM of its own for about so long.
pub(super) struct Taker {
    call: KernelCall,
    stream: Stream,
}

impl Taker {
    const THREADS: u32 = 1024;

    fn call(device: &Device, rounds: u32) -> Result<KernelCall> {
        let function = Module::suite(device)?.function("spin")?;
        let words = TAKEN * Self::THREADS;
        let out = Arc::new(DeviceBuffer::zeroed(device, words as usize, "what spins")?);
        let to = || Arg::Words(out.clone(), 0);
        let args = [
            Arg::Null,
            Arg::Null,
            Arg::Null,
            Arg::Null,
            to(),
            Arg::Null,
            Arg::U32(words),
            Arg::U32(0),
            Arg::U32(1),
            Arg::U32(0),
            Arg::U32(1),
            Arg::U32(rounds),
            Arg::Null,
            Arg::Null,
        ];
        // More than 40 KiB a CTA, so that no SM has two of them beside a kernel's worker.
        let shape = Shape { shared_bytes: 40 << 10, ..Shape::linear(TAKEN, Self::THREADS) };
        Ok(KernelCall::new(&function, shape, &args)?)
    }

    pub(super) fn new(device: &Device, us: f64) -> Result<Taker> {
        let stream = Stream::new(device)?;
        let timed = |rounds: u32| -> Result<f64> {
            let call = Self::call(device, rounds)?;
            stream.launch(&call, false)?;
            stream.synchronize()?;
            let begin = Instant::now();
            stream.launch(&call, false)?;
            stream.synchronize()?;
            Ok(begin.elapsed().as_secs_f64() * 1e6)
        };
        let (few, many) = (timed(1000)?, timed(101_000)?);
        let rounds = us / ((many - few) / 100_000.0).max(1e-6);
        Ok(Taker { call: Self::call(device, rounds as u32)?, stream })
    }

    /// Has the SMs when this returns, most likely.
    pub(super) fn take(&self) -> Result<()> {
        self.stream.launch(&self.call, false)?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(8) {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// A kernel that is launched for each run, and a word that is set behind it.
struct Launched {
    stream: Stream,
    flag: PinnedBuffer,
    graph: Option<GraphExec>,
}

impl Launched {
    /// In a graph, or each time anew.
    fn new(device: &Device, graph: bool, run: &dyn Fn(&Stream) -> Result<()>) -> Result<Launched> {
        let (stream, flag) = (Stream::new(device)?, PinnedBuffer::new(device, 1)?);
        let graph = graph.then(|| {
            let graph = stream.capture::<Error>(|| {
                run(&stream)?;
                Ok(stream.write_word(&flag, 0, 1)?)
            })?;
            graph.upload(&stream)?;
            Ok::<_, Error>(graph)
        });
        Ok(Launched { graph: graph.transpose()?, stream, flag })
    }

    fn job(&self, run: &dyn Fn(&Stream) -> Result<()>) -> Result<()> {
        self.flag.set_word(0, 0)?;
        match &self.graph {
            Some(graph) => graph.launch(&self.stream)?,
            None => {
                run(&self.stream)?;
                self.stream.write_word(&self.flag, 0, 1)?;
            }
        }
        let begin = Instant::now();
        while self.flag.word(0) != Some(1) {
            std::hint::spin_loop();
            if begin.elapsed() > Duration::from_secs(5) {
                return Err(Error::Argument("a run was not over within 5 s".into()));
            }
        }
        Ok(())
    }
}

/// First begin to last end, the gaps between a worker's items, what a worker waits inside them, and how many there are.
fn spans(mut items: Vec<ItemTrace>) -> (f64, Vec<f64>, f64, usize) {
    items.sort_by_key(|item| (item.worker, item.begin));
    let first = items.iter().map(|item| item.begin).min().unwrap_or(0);
    let last = items.iter().map(|item| item.end).max().unwrap_or(0);
    let pairs = items.windows(2).filter(|pair| pair[0].worker == pair[1].worker);
    let gaps = pairs.map(|pair| pair[1].begin.saturating_sub(pair[0].end) as f64).collect();
    let workers = items.chunk_by(|a, b| a.worker == b.worker).count().max(1);
    let waits: u64 = items.iter().map(|item| item.loaded.saturating_sub(item.begin)).sum();
    (last.saturating_sub(first) as f64 / 1e3, gaps, waits as f64 / 1e3 / workers as f64, items.len())
}

/// How long the first job of a launch took, in microseconds since it was submitted, until the call came back, the first word was written, and the first item began.
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

/// The four ways of one case, in turns.
fn four_ways(
    device: &Device,
    case: &str,
    plans: &Plans,
    jobs: usize,
    taken_us: Option<f64>,
) -> Result<Vec<HandedOut>> {
    let inputs = InputSets::random(plans.drawn.graph(), device, 1, 11)?;
    let made = |plan: &Plan, trace: bool| -> Result<Pipeline> {
        // Beside another kernel all begin with the SMs that they get.
        let overlap = if taken_us.is_some() { Overlap::All } else { Overlap::Plain };
        let mut pipeline =
            Pipeline::with_options(plan, device, Options { trace, overlap, ..Options::default() })?;
        inputs.bind(&mut pipeline)?;
        pipeline.prepare()?;
        Ok(pipeline)
    };
    let taker = taken_us.map(|us| Taker::new(device, us)).transpose()?;
    let names = ["static lists", "counter", "device scheduler", "co-pilot"];
    let mut times: [Vec<f64>; 4] = Default::default();
    let mut span_us: [Vec<f64>; 4] = Default::default();
    let mut gaps: [Vec<f64>; 4] = Default::default();
    let mut waits_us: [Vec<f64>; 4] = Default::default();
    let mut items = [0; 4];
    let mut begun: [Vec<f64>; 3] = Default::default();
    for trace in [false, true] {
        let fixed = std::cell::RefCell::new(made(&plans.fixed, trace)?);
        let drawn = std::cell::RefCell::new(made(&plans.drawn, trace)?);
        let mut third = made(&plans.drawn, trace)?;
        let scheduled = Scheduled::new(&mut third, AHEAD)?;
        let mut handed = made(&plans.drawn, trace)?;
        let beside = taker.is_some();
        let run_fixed = |s: &Stream| Ok(fixed.borrow_mut().run_on(Executor::Fused, s)?);
        let run_drawn = |s: &Stream| Ok(drawn.borrow_mut().run_on(Executor::Fused, s)?);
        let run_scheduled = |s: &Stream| Ok(scheduled.run_on(s, beside)?);
        let runs: [&Queue<'_>; 3] = [&run_fixed, &run_drawn, &run_scheduled];
        let launched = runs.map(|run| Launched::new(device, !beside, run));
        let [first, second, third] = launched;
        let launched = [first?, second?, third?];
        let handing = Handing { idle: IDLE, ahead: AHEAD, beside, ..Handing::default() };
        let mut session = Items::open(&mut handed, handing)?;
        let job_of = |session: &mut Items<'_>| -> Result<()> {
            let kinds = session.kinds();
            let submitted =
                (0..kinds).map(|kind| session.submit(kind)).collect::<runtime::Result<Vec<_>>>()?;
            submitted.into_iter().try_for_each(|job| Ok(session.wait(job)?))
        };
        let turns = if trace { 6 } else { jobs.div_ceil(TURN) + 1 };
        for round in 0..turns {
            for at in 0..4 {
                // In one order and then in the other.
                let way = if round % 2 == 0 { at } else { 3 - at };
                for turn in 0..if trace { 2 } else { TURN + 2 } {
                    if let Some(taker) = &taker {
                        // A host's kernel that is there would not give way; the others find the GPU as it does.
                        std::thread::sleep(IDLE * 3);
                        taker.stream.synchronize()?;
                        taker.take()?;
                    }
                    if trace {
                        session.take_notes();
                    }
                    let begin = Instant::now();
                    match launched.get(way) {
                        Some(launched) => launched.job(runs[way])?,
                        None => job_of(&mut session)?,
                    }
                    let us = begin.elapsed().as_secs_f64() * 1e6;
                    if !trace && round > 0 && turn >= 2 {
                        times[way].push(us);
                    }
                    if trace {
                        // Of every job, for the next may have its items elsewhere.
                        let records = match way {
                            0 => fixed.borrow().take_trace()?,
                            1 => drawn.borrow().take_trace()?,
                            2 => scheduled.pipeline().take_trace()?,
                            _ => session.take_trace()?,
                        };
                        if round > 0 && turn > 0 {
                            if way == 3 {
                                let us = begins(&plans.drawn, &session.take_notes(), &records);
                                begun
                                    .iter_mut()
                                    .zip(us.into_iter().flatten())
                                    .for_each(|(all, us)| all.push(us));
                            }
                            let (span, between, waited, count) = spans(records);
                            waits_us[way].push(waited);
                            span_us[way].push(span);
                            gaps[way].extend(between);
                            items[way] = count;
                        }
                    }
                }
                if way == 3 {
                    std::thread::sleep(IDLE * 3);
                }
            }
        }
        session.close()?;
    }
    let mut found = Vec::new();
    for (way, name) in names.into_iter().enumerate() {
        let mean = gaps[way].iter().sum::<f64>() / gaps[way].len().max(1) as f64;
        found.push(HandedOut {
            case: case.into(),
            way: name.into(),
            times: JobTimes::of(std::mem::take(&mut times[way])),
            span_us: percentile(&mut span_us[way], 0.5),
            gap_ns: [percentile(&mut gaps[way], 0.5), percentile(&mut gaps[way], 0.9), mean],
            waits_us: percentile(&mut waits_us[way], 0.5),
            items: items[way],
            begins_us: (way == 3 && !begun[0].is_empty())
                .then(|| std::array::from_fn(|at| percentile(&mut begun[at], 0.5))),
        });
    }
    Ok(found)
}

/// The three cases: even tiles, rows by Zipf's law, and both beside a kernel that takes SMs for half of the time.
pub(super) fn handed_out(
    device: &Device,
    jobs: usize,
    told: &mut dyn FnMut(&str),
) -> Result<(Vec<HandedOut>, HostCost)> {
    let none = || Error::Argument(format!("{} has no chain kernels", device.name()));
    let profile = device.profile().filter(|p| p.arch == 90).ok_or_else(none)?;
    let llama = shipped("llama65_mlp").ok_or_else(|| Error::Argument("llama65_mlp ships no more".into()))?;
    let mut found = Vec::new();
    let mut costs = HostCost::default();
    for tile in [(128, 256), (128, 128)] {
        let name = format!("llama65_mlp M=1024, tiles of {}x{}", tile.0, tile.1);
        let plans = even(llama, 1024, tile, &profile)?;
        told(&name);
        let alone = four_ways(device, &name, &plans, jobs, None)?;
        let half = alone[1].times.p50_us / 2.0;
        found.extend(alone);
        told(&format!("{name}, {TAKEN} SMs taken"));
        found.extend(four_ways(device, &format!("{name}, {TAKEN} SMs taken"), &plans, jobs / 2, Some(half))?);
        costs = host_cost(&plans.drawn)?;
    }
    let mut rng = SmallRng::seed_from_u64(8);
    for draw in 0..3 {
        let rows = zipf(&mut rng);
        let name = format!("eight products, rows {rows:?}");
        told(&name);
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

/// Without a GPU: the ledger alone, and a look at mailboxes that nobody writes.
fn host_cost(plan: &Plan) -> Result<HostCost> {
    let refused = |e: cusync_gen::check::Refutation| Error::Argument(e.message);
    let mut ledger = Ledger::of(plan).map_err(refused)?;
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
    let mail = crate::device::HostMail::new(workers);
    let boxes = mail.boxes().ok_or_else(|| Error::Argument("no mailboxes".into()))?;
    let begin = Instant::now();
    const LOOKS: u32 = 1000;
    for _ in 0..LOOKS {
        std::hint::black_box((0..workers).map(|worker| boxes.done(worker)).max());
    }
    Ok(HostCost { ledger_ns, look_ns: begin.elapsed().as_secs_f64() * 1e9 / f64::from(LOOKS) })
}

/// Two kinds that share weights.
const TWO: &str = r#"Pipeline(name: "two_kinds", dims: { "M": 384, "S": 100, "H": 256 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", residual: "X(M,H)", out: "Z(M,H)"),
    Gemm(name: "short_up", a: "XS(S,H)", b: "W(H,H)", out: "YS(S,H)", epilogue: Gelu),
    Gemm(name: "short_down", a: "YS(S,H)", b: "V(H,H)", residual: "XS(S,H)", out: "ZS(S,H)"),
])"#;

/// Jobs of both kinds with inputs that change from job to job, every bit of them held against `fused`. Now and then the kernel leaves in
/// between; with `taken` another then takes SMs, and the kernel begins with those that are left.
pub(super) fn exact_items(device: &Device, jobs: usize, delays_ns: u32, taken: bool) -> Result<ExactJobs> {
    const INPUTS: usize = 3;
    let none = || Error::Argument(format!("{} has no chain kernels", device.name()));
    let profile = device.profile().filter(|p| p.arch == 90).ok_or_else(none)?;
    let plan = planned(TWO, &[], Hand::Drawn, (128, 128), &profile)?;
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
    let taker = if taken { Some(Taker::new(device, 300.0)?) } else { None };
    let handing = Handing { idle: IDLE, beside: taken, ..Handing::default() };
    let stream = Stream::new(device)?;
    let mut session = Items::open(&mut pipeline, handing)?;
    let (mut wrong, mut have) = (0, vec![0u16; want[0].iter().map(Vec::len).max().unwrap_or(0)]);
    for number in 0..jobs.div_ceil(2) {
        let with = number % INPUTS;
        for (values, (to, _)) in given[with].iter().zip(&tensors) {
            to.upload_on(values, &stream)?;
        }
        // Either first.
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
            taker.as_ref().map_or(Ok(()), Taker::take)?;
        }
    }
    let launches = session.launches();
    session.close()?;
    let name = if taken { "two kinds of items, SMs taken" } else { "two kinds of items" };
    Ok(ExactJobs { pipeline: name.into(), jobs: 2 * jobs.div_ceil(2), wrong, launches })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_of_a_case_have_the_same_tiles() {
        let h200 = Profile::named("h200").expect("it ships");
        let mut rng = SmallRng::seed_from_u64(8);
        let rows = zipf(&mut rng);
        assert!(rows.iter().sum::<u64>().abs_diff(EXPERT_ROWS) <= 4 && rows.iter().max() > Some(&1400));
        let plans = uneven(&rows, (128, 128), h200).expect("proved");
        let tiles = |plan: &Plan| {
            let lists = plan.launch().lists().expect("lists").sequence.clone();
            let mut tiles: Vec<_> = lists.iter().map(|i| (i.stage.0, i.m, i.n)).collect();
            tiles.sort_unstable();
            tiles
        };
        assert_eq!(tiles(&plans.fixed), tiles(&plans.drawn));
        assert!(Ledger::of(&plans.drawn).is_ok() && Ledger::of(&plans.fixed).is_err());
        let two = planned(TWO, &[], Hand::Drawn, (128, 128), h200).expect("proved");
        assert_eq!(Ledger::of(&two).expect("drawn").kinds(), 2);
    }

    #[test]
    fn gaps_are_between_items_of_one_worker() {
        let item = cusync_gen::schedule::Item {
            stage: StageId(0),
            m: 0,
            n: 0,
            k_begin: 0,
            k_end: 1,
            part: cusync_gen::schedule::Part::Whole,
        };
        let record = |worker, begin, end| ItemTrace {
            worker,
            cta: 0,
            sm: 0,
            item,
            begin,
            ready: begin,
            loaded: begin + if worker == 1 { 200 } else { 0 },
            math_end: end,
            end,
        };
        let found = spans(vec![record(1, 500, 900), record(0, 700, 1000), record(0, 100, 600)]);
        assert_eq!(found, (0.9, vec![100.0], 0.1, 3));
    }
}
