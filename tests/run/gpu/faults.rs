//! Runs with delays injected at items, loads, stores and posts, and with another kernel that takes SMs away: tiles become ready
//! in another order each time, and every result is the same to the bit.
//!
//! The kernels must be built with `CUSYNC_DELAYS=1`, as in `CUSYNC_DELAYS=1 cargo xtask bundle`. Each case runs 10 000 times, or 500 times with `CUSYNC_GPU_QUICK=1`. Every run begins with NaNs in every tensor that a
//! stage writes, so reading too early cannot go unnoticed, and is compared as a whole on the device.

use std::time::{Duration, Instant};

use crate::common::{Gpu, assert_right, dim, pipeline, plan, quick};
use crate::fused::{DYNAMIC, STATIC, expected, fused, hopper};
use crate::fused_decode::decode;
use cusync::device::{Delays, DeviceBuffer, Stream, helpers};
use cusync::runtime::{InputSets, Options, Overrides, Pipeline, Result, element_code, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::Element;
use half::slice::HalfFloatSliceExt;

/// The longest delay.
const LIMIT_NS: u32 = 20_000;

/// Runs between two looks at the counts.
const ROUND: usize = 250;

/// The GPU when it is a Hopper and the kernels have delays.
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

fn runs() -> usize {
    if quick() { 500 } else { 10_000 }
}

/// What a first, undelayed run left, and the differences of later runs from it.
pub(crate) struct Expected {
    /// Names, with their values as float32.
    tensors: Vec<(String, DeviceBuffer<f32>)>,
    /// As `helpers::compare` counts.
    differences: DeviceBuffer<f32>,
}

impl Expected {
    /// From what the pipeline's last run left in memory of its own.
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
            tensors.push(((*name).to_owned(), values));
        }
        assert!(!tensors.is_empty());
        let differences = DeviceBuffer::zeroed(pipeline.device(), 3, "differences")?;
        Ok(Expected { tensors, differences })
    }

    /// Queues the comparison of a run's outputs.
    pub(crate) fn compare(&self, pipeline: &Pipeline) -> Result<()> {
        let element = element_code(pipeline.plan().graph().element);
        self.tensors.iter().try_for_each(|(name, values)| {
            let output = pipeline.tensor(0, name)?;
            Ok(helpers::compare(&output, values, element, &self.differences, pipeline.stream())?)
        })
    }

    /// Whether every run compared since the last look was the same to the bit. Waits for them.
    pub(crate) fn same(&self, pipeline: &mut Pipeline) -> Result<bool> {
        pipeline.synchronize()?;
        let mut sums = [0f32; 3];
        self.differences.download(&mut sums)?;
        self.differences.upload(&[0.0; 3])?;
        assert!(sums[1] > 0.0, "nothing was compared");
        // A NaN is not equal to 0 either.
        Ok(sums[0] == 0.0 && sums[2] == 0.0)
    }
}

/// Reads memory on a stream of its own: its CTAs take the SMs that those of a pipeline's kernels would have had.
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

/// Queues runs `range`, every other one as a graph, each on poisoned outputs and compared.
fn repeat(
    pipeline: &mut Pipeline,
    expected: &Expected,
    neighbour: Option<&Neighbour>,
    count: usize,
) -> Result<Duration> {
    let executor = pipeline.plan().executor();
    let graph = pipeline.capture(executor, &[0])?;
    let began = Instant::now();
    for run in 0..count {
        // Not before every run: one that finds all SMs free is another order again.
        if let Some(neighbour) = neighbour.filter(|_| run % 3 != 0) {
            neighbour.run()?;
        }
        pipeline.poison_outputs()?;
        if run % 2 == 0 {
            pipeline.run(executor)?
        } else {
            pipeline.replay(&graph)?
        }
        expected.compare(pipeline)?;
    }
    pipeline.synchronize()?;
    Ok(began.elapsed())
}

/// One case: right without delays, and the same with them, in as many runs as asked for.
fn survives(gpu: &Gpu, label: &str, plan: &Plan, seed: u32) {
    let (inputs, reference) = expected(gpu, plan, 1, seed);
    let attempt = || -> Result<()> {
        let mut plain = pipeline(gpu, plan, &inputs, Options::default());
        plain.prepare()?;
        plain.poison_outputs()?;
        plain.run(plan.executor())?;
        assert_right(label, &reference.compare(&mut plain)?);
        let expected = Expected::new(&mut plain)?;
        let undelayed = repeat(&mut plain, &expected, None, ROUND)?;
        assert!(expected.same(&mut plain)?, "{label}: runs without delays differ");

        let options = Options { delays: delays(seed), ..Options::default() };
        let mut delayed = pipeline(gpu, plan, &inputs, options);
        let neighbour = Neighbour::new(gpu)?;
        let (mut done, mut alone, mut shared) = (0, Duration::MAX, Duration::ZERO);
        while done < runs() {
            // Rounds with a neighbour and without.
            let beside = (done / ROUND % 2 == 1).then_some(&neighbour);
            let took = repeat(&mut delayed, &expected, beside, ROUND)?;
            match beside {
                None => alone = alone.min(took),
                Some(_) => shared = shared.max(took),
            }
            done += ROUND;
            assert!(expected.same(&mut delayed)?, "{label}: one of runs {} to {done} differs", done - ROUND);
        }
        let each = |round: Duration| round.as_secs_f64() * 1e6 / ROUND as f64;
        println!(
            "{label}: {done} runs with delays, none differs; {:.0} us a run without, {:.0} us with, {:.0} us beside another kernel",
            each(undelayed),
            each(alone),
            each(shared)
        );
        assert!(alone > undelayed, "{label}: the delays delayed nothing");
        Ok(())
    };
    attempt().unwrap_or_else(|e| panic!("{label}: {e}"));
}

const PIPELINES: [&str; 3] = ["two_gemms", "gpt3_mlp", "llama65_mlp"];

#[test]
fn chains_survive_delays() {
    let Some(gpu) = delayed() else { return };
    for (i, name) in PIPELINES.into_iter().enumerate() {
        for (m, way) in [(64, STATIC), (256, STATIC), (256, DYNAMIC)] {
            let plan = fused(&gpu, name, m, way);
            survives(&gpu, &format!("{name} M = {m} {:?}", way.mode), &plan, 100 + i as u32);
        }
    }
}

#[test]
fn decode_chains_survive_delays() {
    let Some(gpu) = delayed() else { return };
    for (i, name) in PIPELINES.into_iter().enumerate() {
        for m in [8, 64] {
            let plan = decode(&gpu, shipped(name).expect("it ships"), m, Element::F16);
            survives(&gpu, &format!("{name} M = {m} decode"), &plan, 200 + i as u32);
        }
    }
}

#[test]
fn coupled_kernels_survive_delays() {
    let Some(gpu) = delayed() else { return };
    for (i, name) in PIPELINES.into_iter().enumerate() {
        for executor in [Executor::Streams, Executor::Programmatic] {
            let plan = plan(&gpu, name, &dim("M", 256), executor);
            survives(&gpu, &format!("{name} M = 256 {executor:?}"), &plan, 300 + i as u32);
        }
    }
}

/// What chain kernels compute beside products, and a decode kernel that attends.
#[test]
fn rows_images_and_heads_survive_delays() {
    let Some(gpu) = delayed() else { return };
    let cases: [(&str, &[(&str, u64)]); 4] = [
        ("llama65_norm_mlp", &[("M", 64)]),
        ("llama65_norm_mlp", &[("M", 200)]),
        ("resnet_layer", &[("B", 2), ("HW", 28), ("C", 128)]),
        ("llama3_70b_generate", &[("B", 5), ("S", 256)]),
    ];
    for (i, (name, dims)) in cases.into_iter().enumerate() {
        let dims = dims.iter().map(|(dim, size)| ((*dim).to_owned(), *size)).collect();
        let overrides = Overrides { dims, ..Overrides::default() };
        let plan = plan(&gpu, name, &overrides, Executor::Fused);
        survives(&gpu, &format!("{name} {:?}", overrides.dims), &plan, 400 + i as u32);
    }
}

/// The check above can fail: without waits, the same delays make consumers read what is not there yet.
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
            let mut careless = pipeline(&gpu, plan, &inputs, options);
            repeat(&mut careless, &expected, None, 50)?;
            expected.same(&mut careless)
        };
        let same = attempt().unwrap_or_else(|e| panic!("{label}: {e}"));
        assert!(!same, "{label}: 50 runs without waits are right all the same");
    }
}
