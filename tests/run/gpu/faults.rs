//! Runs with delays injected at items, loads, stores and posts, and with another kernel that occupies SMs: tiles become
//! ready in a different order each time, and every result is bit-identical.
//!
//! The kernels must be built with `CUSYNC_DELAYS=1`, as in `CUSYNC_DELAYS=1 cargo xtask bundle`. Every run begins with
//! NaNs in every tensor that a stage writes, so a read that comes too early is always detected, and the whole run is
//! compared on the device. All cases together run 100 000 times, 15 000 times with `CUSYNC_GPU_QUICK=1`, or the number
//! of times in `CUSYNC_RUNS`:
//!
//!     CUSYNC_RUNS=1000000 gpu_tests faults
//!
//! Half of the runs are next to a kernel that occupies SMs, and some cases are two concurrent pipelines on two streams.
//! Each of a test's cases gets the same time, so short ones run more often.

use std::time::{Duration, Instant};

use crate::attends::{PAGED, WIDTHS};
use crate::common::{Gpu, assert_right, dim, pipeline, plan, plan_of, quick};
use crate::fused::{DYNAMIC, STATIC, expected, fused, hopper};
use crate::fused_decode::{WIDE_MLP, decode};
use cusync::device::{Delays, DeviceBuffer, Stream, helpers};
use cusync::runtime::{
    ChainOverride, InputSets, Options, Overrides, Pipeline, Result, element_code, shipped,
};
use cusync_bench::copilot::{CopilotArgs, bench_copilot};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::Element;
use cusync_gen::schedule::decode::is_in_pairs;
use half::slice::HalfFloatSliceExt;

/// The longest delay.
const LIMIT_NS: u32 = 20_000;

/// Runs between two checks of the counts.
const ROUND: usize = 250;

/// The GPU, if it is a Hopper and the kernels have delays.
pub(crate) fn delayed() -> Option<Gpu> {
    if option_env!("CUSYNC_HAS_DELAYS").is_none() {
        println!("skipped: another build: injected delays need CUSYNC_DELAYS=1");
        return None;
    }
    hopper()
}

pub(crate) fn delays(seed: u32) -> Delays {
    Delays { seed, limit_ns: LIMIT_NS }
}

/// Number of tests that share the runs.
const TESTS: usize = 8;

/// Runs of one test.
fn runs() -> usize {
    let stated =
        std::env::var("CUSYNC_RUNS").ok().map(|count| count.parse().expect("CUSYNC_RUNS is a number"));
    let all: usize = stated.unwrap_or(if quick() { 15_000 } else { 100_000 });
    all.div_ceil(TESTS)
}

/// The results of a first, undelayed run, and the differences of later runs from them.
pub(crate) struct Expected {
    tensors: Vec<Known>,
}

struct Known {
    name: String,
    /// As float32.
    values: DeviceBuffer<f32>,
    /// Differences as counted by `helpers::compare`.
    differences: DeviceBuffer<f32>,
}

impl Expected {
    /// Copies the results that the pipeline's last run left in its own memory.
    pub(crate) fn new(pipeline: &mut Pipeline) -> Result<Expected> {
        pipeline.synchronize()?;
        let graph = pipeline.plan().graph().clone();
        let memory = |p: &Pipeline, name: &str| p.tensor(0, name);
        let mut tensors = Vec::new();
        let written: Vec<&str> = graph.stages.iter().map(|s| graph.tensors[s.out.0].name.as_str()).collect();
        for (place, name) in written.iter().enumerate() {
            let own = memory(pipeline, name)?;
            let later: Result<Vec<_>> = written[place + 1..].iter().map(|n| memory(pipeline, n)).collect();
            if later?.iter().any(|other| std::sync::Arc::ptr_eq(other, &own)) {
                continue;
            }
            let (mut bits, mut values) = (vec![0u16; own.len()], vec![0f32; own.len()]);
            own.download(&mut bits)?;
            match graph.element {
                Element::F16 => {
                    let halves: Vec<half::f16> = bits.iter().map(|b| half::f16::from_bits(*b)).collect();
                    halves.convert_to_f32_slice(&mut values);
                }
                Element::Bf16 => {
                    let halves: Vec<half::bf16> = bits.iter().map(|b| half::bf16::from_bits(*b)).collect();
                    halves.convert_to_f32_slice(&mut values);
                }
            }
            let values = DeviceBuffer::from_slice(pipeline.device(), &values, "what is expected")?;
            let differences = DeviceBuffer::zeroed(pipeline.device(), 3, "differences")?;
            tensors.push(Known { name: (*name).to_owned(), values, differences });
        }
        assert!(!tensors.is_empty());
        Ok(Expected { tensors })
    }

    /// Queues the comparison of a run's outputs.
    pub(crate) fn compare(&self, pipeline: &Pipeline) -> Result<()> {
        let element = element_code(pipeline.plan().graph().element);
        self.tensors.iter().try_for_each(|known| {
            let output = pipeline.tensor(0, &known.name)?;
            Ok(helpers::compare(&output, &known.values, element, &known.differences, pipeline.stream())?)
        })
    }

    /// Tensors that were not bit-identical in every run compared since the last check. Waits for the runs.
    pub(crate) fn differing(&self, pipeline: &mut Pipeline) -> Result<Vec<&str>> {
        pipeline.synchronize()?;
        let mut differing = Vec::new();
        for known in &self.tensors {
            let mut sums = [0f32; 3];
            known.differences.download(&mut sums)?;
            known.differences.upload(&[0.0; 3])?;
            assert!(sums[1] > 0.0, "nothing was compared of {}", known.name);
            // A NaN is not equal to 0 either.
            if !(sums[0] == 0.0 && sums[2] == 0.0) {
                differing.push(&*known.name);
            }
        }
        Ok(differing)
    }
}

/// Reads memory on its own stream: its CTAs take SMs that a pipeline's kernels would have used.
struct Neighbour {
    stream: Stream,
    data: DeviceBuffer<u16>,
    sink: DeviceBuffer<u32>,
}

impl Neighbour {
    fn new(gpu: &Gpu) -> Result<Neighbour> {
        Ok(Neighbour {
            stream: Stream::new(&gpu.device)?,
            data: DeviceBuffer::zeroed(&gpu.device, 48 << 20, "the neighbour's data")?,
            sink: DeviceBuffer::zeroed(&gpu.device, 64, "the neighbour's sink")?,
        })
    }

    fn run(&self) -> Result<()> {
        Ok(helpers::stream_read(&self.data, &self.sink, &self.stream)?)
    }
}

/// Queues `count` runs of each of one or more pipelines, every second one as a graph, each on poisoned outputs and
/// compared.
fn repeat(
    pipelines: &mut [(Pipeline, Expected)],
    neighbour: Option<&Neighbour>,
    count: usize,
) -> Result<Duration> {
    let graph = |(pipeline, _): &mut (Pipeline, Expected)| pipeline.capture(pipeline.plan().executor(), &[0]);
    let graphs = pipelines.iter_mut().map(graph).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    for run in 0..count {
        // Not before every run: finding all SMs free produces yet another order.
        if let Some(neighbour) = neighbour.filter(|_| run % 3 != 0) {
            neighbour.run()?;
        }
        for ((pipeline, expected), graph) in pipelines.iter_mut().zip(&graphs) {
            pipeline.poison_outputs()?;
            if run % 2 == 0 {
                pipeline.run(pipeline.plan().executor())?
            } else {
                pipeline.replay(graph)?
            }
            expected.compare(pipeline)?;
        }
    }
    pipelines.iter_mut().try_for_each(|(pipeline, _)| pipeline.synchronize())?;
    Ok(began.elapsed())
}

/// A plan that must give right results regardless of delays.
struct Case {
    label: String,
    plan: Plan,
    seed: u32,
    /// Concurrently queued pipelines, each on its own stream.
    beside: usize,
}

/// A case with its pipelines and observations.
struct Delayed {
    label: String,
    pipelines: Vec<(Pipeline, Expected)>,
    undelayed: Duration,
    rounds: usize,
    took: Duration,
    /// The shortest round alone, and the longest next to another kernel.
    alone: Duration,
    shared: Duration,
}

impl Delayed {
    /// Verifies a run without delays, and that a round of runs gives the same results.
    fn new(gpu: &Gpu, case: Case) -> Result<Delayed> {
        let Case { label, plan, seed, beside } = case;
        let (inputs, reference) = expected(gpu, &plan, 1, seed);
        let mut plain = pipeline(gpu, &plan, &inputs, Options::default());
        plain.prepare()?;
        plain.poison_outputs()?;
        plain.run(plan.executor())?;
        assert_right(&label, &reference.compare(&mut plain)?);
        let values = (0..=beside).map(|_| Expected::new(&mut plain)).collect::<Result<Vec<_>>>()?;
        let mut values = values.into_iter();
        let mut plain = values.next().map(|expected| [(plain, expected)]).expect("one and more");
        let undelayed = repeat(&mut plain, None, ROUND)?;
        let [(pipeline_of_plain, expected_of_plain)] = &mut plain;
        let differing = expected_of_plain.differing(pipeline_of_plain)?;
        assert!(differing.is_empty(), "{label}: runs without delays differ in {differing:?}");

        let options = Options { delays: delays(seed), ..Options::default() };
        let mut first = pipeline(gpu, &plan, &inputs, options);
        first.prepare()?;
        let mut all = (1..beside).map(|_| first.fork()).collect::<Result<Vec<_>>>()?;
        all.insert(0, first);
        let pipelines = all.into_iter().zip(values).collect();
        let (alone, shared, took) = (Duration::MAX, Duration::ZERO, Duration::ZERO);
        Ok(Delayed { label, pipelines, undelayed, rounds: 0, took, alone, shared })
    }

    /// Another round, every second time next to another kernel; returns the number of runs.
    fn round(&mut self, neighbour: &Neighbour) -> Result<usize> {
        let beside = (self.rounds % 2 == 1).then_some(neighbour);
        let took = repeat(&mut self.pipelines, beside, ROUND)?;
        match beside {
            None => self.alone = self.alone.min(took),
            Some(_) => self.shared = self.shared.max(took),
        }
        (self.rounds, self.took) = (self.rounds + 1, self.took + took);
        for (place, (pipeline, expected)) in self.pipelines.iter_mut().enumerate() {
            let (label, rounds) = (&self.label, self.rounds);
            let differing = expected.differing(pipeline)?;
            assert!(
                differing.is_empty(),
                "{label}: a run of round {rounds} differs in {differing:?}, pipeline {place}"
            );
        }
        Ok(ROUND * self.pipelines.len())
    }
}

/// Runs the cases of a test as often as requested, each for at least two rounds.
fn survive(gpu: &Gpu, cases: Vec<Case>) {
    let attempt = || -> Result<()> {
        let neighbour = Neighbour::new(gpu)?;
        let mut all = cases.into_iter().map(|case| Delayed::new(gpu, case)).collect::<Result<Vec<_>>>()?;
        let mut done = 0;
        while done < runs() || all.iter().any(|case| case.rounds < 2) {
            let next = all.iter_mut().min_by_key(|case| (case.rounds >= 2, case.took));
            done += next.expect("there are cases").round(&neighbour)?;
        }
        for case in &all {
            let runs = ROUND * case.pipelines.len();
            let each = |round: Duration| round.as_secs_f64() * 1e6 / runs as f64;
            let undelayed = case.undelayed.as_secs_f64() * 1e6 / ROUND as f64;
            println!(
                "{}: {} runs with delays, none differs; {undelayed:.0} us a run without, {:.0} us with, {:.0} us beside another kernel",
                case.label,
                case.rounds * runs,
                each(case.alone),
                each(case.shared)
            );
            let side_by_side = case.pipelines.len() > 1;
            assert!(
                side_by_side || case.alone > case.undelayed,
                "{}: the delays delayed nothing",
                case.label
            );
        }
        println!("{done} runs with delays, 0 wrong, 0 stuck");
        Ok(())
    };
    attempt().unwrap_or_else(|e| panic!("{e}"));
}

fn case(label: String, plan: Plan, seed: u32) -> Case {
    Case { label, plan, seed, beside: 1 }
}

const PIPELINES: [&str; 3] = ["two_gemms", "gpt3_mlp", "llama65_mlp"];

#[test]
fn chains_survive_delays() {
    let Some(gpu) = delayed() else { return };
    let mut cases = Vec::new();
    for (i, name) in PIPELINES.into_iter().enumerate() {
        for (m, config) in [(64, STATIC), (256, STATIC), (256, DYNAMIC)] {
            let plan = fused(&gpu, name, m, config);
            cases.push(case(format!("{name} M = {m} {:?}", config.mode), plan, 100 + i as u32));
        }
    }
    survive(&gpu, cases);
}

#[test]
fn decode_chains_survive_delays() {
    let Some(gpu) = delayed() else { return };
    let mut cases = Vec::new();
    for (i, name) in PIPELINES.into_iter().enumerate() {
        for m in [8, 64] {
            let plan = decode(&gpu, shipped(name).expect("it ships"), m, Element::F16);
            cases.push(case(format!("{name} M = {m} decode"), plan, 200 + i as u32));
        }
    }
    let wide = decode(&gpu, WIDE_MLP, 8, Element::F16);
    cases.push(case("wide_mlp M = 8 decode, in rounds".into(), wide, 210));
    survive(&gpu, cases);
}

#[test]
fn coupled_kernels_survive_delays() {
    let Some(gpu) = delayed() else { return };
    let mut cases = Vec::new();
    for (i, name) in PIPELINES.into_iter().enumerate() {
        for executor in [Executor::Streams, Executor::Programmatic] {
            let plan = plan(&gpu, name, &dim("M", 256), executor);
            cases.push(case(format!("{name} M = 256 {executor:?}"), plan, 300 + i as u32));
        }
    }
    survive(&gpu, cases);
}

/// A spec with dims, a number type, and launches.
type Sized<'a> = (&'a str, &'a [(&'a str, u64)], Element, Launches);

/// One launch as chosen, one with these lists, or one launch per stage.
#[derive(Clone, Copy, Debug)]
enum Launches {
    Chosen,
    Listed(ChainOverride),
    InTurn,
}

/// Each spec at its dims; a string that is not spec text is the name of a shipped spec.
fn sized_cases(gpu: &Gpu, cases: &[Sized<'_>], seed: u32) -> Vec<Case> {
    let one = |(i, (source, dims, element, launches)): (usize, &Sized<'_>)| {
        let dims = dims.iter().map(|(dim, size)| ((*dim).to_owned(), *size)).collect();
        let (executor, chain) = match launches {
            Launches::Chosen => (Executor::Fused, None),
            Launches::Listed(chain) => (Executor::Fused, Some(*chain)),
            Launches::InTurn => (Executor::Serial, None),
        };
        let overrides = Overrides { dims, element: Some(*element), chain, ..Overrides::default() };
        let plan = plan_of(gpu, shipped(source).unwrap_or(source), &overrides, executor);
        let label = format!("{} {:?} {element:?} {launches:?}", plan.graph().name, overrides.dims);
        case(label, plan, seed + i as u32)
    };
    cases.iter().enumerate().map(one).collect()
}

/// Row operations of a chain kernel, next to GEMMs, and kernels that run alone.
#[test]
fn rows_and_heads_survive_delays() {
    let Some(gpu) = delayed() else { return };
    let layer: &[(&str, u64)] = &[("S", 200), ("E", 1024), ("I", 704)];
    let cases: [Sized<'_>; 7] = [
        ("llama65_norm_mlp", &[("M", 64)], Element::F16, Launches::Chosen),
        ("llama65_norm_mlp", &[("M", 200)], Element::F16, Launches::Chosen),
        ("gpt3_attention", &[("S", 300), ("E", 1024)], Element::F16, Launches::InTurn),
        ("llama3_70b_attention", &[("S", 512), ("E", 1024)], Element::Bf16, Launches::InTurn),
        ("llama65_prompt_layer", layer, Element::F16, Launches::InTurn),
        ("llama3_70b_prompt_layer", layer, Element::Bf16, Launches::InTurn),
        ("gpt3_prompt_layer", layer, Element::F16, Launches::InTurn),
    ];
    survive(&gpu, sized_cases(&gpu, &cases, 400));
}

/// Decode kernels with attention: blocks and layers, paged caches, and 32-row GEMMs in which pairs of workers exchange
/// sums.
#[test]
fn generation_survives_delays() {
    let Some(gpu) = delayed() else { return };
    let cases: [Sized<'_>; 7] = [
        ("llama3_70b_generate", &[("B", 5), ("S", 256)], Element::F16, Launches::Chosen),
        ("llama3_70b_generate", &[("B", 32), ("S", 512)], Element::F16, Launches::Chosen),
        ("llama65_generate", &[("B", 4), ("S", 256)], Element::Bf16, Launches::Chosen),
        ("llama3_70b_layer", &[("B", 1), ("S", 256)], Element::F16, Launches::Chosen),
        ("llama65_layer", &[("B", 8), ("S", 128)], Element::Bf16, Launches::Chosen),
        (PAGED, &[("B", 5), ("S", 256)], Element::F16, Launches::Chosen),
        (WIDTHS, &[("B", 5), ("S", 256)], Element::Bf16, Launches::Chosen),
    ];
    let cases = sized_cases(&gpu, &cases, 430);
    let pairs = |case: &Case| {
        let (graph, workers) = (case.plan.graph(), case.plan.launch().shares().map(|s| s.workers()));
        workers.is_some_and(|workers| graph.stages.iter().any(|stage| is_in_pairs(graph, stage, workers)))
    };
    assert!(cases.iter().any(pairs), "no workers of these pair up");
    survive(&gpu, cases);
}

/// Convolutions with strides, shortcuts and residuals, and pools between them.
#[test]
fn images_survive_delays() {
    let Some(gpu) = delayed() else { return };
    let layer: &[(&str, u64)] = &[("B", 2), ("HW", 28), ("C", 128)];
    let cases: [Sized<'_>; 7] = [
        ("resnet_layer", layer, Element::F16, Launches::Chosen),
        ("resnet_layer", layer, Element::Bf16, Launches::Listed(DYNAMIC)),
        ("resnet_layer", layer, Element::F16, Launches::InTurn),
        ("resnet38_layer4", &[("B", 3)], Element::F16, Launches::Chosen),
        ("resnet38_layer4", &[("B", 3)], Element::Bf16, Launches::Chosen),
        ("vgg19_block3", &[("B", 2)], Element::F16, Launches::Chosen),
        ("vgg19_block3", &[("B", 2)], Element::F16, Launches::Listed(DYNAMIC)),
    ];
    survive(&gpu, sized_cases(&gpu, &cases, 450));
}

/// A pipeline and its fork, each on its own stream: coupled kernels run concurrently, others take turns.
#[test]
fn pipelines_side_by_side_survive_delays() {
    let Some(gpu) = delayed() else { return };
    let coupled = |name, executor| (plan(&gpu, name, &dim("M", 256), executor), format!("{executor:?}"));
    let one = |name, m, config: ChainOverride| (fused(&gpu, name, m, config), format!("{:?}", config.mode));
    let few = decode(&gpu, shipped("two_gemms").expect("it ships"), 8, Element::F16);
    let plans = [
        coupled("two_gemms", Executor::Streams),
        coupled("llama65_mlp", Executor::Streams),
        coupled("two_gemms", Executor::Programmatic),
        coupled("llama65_mlp", Executor::Programmatic),
        one("two_gemms", 256, STATIC),
        one("two_gemms", 256, DYNAMIC),
        (few, "decode".into()),
    ];
    let pair = |(i, (plan, config)): (usize, (Plan, String))| {
        let label = format!("two of {} {config} side by side", plan.graph().name);
        Case { label, plan, seed: 500 + i as u32, beside: 2 }
    };
    survive(&gpu, plans.into_iter().enumerate().map(pair).collect());
}

/// Jobs handed over by a host: items of a chain kernel and whole jobs of decode kernels, alone and next to a kernel
/// that takes SMs whenever the session's kernel has left. Delays are shorter: with the long ones, few jobs would run.
#[test]
fn sessions_survive_delays() {
    let Some(_gpu) = delayed() else { return };
    let only = ["items", "exact"].map(String::from).to_vec();
    let args =
        CopilotArgs { exact: runs().div_ceil(4), delays_ns: LIMIT_NS / 10, only, ..CopilotArgs::default() };
    let report = bench_copilot(&args, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    for exact in &report.exact {
        println!(
            "{}: {} jobs with delays, {} differ, {} launches",
            exact.pipeline, exact.jobs, exact.wrong, exact.launches
        );
        assert!(
            exact.wrong == 0 && exact.launches > 0,
            "{}: {} of {} jobs differ",
            exact.pipeline,
            exact.wrong,
            exact.jobs
        );
    }
    assert_eq!(report.exact.len(), 8, "two kinds of items, three pipelines, with SMs taken and without");
    let done: usize = report.exact.iter().map(|exact| exact.jobs).sum();
    assert!(done >= runs(), "only {done} jobs");
    println!("{done} runs with delays, 0 wrong, 0 stuck");
}

/// The check above can fail: without waits, the same delays make consumers read data that is not ready.
#[test]
fn without_waits_delays_are_noticed() {
    let Some(gpu) = delayed() else { return };
    let plans = [
        fused(&gpu, "two_gemms", 256, STATIC),
        decode(&gpu, shipped("two_gemms").expect("it ships"), 8, Element::F16),
        plan(&gpu, "two_gemms", &dim("M", 256), Executor::Programmatic),
    ];
    for plan in &plans {
        let label = format!("{:?}", plan.executor());
        let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 7).expect("inputs fit");
        let attempt = || -> Result<bool> {
            let mut plain = pipeline(&gpu, plan, &inputs, Options::default());
            plain.run(plan.executor())?;
            let expected = Expected::new(&mut plain)?;
            let options = Options { delays: delays(9), skip_waits: true, ..Options::default() };
            let mut careless = [(pipeline(&gpu, plan, &inputs, options), expected)];
            repeat(&mut careless, None, 50)?;
            let [(careless, expected)] = &mut careless;
            Ok(expected.differing(careless)?.is_empty())
        };
        let same = attempt().unwrap_or_else(|e| panic!("{label}: {e}"));
        assert!(!same, "{label}: 50 runs without waits are right all the same");
    }
}
