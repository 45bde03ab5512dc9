//! Mixtures of experts on a GPU: right for every number of experts and rows, and bit-identical in every run, although the
//! lists of an expert's rows may differ from run to run.

use crate::common::{Gpu, assert_right, plan_of, quick};
use crate::fused::{expected, hopper};
use crate::fused_runs::assert_repeats as repeats;
use cusync::runtime::{Overrides, shipped};
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

/// Experts between products, and experts that stand first and have no residual.
const BOTH: &str = r#"Pipeline(
    name: "mixtures",
    dims: { "M": 5, "H": 64, "E": 8, "I": 64, "K": 2 },
    stages: [
        Experts(name: "first", x: "X(M,H)", router: "S(M,E)", gate: "G(E*I,H)", up: "U(E*I,H)", down: "D(E*H,I)", top_k: "K",
            normalize: false, activation: Gelu, out: "Y(M,H)"),
        Gemm(name: "router", a: "Y(M,H)", b: "WR(H,E)", out: "T(M,E)"),
        Experts(name: "second", x: "Y(M,H)", router: "T(M,E)", gate: "G2(E*I,H)", up: "U2(E*I,H)", down: "D2(E*H,I)", top_k: "K",
            residual: "Y(M,H)", out: "Z(M,H)"),
    ],
)"#;

/// Rows, width, experts, hidden columns, experts a row. Tiles have 16, 64 and 128 pairs; rows and columns end inside.
const SHAPES: [[u64; 5]; 12] = [
    [1, 64, 8, 64, 2],
    [5, 72, 8, 40, 2],
    [33, 256, 16, 136, 4],
    [64, 512, 128, 192, 8],
    [65, 512, 128, 192, 8],
    [300, 128, 8, 64, 1],
    [300, 192, 16, 200, 3],
    [1000, 256, 32, 104, 4],
    [2048, 256, 16, 128, 2],
    [77, 136, 512, 72, 16],
    [40, 128, 8, 128, 8],
    [513, 64, 8, 72, 8],
];

/// A launch per stage, eager and as a graph, each on poisoned outputs; all runs have the same bits.
fn assert_repeats(gpu: &Gpu, source: &str, dims: &[(&str, u64)], element: Element) {
    let overrides = Overrides {
        dims: dims.iter().map(|(name, size)| ((*name).into(), *size)).collect(),
        element: Some(element),
        ..Overrides::default()
    };
    let plan = plan_of(gpu, source, &overrides, Executor::Serial);
    let label = format!("{} {dims:?} {element:?}", plan.graph().name);
    let (inputs, reference) = expected(gpu, &plan, 1, 3);
    repeats(gpu, &label, (&plan, &inputs), &mut |label, pipeline, _| {
        assert_right(label, &reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}")));
    });
}

fn every_shape(element: Element) {
    let Some(gpu) = hopper() else { return };
    for [rows, width, experts, inner, chosen] in SHAPES {
        let dims = [("M", rows), ("H", width), ("E", experts), ("I", inner), ("K", chosen)];
        assert_repeats(&gpu, BOTH, &dims, element);
    }
}

#[test]
fn experts_of_every_shape_f16() {
    every_shape(Element::F16);
}

#[test]
fn experts_of_every_shape_bf16() {
    every_shape(Element::Bf16);
}

#[test]
fn the_experts_of_qwen3_in_their_real_size() {
    let Some(gpu) = hopper() else { return };
    let source = shipped("qwen3_moe").expect("it ships");
    for rows in if quick() { vec![1] } else { vec![1, 32, 512] } {
        assert_repeats(&gpu, source, &[("M", rows)], Element::Bf16);
    }
}
