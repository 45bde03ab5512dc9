//! The MLPs on a GPU: every size, element type, executor, policy and kernel is right to 2e-3.

use crate::common::{Gpu, assert_runs_right, dim, executors, gpu, pipeline, plan, plan_of, quick};
use cusync::runtime::verify::Reference;
use cusync::runtime::{ChainOverride, InputSets, Options, Overrides};
use cusync_bench::SIZES;
use cusync_gen::check::Executor;
use cusync_gen::device::KERNELS;
use cusync_gen::graph::Element;
use cusync_gen::sync::Policy;

/// Tokens in flight: the compared sizes, and some that are not multiples of any tile.
fn sizes() -> Vec<u32> {
    if quick() {
        return vec![1, 37, 200, 512];
    }
    let mut sizes = SIZES.to_vec();
    sizes.extend([37, 200, 1000]);
    sizes
}

/// Every executor of one pipeline at one point against one reference.
fn every_executor(gpu: &Gpu, name: &str, overrides: &Overrides, seed: u32) {
    let serial = plan(gpu, name, overrides, Executor::Serial);
    let inputs = InputSets::random(serial.graph(), &gpu.device, 1, seed).expect("inputs fit");
    let mut model = pipeline(gpu, &serial, &inputs, Options::default());
    let reference = Reference::new(&mut model, 0).expect("the reference runs");
    for executor in executors(gpu) {
        let plan = plan(gpu, name, overrides, executor);
        let label = format!("{name} {:?} {:?} {executor:?}", overrides.dims, overrides.element);
        assert_runs_right(gpu, &label, &plan, &inputs, &reference);
    }
}

fn every_size(name: &str, element: Element) {
    let Some(gpu) = gpu() else { return };
    for m in sizes() {
        let overrides = Overrides { element: Some(element), ..dim("M", m.into()) };
        every_executor(&gpu, name, &overrides, m);
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
fn other_shipped_pipelines() {
    let Some(gpu) = gpu() else { return };
    for name in ["llama3_70b_mlp", "two_gemms", "chain3", "diamond"] {
        for m in [1, 37, 200, 512, 1000] {
            every_executor(&gpu, name, &dim("M", m), 3);
        }
    }
}

/// Two GEMMs with room for every policy: 7 x 9 tiles at 128 x 128, the last row and column ragged.
const RAGGED: &str = r#"Pipeline(
    name: "ragged",
    dims: { "M": 840, "N": 1096, "K": 520 },
    stages: [
        Gemm(name: "first", a: "A(M,K)", b: "B(K,N)", out: "C(M,N)", epilogue: Relu),
        Gemm(name: "second", a: "C(M,N)", b: "D(N,K)", out: "E(M,K)"),
    ],
)"#;

#[test]
fn every_policy() {
    let Some(gpu) = gpu() else { return };
    let serial = plan_of(&gpu, RAGGED, &Overrides::default(), Executor::Serial);
    let inputs = InputSets::random(serial.graph(), &gpu.device, 1, 11).expect("inputs fit");
    let mut model = pipeline(&gpu, &serial, &inputs, Options::default());
    let reference = Reference::new(&mut model, 0).expect("the reference runs");
    let policies = [
        Policy::Tile,
        Policy::Row,
        Policy::Batched { rows: 2, cols: 1 },
        Policy::Batched { rows: 1, cols: 2 },
        Policy::Batched { rows: 2, cols: 3 },
        Policy::Strided(2),
    ];
    for executor in executors(&gpu).into_iter().filter(|e| *e != Executor::Serial) {
        for policy in &policies {
            let overrides = Overrides {
                policy: Some(policy.clone()),
                tiles: Some(vec![(128, 128), (128, 128)]),
                ..Overrides::default()
            };
            let plan = plan_of(&gpu, RAGGED, &overrides, executor);
            assert_eq!(plan.edges()[0].policy(), policy, "the plan keeps the stated policy");
            assert_runs_right(&gpu, &format!("{policy:?} {executor:?}"), &plan, &inputs, &reference);
        }
    }
}

/// A gated stage before a plain one, ragged in every dimension.
const GATED: &str = r#"Pipeline(
    name: "gated",
    dims: { "M": 300, "H": 520, "I": 344 },
    stages: [
        GatedGemm(name: "up", a: "X(M,H)", gate: "Wg(H,I)", up: "Wu(H,I)", out: "Y(M,I)"),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ],
)"#;

#[test]
fn every_kernel() {
    let Some(gpu) = gpu() else { return };
    let arch = gpu.device.profile().expect("checked when the GPU was opened").arch;
    let tiles: Vec<_> = KERNELS.iter().filter(|k| k.arch == arch).map(|k| (k.tile.0, k.tile.1)).collect();
    for source in [RAGGED, GATED] {
        for element in [Element::F16, Element::Bf16] {
            let overrides =
                Overrides { element: Some(element), policy: Some(Policy::Row), ..Overrides::default() };
            let serial = plan_of(&gpu, source, &overrides, Executor::Serial);
            let inputs = InputSets::random(serial.graph(), &gpu.device, 1, 12).expect("inputs fit");
            let mut model = pipeline(&gpu, &serial, &inputs, Options::default());
            let reference = Reference::new(&mut model, 0).expect("the reference runs");
            // Also with different tiles on the two sides of the edge.
            for (i, &first) in tiles.iter().enumerate() {
                for second in [first, tiles[(i + 1) % tiles.len()]] {
                    for executor in executors(&gpu) {
                        let overrides = Overrides { tiles: Some(vec![first, second]), ..overrides.clone() };
                        let plan = plan_of(&gpu, source, &overrides, executor);
                        let label =
                            format!("{} {element:?} {first:?} {second:?} {executor:?}", plan.graph().name);
                        assert_runs_right(&gpu, &label, &plan, &inputs, &reference);
                    }
                }
            }
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
        let tiles = Some(vec![(128, 128); 3]);
        let overrides = Overrides { element: Some(element), tiles, ..dim("M", m) };
        let serial = plan_of(&gpu, SUMS, &overrides, Executor::Serial);
        let inputs = InputSets::random(serial.graph(), &gpu.device, 1, 5).expect("inputs fit");
        let mut model = pipeline(&gpu, &serial, &inputs, Options::default());
        let reference = Reference::new(&mut model, 0).expect("the reference runs");
        let mut plans: Vec<_> =
            executors(&gpu).into_iter().map(|e| plan_of(&gpu, SUMS, &overrides, e)).collect();
        if gpu.device.capability().0 >= 9 {
            let chain = Some(ChainOverride::default());
            let automatic = Overrides { policy: None, ..overrides.clone() };
            plans.push(plan_of(&gpu, SUMS, &Overrides { chain, ..automatic.clone() }, Executor::Fused));
            if m <= 64 {
                // The middle GEMM's residual is not an input, which decode kernels require.
                let source = SUMS.replace(r#"residual: "Y(M,264)""#, r#"residual: "T(M,264)""#);
                let few = Overrides { decode: true, tiles: None, ..automatic };
                let plan = plan_of(&gpu, &source, &few, Executor::Fused);
                let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 5).expect("inputs fit");
                let mut model = pipeline(&gpu, &plan, &inputs, Options::default());
                let reference = Reference::new(&mut model, 0).expect("the reference runs");
                assert_runs_right(&gpu, &format!("decode, M = {m}"), &plan, &inputs, &reference);
            }
        }
        for plan in &plans {
            let label = format!("M = {m} {element:?} {:?}", plan.executor());
            assert_runs_right(&gpu, &label, plan, &inputs, &reference);
        }
    }
}
