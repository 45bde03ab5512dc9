//! Measurements for a device profile.

use std::time::Duration;

use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::{ChainKernel, KernelShape, Operation, Operations, Profile};
use cusync_gen::schedule::Hand;

use super::fit::WaveTimes;
use super::timeline::ItemTimes;
use super::{Calibration, ChainCosts, ChainTimes, Chains, KernelTimes, Sample};
use crate::device::{Device, DeviceBuffer, Stream, helpers, kernels_of};
use crate::ffi;
use crate::measure::{
    self, Ceilings, GraphVariant, PipelineVariant, Regime, Variant, bench_semaphores, interleaved,
};
use crate::runtime::{
    ChainOverride, InputSets, ItemTrace, Options, Overlap, Overrides, Pipeline, percentile, plan_text,
    trace_runs,
};
use crate::tune::answer::profile;
use crate::tune::cache::now;
use crate::tune::error::Result;
use crate::tune::key::Machine;

const PLAIN: &str = r#"Pipeline(name: "plain", dims: { "M": 64, "N": 64, "K": 64 }, stages: [
    Gemm(name: "gemm", a: "A(M,K)", b: "B(K,N)", out: "C(M,N)"),
])"#;
const GELU: &str = r#"Pipeline(name: "gelu", dims: { "M": 64, "N": 64, "K": 64 }, stages: [
    Gemm(name: "gemm", a: "A(M,K)", b: "B(K,N)", out: "C(M,N)", epilogue: Gelu),
])"#;
const GATED: &str = r#"Pipeline(name: "gated", dims: { "M": 64, "N": 64, "K": 64 }, stages: [
    GatedGemm(name: "gemm", a: "A(M,K)", gate: "G(K,N)", up: "U(K,N)", out: "C(M,N)"),
])"#;
const CHAIN: &str = r#"Pipeline(name: "chain", dims: { "M": 64, "N": 64, "K": 64 }, stages: [
    Gemm(name: "up", a: "A(M,K)", b: "B(K,N)", out: "Y(M,N)"),
    Gemm(name: "down", a: "Y(M,N)", b: "W(N,N)", out: "Z(M,N)"),
])"#;

const CONV: &str = r#"Pipeline(name: "conv", dims: { "M": 1, "N": 64, "K": 64 }, stages: [
    Conv2d(name: "conv", input: "A(M,7,7,K)", filter: "F(3,3,K,N)", padding: (1,1), out: "Y(M,7,7,N)"),
])"#;
const CONVS: &str = r#"Pipeline(name: "convs", dims: { "M": 1, "N": 64, "K": 64 }, stages: [
    Conv2d(name: "up", input: "A(M,7,7,K)", filter: "F(3,3,K,N)", padding: (1,1), out: "Y(M,7,7,N)"),
    Conv2d(name: "down", input: "Y(M,7,7,N)", filter: "G(3,3,N,N)", padding: (1,1), out: "Z(M,7,7,N)"),
])"#;

/// Pipelines for measuring one kind of chain kernel. `M` of a spec counts rows of its first operand, or
/// images ([`Family::unit`] rows of an MMA tile per image); `N` counts columns of its result.
struct Family {
    operations: fn() -> Operations,
    /// One stage; one stage with a GELU; one stage with a gate; and two stages, where the second reads rows
    /// of the first.
    plain: &'static str,
    gelu: Option<&'static str>,
    gated: Option<&'static str>,
    chain: &'static str,
    unit: u32,
    /// `K` of a stage.
    depth: u32,
    /// `K` of a chain that is one column of tiles wide, if a wave of columns would take too long compared
    /// with a launch; otherwise a chain is as wide and deep as a single stage.
    narrow: Option<u32>,
    /// Kernel for measuring a chain's costs.
    kernel: ChainShape,
    /// Overlap of the runs that `launch_us` describes: that of the runs with which predictions are compared.
    edges: Overlap,
}

const PRODUCTS: Family = Family {
    operations: Operations::products,
    plain: PLAIN,
    gelu: Some(GELU),
    gated: Some(GATED),
    chain: CHAIN,
    unit: 1,
    depth: 4096,
    narrow: None,
    kernel: ((128, 256), (1, 1)),
    edges: Overlap::Captured,
};

/// Tiles of whole images: a tile reads the output of one row of the previous stage's tiles.
const WINDOWS: Family = Family {
    operations: || [Operation::Conv2d].into_iter().collect(),
    plain: CONV,
    gelu: None,
    gated: None,
    chain: CONVS,
    unit: 64,
    depth: 512,
    narrow: Some(64),
    kernel: ((128, 64), (1, 1)),
    edges: Overlap::Plain,
};

impl Family {
    /// `M` and `N` of a stage with one tile per worker.
    fn wave(&self, workers: u32, (tile, cluster): ChainShape) -> (u32, u32) {
        let (rows, columns) = wave(workers);
        (rows * cluster.0 * tile.0 / self.unit, columns * cluster.1 * tile.1)
    }

    /// `M`, `N` and `K` of a chain whose stages are one wave each.
    fn chain_size(&self, sms: u32) -> (u32, u32, u32) {
        let ((rows, columns), _) = self.kernel;
        match self.narrow {
            Some(k) => (sms * rows / self.unit, columns, k),
            None => {
                let (m, n) = self.wave(sms, self.kernel);
                (m, n, self.depth)
            }
        }
    }
}

/// Waves and k-blocks of the samples of a kernel.
const SHAPES: [(u32, u32); 6] = [(1, 32), (1, 128), (2, 32), (2, 128), (4, 32), (4, 128)];
/// Runs of a long graph; the time of one run among others is the difference between a long and a short graph,
/// divided by the additional runs.
const LONG: usize = 9;
const SAMPLES: usize = 9;
/// Sets of inputs for measuring a run among others, so that the previous run has loaded the kernel's code
/// into the caches.
const AMONG_OTHERS: usize = 2;

/// Measures on GPU number `gpu`; calls `progress` with the next step.
///
/// # Errors
/// There is no such GPU, it has no kernels, or it failed.
pub fn calibrate(gpu: u32, progress: &mut dyn FnMut(&str)) -> Result<Calibration> {
    let device = Device::open(gpu)?;
    let profile = profile(&device)?;
    let machine = Machine::for_device(&device)?;
    let rig = Rig { device: &device, profile: &profile };
    progress("rates of the whole device");
    let ceilings = Ceilings::measure(&device)?;
    progress("semaphores");
    let semaphores = bench_semaphores(gpu, 10_000)?;
    progress("kernel boundaries");
    let boundary_us = rig.boundary()?;
    let mut skipped = Vec::new();
    let mut kernels = Vec::new();
    for kernel in KernelShape::built(profile.arch, Operation::Gemm) {
        progress(&format!("the kernel of {} x {}", kernel.tile.0, kernel.tile.1));
        let measured = rig.kernel(kernel.tile);
        kernels.extend(kept(measured, &mut skipped, || format!("kernel {:?}", kernel.tile))?);
    }
    let best = kernels.iter().max_by(|a, b| a.tflops.unwrap_or(0.0).total_cmp(&b.tflops.unwrap_or(0.0)));
    let best = best.map(|k| k.tile);
    progress("one SM alone");
    let alone_tflops = best.map(|tile| rig.alone(tile)).transpose()?;
    let mut chains_of = |family: &Family, name: &str| -> Result<Chains> {
        let mut chains = Vec::new();
        for kernel in ChainKernel::running((family.operations)()) {
            let label =
                || format!("{name} chain kernel of {:?}, clusters of {:?}", kernel.tile, kernel.cluster);
            progress(&format!("the {}", label()));
            chains.extend(kept(rig.chain_kernel(family, kernel), &mut skipped, label)?);
        }
        progress(&format!("a chain of {name}s"));
        let reference =
            chains.iter().find(|c: &&ChainTimes| ((c.tile.0, c.tile.1), c.cluster) == family.kernel);
        let measured = rig.chain(family, reference.and_then(|c| c.times.epilogue_us));
        let chain = kept(measured, &mut skipped, || format!("chains of {name}s"))?.unwrap_or_default();
        Ok(Chains { chains, chain })
    };
    let has_chains = profile.arch >= 90 && !kernels_of(ffi::CUSYNC_FAMILY_CHAIN).is_empty();
    let products = if has_chains { chains_of(&PRODUCTS, "product")? } else { Chains::default() };
    let windows = if has_chains { chains_of(&WINDOWS, "convolution")? } else { Chains::default() };
    let (gpu, driver) = (machine.gpu, machine.driver);
    Ok(Calibration {
        gpu,
        driver,
        measured: now(),
        ceilings,
        semaphores,
        boundary_us,
        alone_tflops,
        kernels,
        products,
        windows,
        skipped,
    })
}

/// A kernel that was not built does not prevent measuring the others.
fn kept<T>(
    measured: measure::Result<T>,
    skipped: &mut Vec<String>,
    label: impl Fn() -> String,
) -> Result<Option<T>> {
    match measured {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_fatal() => Err(e.into()),
        Err(e) => {
            skipped.push(format!("{}: {e}", label()));
            Ok(None)
        }
    }
}

/// The most even `rows * columns` CTAs of one wave, with fewer rows than columns.
fn wave(sms: u32) -> (u32, u32) {
    let rows = (1..=sms).take_while(|r| r * r <= sms).filter(|r| sms.is_multiple_of(*r)).last();
    let rows = rows.unwrap_or(1);
    (rows, sms / rows)
}

/// A GPU with its profile.
struct Rig<'a> {
    device: &'a Device,
    profile: &'a Profile,
}

impl Rig<'_> {
    fn plan(
        &self,
        text: &str,
        (m, n, k): (u32, u32, u32),
        overrides: Overrides,
        how: Executor,
    ) -> measure::Result<Plan> {
        let dims = [("M", m), ("N", n), ("K", k)];
        let dims = dims.map(|(name, value)| (name.to_owned(), u64::from(value))).to_vec();
        Ok(plan_text(text, "calibrate.ron", &Overrides { dims, ..overrides }, self.profile, how)?)
    }

    fn pipeline(&self, plan: &Plan, options: Options, sets: usize) -> measure::Result<Pipeline> {
        let mut pipeline = Pipeline::with_options(plan, self.device, options)?;
        InputSets::random(plan.graph(), self.device, sets, 3)?.bind(&mut pipeline)?;
        pipeline.prepare()?;
        Ok(pipeline)
    }

    /// Time of one run among others of a graph, microseconds, with `sets` sets of inputs in rotation.
    fn run_us(&self, plan: &Plan, options: Options, sets: usize) -> measure::Result<f64> {
        let mut variants: Vec<Box<dyn Variant>> = Vec::new();
        for rounds in [1, LONG] {
            let pipeline = self.pipeline(plan, options, sets)?;
            variants.push(Box::new(PipelineVariant::new(pipeline, plan.executor(), true, rounds)?));
        }
        self.per_run(variants, (LONG - 1) * sets)
    }

    /// Difference between the medians of the second and the first variant, divided by the additional runs.
    fn per_run(&self, mut variants: Vec<Box<dyn Variant>>, more: usize) -> measure::Result<f64> {
        let mut times = interleaved(self.device, &mut variants, Regime::Rested, SAMPLES, Duration::ZERO)?;
        let [short, long] = [0, 1].map(|i| percentile(&mut times[i], 0.5));
        Ok((long - short).max(0.0) / more as f64)
    }

    fn boundary(&self) -> measure::Result<f64> {
        const KERNELS: usize = 65;
        let mut variants: Vec<Box<dyn Variant>> = Vec::new();
        for count in [1, KERNELS] {
            let stream = Stream::new(self.device)?;
            let data = DeviceBuffer::<u16>::new(self.device, 64, "the boundary test")?;
            let fill = || helpers::fill_random(&data, ffi::CUSYNC_F16, 1.0, 1, &stream);
            let graph = stream.capture(|| (0..count).try_for_each(|_| Ok::<_, measure::Error>(fill()?)))?;
            variants.push(Box::new(GraphVariant { graph, stream, owner: data }));
        }
        self.per_run(variants, KERNELS - 1)
    }

    fn serial(&self, tile: (u32, u32, u32), (m, n): (u32, u32), k_blocks: u32) -> measure::Result<f64> {
        let overrides = Overrides { tiles: Some(vec![(tile.0, tile.1)]), ..Overrides::default() };
        let plan = self.plan(PLAIN, (m, n, k_blocks * tile.2), overrides, Executor::Serial)?;
        self.run_us(&plan, Options::default(), 1)
    }

    fn kernel(&self, tile: (u32, u32, u32)) -> measure::Result<KernelTimes> {
        let (rows, columns) = wave(self.profile.sms);
        let mut samples = Vec::new();
        for (waves, k_blocks) in SHAPES {
            let us = self.serial(tile, (rows * tile.0, columns * tile.1 * waves), k_blocks)?;
            samples.push(Sample { waves, k_blocks, us });
        }
        let times = WaveTimes::fit(&samples);
        let tflops = times.map(|t| f64::from(self.profile.sms) * flop(tile) / t.k_block_us * 1e-6);
        Ok(KernelTimes { tile, samples, times, tflops })
    }

    /// Few CTAs, so that neither power nor bandwidth is a limit.
    fn alone(&self, tile: (u32, u32, u32)) -> measure::Result<f64> {
        const CTAS: u32 = 4;
        let (short, long) = (64, 256);
        let us = |k_blocks| self.serial(tile, (tile.0, tile.1 * CTAS), k_blocks);
        Ok(flop(tile) * f64::from(long - short) / (us(long)? - us(short)?).max(1e-3) * 1e-6)
    }

    fn fused(
        &self,
        text: &str,
        size: (u32, u32, u32),
        kernel: ChainShape,
        splits: bool,
    ) -> measure::Result<Plan> {
        let chain = Some(ChainOverride { kernel: Some(kernel), mode: Hand::Fixed, splits });
        self.plan(text, size, Overrides { chain, ..Overrides::default() }, Executor::Fused)
    }

    fn items(&self, plan: &Plan, sets: usize) -> measure::Result<Vec<ItemTrace>> {
        let options = Options { trace: true, ..Options::default() };
        let mut pipelines = [self.pipeline(plan, options, sets)?];
        Ok(trace_runs(&mut pipelines)?.into_iter().flatten().collect())
    }

    fn chain_kernel(&self, family: &Family, kernel: &ChainKernel) -> measure::Result<ChainTimes> {
        let workers = self.profile.resident_clusters(kernel.cluster.0 * kernel.cluster.1);
        let shape = ((kernel.tile.0, kernel.tile.1), kernel.cluster);
        let (m, n) = family.wave(workers, shape);
        let plan = self.fused(family.plain, (m, 3 * n, family.depth), shape, false)?;
        let times = ItemTimes::from_items(&self.items(&plan, 1)?);
        let sm_tflops = times.tflops(kernel.tile);
        Ok(ChainTimes { tile: kernel.tile, cluster: kernel.cluster, times, sm_tflops })
    }

    fn chain(&self, family: &Family, epilogue_us: Option<f64>) -> measure::Result<ChainCosts> {
        let (m, n) = family.wave(self.profile.sms, family.kernel);
        let k = family.depth;
        let times = |text: &str, n, splits| -> measure::Result<ItemTimes> {
            let plan = self.fused(text, (m, n, k), family.kernel, splits)?;
            Ok(ItemTimes::from_items(&self.items(&plan, 1)?))
        };
        let more = |text: Option<&str>, n| -> measure::Result<Option<f64>> {
            let Some(text) = text else { return Ok(None) };
            let times = times(text, n, false)?;
            Ok(times.epilogue_us.zip(epilogue_us).map(|(all, plain)| (all - plain).max(0.0)))
        };
        let gelu_us = more(family.gelu, n)?;
        // The output of a gated tile is half as wide as its product.
        let gate_us = more(family.gated, n / 2)?;
        let chain = self.fused(family.chain, family.chain_size(self.profile.sms), family.kernel, false)?;
        let items = self.items(&chain, AMONG_OTHERS)?;
        let passed_on_us = ItemTimes::from_items(&items).passed_on_us;
        let begin = items.iter().map(|t| t.begin).min().unwrap_or(0);
        let end = items.iter().map(|t| t.end).max().unwrap_or(0);
        let edges = Options { overlap: family.edges, ..Options::default() };
        let run_us = self.run_us(&chain, edges, AMONG_OTHERS)?;
        let launch_us = (end > begin).then(|| (run_us - (end - begin) as f64 * 1e-3).max(0.0));
        // One and a half waves: the second half is split along k.
        let cut = times(family.plain, n + n / 2, true)?;
        Ok(ChainCosts {
            tile: family.kernel.0,
            gelu_us,
            gate_us,
            launch_us,
            passed_on_us,
            slab_write_us: cut.slab_write_us,
            slab_read_us: cut.slab_read_us,
        })
    }
}

type ChainShape = ((u32, u32), (u32, u32));

fn flop((m, n, k): (u32, u32, u32)) -> f64 {
    2.0 * f64::from(m) * f64::from(n) * f64::from(k)
}

#[cfg(test)]
mod tests {
    use cusync_gen::schedule::Part;

    use super::*;

    #[test]
    fn a_wave_fills_every_sm_and_is_as_even_as_it_can_be() {
        for (sms, want) in [(132, (11, 12)), (108, (9, 12)), (142, (2, 71)), (128, (8, 16)), (1, (1, 1))] {
            assert_eq!(wave(sms), want);
        }
    }

    #[test]
    fn every_measured_shape_is_planned_and_fills_whole_waves() {
        for name in ["h200", "a100"] {
            let profile = Profile::named(name).expect("the profile ships");
            let (rows, columns) = wave(profile.sms);
            for kernel in KernelShape::built(profile.arch, Operation::Gemm) {
                let (tm, tn, tk) = kernel.tile;
                let overrides = Overrides { tiles: Some(vec![(tm, tn)]), ..Overrides::default() };
                for (waves, k_blocks) in SHAPES {
                    let sizes = [("M", rows * tm), ("N", columns * tn * waves), ("K", k_blocks * tk)];
                    let dims = sizes.map(|(n, v)| (n.to_owned(), u64::from(v))).to_vec();
                    let overrides = Overrides { dims, ..overrides.clone() };
                    let plan =
                        plan_text(PLAIN, "plain", &overrides, profile, Executor::Serial).expect("a plan");
                    let stage = &plan.graph().stages[0];
                    assert_eq!((stage.tiles(), stage.k_blocks), (waves * profile.sms, k_blocks));
                }
            }
        }
        let h200 = Profile::named("h200").expect("the profile ships");
        for family in [PRODUCTS, WINDOWS] {
            let sized = |text, (m, n, k): (u32, u32, u32), kernel: ChainShape, splits| {
                let dims = [("M", m), ("N", n), ("K", k)].map(|(d, v)| (d.to_owned(), v.into()));
                let chain = Some(ChainOverride { kernel: Some(kernel), mode: Hand::Fixed, splits });
                let overrides = Overrides { dims: dims.to_vec(), chain, ..Overrides::default() };
                plan_text(text, "chain", &overrides, h200, Executor::Fused).expect("a plan")
            };
            let planned = |text, waves: (u32, u32), kernel: ChainShape, workers, splits| {
                let (m, n) = family.wave(workers, kernel);
                sized(text, (m, n * waves.0 / waves.1, family.depth), kernel, splits)
            };
            for kernel in ChainKernel::running((family.operations)()) {
                let workers = h200.resident_clusters(kernel.cluster.0 * kernel.cluster.1);
                let shape = ((kernel.tile.0, kernel.tile.1), kernel.cluster);
                let plan = planned(family.plain, (3, 1), shape, workers, false);
                let ctas = workers * kernel.cluster.0 * kernel.cluster.1;
                assert_eq!(plan.graph().stages[0].tiles(), 3 * ctas, "{shape:?}");
            }
            for (text, waves) in [(family.gelu, (1, 1)), (family.gated, (1, 2))] {
                let plan = text.map(|text| planned(text, waves, family.kernel, h200.sms, false));
                assert!(plan.is_none_or(|plan| plan.graph().stages[0].tiles() == h200.sms));
            }
            let chain = sized(family.chain, family.chain_size(h200.sms), family.kernel, false);
            assert!(chain.graph().stages.iter().all(|stage| stage.tiles() == h200.sms));
            // A tile of the second stage reads one row of tiles of the first, so that `ItemTimes` can
            // determine its producers.
            let waits = &chain.graph().stages[1].operands[0].footprint.rows;
            assert_eq!(waits.extent as u32, chain.graph().stages[0].out_tile().0);
            let cut = planned(family.plain, (3, 2), family.kernel, h200.sms, true);
            let items = &cut.launch().lists().expect("a chain").sequence;
            let parts = items.iter().filter(|item| item.part != Part::Whole).count();
            assert!(parts >= h200.sms as usize, "{parts} parts");
        }
    }
}
