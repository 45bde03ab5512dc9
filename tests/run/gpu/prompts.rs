//! Attention of whole sequences in chain kernels on a GPU: blocks are right to 2e-3 for sequences of any length, causal and full,
//! and the same bits in every run, eager and replayed.

use crate::common::{assert_right, pipeline, plan_of, quick};
use crate::fused::{DYNAMIC, STATIC, UNCUT, expected, hopper};
use crate::fused_runs::bits;
use cusync::runtime::{ChainOverride, Options, Overlap, Overrides, shipped};
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

const NAMES: [&str; 3] = ["gpt3_attention", "llama65_attention", "llama3_70b_attention"];

/// Sequences of one tile and of several, groups of four heads of 64 columns that see all of their sequence.
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

/// A plan with every kind of edge between runs, eager and as a graph, on poisoned outputs.
fn assert_repeats(source: &str, dims: &[(&str, u32)], element: Element, way: ChainOverride) {
    let Some(gpu) = hopper() else { return };
    let overrides = Overrides {
        dims: dims.iter().map(|(name, size)| ((*name).into(), (*size).into())).collect(),
        element: Some(element),
        chain: Some(way),
        ..Overrides::default()
    };
    let plan = plan_of(&gpu, source, &overrides, Executor::Fused);
    let (inputs, reference) = expected(&gpu, &plan, 1, 7);
    let mut first = None;
    for overlap in [Overlap::Plain, Overlap::All] {
        let label = format!("{} {dims:?} {element:?} {way:?} {overlap:?}", plan.graph().name);
        let mut pipeline = pipeline(&gpu, &plan, &inputs, Options { overlap, ..Options::default() });
        let mut all = || -> cusync::runtime::Result<()> {
            let graph = pipeline.capture(Executor::Fused, &[0, 0, 0])?;
            for repeat in 0..4 {
                pipeline.poison_outputs()?;
                if repeat % 2 == 0 {
                    pipeline.run(Executor::Fused)?
                } else {
                    pipeline.replay(&graph)?
                }
                let now = bits(&mut pipeline);
                assert!(*first.get_or_insert_with(|| now.clone()) == now, "{label}: run {repeat} differs");
            }
            assert_right(&label, &reference.compare(&mut pipeline)?);
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}

fn shipped_blocks(element: Element) {
    for name in NAMES {
        let source = shipped(name).expect("it ships");
        for tokens in if quick() { vec![100, 512] } else { vec![1, 17, 100, 512, 777, 2048] } {
            for way in [STATIC, UNCUT, DYNAMIC] {
                assert_repeats(source, &[("S", tokens), ("E", 1024)], element, way);
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
    for tokens in if quick() { vec![17, 256] } else { vec![1, 17, 100, 128, 256, 1024] } {
        for element in [Element::F16, Element::Bf16] {
            for way in [STATIC, DYNAMIC] {
                assert_repeats(SEQUENCES, &[("S", tokens)], element, way);
            }
        }
    }
}
