//! Chains on the fused executor on a GPU: every pipeline, size, element type, kernel, mode and policy is right to 2e-3.

use crate::common::{Gpu, assert_runs_right, gpu, pipeline, plan_of, quick};
use cusync::device::kernels_of;
use cusync::ffi;
use cusync::runtime::verify::Reference;
use cusync::runtime::{ChainOverride, InputSets, Options, Overrides, element_code, shipped};
use cusync_bench::{RAGGED, SIZES};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Operations;
use cusync_gen::graph::Element;
use cusync_gen::schedule::{Hand, Part};
use cusync_gen::sync::Policy;

/// A GPU supported by this binary's chain kernels, or the reason to skip.
pub(crate) fn hopper() -> Option<Gpu> {
    let gpu = gpu()?;
    if gpu.device.capability().0 != 9 || kernels_of(ffi::CUSYNC_FAMILY_CHAIN).is_empty() {
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

fn sizes() -> Vec<u32> {
    if quick() { vec![1, 37, 200, 512] } else { SIZES.into_iter().chain(RAGGED).collect() }
}

/// One pipeline at every size, in every configuration.
fn every_size(name: &str, element: Element) {
    let Some(gpu) = hopper() else { return };
    let source = shipped(name).expect("it ships");
    for m in sizes() {
        let first = plan_of(&gpu, source, &at(m, Some(element), STATIC), Executor::Fused);
        let (inputs, reference) = expected(&gpu, &first, 1, m);
        for config in CONFIGS {
            let plan = plan_of(&gpu, source, &at(m, Some(element), config), Executor::Fused);
            assert_runs_right(
                &gpu,
                &format!("{name} {element:?} M = {m} {config:?}"),
                &plan,
                &inputs,
                &reference,
            );
        }
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
    let Some(gpu) = hopper() else { return };
    for name in ["two_gemms", "chain3", "diamond"] {
        for m in [1, 37, 200, 512, 1000] {
            let (inputs, reference) = expected(&gpu, &fused(&gpu, name, m, STATIC), 1, 3);
            for config in CONFIGS {
                let plan = fused(&gpu, name, m, config);
                assert_runs_right(&gpu, &format!("{name} M = {m} {config:?}"), &plan, &inputs, &reference);
            }
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
const OPERANDS: &str = r#"Pipeline(
    name: "operands",
    dims: { "M": 264 },
    stages: [
        Gemm(name: "a", a: "X(M,136)", b: "Wa(136,520)", out: "A(M,520)"),
        Gemm(name: "b", a: "V(520,136)", b: "Wb(136,392)", out: "B(520,392)"),
        Gemm(name: "c", a: "u(1,136)", b: "Wc(136,392)", out: "c(1,392)", epilogue: Relu),
        Gemm(name: "r", a: "X(M,136)", b: "Wr(136,392)", out: "R(M,392)"),
        Gemm(name: "join", a: "A(M,520)", b: "B(520,392)", bias: "c(1,392)", residual: "R(M,392)",
             epilogue: Gelu, out: "Z(M,392)"),
    ],
)"#;

#[test]
fn every_kernel() {
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
    let Some(gpu) = hopper() else { return };
    let overrides = |policy: &Policy, chain| Overrides {
        policy: Some(policy.clone()),
        chain: Some(chain),
        ..Overrides::default()
    };
    let first = plan_of(&gpu, PLAIN, &overrides(&Policy::Tile, STATIC), Executor::Fused);
    let (inputs, reference) = expected(&gpu, &first, 1, 11);
    let policies = [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 3 }, Policy::Strided(2)];
    for policy in &policies {
        for config in [STATIC, DYNAMIC] {
            let plan = plan_of(&gpu, PLAIN, &overrides(policy, config), Executor::Fused);
            assert_eq!(plan.edges()[0].policy(), policy, "the plan keeps the stated policy");
            assert_runs_right(&gpu, &format!("{policy:?} {config:?}"), &plan, &inputs, &reference);
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
