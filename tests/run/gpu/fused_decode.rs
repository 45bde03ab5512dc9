//! Decode plans as pipelines on a GPU: right to 2e-3 with shared weights, released originals and every kind of edge.

use crate::common::{Gpu, assert_right, assert_runs_right, pipeline, plan_of};
use crate::fused::{STATIC, expected, fused, hopper};
use cusync::runtime::{Options, Overlap, Overrides, Pipeline, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::Element;
use cusync_gen::schedule::decode::rounds_in;

pub(crate) fn decode(gpu: &Gpu, source: &str, m: u32, element: Element) -> Plan {
    let overrides = Overrides {
        dims: vec![("M".into(), m.into())],
        element: Some(element),
        decode: true,
        ..Overrides::default()
    };
    plan_of(gpu, source, &overrides, Executor::Fused)
}

/// Input sets with weights repacked once and shared, the originals released, and every kind of edge.
fn runs_right_by_every_edge(gpu: &Gpu, label: &str, plan: &Plan, seed: u32) {
    let (mut inputs, reference) = expected(gpu, plan, 2, seed);
    assert_runs_right(gpu, label, plan, &inputs, &reference);
    for edges in [Overlap::Plain, Overlap::Captured, Overlap::All] {
        let options = Options { overlap: edges, ..Options::default() };
        let mut pipeline =
            Pipeline::with_options(plan, &gpu.device, options).unwrap_or_else(|e| panic!("{e}"));
        let mut all = || -> cusync::runtime::Result<Vec<_>> {
            inputs.bind_decode(&mut pipeline)?;
            pipeline.release_originals()?;
            pipeline.poison_outputs()?;
            pipeline.run_set(Executor::Fused, 1)?;
            let graph = pipeline.capture(Executor::Fused, &[0, 1, 1, 0])?;
            pipeline.poison_outputs()?;
            pipeline.replay(&graph)?;
            pipeline.replay(&graph)?;
            reference.compare(&mut pipeline)
        };
        assert_right(&format!("{label} {edges:?}"), &all().unwrap_or_else(|e| panic!("{label}: {e}")));
    }
}

#[test]
fn decode_plans_run_as_pipelines() {
    let Some(gpu) = hopper() else { return };
    for name in ["gpt3_mlp", "llama65_mlp", "llama3_70b_mlp", "two_gemms"] {
        let source = shipped(name).expect("it ships");
        for (m, element) in [(1, Element::F16), (8, Element::Bf16), (16, Element::F16), (37, Element::F16)] {
            let plan = decode(&gpu, source, m, element);
            runs_right_by_every_edge(&gpu, &format!("{name} M = {m} {element:?}"), &plan, m);
        }
    }
}

/// Qwen2.5-7B's MLP on one GPU; its gate has 288 rows of weights per worker.
pub(crate) const WIDE_MLP: &str = r#"Pipeline(name: "wide_mlp", dims: { "M": 8, "E": 3584, "I": 18944 }, stages: [
    GatedGemm(name: "gate_up", a: "X(M,E)", gate: "G(E,I)", up: "U(E,I)", out: "Y(M,I)"),
    Gemm(name: "down", a: "Y(M,I)", b: "D(I,E)", residual: "X(M,E)", out: "Z(M,E)"),
])"#;

/// A vocabulary of 151 936, with a bias; and consecutive stages in two rounds, with a residual from the worker's own
/// parts.
const WIDE_HEAD: &str = r#"Pipeline(name: "wide_head", dims: { "M": 8, "E": 896, "I": 36864, "V": 151936 }, stages: [
    Gemm(name: "up", a: "X(M,E)", b: "W(E,I)", bias: "b(I)", out: "P(M,I)", epilogue: Gelu),
    Gemm(name: "again", a: "X(M,E)", b: "W2(E,I)", residual: "P(M,I)", out: "Q(M,I)"),
    Gemm(name: "down", a: "Q(M,I)", b: "D(I,E)", out: "H(M,E)"),
    Gemm(name: "head", a: "H(M,E)", b: "V(E,V)", bias: "c(V)", out: "L(M,V)"),
])"#;

/// The end of a layer, after an attention; its gate has 258 rows of weights per worker.
const WIDE_GATE: &str = r#"Pipeline(name: "wide_gate", dims: { "M": 4, "I": 16904 }, stages: [
    RmsNorm(name: "n", x: "X(M,64)", gain: "g(64)", out: "N(M,64)", epsilon: 1e-5),
    Gemm(name: "qkv", a: "N(M,64)", b: "W(64,192)", out: "QKV(M,192)"),
    Attention(name: "attn", qkv: "QKV(M,192)", heads: "1",
        cache: Cache(keys: "K(M,1,128,64)", values: "V(M,1,128,64)", lengths: "n(M)"), out: "A(M,64)"),
    GatedGemm(name: "gate", a: "A(M,64)", gate: "G(64,I)", up: "U(64,I)", out: "Y(M,I)"),
])"#;

/// Shares with more rows than a worker has registers for, at every kernel width.
#[test]
fn wide_stages_are_done_in_rounds() {
    let Some(gpu) = hopper() else { return };
    let cases = [
        (WIDE_MLP, vec![(1, Element::F16), (13, Element::Bf16), (32, Element::F16), (64, Element::Bf16)]),
        (WIDE_HEAD, vec![(2, Element::Bf16), (37, Element::F16)]),
    ];
    for (source, sizes) in cases {
        for (m, element) in sizes {
            let plan = decode(&gpu, source, m, element);
            let workers = plan.launch().shares().expect("a decode plan").workers();
            assert!(plan.graph().stages.iter().any(|stage| rounds_in(stage, workers) > 1));
            runs_right_by_every_edge(&gpu, &format!("{} M = {m} {element:?}", plan.graph().name), &plan, m);
        }
    }
    for (m, element) in [(4, Element::F16), (32, Element::Bf16)] {
        let plan = decode(&gpu, WIDE_GATE, m, element);
        let (inputs, reference) = expected(&gpu, &plan, 1, 5);
        assert_runs_right(&gpu, &format!("wide_gate M = {m} {element:?}"), &plan, &inputs, &reference);
    }
}

/// Products that normalize their rows: few weight rows a worker (`narrow.cuh`) and many, in one to four tiles and in
/// rounds; rows that end in half a k-block; with a bias, an activation, a residual and gates.
const NORMED: &str = r#"Pipeline(name: "normed", dims: { "M": 8, "E": 1096, "I": 18944, "V": 40000 }, stages: [
    Gemm(name: "few", a: "X(M,E)", b: "W(E,1536)", bias: "b(1536)", input_norm: InputNorm(gain: "g1(E)", epsilon: 1e-5),
        epilogue: Gelu, out: "P(M,1536)"),
    Gemm(name: "mix", a: "P(M,1536)", b: "W2(1536,E)", residual: "X(M,E)", out: "H(M,E)"),
    GatedGemm(name: "gate_up", a: "H(M,E)", gate: "G(E,I)", up: "U(E,I)", input_norm: InputNorm(gain: "g2(E)", epsilon: 0.5),
        out: "Y(M,I)"),
    Gemm(name: "down", a: "Y(M,I)", b: "D(I,E)", residual: "H(M,E)", out: "Z(M,E)"),
    Gemm(name: "two_tiles", a: "Z(M,E)", b: "W3(E,12000)", input_norm: InputNorm(gain: "g3(E)", epsilon: 1e-5), out: "R(M,12000)"),
    Gemm(name: "again", a: "R(M,12000)", b: "W4(12000,4224)", input_norm: InputNorm(gain: "g4(12000)", epsilon: 1e-5),
        out: "S(M,4224)"),
    Gemm(name: "head", a: "S(M,4224)", b: "V(4224,V)", input_norm: InputNorm(gain: "g5(4224)", epsilon: 1e-5), out: "L(M,V)"),
])"#;

#[test]
fn products_normalize_their_rows() {
    let Some(gpu) = hopper() else { return };
    for m in [1, 3, 8, 13, 16, 17, 32] {
        for element in [Element::F16, Element::Bf16] {
            let plan = decode(&gpu, NORMED, m, element);
            runs_right_by_every_edge(&gpu, &format!("normed M = {m} {element:?}"), &plan, m);
        }
    }
}

/// A decode kernel and a chain kernel do not touch each other's semaphores.
#[test]
fn decode_plans_run_beside_chains() {
    let Some(gpu) = hopper() else { return };
    let source = shipped("gpt3_mlp").expect("it ships");
    let plans = [decode(&gpu, source, 32, Element::F16), fused(&gpu, "gpt3_mlp", 32, STATIC)];
    let (inputs, reference) = expected(&gpu, &plans[0], 1, 4);
    let mut pair = plans.each_ref().map(|plan| pipeline(&gpu, plan, &inputs, Options::default()));
    let mut all = || -> cusync::runtime::Result<()> {
        for pipeline in &mut pair {
            pipeline.prepare()?;
            pipeline.poison_outputs()?;
        }
        for _ in 0..500 {
            pair.iter_mut().try_for_each(|pipeline| pipeline.run(Executor::Fused))?;
        }
        for pipeline in &mut pair {
            assert_right("side by side", &reference.compare(pipeline)?);
        }
        Ok(())
    };
    all().unwrap_or_else(|e| panic!("{e}"));
}
