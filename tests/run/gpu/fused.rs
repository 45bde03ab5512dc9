//! Chains of GEMMs on a GPU, one kernel per stage or one chain kernel: every pipeline, size, element type, executor,
//! kernel, mode and policy is right to 2e-3.

use crate::common::{Gpu, assert_runs_right, dim, executors, gpu, pipeline, plan_of, quick};
use cusync::device::kernels_of;
use cusync::ffi;
use cusync::runtime::verify::Reference;
use cusync::runtime::{ChainOverride, InputSets, Options, Overrides, element_code, shipped};
use cusync_bench::{RAGGED, SIZES};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::{KERNELS, Operations};
use cusync_gen::graph::Element;
use cusync_gen::schedule::{Hand, Part};
use cusync_gen::sync::Policy;

fn has_chain_kernels(gpu: &Gpu) -> bool {
    gpu.device.capability().0 == 9 && !kernels_of(ffi::CUSYNC_FAMILY_CHAIN).is_empty()
}

/// A GPU supported by this binary's chain kernels, or the reason to skip.
pub(crate) fn hopper() -> Option<Gpu> {
    let gpu = gpu()?;
    if !has_chain_kernels(&gpu) {
        println!("skipped: there is no chain kernel for {}", gpu.device.name());
        return None;
    }
    Some(gpu)
}

pub(crate) const STATIC: ChainOverride = ChainOverride { kernel: None, mode: Hand::Fixed, splits: true };
pub(crate) const UNCUT: ChainOverride = ChainOverride { splits: false, ..STATIC };
pub(crate) const DYNAMIC: ChainOverride = ChainOverride { mode: Hand::Drawn, ..STATIC };
pub(crate) const DYNAMIC_UNCUT: ChainOverride = ChainOverride { splits: false, ..DYNAMIC };
pub(crate) const CONFIGS: [ChainOverride; 4] = [STATIC, UNCUT, DYNAMIC, DYNAMIC_UNCUT];

fn at(m: u32, element: Option<Element>, chain: ChainOverride) -> Overrides {
    let dims = vec![("M".into(), m.into())];
    Overrides { dims, element, chain: Some(chain), ..Overrides::default() }
}

pub(crate) fn fused(gpu: &Gpu, name: &str, m: u32, chain: ChainOverride) -> Plan {
    plan_of(gpu, shipped(name).expect("it ships"), &at(m, None, chain), Executor::Fused)
}

/// A layer or body of convolutions.
pub(crate) fn of_images(gpu: &Gpu, name: &str, images: u32, chain: ChainOverride) -> Plan {
    let overrides = Overrides { dims: vec![("B".into(), images.into())], ..at(0, None, chain) };
    plan_of(gpu, shipped(name).expect("it ships"), &overrides, Executor::Fused)
}

/// Inputs of a graph, and the expected results for set 0.
pub(crate) fn expected(gpu: &Gpu, plan: &Plan, sets: usize, seed: u32) -> (InputSets, Reference) {
    let inputs = InputSets::random(plan.graph(), &gpu.device, sets, seed).expect("inputs fit");
    let mut model = pipeline(gpu, plan, &inputs, Options::default());
    let reference = Reference::new(&mut model, 0).unwrap_or_else(|e| panic!("the reference: {e}"));
    (inputs, reference)
}

/// The compared sizes, and some that are not multiples of any tile.
fn sizes() -> Vec<u32> {
    if quick() { vec![1, 37, 200, 512] } else { SIZES.into_iter().chain(RAGGED).collect() }
}

/// Plans of one pipeline for every executor with a kernel per stage, and for chain kernels in these configurations.
/// Without a policy in `stated`, stages with kernels of their own share a slot per row.
fn plans(gpu: &Gpu, source: &str, stated: &Overrides, chains: &[ChainOverride]) -> Vec<(String, Plan)> {
    let policy = stated.policy.clone().or(Some(Policy::Row));
    let apart = Overrides { policy, ..stated.clone() };
    let mut plans: Vec<_> = executors(gpu)
        .into_iter()
        .map(|executor| (format!("{executor:?} {:?}", stated.tiles), plan_of(gpu, source, &apart, executor)))
        .collect();
    for chain in chains.iter().filter(|_| has_chain_kernels(gpu)) {
        let chained = Overrides { chain: Some(*chain), tiles: None, ..stated.clone() };
        plans.push((format!("{chain:?}"), plan_of(gpu, source, &chained, Executor::Fused)));
    }
    plans
}

/// Runs all plans of one pipeline against one reference.
fn assert_all_right(gpu: &Gpu, label: &str, plans: &[(String, Plan)], seed: u32) {
    let (inputs, reference) = expected(gpu, &plans[0].1, 1, seed);
    for (name, plan) in plans {
        let policies: Vec<_> = plan.edges().iter().map(|edge| edge.policy()).collect();
        assert_runs_right(gpu, &format!("{label} {name} {policies:?}"), plan, &inputs, &reference);
    }
}

fn every_size(name: &str, element: Element) {
    let Some(gpu) = gpu() else { return };
    let source = shipped(name).expect("it ships");
    for m in sizes() {
        let stated = Overrides { element: Some(element), policy: None, ..dim("M", m.into()) };
        let label = format!("{name} {element:?} M = {m}");
        assert_all_right(&gpu, &label, &plans(&gpu, source, &stated, &CONFIGS), m);
    }
}

#[test]
fn gpt3_f16() {
    every_size("gpt3_mlp", Element::F16);
}

#[test]
fn gpt3_bf16() {
    every_size("gpt3_mlp", Element::Bf16);
}

#[test]
fn llama65_f16() {
    every_size("llama65_mlp", Element::F16);
}

#[test]
fn llama65_bf16() {
    every_size("llama65_mlp", Element::Bf16);
}

#[test]
fn llama3_70b_f16() {
    every_size("llama3_70b_mlp", Element::F16);
}

#[test]
fn llama3_70b_bf16() {
    every_size("llama3_70b_mlp", Element::Bf16);
}

#[test]
fn other_graphs() {
    let Some(gpu) = gpu() else { return };
    for name in ["two_gemms", "chain3", "diamond"] {
        for m in [1, 37, 200, 512, 1000] {
            let stated = Overrides { policy: None, ..dim("M", m) };
            let plans = plans(&gpu, shipped(name).expect("it ships"), &stated, &CONFIGS);
            assert_all_right(&gpu, &format!("{name} M = {m}"), &plans, 3);
        }
    }
}

/// Ragged in every direction; the second reduction has a k-block of 8.
const PLAIN: &str = r#"Pipeline(
    name: "ragged",
    dims: { "M": 840, "N": 1096, "K": 2072 },
    stages: [
        Gemm(name: "first", a: "A(M,K)", b: "B(K,N)", out: "C(M,N)", epilogue: Relu),
        Gemm(name: "second", a: "C(M,N)", b: "D(N,K)", out: "E(M,K)"),
    ],
)"#;

const GATED: &str = r#"Pipeline(
    name: "gated",
    dims: { "M": 300, "H": 2056, "I": 1112 },
    stages: [
        GatedGemm(name: "up", a: "X(M,H)", gate: "Wg(H,I)", up: "Wu(H,I)", out: "Y(M,I)"),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ],
)"#;

/// Every operand that a stage can have, each produced by another stage.
const OPERANDS: &str = include_str!("../data/operands.ron");

#[test]
fn every_chain_kernel() {
    let Some(gpu) = hopper() else { return };
    let (mut cut, mut ran) = (0, 0);
    for source in [PLAIN, GATED, OPERANDS] {
        for element in [Element::F16, Element::Bf16] {
            let overrides =
                |chain| Overrides { element: Some(element), chain: Some(chain), ..Overrides::default() };
            let first = plan_of(&gpu, source, &overrides(STATIC), Executor::Fused);
            let (inputs, reference) = expected(&gpu, &first, 1, 12);
            for info in kernels_of(ffi::CUSYNC_FAMILY_CHAIN)
                .into_iter()
                .filter(|k| k.id.element == element_code(element))
                .filter(|k| k.id.operations & Operations::products().bits() == Operations::products().bits())
            {
                let kernel = ((info.id.tile_m, info.id.tile_n), (info.id.cluster_m, info.id.cluster_n));
                // A cluster draws no items: each of its CTAs would draw a different one.
                let alone = kernel.1 == (1, 1);
                for config in CONFIGS.into_iter().filter(|w| alone || w.mode == Hand::Fixed) {
                    let config = ChainOverride { kernel: Some(kernel), ..config };
                    let plan = plan_of(&gpu, source, &overrides(config), Executor::Fused);
                    let items = &plan.launch().lists().expect("a chain").sequence;
                    cut += items.iter().filter(|i| i.part != Part::Whole).count();
                    ran += 1;
                    let label = format!("{} {element:?} {config:?}", plan.graph().name);
                    assert_runs_right(&gpu, &label, &plan, &inputs, &reference);
                }
            }
        }
    }
    assert!(ran > 0 && cut > 0, "{ran} plans ran, {cut} items were parts of tiles");
}

#[test]
fn every_policy() {
    let Some(gpu) = gpu() else { return };
    let policies = [
        Policy::Tile,
        Policy::Row,
        Policy::Batched { rows: 2, cols: 1 },
        Policy::Batched { rows: 1, cols: 2 },
        Policy::Batched { rows: 2, cols: 3 },
        Policy::Strided(2),
    ];
    let mut all = Vec::new();
    for policy in policies {
        let tiles = Some(vec![(128, 128), (128, 128)]);
        let stated = Overrides { policy: Some(policy.clone()), tiles, ..Overrides::default() };
        let plans = plans(&gpu, PLAIN, &stated, &[STATIC, DYNAMIC]);
        for (_, plan) in plans.iter().filter(|(_, plan)| plan.executor() != Executor::Serial) {
            assert_eq!(*plan.edges()[0].policy(), policy, "the plan keeps the stated policy");
        }
        all.extend(plans);
    }
    assert_all_right(&gpu, "every policy", &all, 11);
}

#[test]
fn every_kernel_of_a_stage() {
    let Some(gpu) = gpu() else { return };
    let arch = gpu.device.profile().expect("checked when the GPU was opened").arch;
    let tiles: Vec<_> = KERNELS.iter().filter(|k| k.arch == arch).map(|k| (k.tile.0, k.tile.1)).collect();
    for source in [PLAIN, GATED] {
        for element in [Element::F16, Element::Bf16] {
            // Also with different tiles on the two sides of the edge.
            let pairs = tiles.iter().enumerate().flat_map(|(i, &first)| {
                [first, tiles[(i + 1) % tiles.len()]].map(|second| vec![first, second])
            });
            let all: Vec<_> = pairs
                .flat_map(|pair| {
                    let tiles = Some(pair);
                    let stated = Overrides { element: Some(element), tiles, ..Overrides::default() };
                    plans(&gpu, source, &stated, &[])
                })
                .collect();
            assert_all_right(&gpu, &format!("{element:?}"), &all, 12);
        }
    }
}

/// A bias and a residual, both produced by another stage, before the activation.
const SUMS: &str = r#"Pipeline(
    name: "sums",
    dims: { "M": 64 },
    stages: [
        Gemm(name: "up", a: "X(M,520)", b: "V(520,264)", out: "Y(M,264)"),
        Gemm(name: "sum", a: "Y(M,264)", b: "W(264,264)", bias: "b(264)", residual: "Y(M,264)", residual_at: BeforeActivation,
            epilogue: Relu, out: "Z(M,264)"),
        Gemm(name: "last", a: "Z(M,264)", b: "U(264,136)", residual: "R(M,136)", residual_at: BeforeActivation, epilogue: Gelu,
            out: "A(M,136)"),
    ],
)"#;

#[test]
fn residuals_before_the_activation_are_right_on_every_executor() {
    let Some(gpu) = gpu() else { return };
    for (m, element) in [(8, Element::F16), (300, Element::F16), (300, Element::Bf16)] {
        let automatic = Overrides { element: Some(element), policy: None, ..dim("M", m) };
        let stated = Overrides { tiles: Some(vec![(128, 128); 3]), ..automatic.clone() };
        let label = format!("sums M = {m} {element:?}");
        assert_all_right(&gpu, &label, &plans(&gpu, SUMS, &stated, &[ChainOverride::default()]), 5);
        if m <= 64 && has_chain_kernels(&gpu) {
            // The middle GEMM's residual is not an input, which decode kernels require.
            let source = SUMS.replace(r#"residual: "Y(M,264)""#, r#"residual: "T(M,264)""#);
            let plan = plan_of(&gpu, &source, &Overrides { decode: true, ..automatic }, Executor::Fused);
            assert_all_right(&gpu, &label, &[("decode".into(), plan)], 5);
        }
    }
}

#[test]
fn other_executors_are_refused() {
    let Some(gpu) = hopper() else { return };
    let plan = fused(&gpu, "two_gemms", 64, STATIC);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 9).expect("inputs fit");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    for executor in [Executor::Serial, Executor::Streams, Executor::Programmatic, Executor::Cpu] {
        assert!(pipeline.run(executor).is_err(), "{executor:?} runs no fused plan");
    }
    pipeline.run(Executor::Fused).expect("a refusal leaves the pipeline as it was");
    pipeline.synchronize().expect("it ends");
}
