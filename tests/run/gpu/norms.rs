//! Row normalization in chain kernels on a GPU: right to 2e-3 whatever the surrounding stages read and write, and
//! bit-identical in every run.

use crate::common::{assert_right, plan_of, quick};
use crate::fused::{CONFIGS, DYNAMIC, STATIC, expected, hopper};
use crate::fused_runs::assert_repeats as repeats;
use cusync::runtime::{ChainOverride, Overrides, shipped};
use cusync_gen::check::Executor;
use cusync_gen::device::{ChainKernel, Operation};
use cusync_gen::graph::Element;

/// Rows that are an input, and rows that another stage stores; read by TMA as an operand, and by plain loads as a
/// residual. No sum over a few hundred elements precedes another: one bf16 element rounded differently there would
/// shift whole rows after it.
const BOTH: &str = r#"Pipeline(
    name: "norms",
    dims: { "M": 64, "H": 8192 },
    stages: [
        RmsNorm(name: "first", x: "X(M,H)", gain: "g(H)", out: "A(M,H)", epsilon: 1e-5),
        Gemm(name: "narrow", a: "A(M,H)", b: "B(H,264)", out: "C(M,264)"),
        Gemm(name: "wide", a: "U(M,264)", b: "D(264,H)", residual: "A(M,H)", out: "E(M,H)"),
        LayerNorm(name: "second", x: "E(M,H)", gain: "h(H)", bias: "c(H)", out: "F(M,H)", epsilon: 1e-5),
        Gemm(name: "last", a: "F(M,H)", b: "G(H,264)", out: "Z(M,264)"),
    ],
)"#;

/// The same without a bias, as in Llama-like models with LayerNorm.
fn unbiased() -> String {
    BOTH.replace(r#"bias: "c(H)", "#, "")
}

/// One plan with every kind of edge between runs, eager and as a graph, each on poisoned outputs; all are
/// bit-identical. So is a launch per stage, in which norms have their own kernel.
fn assert_repeats(
    source: &str,
    (m, length): (u32, Option<u32>),
    element: Element,
    configs: impl IntoIterator<Item = ChainOverride>,
) {
    let Some(gpu) = hopper() else { return };
    let dims = [("M", Some(m)), ("H", length)];
    let dims: Vec<_> =
        dims.into_iter().filter_map(|(name, size)| Some((name.into(), size?.into()))).collect();
    let overrides =
        |chain| Overrides { dims: dims.clone(), element: Some(element), chain, ..Overrides::default() };
    let plan = |config| plan_of(&gpu, source, &overrides(Some(config)), Executor::Fused);
    let (inputs, reference) = expected(&gpu, &plan(STATIC), 1, m);
    let alone = plan_of(&gpu, source, &overrides(None), Executor::Serial);
    for plan in configs.into_iter().map(plan).chain([alone]) {
        let kind = plan.launch().kind();
        let label = format!("{} M = {m} {length:?} {element:?} {kind}", plan.graph().name);
        repeats(&gpu, &label, (&plan, &inputs), &mut |label, pipeline, _| {
            assert_right(label, &reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}")));
        });
    }
}

/// Rows that fit in registers, rows that do not, and rows that end within a thread's round; with one launch per stage,
/// rows that have their own kernel (one CTA per row or per two rows), and longer ones.
fn every_length(element: Element) {
    let lengths = if quick() {
        vec![5120, 4104, 12280, 33024]
    } else {
        vec![8192, 5120, 4104, 12280, 16392, 8, 32768, 33024]
    };
    for length in lengths {
        for m in if quick() { vec![17, 513] } else { vec![1, 17, 64, 200, 513, 1000] } {
            assert_repeats(BOTH, (m, Some(length)), element, [STATIC, DYNAMIC]);
        }
    }
}

#[test]
fn rows_of_every_length_f16() {
    every_length(Element::F16);
}

#[test]
fn rows_of_every_length_bf16() {
    every_length(Element::Bf16);
}

/// Norms with a residual and one plus the gain, as around the blocks of Gemma-2, in kernels of their own.
const AFTER: &str = r#"Pipeline(
    name: "after",
    dims: { "M": 64, "H": 3584 },
    stages: [
        RmsNorm(name: "first", x: "X(M,H)", gain: "g(H)", residual: "R(M,H)", one_plus_gain: true, out: "A(M,H)", epsilon: 1e-6),
        RmsNorm(name: "second", x: "A(M,H)", gain: "h(H)", one_plus_gain: true, out: "B(M,H)", epsilon: 1e-6),
        LayerNorm(name: "third", x: "B(M,H)", gain: "i(H)", bias: "c(H)", residual: "A(M,H)", out: "Z(M,H)", epsilon: 1e-5),
    ],
)"#;

#[test]
fn norms_with_residuals_and_one_plus_gains() {
    let Some(gpu) = hopper() else { return };
    for (length, m) in [(3584, 1), (3584, 300), (8, 17), (1032, 64), (32768, 5)] {
        for element in [Element::F16, Element::Bf16] {
            let dims = vec![("M".into(), m), ("H".into(), length)];
            let overrides = Overrides { dims, element: Some(element), ..Overrides::default() };
            let plan = plan_of(&gpu, AFTER, &overrides, Executor::Serial);
            let (inputs, reference) = expected(&gpu, &plan, 1, 4);
            let label = format!("after {length} x {m} {element:?}");
            repeats(&gpu, &label, (&plan, &inputs), &mut |label, pipeline, _| {
                assert_right(label, &reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}")));
            });
        }
    }
}

#[test]
fn a_layer_norm_without_a_bias() {
    for (m, length) in [(17, 5120), (513, 4104), (1, 33024)] {
        assert_repeats(&unbiased(), (m, Some(length)), Element::Bf16, [STATIC, DYNAMIC]);
    }
}

#[test]
fn the_shipped_mlp() {
    let source = shipped("llama65_norm_mlp").expect("it ships");
    for m in [1, 200, 512] {
        assert_repeats(source, (m, None), Element::F16, CONFIGS);
    }
}

#[test]
fn every_kernel_that_normalises() {
    let kernels = ChainKernel::running([Operation::Norm].into_iter().collect());
    let mut ran = 0;
    for kernel in kernels {
        let kernel = Some(((kernel.tile.0, kernel.tile.1), kernel.cluster));
        let config = ChainOverride { kernel, ..STATIC };
        assert_repeats(BOTH, (300, Some(1032)), Element::Bf16, [config]);
        ran += 1;
    }
    assert!(ran > 0, "a chain kernel normalises");
}
