//! Attention over whole sequences in chain kernels on a GPU: blocks are right to 2e-3 for sequences of any length,
//! causal and full, and bit-identical in every run, eager and replayed.

use crate::common::{Gpu, assert_right, pipeline, plan_of, quick};
use crate::fused::{DYNAMIC, STATIC, UNCUT, expected, hopper};
use crate::fused_runs::{assert_repeats as repeats, bits};
use cusync::runtime::{ChainOverride, Options, Overlap, Overrides, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::{Element, Op};

/// Two heads per QKV tile.
const WIDE: ChainOverride = ChainOverride { kernel: Some(((128, 256), (1, 1))), ..STATIC };

const NAMES: [&str; 3] = ["gpt3_attention", "llama65_attention", "llama3_70b_attention"];

/// Sequences of one and of several tiles; groups of four 64-column heads that see their whole sequence.
const SEQUENCES: &str = r#"Pipeline(
    name: "sequences",
    dims: { "B": 5, "S": 128, "E": 512, "HQ": 8, "HKV": 2, "D": 64 },
    stages: [
        Gemm(name: "qkv", a: "X(B*S,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B*S,(HQ+2*HKV)*D)"),
        Attention(
            name: "attend", qkv: "QKV(B*S,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "B", causal: false,
            out: "A(B*S,HQ*D)",
        ),
        Gemm(name: "project", a: "A(B*S,HQ*D)", b: "Wo(HQ*D,E)", out: "Z(B*S,E)"),
    ],
)"#;

/// Queries and keys are rotated, and keys and values fill the first rows of a larger cache.
const CACHED: &str = r#"Pipeline(
    name: "cached",
    dims: { "B": 3, "S": 128, "C": 300, "E": 512, "HQ": 8, "HKV": 2, "D": 128 },
    stages: [
        RotatedGemm(
            name: "qkv", a: "X(B*S,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", bias: "bias((HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV",
            sequences: "B", rotary: "cs(C,D)", out: "QKV(B*S,(HQ+2*HKV)*D)",
        ),
        Attention(
            name: "attend", qkv: "QKV(B*S,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "B",
            cache: Cache(keys: "K(B,HKV,C,D)", values: "V(B,HKV,C,D)"), out: "A(B*S,HQ*D)",
        ),
        Gemm(name: "project", a: "A(B*S,HQ*D)", b: "Wo(HQ*D,E)", out: "Z(B*S,E)"),
    ],
)"#;

/// A plan for one launch or, without overrides, for one launch per stage.
fn plan(
    gpu: &Gpu,
    source: &str,
    dims: &[(&str, u32)],
    element: Element,
    config: impl Into<Option<ChainOverride>>,
) -> Plan {
    let chain = config.into();
    let executor = if chain.is_some() { Executor::Fused } else { Executor::Serial };
    let overrides = Overrides {
        dims: dims.iter().map(|(name, size)| ((*name).into(), (*size).into())).collect(),
        element: Some(element),
        chain,
        ..Overrides::default()
    };
    plan_of(gpu, source, &overrides, executor)
}

/// A shipped prompt layer, narrower than shipped.
pub(crate) fn prompt_layer(
    gpu: &Gpu,
    name: &str,
    tokens: u32,
    element: Element,
    config: ChainOverride,
) -> Plan {
    plan(gpu, shipped(name).expect("it ships"), &[("S", tokens), ("E", 1024), ("I", 704)], element, config)
}

/// A plan with every kind of edge between runs, eager and as a graph, on poisoned outputs, with each output verified.
/// Caches are filled and otherwise unchanged.
fn assert_repeats(label: &str, gpu: &Gpu, plan: &Plan) {
    let (inputs, reference) = expected(gpu, plan, 1, 7);
    repeats(gpu, label, (plan, &inputs), &mut |label, pipeline, caches| {
        let outputs = reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}"));
        assert_right(label, &outputs);
        let attention = plan.graph().stages.iter().find(|s| s.op.cache().is_some());
        if let Some(Op::Attention(attention)) = attention.map(|stage| &stage.op) {
            caches.assert_appended(label, pipeline, &vec![0; attention.sequences as usize], None);
        }
    });
}

fn block(source: &str, dims: &[(&str, u32)], element: Element, config: ChainOverride) {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, source, dims, element, config);
    assert_repeats(&format!("{} {dims:?} {element:?} {config:?}", plan.graph().name), &gpu, &plan);
}

fn shipped_blocks(element: Element) {
    for name in NAMES {
        let source = shipped(name).expect("it ships");
        for tokens in if quick() { vec![100, 512] } else { vec![1, 17, 100, 512, 777, 2048] } {
            for config in [STATIC, UNCUT, DYNAMIC, WIDE] {
                block(source, &[("S", tokens), ("E", 1024)], element, config);
            }
        }
    }
}

#[test]
fn prompts_of_shipped_blocks_in_f16() {
    shipped_blocks(Element::F16);
}

#[test]
fn prompts_of_shipped_blocks_in_bf16() {
    shipped_blocks(Element::Bf16);
}

#[test]
fn prompts_of_several_sequences() {
    for tokens in if quick() { vec![17, 64, 256] } else { vec![1, 17, 64, 100, 128, 256, 1024] } {
        for element in [Element::F16, Element::Bf16] {
            for config in [STATIC, DYNAMIC, WIDE] {
                block(SEQUENCES, &[("S", tokens)], element, config);
            }
        }
    }
}

#[test]
fn prompts_that_fill_a_cache() {
    for tokens in if quick() { vec![17, 256] } else { vec![1, 17, 64, 100, 128, 256] } {
        for element in [Element::F16, Element::Bf16] {
            for config in [STATIC, DYNAMIC, WIDE] {
                block(CACHED, &[("S", tokens)], element, config);
            }
        }
    }
}

/// An attention with a launch of its own follows no list: sequences that end anywhere in its tiles, and operand rings
/// that wrap several times.
fn alone(element: Element) {
    let Some(gpu) = hopper() else { return };
    let lengths = if quick() {
        vec![64, 65, 200, 1024]
    } else {
        vec![1, 17, 64, 65, 100, 128, 200, 512, 900, 1024, 2048]
    };
    let run = |source: &str, dims: &[(&str, u32)]| {
        let plan = plan(&gpu, source, dims, element, None);
        assert_repeats(&format!("{} alone {dims:?} {element:?}", plan.graph().name), &gpu, &plan);
    };
    for tokens in lengths {
        for (dim, sequences) in [(64, 1), (64, 3), (128, 3)] {
            run(SEQUENCES, &[("B", sequences), ("S", tokens), ("D", dim)]);
            run(CACHED, &[("B", sequences), ("S", tokens), ("C", tokens + 44), ("D", dim)]);
        }
        for name in NAMES {
            run(shipped(name).expect("it ships"), &[("S", tokens), ("E", 1024)]);
        }
    }
}

#[test]
fn attentions_that_have_a_launch_to_themselves_in_f16() {
    alone(Element::F16);
}

#[test]
fn attentions_that_have_a_launch_to_themselves_in_bf16() {
    alone(Element::Bf16);
}

/// Seven stages in one launch, including norms, residuals and an MLP.
#[test]
fn whole_layers_of_prompts() {
    let Some(gpu) = hopper() else { return };
    for name in ["gpt3_prompt_layer", "llama65_prompt_layer", "llama3_70b_prompt_layer"] {
        for tokens in if quick() { vec![17, 512] } else { vec![1, 17, 100, 512, 2048] } {
            let ways = [(Element::F16, STATIC), (Element::Bf16, STATIC), (Element::F16, DYNAMIC)];
            for (element, config) in [&ways[..], &[(Element::F16, WIDE), (Element::Bf16, WIDE)]].concat() {
                let plan = prompt_layer(&gpu, name, tokens, element, config);
                assert_repeats(&format!("{name} S = {tokens} {element:?} {config:?}"), &gpu, &plan);
            }
        }
    }
}

#[test]
fn a_thousand_prompts_have_the_same_bits() {
    let Some(gpu) = hopper() else { return };
    for (tokens, overlap, config) in [(100, Overlap::All, STATIC), (256, Overlap::Captured, DYNAMIC)] {
        let plan = plan(&gpu, CACHED, &[("S", tokens), ("C", 300)], Element::F16, config);
        let (inputs, reference) = expected(&gpu, &plan, 2, 8);
        let mut pipeline = pipeline(&gpu, &plan, &inputs, Options { overlap, ..Options::default() });
        let label = format!("{tokens} tokens {config:?}");
        let mut all = || -> cusync::runtime::Result<()> {
            let graph = pipeline.capture(Executor::Fused, &[1, 0, 1, 0])?;
            let mut first = None;
            for round in 0..1000 {
                let look = round % 100 == 99;
                if look {
                    pipeline.poison_outputs()?;
                }
                if round % 5 == 3 {
                    pipeline.run_set(Executor::Fused, 1)?;
                    pipeline.run(Executor::Fused)?;
                } else {
                    pipeline.replay(&graph)?;
                }
                if look {
                    let now = bits(&mut pipeline);
                    assert!(
                        *first.get_or_insert_with(|| now.clone()) == now,
                        "{label}: round {round} differs"
                    );
                }
            }
            assert_right(&label, &reference.compare(&mut pipeline)?);
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}
