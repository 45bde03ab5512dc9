//! Attention of whole sequences in chain kernels on a GPU: blocks are right to 2e-3 for sequences of any length, causal and full,
//! and the same bits in every run, eager and replayed.

use crate::common::{assert_right, pipeline, plan_of, quick};
use crate::fused::{DYNAMIC, STATIC, UNCUT, expected, hopper};
use crate::fused_runs::bits;
use cusync::runtime::{ChainOverride, Options, Overlap, Overrides, Pipeline, shipped};
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

/// Queries and keys are rotated, and keys and values fill the first rows of a cache that has room for more.
const CACHED: &str = r#"Pipeline(
    name: "cached",
    dims: { "B": 3, "S": 128, "C": 300, "E": 512, "HQ": 8, "HKV": 2, "D": 128 },
    stages: [
        Gemm(name: "qkv", a: "X(B*S,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B*S,(HQ+2*HKV)*D)"),
        Attention(
            name: "attend", qkv: "QKV(B*S,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "B", rotary: "cs(C,D)",
            cache: Cache(keys: "K(B,HKV,C,D)", values: "V(B,HKV,C,D)"), out: "A(B*S,HQ*D)",
        ),
        Gemm(name: "project", a: "A(B*S,HQ*D)", b: "Wo(HQ*D,E)", out: "Z(B*S,E)"),
    ],
)"#;

/// A tensor's values.
fn values(pipeline: &Pipeline, name: &str) -> Vec<f32> {
    let memory = pipeline.tensor(0, name).expect("a tensor");
    let mut bits = vec![0; memory.len()];
    memory.download(&mut bits).expect("the copy succeeds");
    let widen = |bits: u16| match pipeline.plan().graph().element {
        Element::F16 => half::f16::from_bits(bits).to_f32(),
        Element::Bf16 => half::bf16::from_bits(bits).to_f32(),
    };
    bits.into_iter().map(widen).collect()
}

/// The first rows of the caches are the keys, rotated, and the values of what QKV has, to a rounding.
fn assert_filled(label: &str, pipeline: &Pipeline, tokens: usize) {
    let (sequences, capacity, heads, kv, dim) = (3, 300, 8, 2, 128);
    let [qkv, table, keys, cached] = ["QKV", "cs", "K", "V"].map(|name| values(pipeline, name));
    let spacing = match pipeline.plan().graph().element {
        Element::F16 => 2f32.powi(-11),
        Element::Bf16 => 2f32.powi(-8),
    };
    for (b, head, t) in (0..sequences * kv * tokens).map(|i| (i / tokens / kv, i / tokens % kv, i % tokens)) {
        let row = ((b * kv + head) * capacity + t) * dim;
        let column = |first: usize| ((b * tokens + t) * (heads + 2 * kv) + first + head) * dim;
        let (k, v) = (&qkv[column(heads)..][..dim], &qkv[column(heads + kv)..][..dim]);
        let (cosines, sines) = table[t * dim..][..dim].split_at(dim / 2);
        assert_eq!(cached[row..row + dim], *v, "{label}: value {t} of head {head} of sequence {b}");
        for (i, (c, s)) in cosines.iter().zip(sines).enumerate() {
            let (x, y) = (k[i], k[i + dim / 2]);
            for (want, at) in [(x * c - y * s, i), (x * s + y * c, i + dim / 2)] {
                let off = (keys[row + at] - want).abs();
                let bound = 1.01 * spacing * want.abs() + 1e-6 * (x.abs() + y.abs());
                assert!(off <= bound, "{label}: key {t}, column {at}: {} for {want}", keys[row + at]);
            }
        }
    }
}

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
            if let Some((_, tokens)) = dims.iter().find(|_| plan.graph().name == "cached") {
                assert_filled(&label, &pipeline, *tokens as usize);
            }
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

#[test]
fn prompts_that_fill_a_cache() {
    for tokens in if quick() { vec![17, 256] } else { vec![1, 17, 100, 128, 256] } {
        for element in [Element::F16, Element::Bf16] {
            for way in [STATIC, DYNAMIC] {
                assert_repeats(CACHED, &[("S", tokens)], element, way);
            }
        }
    }
}
