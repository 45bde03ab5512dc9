//! Every activation on a GPU, in the epilogue of each kernel that has one: right, and bit-identical in every run.

use crate::common::{Gpu, assert_right, assert_runs_right, plan_of, quick};
use crate::fused::{STATIC, expected, hopper};
use crate::fused_runs::assert_repeats as repeats;
use cusync::runtime::Overrides;
use cusync_gen::check::Executor;
use cusync_gen::graph::{Activation, Element};

/// Products with a bias, and with a residual on both sides of the activation, and a gate.
const PRODUCTS: &str = r#"Pipeline(
    name: "products",
    dims: { "M": 200, "H": 264, "I": 520 },
    stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W(H,I)", bias: "b(I)", epilogue: ACT, out: "U(M,I)"),
        Gemm(name: "before", a: "U(M,I)", b: "V(I,H)", residual: "X(M,H)", residual_at: BeforeActivation, epilogue: ACT, out: "R(M,H)"),
        GatedGemm(name: "gate", a: "R(M,H)", gate: "G(H,I)", up: "Q(H,I)", activation: ACT, out: "Y(M,I)"),
        Gemm(name: "after", a: "Y(M,I)", b: "P(I,H)", residual: "R(M,H)", epilogue: ACT, out: "Z(M,H)"),
    ],
)"#;

/// A convolution in tiles of each kind, and groups of channels.
const IMAGES: &str = r#"Pipeline(
    name: "images",
    dims: { "B": 2, "S": 14, "C": 64 },
    stages: [
        Conv2d(name: "one", input: "X(B,S,S,C)", filter: "F(3,3,C,C)", padding: (1, 1), bias: "b(C)", epilogue: ACT, out: "Y(B,S,S,C)"),
        Conv2d(name: "two", input: "Y(B,S,S,C)", filter: "G(3,3,C,C)", padding: (1, 1), residual: "X(B,S,S,C)",
            residual_at: BeforeActivation, epilogue: ACT, out: "Z(B,S,S,C)"),
    ],
)"#;

const GROUPS: &str = r#"Pipeline(
    name: "groups",
    dims: { "B": 2, "S": 14, "C": 64 },
    stages: [
        GroupNorm(name: "norm", input: "X(B,S,S,C)", groups: 8, gain: "g(C)", bias: "h(C)", epilogue: ACT, out: "N(B,S,S,C)"),
    ],
)"#;

fn right(gpu: &Gpu, source: &str, (rows, executor): (Option<u64>, Executor), element: Element) {
    let overrides = Overrides {
        dims: rows.map(|rows| ("M".into(), rows)).into_iter().collect(),
        element: Some(element),
        chain: (executor == Executor::Fused && rows.is_none_or(|rows| rows > 64)).then_some(STATIC),
        ..Overrides::default()
    };
    let plan = plan_of(gpu, source, &overrides, executor);
    let label = format!("{} {rows:?} {executor:?} {element:?}", plan.graph().name);
    let (inputs, reference) = expected(gpu, &plan, 1, 11);
    // cuBLASLt does not promise equal bits.
    if executor == Executor::Library {
        return assert_runs_right(gpu, &label, &plan, &inputs, &reference);
    }
    repeats(gpu, &label, (&plan, &inputs), &mut |label, pipeline, _| {
        assert_right(label, &reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}")));
    });
}

fn every_activation(element: Element) {
    let Some(gpu) = hopper() else { return };
    for activation in Activation::ALL {
        // Specs use the names of the variants, with two exceptions.
        let name = match activation {
            Activation::Identity => "None".into(),
            Activation::GeluTanh => "Gelu".into(),
            other => format!("{other:?}"),
        };
        let page = |source: &str| source.replace("ACT", &name);
        // Kernels of a launch each, chain kernels, and decode kernels of every width.
        let rows = if quick() { vec![5, 200] } else { vec![1, 5, 16, 32, 64, 65, 200, 1000] };
        for rows in rows {
            for executor in [Executor::Serial, Executor::Library, Executor::Fused] {
                right(&gpu, &page(PRODUCTS), (Some(rows), executor), element);
            }
        }
        right(&gpu, &page(IMAGES), (None, Executor::Fused), element);
        right(&gpu, &page(GROUPS), (None, Executor::Serial), element);
    }
}

#[test]
fn every_activation_f16() {
    every_activation(Element::F16);
}

#[test]
fn every_activation_bf16() {
    every_activation(Element::Bf16);
}
